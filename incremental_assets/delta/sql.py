"""Builds predicates and expressions of Spark SQL from typed values.

All of it is built in this one place and from typed values, so that no file name or key can become SQL.
"""

from collections.abc import Sequence

from incremental_assets.core.container import Container, Identifier, Partitioning
from incremental_assets.core.cursor_type import CursorType, format_value
from incremental_assets.core.files import FILE, HIVE_NULL, decode_path
from incremental_assets.core.folder_column import FolderColumn
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.names import literal as text
from incremental_assets.core.own_rows import Axis, Box, Condition, PartitionExpr
from incremental_assets.core.partitions import Granularity, Partitions, TimePartitions
from incremental_assets.core.window import Window


def literal(cursor_type: CursorType, value: int) -> str:
    """A literal for a value of the identifier's cursor type.

    Spark refuses date and time literals outside the years 1 to 9999; such values are made from exact integers. Integers outside the range
    of bigint are written as decimals.
    """
    if cursor_type is CursorType.INTEGER:
        return str(value) if -(2**63) < value < 2**63 else f"{value}BD"
    text = format_value(cursor_type, value)
    if len(text.split("-")[0]) != 4 or text.startswith("0000"):
        if cursor_type is CursorType.DATE:
            return f"date_from_unix_date({value})"
        return f"timestamp_micros({value})" if cursor_type is CursorType.TIMESTAMP else f"cast(timestamp_micros({value}) as timestamp_ntz)"
    return (
        f"{ {CursorType.DATE: 'DATE', CursorType.TIMESTAMP_NTZ: 'TIMESTAMP_NTZ', CursorType.TIMESTAMP: 'TIMESTAMP'}[cursor_type] }'{text}'"
    )


def identifier_expression(identifier: Identifier) -> str:
    """The identifier's column, or the greater of its two columns; Spark's ``greatest`` ignores NULLs."""
    names = [quote(name) for name in identifier.columns]
    return names[0] if len(names) == 1 else f"greatest({', '.join(names)})"


def window_predicate(identifier: Identifier, window: Window) -> str:
    """A condition for the rows of one window. It is not true for rows without identifier, even if the window has no bounds."""
    return _within([quote(name) for name in identifier.columns], identifier_expression(identifier), identifier.cursor_type, window)


def _within(each: Sequence[str], greatest: str, cursor_type: CursorType, window: Window) -> str:
    """A condition for the rows in which the greatest of the expressions lies in the window."""
    parts: list[str] = []
    if window.lower is not None:  # each column is compared by itself, as Delta's file statistics do not work with greatest()
        parts.append("(" + " OR ".join(f"{one} >= {literal(cursor_type, window.lower)}" for one in each) + ")")
    if window.upper is not None:
        parts.append(f"{greatest} < {literal(cursor_type, window.upper)}")
    if not parts:
        return "(" + " OR ".join(f"{one} IS NOT NULL" for one in each) + ")"
    return "(" + " AND ".join(parts) + ")"


def scope_predicate(identifier: Identifier, windows: Sequence[Window], include_nulls: bool) -> str:
    """A condition for the rows of all the windows and, with ``include_nulls``, for the rows without identifier."""
    either = [window_predicate(identifier, window) for window in windows]
    if include_nulls:
        either.append("(" + " AND ".join(f"{quote(name)} IS NULL" for name in identifier.columns) + ")")
    return " OR ".join(either) if either else "false"


def cursor_value(identifier: Identifier, aggregate: str) -> str:
    """An aggregate (``max`` or ``min``) of the identifier, as an integer of its cursor type."""
    value = f"{aggregate}({identifier_expression(identifier)})"
    if identifier.cursor_type is CursorType.INTEGER:
        return f"cast(ceil({value}) as decimal(38,0))"
    return f"unix_date({value})" if identifier.cursor_type is CursorType.DATE else f"unix_micros(cast({value} as timestamp))"


def file_predicate(keys: Sequence[str]) -> str:
    """A condition for the rows of the files with these partition keys."""
    return f"{quote(FILE.name)} IN ({', '.join(map(text, keys))})" if keys else "false"


def folder_partition(column: FolderColumn) -> str:
    """The expression of the text by which rows belong to a partition of a container that is partitioned by a column of folders."""
    return f"coalesce(nullif(cast({quote(column.name)} AS string), ''), {text(HIVE_NULL)})"


def folder_predicate(column: FolderColumn, keys: Sequence[str]) -> str:
    """A condition for the rows of these partitions of such a container. Values are compared with constants, so that files are skipped."""
    values = [f"try_cast({text(decode_path(key) or key)} AS {column.type})" for key in keys if key != HIVE_NULL]
    either = [f"{quote(column.name)} IN ({', '.join(values)})"] if values else []
    if HIVE_NULL in keys:
        either.append(f"{folder_partition(column)} = {text(HIVE_NULL)}")
    return f"({' OR '.join(either)})" if either else "false"


