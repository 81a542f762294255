"""The ladder by which the type of an inferred column widens where a later file has values of another form.

Each rung represents every value of the rungs below it exactly:

- a whole number → a decimal of enough digits for it and for the new numbers (at most 38) → text
- a date → a time without zone → text
- true or false, a float or a double, a time with or without zone → text

A whole number never becomes a double, which is exact for 15 digits only. What the YAML declares is no inferred column, and stays.
"""

import re
from dataclasses import dataclass

TEXT = "string"
MOST_DIGITS = 38
"""The most digits of a decimal."""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_DIGITS_BEFORE = {"smallint": 10, "int": 10, "bigint": 20}
"""How many digits before the point a decimal must have, so that Delta's type widening can make it of a whole number."""
_OTHERS = ("boolean", "float", "double", "date", "timestamp_ntz", "timestamp")


@dataclass(frozen=True)
class Texts:
    """What is known of the texts of one column in the files that are read.

    ``misfits``: how many are no value of the column's type. ``numbers``: whether all of them are numbers in plain digits; ``before`` and
    ``after``: the most digits that these have before and after the point, without zeros that say nothing. ``times``: whether all of them
    are dates or times without zone.
    """

    misfits: int
    numbers: bool = False
    before: int = 0
    after: int = 0
    times: bool = False


def is_on_ladder(type_: str) -> bool:
    """Whether columns of this type widen."""
    return type_ in _DIGITS_BEFORE or type_ in _OTHERS or _DECIMAL.fullmatch(type_) is not None


def next_type(type_: str, texts: Texts) -> str:
    """The lowest rung from the type upwards that represents all texts."""
    if not texts.misfits:
        return type_
    decimal = _DECIMAL.fullmatch(type_)
    if texts.numbers and (decimal is not None or type_ in _DIGITS_BEFORE):
        before, after = (int(decimal[1]) - int(decimal[2]), int(decimal[2])) if decimal is not None else (_DIGITS_BEFORE[type_], 0)
        before, after = max(before, texts.before), max(after, texts.after)
        if before + after <= MOST_DIGITS and f"decimal({before + after},{after})" != type_:
            return f"decimal({before + after},{after})"
    if type_ == "date" and texts.times:
        return "timestamp_ntz"
    return TEXT
