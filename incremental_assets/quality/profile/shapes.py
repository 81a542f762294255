"""The shape that texts have in common, as a regular expression: what is fixed in all of them, and how many letters or digits where.

Belongs here: from some texts to a pattern that all of them match. Does not belong: whether others match it (``suggest`` asks the rows).
"""

import re
from collections.abc import Sequence
from itertools import groupby

LEAST_TEXTS = 4
"""From fewer different texts nothing is concluded."""
MOST_RUNS = 9
_KINDS = {"9": "[0-9]", "a": "[a-z]", "A": "[A-Z]"}
_KNOWN = (
    *(rf"^[0-9{letters}]{{8}}(-[0-9{letters}]{{4}}){{3}}-[0-9{letters}]{{12}}$" for letters in ("a-f", "A-F")),
    *(rf"^[0-9a-f]{{{length}}}$" for length in (32, 40, 64)),
)
"""UUIDs and digests."""


def common_pattern(texts: Sequence[str]) -> str | None:
    """One that each of the texts matches from end to end, in Java's words and Python's; None where they have no simple shape in common."""
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
    """Java and Python do not agree on what else may be escaped."""
    return re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", text)


def _times(count: int) -> str:
    return f"{{{count}}}" if count > 1 else ""


def _runs(text: str) -> list[tuple[str, str]]:
    """Cut where the kind of character changes: digits, small letters, capitals; any other is a kind of its own."""
    return [(kind, "".join(run)) for kind, run in groupby(text, _kind)]


def _kind(character: str) -> str:
    if not character.isascii():
        return character
    return "9" if character.isdigit() else "a" if character.islower() else "A" if character.isupper() else character
