"""Names of datastores and containers as parts of asset keys and paths: readable, reversible, and made of ``[A-Za-z0-9_]`` only.

Belongs here: the encoding, and finding the nearest names for a message. Does not belong: predicates.
"""

import difflib
import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate

_ESCAPED = re.compile(r"_U([0-9A-F]+)_")
_ALLOWED = re.compile(r"[A-Za-z0-9_]")
_LOOKS_ESCAPED = re.compile(r"_U[0-9A-F]")
LONGEST = 255
"""Bytes of a file's or folder's name on the usual file systems."""
_KEPT, _CUT = 180, "_U110000_"


@lru_cache(maxsize=65536)  # a project of many tables asks for the same names over and over
def encode_name(name: str) -> str:
    """``order items`` → ``order_U20_items``: each other character becomes ``_U<hex code point>_``; ``decode_name`` reverses it.

    What would be longer than a folder's name can be is cut, and ends in a mark that no name has (there is no such code point) and a hash.
    """
    pieces: list[str] = []
    for position, character in enumerate(name):
        plain = _ALLOWED.fullmatch(character) and not _LOOKS_ESCAPED.match(name, position)
        pieces.append(character if plain else f"_U{ord(character):X}_")
    encoded = "".join(pieces)
    if len(encoded) <= LONGEST:
        return encoded
    kept = [piece for piece, length in zip(pieces, accumulate(map(len, pieces)), strict=True) if length <= _KEPT]
    return f"{''.join(kept)}{_CUT}{_digest(encoded)}"


def file_name(parts: Iterable[str], ending: str) -> str:
    """A file's name made of encoded names, as long as it may be."""
    joined = "__".join(parts)
    return (joined if len(joined) + len(ending) <= LONGEST else f"{joined[:_KEPT]}{_CUT}{_digest(joined)}") + ending


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def decode_name(encoded: str) -> str:
    """The name that ``encode_name`` made ``encoded`` from; of one that was cut what is left of it."""
    encoded = encoded.partition(_CUT)[0]
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), encoded)


def nearest(name: str, known: Iterable[str], *, count: int = 3) -> str:
    """Ends a message about an unknown name: `` Nearest: orders, order_lines.`` or an empty text when nothing is near."""
    lowered = {candidate.lower(): candidate for candidate in known}
    found = [lowered[match] for match in difflib.get_close_matches(name.lower(), list(lowered), n=count, cutoff=0.5)]
    return f" Nearest: {', '.join(found)}." if found else (f" Known: {', '.join(sorted(lowered.values())[:8])}." if lowered else "")


def literal(value: str) -> str:
    """A string constant of Spark SQL, which honours backslashes."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def backticked(name: str) -> str:
    """A name as Spark SQL quotes it."""
    return "`" + name.replace("`", "``") + "`"
