"""The common shape of texts as a regular expression: what is constant in all of them, and where there are how many letters or digits."""

import re
from collections.abc import Sequence
from itertools import groupby

LEAST_TEXTS = 4
"""Fewer different texts than this give no pattern."""
MOST_RUNS = 9
"""Texts with more runs of characters than this give no pattern."""
_KINDS = {"9": "[0-9]", "a": "[a-z]", "A": "[A-Z]"}
_KNOWN = (
    *(rf"^[0-9{letters}]{{8}}(-[0-9{letters}]{{4}}){{3}}-[0-9{letters}]{{12}}$" for letters in ("a-f", "A-F")),
    *(rf"^[0-9a-f]{{{length}}}$" for length in (32, 40, 64)),
)
"""Patterns of UUIDs and of hexadecimal digests (of 128, 160 and 256 bits)."""


def common_pattern(texts: Sequence[str]) -> str | None:
    """Return a pattern that matches each of the texts from end to end; None if they have no simple common shape.

    The pattern is valid in Java and in Python. A pattern needs at least one constant part or one constant length.
    """
    texts = list(dict.fromkeys(texts))
    if len(texts) < LEAST_TEXTS or not all(texts):
        return None
    for known in _KNOWN:
        if all(re.fullmatch(known, one) for one in texts):
            return known
    rows = [_runs(one) for one in texts]
    kinds = [[kind for kind, _ in row] for row in rows]
    if any(one != kinds[0] for one in kinds) or len(kinds[0]) > MOST_RUNS:
        return None
    parts: list[str] = []
    fixed = False
    for position, kind in enumerate(kinds[0]):
        found = {row[position][1] for row in rows}
        if len(found) == 1 and kind != "9":
            parts.append(_escaped(found.pop()))
            fixed = True
        elif kind not in _KINDS:
            parts.append(f"{_escaped(kind)}+")
            fixed = True
        else:
            lengths = {len(one) for one in found}
            fixed = fixed or len(lengths) == 1
            parts.append(_KINDS[kind] + (_times(lengths.pop()) if len(lengths) == 1 else "+"))
    return f"^{''.join(parts)}$" if fixed else None


def _escaped(text: str) -> str:
    """Escape the special characters of a pattern, and no others: Java and Python do not agree on what else may be escaped."""
    return re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", text)


def _times(count: int) -> str:
    return f"{{{count}}}" if count > 1 else ""


def _runs(text: str) -> list[tuple[str, str]]:
    """Split a text where the kind of character changes.

    The kinds are digits, lower-case letters and capitals, all of them ASCII; any other character is a kind by itself.
    """
    return [(kind, "".join(run)) for kind, run in groupby(text, _kind)]


def _kind(character: str) -> str:
    if not character.isascii():
        return character
    return "9" if character.isdigit() else "a" if character.islower() else "A" if character.isupper() else character