def partition_value(expr: PartitionExpr) -> str:
    """The expression for what a dimension of the partitions of a user's own table goes by.

    A user's expression has to be one that Spark has parsed by itself (``own_frames.expr_types``), so that the parentheses keep it apart
    from the rest. It ends with a line break, as it may end with a comment.
    """
    return quote(expr.text) if expr.is_column else f"({expr.text}\n)"


def condition_predicate(condition: Condition) -> str:
    """A condition for the rows of a user's own table that belong to keys of one dimension. It is not true for rows with NULL there."""
    value, type_ = partition_value(condition.of), condition.cursor_type
    if type_ is not None:
        return " OR ".join(_within([value], value, type_, window) for window in condition.windows) or "false"
    return f"{value} IN ({', '.join(map(text, condition.texts))})" if condition.texts else "false"


def boxes_predicate(boxes: Sequence[Box]) -> str:
    """A condition for the rows of a user's own table that belong to any of the boxes."""
    either = [" AND ".join(f"({condition_predicate(condition)})" for condition in box) for box in boxes]
    return " OR ".join(f"({both})" for both in either) if either else "false"


def axis_value(axis: Axis) -> str:
    """An expression for a value that lies in the same partition as the row on this axis, and that is equal for many rows.

    The session's time zone must be UTC.
    """
    name = partition_value(axis.of)
    if axis.cursor_type is None:
        return name
    if axis.cursor_type is CursorType.INTEGER:
        return f"cast(floor({name}) AS decimal(38,0))"
    value = f"unix_date({name})" if axis.cursor_type is CursorType.DATE else f"unix_micros(cast({name} AS timestamp))"
    return f"{value} - pmod({value}, {int(axis.step)}L)"


def partition_start(identifier: Identifier, partitioning: Partitioning) -> str:
    """An expression that is equal for all rows of one partition, and whose value, as an integer of the cursor type, lies in the
    partition."""
    value = identifier_expression(identifier)
    if identifier.cursor_type is CursorType.INTEGER:
        # This is not floor(value / width), because Spark divides integers as doubles, which are not exact for large ids.
        start = f"{value} - pmod({value}, {partitioning.width})" if (partitioning.width or 1) > 1 else value
        return f"cast({start} as decimal(38,0))"
    # Our weeks begin on Sunday, as Dagster's do, but Spark's trunc and date_trunc begin them on Monday.
    since_sunday = (
        f" - (dayofweek({value}) - 1) * {identifier.cursor_type.steps_per_day}" if partitioning.granularity is Granularity.WEEK else ""
    )
    if identifier.cursor_type is CursorType.DATE:
        return f"unix_date(trunc({value}, 'MM'))" if partitioning.granularity is Granularity.MONTH else f"unix_date({value}){since_sunday}"
    unit = {Granularity.MONTH: "MONTH", Granularity.HOUR: "HOUR"}.get(partitioning.granularity or Granularity.DAY, "DAY")
    return f"unix_micros(cast(date_trunc('{unit}', {value}) as timestamp)){since_sunday}"


def partition_of(identifier: Identifier, partitioning: Partitioning, partitions: Partitions) -> str:
    """An expression for the start of the partition that a row belongs to; NULL for a row without identifier.

    As in ``Partitions.key_of``, a row before the first partition belongs to the first one, and for time a row after the last partition
    belongs to the last one.
    """
    start = partition_start(identifier, partitioning)
    if isinstance(partitions, TimePartitions):
        inside = f"greatest(least({start}, {partitions.last}), {partitions.first})"
    else:
        inside = f"greatest({start}, {partitions.known[0]})" if partitions.known else start
    return f"CASE WHEN {identifier_expression(identifier)} IS NOT NULL THEN {inside} END"


def align(container: Container, lake: Sequence[tuple[str, str]], carried: Sequence[str]) -> list[str]:
    """Select expressions that give rows of the source the columns of the lake's table, in its order and with its types.

    ``lake`` has the name and type of each column of the table, ``carried`` the names of the columns read. A column that was not read, as
    the source has dropped it, becomes NULL. Names are compared without regard to case, as Delta does it.
    """
    have = {name.lower(): name for name in carried}
    return [
        f"cast({quote(have[name.lower()])} as {type_}) as {quote(name)}"
        if name.lower() in have
        else f"cast(NULL as {type_}) as {quote(name)}"
        for name, type_ in lake
    ]


def key_text(quoted: str, type_: str) -> str:
    """An expression for the text of a key's value, from which the source can make the same value again.

    Dates become days and times become microseconds since 1970, binary values become hexadecimal digits. The inverse is ``_FROM_KEY_TEXT``
    in ``databases.postgres.extract``.
    """
    if type_ == "date":
        return f"cast(unix_date({quoted}) AS string)"
    if type_ in ("timestamp", "timestamp_ntz"):  # the session's time zone is UTC, so the cast changes no digit
        return f"cast(unix_micros(cast({quoted} AS timestamp)) AS string)"
    return f"hex({quoted})" if type_ == "binary" else f"cast({quoted} AS string)"
