"""Combines what the catalog operation found with what the YAML says to a ``Container``, and checks that they fit.

A container that ``resolve`` returns needs no further checks by its users.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from incremental_assets.core.capture import Capture
from incremental_assets.core.container import (
    Container,
    ContainerOptions,
    Heirs,
    HoldBack,
    Identifier,
    Inherited,
    Kind,
    Partitioning,
    RowSecurity,
    SourceColumn,
    SourceTable,
)
from incremental_assets.core.cursor_type import CursorType, parse_value
from incremental_assets.core.deletes import MARK, Deletes
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.grammar import IncrementalSpec, Strategy
from incremental_assets.core.identifier_types import identifier_cursor_type
from incremental_assets.core.lag import SafetyLag, safety_lag
from incremental_assets.core.names import nearest
from incremental_assets.core.partition_column import partition_axis
from incremental_assets.core.partitions import Granularity, default_granularity, expect_partition_by, floor_to, next_start

DEFAULT_WIDTH_PARTITIONS = 100
"""The default width of integer partitions divides the first span of a table into about so many partitions, at most."""

CAPTURED_KINDS = (Kind.TABLE, Kind.PARTITIONED)
"""The kinds of containers whose changes are in the log."""
_KINDS_WITH_HEIRS = (Kind.TABLE, Kind.FOREIGN)
"""The kinds of containers from which other tables may inherit. A partitioned table has partitions instead."""


def resolve(
    datastore: str,
    schema: str,
    table: SourceTable,
    spec: IncrementalSpec | None,
    options: ContainerOptions,
    safety_lag_seconds: int | Literal["auto"],
    today: int,
    timezone: str | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Container:
    """Makes the container of a table or view, after checking the YAML against what the catalog found.

    ``spec``: the container's entry under ``incremental:`` (None: it has none and is a snapshot). ``safety_lag_seconds``: the datastore's.
    ``today``: days since 1970-01-01; the calendar of partitions ends there, and that of an empty table begins there. ``timezone``: the
    datastore's; None: it says none. ``left_out``: the columns that the lake cannot have, by name, each with what it is. They are left out,
    unless the YAML names them.

    Raises ConfigurationError, whose message names the container, the word that is wrong, and the nearest correct one.
    """
    label = f"{datastore}/{table.name}"
    names = [c.name for c in table.columns]
    left_out = {name: why for name, why in (left_out or {}).items() if name not in options.exclude_columns}

    def known(columns: Sequence[str], what: str) -> None:
        for name in columns:
            if name not in names:
                raise ConfigurationError(f"{label}: {what}: there is no column {name!r}.{nearest(name, names)}")
            if name in left_out:
                raise ConfigurationError(f"{label}: {what}: column {name!r} is {left_out[name]}.")

    known(options.exclude_columns, "exclude_columns")
    known(options.primary_key, "primary_key")
    known(options.text_columns, "text_columns")
    known(options.binary_columns, "binary_columns")
    columns = tuple(c for c in table.columns if c.name not in options.exclude_columns and c.name not in left_out)
    if not columns and not left_out:
        raise ConfigurationError(f"{label}: exclude_columns leaves no column.")
    identifier, axis, partitioning, strategy = None, None, None, Strategy.SNAPSHOT
    if spec is not None and not spec.excluded:
        known(spec.columns, "incremental")
        for name in spec.columns:
            if name in options.exclude_columns or name in options.text_columns:
                raise ConfigurationError(f"{label}: the identifier {name!r} can be neither excluded nor read as text.")
        identifier = _identifier(label, table, spec)
        strategy = spec.strategy
        axis = partition_axis(label, table, spec, options)
        partition_by = options.partition_by if spec.partition_by is None else spec.partition_by.every
        # The catalog may have measured another column, before the YAML was changed.
        is_measured = table.spanned == (axis.columns if axis is not None else ())
        measured = table if is_measured else replace(table, first=None, last=None, span=None)
        partitioning = _partitioning(label, measured, axis or identifier, partition_by, today)
    elif options.partition_by is not None or (spec is not None and spec.partition_by is not None):
        raise ConfigurationError(
            f"{label}: partition_by needs an incremental identifier; add {schema}.{table.name}:<column>:<type> to incremental."
        )
    if options.every is not None and (identifier is not None or options.capture is Capture.LOG):
        raise ConfigurationError(
            f"{label}: every is for what is read whole each time, and of this only what is new is read. Leave it out; schedule says when."
        )
    key = () if left_out.keys() & key_of(table, options) else key_of(table, options)
    if options.inherited is not None and table.kind not in _KINDS_WITH_HEIRS:
        raise ConfigurationError(
            f"{label}: inherited is about a table that other tables inherit from, and this is a {table.kind.value}. Leave it out."
        )
    if options.capture is Capture.LOG:
        # What the log says has changed is written by key, whatever the identifier is there for: partitions, if there is one.
        strategy = Strategy.UPSERT
        if table.kind not in CAPTURED_KINDS:
            raise ConfigurationError(f"{label}: capture: log follows the log of a table, and this is a {table.kind.value}. Leave it out.")
        if options.deletes is not None:
            raise ConfigurationError(f"{label}: capture: log finds deleted rows by itself. Leave deletes out, or write capture: none.")
        if options.row_security is RowSecurity.ACCEPT:
            raise ConfigurationError(
                f"{label}: the log that capture: log follows tells nothing of rows that row security hides and shows later: they would be "
                f"missing. Leave row_security: accept out, or write capture: none."
            )
        if options.inherited is Inherited.INCLUDE:
            raise ConfigurationError(
                f"{label}: capture: log follows the log of one table, and inherited: include reads several as one. Write inherited: only, "
                f"or capture: none."
            )
        if not key:
            raise ConfigurationError(
                f"{label}: capture: log needs a primary key, and the source declares none. "
                f"Say which columns tell rows apart: containers: {{{table.name}: {{primary_key: [<column>]}}}}"
            )
    if identifier is not None and len(identifier.columns) > 1 and strategy is not Strategy.UPSERT:
        raise ConfigurationError(f"{label}: an identifier of two columns works with upsert only; add strategy: upsert.")
    if options.hold_back is HoldBack.WRITERS and table.kind not in (Kind.TABLE, Kind.PARTITIONED):
        raise ConfigurationError(
            f"{label}: hold_back: writers goes by the locks of those who write to the table, and a {table.kind.value} has none of its own: "
            f"rows committed late would be lost. Leave hold_back out."
        )
    zone = options.timezone or timezone
    lag = (
        SafetyLag(0, False, "it follows the log of its source")
        if options.capture is Capture.LOG
        else safety_lag(
            table,
            identifier,
            strategy,
            options,
            safety_lag_seconds,
            zone_is_said=zone is not None,
            batch=partitioning is not None and partitioning.batch and axis is None,
        )
    )
    if options.hold_back is HoldBack.WRITERS and identifier is not None and (lag.value == 0 or lag.is_auto):
        _refuse_earlier_times(label, table, identifier)
    for name in key:
        if name in options.exclude_columns:
            raise ConfigurationError(f"{label}: primary key column {name!r} cannot be excluded.")
    if strategy is Strategy.UPSERT and options.inherited is Inherited.INCLUDE and not key:
        raise ConfigurationError(
            f"{label}: with inherited: include the rows of several tables are read as one, and a key holds in each of them alone, so that "
            f"upsert would take rows of two tables for one. Take upsert out, or write inherited: only."
        )
    if strategy is Strategy.UPSERT and not key:
        raise ConfigurationError(
            f"{label}: upsert needs a primary key, and the source declares none. "
            f"Say which columns tell rows apart: containers: {{{table.name}: {{primary_key: [<column>]}}}}"
        )
    _check_binary(label, options, (*key, *(identifier.columns if identifier else ()), *(axis.columns if axis else ())))
    _check_deletes(label, columns, strategy, options)
    enforced = bool(key) and tuple(key) == table.primary_key
    return Container(
        datastore=datastore,
        schema=schema,
        name=table.name,
        kind=table.kind,
        columns=columns,
        identifier=identifier,
        partitioning=partitioning,
        strategy=strategy,
        primary_key=tuple(key),
        key_is_enforced=enforced,
        lag=lag.value,
        lag_is_auto=lag.is_auto,
        lag_reason=lag.reason,
        options=options,
        indexed=table.indexed,
        rows=table.rows,
        bytes=table.bytes,
        comment=table.comment,
        partitioned_on=axis,
        timezone=zone or "UTC",
        heirs=table.heirs,
        left_out=left_out,
    )


def _check_binary(label: str, options: ContainerOptions, found_by: Sequence[str]) -> None:
    """``found_by``: the columns by whose values rows are found."""
    for name in options.binary_columns:
        if name in found_by:
            raise ConfigurationError(
                f"{label}: binary_columns: rows are found by the values of {name!r}, which can be no bytes. Leave it out there."
            )
        if name in options.text_columns or name in options.exclude_columns:
            raise ConfigurationError(f"{label}: {name!r} is in binary_columns, and also excluded or read as text. Say one of them.")


def key_of(table: SourceTable, options: ContainerOptions) -> tuple[str, ...]:
    """The columns by which the rows of the container are distinguished; empty if there are none."""
    if options.inherited is Inherited.INCLUDE and table.heirs is not Heirs.CHUNKS:
        return ()  # a key holds in the table and in each of its heirs alone
    return options.primary_key or table.primary_key


def _check_deletes(label: str, columns: Sequence[SourceColumn], strategy: Strategy, options: ContainerOptions) -> None:
    """Raises ConfigurationError if the container cannot follow deletions as ``deletes`` says."""
    if options.deletes is None:
        return
    if strategy is not Strategy.UPSERT:
        why = "its rows have no key by which they could be deleted" if strategy is Strategy.APPEND else "each sync replaces all its rows"
        raise ConfigurationError(f"{label}: deletes needs the strategy upsert; this is {strategy.value}, and {why}. Leave deletes out.")
    mark = next((column.name for column in columns if column.name.lower() == MARK.name), None)
    if options.deletes is Deletes.SOFT and mark is not None:
        raise ConfigurationError(
            f"{label}: deletes: soft marks deleted rows in a column {MARK.name}, and the source has a column of that name. Write "
            f"deletes: sweep, or exclude_columns: [{mark}]."
        )


# Matches a DEFAULT, as PostgreSQL prints it, whose value is a time before the transaction's first write to the table: the begin of the
# transaction or of the statement. Other transactions may have committed since then.
_BEFORE_INSERT = r"now\(\)|'now'|transaction_timestamp|statement_timestamp|current_(date|time)|localtime"
_EARLIER_TIMES = re.compile(_BEFORE_INSERT, re.IGNORECASE)
AT_INSERT = re.compile(rf"{_BEFORE_INSERT}|clock_timestamp", re.IGNORECASE)
"""Matches a DEFAULT, as PostgreSQL prints it, whose value is the time at which the row was inserted, or shortly before."""


def _refuse_earlier_times(label: str, table: SourceTable, identifier: Identifier) -> None:
    """Raises ConfigurationError if ``hold_back: writers`` would lose rows because of a column's DEFAULT.

    ``writers`` counts a transaction from its first write lock on the table on. A value such as ``now()`` is older than that lock, so a sync
    in between could move the watermark above a row that is committed later.
    """
    for name in identifier.columns:
        column = table.column(name)
        default = column.default if column is not None and column.sequence is None else None
        if default is not None and _EARLIER_TIMES.search(default):
            raise ConfigurationError(
                f"{label}: hold_back: writers counts a transaction from its first write to the table on, and the default of {name!r} "
                f"({default}) is a time before that: rows committed late would be lost. Leave hold_back out, or set safety_lag to "
                f"the longest transaction."
            )


def _identifier(label: str, table: SourceTable, spec: IncrementalSpec) -> Identifier:
    columns = [c for name in spec.columns if (c := table.column(name)) is not None]
    cursor_types = {identifier_cursor_type(label, column, spec.type) for column in columns}
    if len(cursor_types) != 1 or not 1 <= len(columns) <= 2:
        raise ConfigurationError(f"{label}: an identifier is one column, or two of the same type.")
    cursor_type = cursor_types.pop()
    try:
        start = parse_value(cursor_type, spec.start) if spec.start is not None else None
    except ConfigurationError as error:
        raise ConfigurationError(f"{label}: start: {error}") from error
    sequence = columns[0].sequence if cursor_type is CursorType.INTEGER and len(columns) == 1 else None
    return Identifier(spec.columns, spec.type, cursor_type, start, sequence)


def _partitioning(label: str, table: SourceTable, identifier: Identifier, partition_by: str | int | None, today: int) -> Partitioning:
    """``identifier``: what the partitions are windows of."""
    cursor_type = identifier.cursor_type
    expect_partition_by(label, partition_by, cursor_type.is_time)
    first, last = _parsed(cursor_type, table.first), _parsed(cursor_type, table.last)
    if identifier.start is not None:
        first = identifier.start
    if not cursor_type.is_time:
        if partition_by == "batch":
            return Partitioning(width=1, batch=True)
        if isinstance(partition_by, int):
            return Partitioning(width=partition_by)
        span = table.span if table.span is not None else (last or 0) - (first or 0)
        return Partitioning(width=round_width(span // DEFAULT_WIDTH_PARTITIONS + 1))
    now = today * cursor_type.steps_per_day
    first = min(now, first) if first is not None else now
    # Up to today and not to the last row: Dagster's calendar goes on until today.
    granularity = default_granularity(cursor_type, first, now) if partition_by is None else Granularity(partition_by)
    if granularity is Granularity.HOUR and cursor_type is CursorType.DATE:
        raise ConfigurationError(f"{label}: a date cannot be partitioned by hour; write day, week or month.")
    if partition_by is None and identifier.start is None:
        # One row from the year 1 must not make 24,000 partitions by month. The calendar begins at most 80 years before the newest row or
        # today; older rows belong to its first partition.
        newest = min(last, now) if last is not None else now
        oldest = newest - 366 * 80 * cursor_type.steps_per_day
        first = max(first, oldest)
    # Dagster's calendar cannot begin earlier than the timestamps of its host do; older rows belong to the first partition.
    return Partitioning(granularity=granularity, first=_calendar_start(cursor_type, granularity, first))


def _parsed(cursor_type: CursorType, text: str | None) -> int | None:
    """The catalog's text of the first or the last identifier as a value.

    None if there is none, or if it does not parse: the catalog found it for a column of another type, before the YAML was changed.
    """
    try:
        return parse_value(cursor_type, text) if text is not None else None
    except ConfigurationError:
        return None


def _calendar_start(cursor_type: CursorType, granularity: Granularity, first: int) -> int:
    """The start of the first partition: that of the partition in which ``first`` lies, but never before July 1901."""
    start = floor_to(cursor_type, granularity, first)
    earliest = -25_000 * cursor_type.steps_per_day  # 1901-07-22; all time-zone databases agree from 1901 on
    return start if start >= earliest else next_start(cursor_type, granularity, floor_to(cursor_type, granularity, earliest))


def round_width(width: int) -> int:
    """The lowest number of the form 1, 2 or 5 times a power of ten that is at least ``width`` and 1,000: keys are then easy to read."""
    power = 1000
    while True:
        for step in (1, 2, 5):
            if step * power >= width:
                return step * power
        power *= 10
