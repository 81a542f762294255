"""Fits a DataFrame of a user's own asset to the table that it is written to, or refuses it before anything is written."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from incremental_assets.core.errors import ConfigurationError, FrameRefused
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.own_rows import PartitionExpr
from incremental_assets.core.schema import Column, widens
from incremental_assets.core.shown_text import counted
from incremental_assets.core.spark_types import UnknownType, type_text
from incremental_assets.delta.errors import first_line
from incremental_assets.delta.guards import expr
from incremental_assets.delta.merge import key_bounds
from incremental_assets.delta.sql import key_text, partition_value
from incremental_assets.delta.table import Head
from incremental_assets.spark.exceptions import spark_exception

if TYPE_CHECKING:
    from pyspark.sql.dataframe import DataFrame

_VOID = "void"
"""Spark's type of a column that is NULL in every row, and of which nothing else is known."""
_INSTANT, _OF_TIME = re.compile("timestamp(?!_ntz)"), re.compile("time|current|now", re.IGNORECASE)
"""Types whose values are instants, and expressions that may convert others to instants."""
_UTC = frozenset(("UTC", "ETC/UTC", "GMT", "Z", "+00:00"))


@dataclass(frozen=True)
class FittedFrame:
    """A DataFrame whose columns have the names and types of the table, as far as it has them.

    ``columns``: those of the DataFrame. ``new``: those of them that the table does not have yet.
    """

    label: str
    frame: "DataFrame"
    columns: tuple[Column, ...]
    new: tuple[Column, ...]

    @property
    def types(self) -> dict[str, str]:
        """The type of each column by its name."""
        return {column.name: column.type for column in self.columns}


def fit(label: str, frame: "DataFrame", head: Head | None) -> FittedFrame:
    """Gives the DataFrame the names and types of the table's columns. ``head``: None if nothing in the table is to be kept.

    Raises FrameRefused if a type of the DataFrame does not go into the table's type without loss, or if a column occurs twice.
    """
    given = _columns(label, frame)
    there = {column.name.lower(): column for column in head.columns} if head is not None else {}
    fitted: list[Column] = []
    chosen: list[str] = []
    for column in given:
        kept = there.get(column.name.lower(), column)
        if kept.type == _VOID:
            raise FrameRefused(
                f"{label}: column {column.name!r} is NULL in every row and has no type; nothing was written. Give it one: "
                f"cast(NULL AS string), or a type in the schema."
            )
        if not (kept.type == column.type or column.type == _VOID or widens(column.type, kept.type)):
            raise FrameRefused(
                f"{label}: column {column.name!r} is {column.type} in the rows that the asset returned, and {kept.type} in its table; "
                f"nothing was written. Cast it to {kept.type}, or give it another name."
            )
        fitted.append(kept)
        same = kept == column
        chosen.append(quote(column.name) if same else f"cast({quote(column.name)} AS {kept.type}) AS {quote(kept.name)}")
    if tuple(fitted) != given:
        frame = frame.selectExpr(*chosen)
    return FittedFrame(label, frame, tuple(fitted), tuple(column for column in fitted if column.name.lower() not in there))


