"""Schema evolution: the columns of a Delta table, and how the table follows changes of its source's columns."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from incremental_assets.core.errors import RebuildNeeded
from incremental_assets.core.ladder import TEXT
from incremental_assets.core.nested_types import added_fields, grown, only_adds_fields
from incremental_assets.core.spark_types import names_within

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
# Only the order of the numbers counts: an integer type can be widened to one with a higher number.
_INTEGER_DIGITS = {"smallint": 5, "int": 10, "bigint": 20}
# What Delta does not accept in a column's name unless column mapping is on, because the names of Parquet columns cannot have it.
_NEEDS_MAPPING = set(" ,;{}()\n\t=")


@dataclass(frozen=True)
class Column:
    """A column of a Delta table. ``type`` is text as ``core.spark_types`` writes it: ``bigint``, ``decimal(12,2)``, ``struct<`a`:int>``.

    ``comment``: the column's comment in the table; None: it has none. Columns that differ only in it are equal, as no row differs by it.
    """

    name: str
    type: str
    comment: str | None = field(default=None, compare=False)


def with_comments(columns: Sequence[Column], comments: Mapping[str, str]) -> tuple[Column, ...]:
    """The columns with these comments (``Container.comments``). One that is not named there keeps its own."""
    return tuple(replace(column, comment=comments.get(column.name.lower(), column.comment) or None) for column in columns)


def mapped_names(columns: Sequence[Column]) -> list[str]:
    """The names of those of these columns that need Delta's column mapping, for their own name or that of a part."""
    return [column.name for column in columns if any(_NEEDS_MAPPING & set(name) for name in (column.name, *names_within(column.type)))]


def said_of_mapped(names: Sequence[str]) -> str:
    """What to say where the names of columns need column mapping."""
    return (
        f"names of columns have a blank, or one of ,;{{}}()= ({', '.join(names)}), for which the table has Delta's column mapping: Spark "
        f"reads it, pandas finds no values in it, and show, polars and DuckDB refuse it. exclude_columns leaves such columns out; a view "
        f"of the source can give them other names"
    )


@dataclass(frozen=True)
class Evolution:
    """The changes that a Delta table needs before rows with the wanted columns can be written. It is true if there are any.

    ``add``: columns to add. ``widen``: columns to widen, each as it is and as it will be. ``grow``: likewise, columns whose structs get
    further fields. ``rewrite``: likewise, columns that become text, or a nested type of wider parts, for which the table has to be
    rewritten. ``dropped``: columns that the source no longer has; they stay in the table and are NULL in rows written from now on.
    ``mapped``: the names of columns for which the table has column mapping, where it had none before.
    """

    add: tuple[Column, ...] = ()
    widen: tuple[tuple[Column, Column], ...] = ()
    dropped: tuple[Column, ...] = ()
    grow: tuple[tuple[Column, Column], ...] = ()
    rewrite: tuple[tuple[Column, Column], ...] = ()
    mapped: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.add or self.widen or self.grow or self.rewrite)

    def messages(self) -> list[str]:
        """What has changed in the table, in words."""
        found = [f"column {column.name} ({column.type}) was added" for column in self.add]
        found += [f"column {new.name} was widened from {old.type} to {new.type}" for old, new in self.widen]
        for old, new in self.grow:
            for part in added_fields(new.name, old.type, new.type):
                found.append(f"field {part.sql_name} ({part.type}) was added")
        for old, new in self.rewrite:
            found.append(f"column {new.name} was {old.type} and is {new.type} now, for which the table was rewritten; no value was lost")
        if self.widen:
            found.append("readers of the table now need Delta's type widening, which delta-rs does not have")
        if self.mapped:
            found.append(said_of_mapped(self.mapped))
        if self.dropped:
            found.append(f"no longer in the source, NULL from now on: {', '.join(column.name for column in self.dropped)}")
        return found


def widens(old: str, new: str) -> bool:
    """Whether Delta's type widening can change the type ``old`` to ``new``, and ``new`` represents every value of ``old`` exactly."""
    if old in _INTEGER_DIGITS and new in _INTEGER_DIGITS:
        return _INTEGER_DIGITS[old] < _INTEGER_DIGITS[new]
    if (old, new) == ("float", "double") or (old in ("smallint", "int") and new == "double") or (old, new) == ("date", "timestamp_ntz"):
        return True
    new_decimal = _DECIMAL.fullmatch(new)
    if new_decimal is None:
        return False
    precision, scale = int(new_decimal[1]), int(new_decimal[2])
    # Delta widens an integer to a decimal only if that has every value of the type: 10 digits before the point up to int, else 20.
    if old in _INTEGER_DIGITS:
        return precision - scale >= (20 if old == "bigint" else 10)
    old_decimal = _DECIMAL.fullmatch(old)
    if old_decimal is None:
        return False
    old_precision, old_scale = int(old_decimal[1]), int(old_decimal[2])
    return (precision, scale) != (old_precision, old_scale) and scale >= old_scale and precision - scale >= old_precision - old_scale


def plan_evolution(container: str, lake: Sequence[Column], wanted: Sequence[Column], rewritten: Collection[str] = ()) -> Evolution:
    """Plans how the columns of the Delta table (``lake``) become the wanted ones; names are compared without case, as Delta does.

    ``container`` is the label for the message. ``rewritten``: the names of columns for which the table may be rewritten. Raises
    RebuildNeeded if the new type cannot represent the old values exactly.
    """
    present = {column.name.lower(): column for column in lake}
    add: list[Column] = []
    widen: list[tuple[Column, Column]] = []
    grow: list[tuple[Column, Column]] = []
    rewrite: list[tuple[Column, Column]] = []
    for column in wanted:
        old = present.get(column.name.lower())
        if old is None:
            add.append(column)
        elif old.type != column.type:
            if widens(old.type, column.type):
                widen.append((old, column))
            elif column.name in rewritten and column.type == TEXT:
                rewrite.append((old, column))
            elif column.name in rewritten and grown(old.type, column.type, widens) == column.type:
                if added_fields(old.name, old.type, column.type):
                    grow.append((old, column))
                if not only_adds_fields(old.type, column.type):
                    rewrite.append((old, column))
            elif not widens(column.type, old.type):  # if the source's type was narrowed, the wider column of the table takes its values
                raise RebuildNeeded(
                    f"{container}: column {column.name!r} is {old.type} in the lake and {column.type} in the source, and the one does not "
                    f"widen into the other; nothing was written. To rebuild the table: "
                    f"incremental-assets sync {container} --reset-watermarks"
                )
    names = {column.name.lower() for column in wanted}
    dropped = tuple(column for column in lake if column.name.lower() not in names)
    return Evolution(tuple(add), tuple(widen), dropped, tuple(grow), tuple(rewrite))
