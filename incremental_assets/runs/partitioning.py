"""A container's partitions in Dagster's terms and back: the definition, the known keys, and the windows of given keys."""

import datetime
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from incremental_assets.core.container import Container, Identifier, Partitioning
from incremental_assets.core.cursor_type import CursorType, IdentifierType, format_value, parse_value
from incremental_assets.core.partitions import Granularity, IntegerPartitions, Partitions, TimePartitions, floor_to

WINDOWS_METADATA = "incremental_assets/windows"
"""The metadata key of an asset under which a container describes its partitioning (see ``windows_metadata``)."""
_CRON = {Granularity.HOUR: "0 * * * *", Granularity.DAY: "0 0 * * *", Granularity.WEEK: "0 0 * * 0", Granularity.MONTH: "0 0 1 * *"}
"""Where a partition of each granularity begins. Dagster's weeks begin on Sunday."""


def dagster_partitions(container: Container) -> dg.PartitionsDefinition | None:
    """Dagster's partitions definition of a container; None where it has no partitions.

    Integers, batches and files get a dynamic definition. Time gets a time window definition, with Dagster's usual keys. The current hour,
    day, week or month is a partition too (Dagster's own default ends with the last complete one), because today's rows must be in a
    partition.
    """
    partitioning, cursor_type = container.partitioning, container.along_axis.cursor_type
    if partitioning is None or cursor_type is None:
        return None
    if partitioning.granularity is None:
        return dg.DynamicPartitionsDefinition(name="/".join(container.key_path))
    assert partitioning.first is not None
    hourly = partitioning.granularity is Granularity.HOUR
    # When clocks are set back, a local hour comes twice, and two hours would have one key. So hourly keys are UTC hours. A zone-less
    # identifier is put into the hour that its text names. East of Greenwich, that hour has not begun in UTC yet, so the definition ends
    # later by as many hours.
    zone = container.timezone if cursor_type is not CursorType.TIMESTAMP and not hourly else "UTC"
    ahead = _hours_ahead(container.timezone) if hourly and cursor_type is CursorType.TIMESTAMP_NTZ else 0
    form = "%Y-%m-%d-%H:%M" if hourly else "%Y-%m-%d"
    start = format_value(cursor_type, partitioning.first).removesuffix("Z")
    start = f"{start[:10]}-{start[11:16]}" if hourly else start[:10]
    return dg.TimeWindowPartitionsDefinition(
        start=start, fmt=form, cron_schedule=_CRON[partitioning.granularity], timezone=zone, end_offset=1 + ahead
    )


def _hours_ahead(timezone: str) -> int:
    """How many hours the local clock of the zone is ahead of UTC, rounded up, plus one for a change of the clocks.

    It is 0 for UTC itself.
    """
    now = datetime.datetime.now(ZoneInfo(timezone))
    offset = now.utcoffset() or datetime.timedelta()
    return max(0, -(-int(offset.total_seconds()) // 3600)) + (1 if offset else 0)


def partitions_of(
    cursor_type: CursorType, partitioning: Partitioning, definition: dg.PartitionsDefinition, instance: dg.DagsterInstance
) -> Partitions:
    """The container's partitions as windows of its identifier, with the keys that Dagster has at this moment.

    For time, the last partition is the newest one of the definition; for integers, the known keys are those of the dynamic definition.
    """
    if partitioning.granularity is None:
        assert isinstance(definition, dg.DynamicPartitionsDefinition) and definition.name is not None and partitioning.width is not None
        known = sorted(int(key) for key in instance.get_dynamic_partitions(definition.name))
        return IntegerPartitions(partitioning.width, tuple(known))
    assert partitioning.first is not None and isinstance(definition, dg.TimeWindowPartitionsDefinition)
    # A key reads 2026-01-31, or 2026-01-31-14:00 for an hour. There is no key yet where the first partition lies in the future.
    key = definition.get_last_partition_key() or ""
    last = parse_value(CursorType.TIMESTAMP_NTZ, f"{key[:10]}T{key[11:]}" if len(key) > 10 else key) if key else partitioning.first
    if cursor_type is CursorType.DATE and key:
        last = parse_value(CursorType.DATE, key[:10])
    return TimePartitions(
        cursor_type,
        partitioning.granularity,
        partitioning.first,
        max(partitioning.first, floor_to(cursor_type, partitioning.granularity, last)),
    )


def windows_metadata(container: Container) -> Mapping[str, Any]:
    """Describes what the container's partitions are windows of, and its partitioning, as plain JSON; empty where it has no partitions.

    The IO manager reads it from an upstream asset's metadata, where the container itself is not at hand, to turn partition keys into
    windows.
    """
    identifier, partitioning = container.axis, container.partitioning
    if identifier is None or partitioning is None:
        return {}
    return {
        "columns": list(identifier.columns),
        "type": identifier.type.value,
        "axis": identifier.cursor_type.value,
        "granularity": partitioning.granularity.value if partitioning.granularity else None,
        "first": partitioning.first,
        "width": partitioning.width,
        "by_file": partitioning.by_file,
        **({} if partitioning.folders is None else {"folders": asdict(partitioning.folders)}),
    }


def from_windows_metadata(
    data: Mapping[str, Any], definition: dg.PartitionsDefinition, instance: dg.DagsterInstance
) -> tuple[Identifier, Partitions]:
    """The inverse of ``windows_metadata``: the identifier, and the partitions with the keys that Dagster has at this moment.

    Raises ValueError where each partition is a file (``by_file``): those have no windows, and their rows are found by the keys themselves.
    """
    if data.get("by_file"):
        raise ValueError("partitions that are files have no windows")
    identifier = Identifier(tuple(data["columns"]), IdentifierType(data["type"]), CursorType(data["axis"]))
    partitioning = Partitioning(Granularity(data["granularity"]) if data["granularity"] else None, data["first"], data["width"])
    return identifier, partitions_of(identifier.cursor_type, partitioning, definition, instance)
