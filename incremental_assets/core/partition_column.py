"""The column by whose windows a container is partitioned, where that is not its identifier: ``partition_by: {column: …, every: …}``."""

from incremental_assets.core.capture import Capture
from incremental_assets.core.container import ContainerOptions, Identifier, OnNull, SourceTable
from incremental_assets.core.cursor_type import CursorType, IdentifierType
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.grammar import IncrementalSpec, Strategy
from incremental_assets.core.identifier_types import cursor_type_of
from incremental_assets.core.names import nearest

_TYPES = {
    CursorType.DATE: IdentifierType.DATE,
    CursorType.TIMESTAMP_NTZ: IdentifierType.DATETIME,
    CursorType.TIMESTAMP: IdentifierType.TIMESTAMP,
    CursorType.INTEGER: IdentifierType.INTEGER,
}


def axis_of(table: SourceTable, spec: IncrementalSpec) -> Identifier | None:
    """What the partitions are windows of, where ``spec`` says that it is another column than the identifier; else None.

    It is also None if there is no such column, or if it has a type of which there are no partitions.
    """
    column = table.column(spec.partition_by.column) if spec.partition_by is not None else None
    cursor_type = cursor_type_of(column) if column is not None else None
    if column is None or cursor_type is None or spec.excluded:
        return None
    return Identifier((column.name,), _TYPES[cursor_type], cursor_type)


def partition_axis(label: str, table: SourceTable, spec: IncrementalSpec, options: ContainerOptions) -> Identifier | None:
    """As ``axis_of``. Raises ConfigurationError if the container cannot be partitioned by that column."""
    if spec.partition_by is None:
        return None
    name, tracking = spec.partition_by.column, "/".join(spec.columns)
    column = table.column(name)
    if column is None:
        raise ConfigurationError(f"{label}: partition_by: there is no column {name!r}.{nearest(name, [c.name for c in table.columns])}")
    if (name,) == spec.columns:
        raise ConfigurationError(
            f"{label}: partition_by names the identifier {name!r} itself. Leave its column out, and write containers: "
            f"{{{table.name}: {{partition_by: {spec.partition_by.every or 'month'}}}}}."
        )
    if options.capture is Capture.LOG:
        raise ConfigurationError(
            f"{label}: with capture: log the log tells which rows have changed, and the identifier is there for the partitions only. Name "
            f"{name!r} as the identifier and leave partition_by: {{column: …}} out, or write capture: none."
        )
    if spec.strategy is not Strategy.UPSERT:
        raise ConfigurationError(
            f"{label}: partition_by: {{column: {name}}} needs strategy: upsert; this is {spec.strategy.value}, which replaces "
            f"whole windows of {tracking}, and rows of any partition may lie in these."
        )
    if options.partition_by is not None:
        raise ConfigurationError(
            f"{label}: partition_by is in incremental and in containers; leave the one under containers out, and write "
            f"partition_by: {{column: {name}, every: {options.partition_by}}} under incremental."
        )
    if spec.start is not None or options.on_null is OnNull.EXCLUDE:
        what = "start" if spec.start is not None else "on_null: exclude"
        raise ConfigurationError(
            f"{label}: {what} leaves rows out by {tracking}, and a refresh of a partition reads by {name}, which would bring them back. "
            f"Leave it out, and say which rows are meant by where: under containers."
        )
    if name in options.exclude_columns or name in options.text_columns:
        raise ConfigurationError(f"{label}: the column of partition_by, {name!r}, can be neither excluded nor read as text.")
    axis = axis_of(table, spec)
    if axis is None:
        raise ConfigurationError(
            f"{label}: the column of partition_by, {name!r}, is {column.type}. Choose a date, timestamp or integer column."
        )
    return axis
