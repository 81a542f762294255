"""The encoding of names of datastores and containers for asset keys and paths: readable, reversible, and only ``[A-Za-z0-9_]``."""

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
"""The longest name of a file or folder that the usual file systems accept, in bytes. Encoded names are ASCII: a character is a byte."""
_KEPT, _TRUNCATED = 180, "_U110000_"


def canonical_name(name: str) -> str:
    """The name of the lake's column that has the canonical form of a key's column."""
    return f"_key_{name}"


@lru_cache(maxsize=65536)  # a project with many tables encodes the same names again and again
def encode_name(name: str) -> str:
    """Encodes a name: ``order items`` → ``order_U20_items``. Every other character becomes ``_U<hexadecimal code point>_``.

    ``decode_name`` reverses it. A result of more than 255 characters is cut to whole characters of the name, followed by ``_U110000_`` and
    128 bits of its SHA-256. No name contains that mark, as U+110000 is above the highest code point.
    """
    pieces: list[str] = []
    # An underscore that would look like the beginning of an escape is itself escaped; otherwise two names could have the same encoding.
    for position, character in enumerate(name):
        plain = _ALLOWED.fullmatch(character) and not _LOOKS_ESCAPED.match(name, position)
        pieces.append(character if plain else f"_U{ord(character):X}_")
    encoded = "".join(pieces)
    if len(encoded) <= LONGEST:
        return encoded
    kept = [piece for piece, length in zip(pieces, accumulate(map(len, pieces)), strict=True) if length <= _KEPT]
    return f"{''.join(kept)}{_TRUNCATED}{_digest(encoded)}"


def file_name(parts: Iterable[str], ending: str) -> str:
    """Joins encoded names with ``__`` to a file name; one that would be too long is cut and gets a hash, as in ``encode_name``."""
    joined = "__".join(parts)
    return (joined if len(joined) + len(ending) <= LONGEST else f"{joined[:_KEPT]}{_TRUNCATED}{_digest(joined)}") + ending


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def decode_name(encoded: str) -> str:
    """The name that ``encode_name`` encoded; if the encoding was cut, the part of the name that is left."""
    encoded = encoded.partition(_TRUNCATED)[0]
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), encoded)


def nearest(name: str, known: Iterable[str], *, count: int = 3) -> str:
    """A text that ends a message about an unknown name: `` Nearest: orders, order_lines.``

    If no known name is similar, it lists up to eight of them (`` Known: …``); if there are none, it is empty. Case is ignored.
    """
    lowered = {candidate.lower(): candidate for candidate in known}
    found = [lowered[match] for match in difflib.get_close_matches(name.lower(), list(lowered), n=count, cutoff=0.5)]
    return f" Nearest: {', '.join(found)}." if found else (f" Known: {', '.join(sorted(lowered.values())[:8])}." if lowered else "")


def literal(value: str) -> str:
    """The text as a string constant of Spark SQL, in which a backslash is an escape character."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def backticked(name: str) -> str:
    """The name as a quoted identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"