def _columns(label: str, frame: "DataFrame") -> tuple[Column, ...]:
    columns: list[Column] = []
    for field in frame.schema.fields:
        try:
            columns.append(Column(field.name, type_text(field.dataType.jsonValue())))
        except UnknownType as error:
            raise FrameRefused(
                f"{label}: column {field.name!r} is {error}, which a Delta table cannot hold; nothing was written. Cast it to another type."
            ) from error
    names = [column.name.lower() for column in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FrameRefused(f"{label}: the asset returned two columns called {twice[0]!r}; nothing was written. Rename or drop one of them.")
    if not columns:
        raise FrameRefused(f"{label}: the asset returned rows without any column; nothing was written.")
    return tuple(columns)


def expr_types(label: str, frame: "DataFrame", exprs: Sequence[PartitionExpr]) -> dict[PartitionExpr, str]:
    """The Spark type of each expression over the rows of the frame.

    Raises ConfigurationError if Spark cannot parse it, cannot evaluate it for a single row, as with an aggregate, or may find another value
    at each evaluation, as with a random number or another time zone of the session.
    """
    from pyspark.sql.connect import functions

    _expect_utc(label, frame, exprs)
    found: dict[PartitionExpr, str] = {}
    for one in exprs:
        try:
            if one.is_column:
                field = frame.schema[one.text]
            else:
                column = expr(one.text)
                # A condition may have no aggregates, window functions and generators, and the argument of an aggregate no values that
                # differ from one evaluation to the next: so Spark refuses them here.
                (field,) = frame.where(column.isNotNull()).agg(functions.first(column)).schema.fields
            found[one] = type_text(field.dataType.jsonValue())
        except (spark_exception(), UnknownType) as error:
            raise ConfigurationError(
                f"{label}: Spark cannot evaluate partition_expr {one.text!r} for each row: {first_line(str(error))} Write the name of a "
                f"column, or an expression of the columns {', '.join(frame.columns)}."
            ) from error
    return found


def _expect_utc(label: str, frame: "DataFrame", exprs: Sequence[PartitionExpr]) -> None:
    """Raises ConfigurationError if an expression may depend on the time zone of the frame's session, and that is not UTC.

    An asset may set the zone of its session, in which Spark evaluates its rows as they are written. Those who read the partitions, and the
    counts of their rows, have sessions of their own, to which the same rows would be of other days.
    """
    texts = [one.text for one in exprs if not one.is_column]
    has_instants = any(_INSTANT.search(type_) for _, type_ in frame.dtypes) if texts else False
    depending = [text for text in texts if has_instants or _OF_TIME.search(text)]
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone") if depending else None
    if zone is not None and zone.upper() not in _UTC:
        raise ConfigurationError(
            f"{label}: spark.sql.session.timeZone is {zone}, and partition_expr {depending[0]!r} may mean other rows in each time zone; "
            f"nothing was written or read. Leave the session in UTC, and convert times where they are needed: from_utc_timestamp(at, "
            f"'{zone}'), in partition_expr too."
        )


@dataclass(frozen=True)
class Partitioned:
    """Which rows the run may write. ``predicate``: the condition for them. ``exprs``: what it is about. ``words``: the partitions in
    words."""

    predicate: str
    exprs: tuple[PartitionExpr, ...]
    words: str


def outside(fitted: FittedFrame, partitioned: Partitioned, rows: "DataFrame") -> FrameRefused | None:
    """The error if some of the ``rows``, which are those of ``fitted``, are outside of the partitions; else None."""
    is_outside = f"NOT coalesce({partitioned.predicate}, false)"
    total, found = rows.selectExpr("count(*)", f"count(CASE WHEN {is_outside} THEN 1 END)").collect()[0]
    if not found:
        return None
    shown = [f"coalesce(cast({partition_value(expr)} AS string), 'NULL')" for expr in partitioned.exprs]
    example = rows.where(is_outside).selectExpr(*shown).limit(1).collect()[0]
    return refused_outside(
        fitted.label, partitioned, f"{found:,} of the {counted(total, 'row')} that the asset returned are", tuple(example)
    )


def refused_outside(label: str, partitioned: Partitioned, which: str, example: Sequence[str] = ()) -> FrameRefused:
    """The error for rows outside of the partitions. ``which``: says how many; ``example``: the values of one of them."""
    such = ", ".join(f"{expr.text} = {value}" for expr, value in zip(partitioned.exprs, example, strict=False))
    return FrameRefused(
        f"{label}: {which} not of the run's partitions ({partitioned.words}){f', such as one with {such}' if such else ''}; nothing was "
        f"written. Return only rows of context.partition_keys, or correct partition_expr."
    )


def expect_keys(fitted: FittedFrame, keys: Sequence[str], rows: "DataFrame") -> Sequence[tuple[str, str] | None]:
    """Raises FrameRefused if a key is NULL in some of the ``rows``, or if two of them have the same keys.

    Returns the bounds of each key's values, or None for a key whose bounds are not known.
    """
    label, types = fitted.label, fitted.types
    measures = [f"count(CASE WHEN {quote(key)} IS NULL THEN 1 END)" for key in keys]
    texts = [key_text("{}", types[key]) for key in keys]
    ends = [text.format(f"{end}({quote(key)})") for key, text in zip(keys, texts, strict=True) for end in ("min", "max")]
    found = rows.selectExpr(*measures, *ends).collect()[0]
    for key, nulls in zip(keys, found, strict=False):
        if nulls:
            raise FrameRefused(
                f"{label}: the merge key {key!r} is NULL in {nulls:,} of the rows that the asset returned; nothing was written. A NULL is "
                f"equal to no other one, so each merge would add these rows again. Leave them out, or give them a key."
            )
    names = [quote(key) for key in keys]
    twice = rows.selectExpr(*names).groupBy(*names).count().where("count > 1")
    examples = twice.selectExpr(*(f"cast({name} AS string)" for name in names), "count", "count(*) OVER ()").limit(1).collect()
    if examples:
        *values, times, total = examples[0]
        such = ", ".join(f"{key} = {value}" for key, value in zip(keys, values, strict=True))
        raise FrameRefused(
            f"{label}: {total:,} of the merge keys occur more than once in the rows that the asset returned, such as {such} "
            f"({counted(times, 'row')}); nothing was written. Keep one row of each key, or name more columns in merge_keys."
        )
    pairs = [found[at : at + 2] for at in range(len(keys), len(found), 2)]
    return [key_bounds(pair, types[key]) for pair, key in zip(pairs, keys, strict=True)]
