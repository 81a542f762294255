"""A table's columns as the lake carries them, and how a table may follow its source's columns.

Belongs here: lake column types, what widens into what, the plan of an evolution. Does not belong: mapping a database's types (sources),
or the ALTER statements (lake).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from incremental_assets.core.errors import RebuildNeeded

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_INTEGER_DIGITS = {"smallint": 5, "int": 10, "bigint": 20}


@dataclass(frozen=True)
class Column:
    """A column of a lake table; ``type`` as ``spark_types`` writes it: ``bigint``, ``decimal(12,2)``, ``struct<`a`:int>``."""

    name: str
    type: str


@dataclass(frozen=True)
class Evolution:
    """What has to happen to a lake table before rows of the wanted columns can be written."""

    add: tuple[Column, ...] = ()
    widen: tuple[tuple[Column, Column], ...] = ()  # (as it is, as it will be)
    dropped: tuple[Column, ...] = ()  # gone from the source; stay in the lake, NULL from now on

    def __bool__(self) -> bool:
        return bool(self.add or self.widen)


def widens(old: str, new: str) -> bool:
    """Whether Delta's type widening carries every value of ``old`` exactly in ``new``."""
    if old in _INTEGER_DIGITS and new in _INTEGER_DIGITS:
        return _INTEGER_DIGITS[old] < _INTEGER_DIGITS[new]
    if (old, new) == ("float", "double") or (old in ("smallint", "int") and new == "double") or (old, new) == ("date", "timestamp_ntz"):
        return True
    new_decimal = _DECIMAL.fullmatch(new)
    if new_decimal is None:
        return False
    precision, scale = int(new_decimal[1]), int(new_decimal[2])
    if old in _INTEGER_DIGITS:  # Delta asks for room for every value of the type
        return precision - scale >= (20 if old == "bigint" else 10)
    old_decimal = _DECIMAL.fullmatch(old)
    if old_decimal is None:
        return False
    old_precision, old_scale = int(old_decimal[1]), int(old_decimal[2])
    return (precision, scale) != (old_precision, old_scale) and scale >= old_scale and precision - scale >= old_precision - old_scale


def plan_evolution(container: str, lake: Sequence[Column], wanted: Sequence[Column]) -> Evolution:
    """How the lake's columns become the wanted ones. Raises RebuildNeeded for a change that cannot carry the old values exactly."""
    present = {column.name.lower(): column for column in lake}
    add: list[Column] = []
    widen: list[tuple[Column, Column]] = []
    for column in wanted:
        old = present.get(column.name.lower())
        if old is None:
            add.append(column)
        elif old.type != column.type:
            if widens(old.type, column.type):
                widen.append((old, column))
            elif not widens(column.type, old.type):  # a wider lake column carries a narrowed source as it is
                raise RebuildNeeded(
                    f"{container}: column {column.name!r} is {old.type} in the lake and {column.type} in the source, and the one does not "
                    f"widen into the other; nothing was written. To rebuild the table: "
                    f"incremental-assets sync {container} --reset-watermarks"
                )
    names = {column.name.lower() for column in wanted}
    return Evolution(tuple(add), tuple(widen), tuple(column for column in lake if column.name.lower() not in names))
