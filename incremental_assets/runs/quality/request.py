"""The request of a scan, and the scan scope that follows from it."""

import datetime
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.container import Container
from incremental_assets.core.cursor_type import MICROS_PER_DAY, CursorType, parse_value
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.files import MODIFIED
from incremental_assets.core.names import backticked
from incremental_assets.core.window import EVERYTHING, Window
from incremental_assets.delta.sql import folder_predicate, literal
from incremental_assets.delta.table import Head
from incremental_assets.files.manifest import Manifest
from incremental_assets.files.plan import expect_same_partitions
from incremental_assets.project.folders import lake_root
from incremental_assets.quality.scan_scope import ScanScope, scope_of_files, scope_of_partitions, whole_table
from incremental_assets.runs.partitions import container_partitions, partitions_definition


class ScanMode(str, Enum):
    """The modes of a scan. ``full``: all rows. ``incremental``: the partitions from a threshold on. ``partitions``: given partitions."""

    full = "full"
    incremental = "incremental"
    partitions = "partitions"


@dataclass(frozen=True)
class ScanRequest:
    """What a scan or profile is asked to read.

    ``keys``: the partitions of mode ``partitions``. ``nulls``: with them, also the rows without identifier. ``greater_than``: the threshold
    of mode ``incremental`` as text; None means the scan's own watermark. ``auto_resolve``: anomalies that the scan no longer finds are
    resolved.
    """

    mode: ScanMode = ScanMode.full
    keys: tuple[str, ...] = ()
    nulls: bool = False
    greater_than: str | None = None
    auto_resolve: bool = False

    def options(self) -> dict[str, Any]:
        """The request as plain JSON, for the record of the operation."""
        options: dict[str, Any] = {"looks": self.mode.value}
        if self.mode is ScanMode.partitions:
            options["partitions"] = list(self.keys)
        if self.greater_than is not None:
            options["greater_than"] = self.greater_than
        if self.auto_resolve:
            options["auto_resolve"] = True
        return options


def threshold(container: Container, text: str, timezone: str) -> int:
    """The least value of the identifier that is above the threshold ``text``. A date is above all times of the days before it.

    ``timezone``: the zone of identifiers without time zone, for a threshold that has one. The value is in the unit of the identifier's
    cursor type. Raises ConfigurationError where the text is not a value of it.
    """
    cursor_type = container.cursor_type
    assert cursor_type is not None
    try:
        if not cursor_type.is_time or cursor_type is CursorType.TIMESTAMP:
            return parse_value(cursor_type, text) + 1
        local = parse_value(CursorType.TIMESTAMP_NTZ, _on_the_clock(text, timezone))
        return local // MICROS_PER_DAY + 1 if cursor_type is CursorType.DATE else local + 1
    except ConfigurationError as error:
        raise ConfigurationError(f"{container.label}: the threshold of its identifier {'/'.join(_columns(container))}: {error}") from error


def _on_the_clock(text: str, timezone: str) -> str:
    """Converts a time with a zone to the local time of ``timezone``; a time without a zone is returned as it is."""
    try:
        # `fromisoformat` of Python 3.10 does not read the letter Z.
        at = datetime.datetime.fromisoformat(f"{text[:-1]}+00:00" if text[-1:] in "Zz" else text)
    except ValueError:
        # The caller parses the text next and reports the error.
        return text
    return text if at.tzinfo is None else at.astimezone(zoneinfo.ZoneInfo(timezone)).replace(tzinfo=None).isoformat()


def not_configured(container: Container) -> ConfigurationError:
    """The error for a container without incremental identifier that was asked for an incremental scan."""
    return ConfigurationError(
        f"{container.label}: incremental field not configured. Add it under incremental:, or scan it whole: leave --incremental out."
    )


def requested_scope(
    definition: ContainerDefinition,
    instance: dg.DagsterInstance,
    request: ScanRequest,
    head: Head,
    scanned_to: int | None,
    noted: Sequence[str | None] = (),
) -> ScanScope:
    """The scan scope of a request: which partitions and rows of the table are scanned.

    ``head``: the version of the table that will be scanned. ``scanned_to``: the watermark of earlier scans; None where there was none.
    ``noted``: partitions of which something is on record, such as open anomalies (None among them: the rows without identifier); those
    within the scope belong to it even where they have no rows any more. Raises ConfigurationError where the request does not fit the
    container.
    """
    container = definition.container
    state = head.state(container) if head.signature() == container.signature else None
    in_lake = state.watermark if state is not None else None
    since: int | None = None
    if request.mode is ScanMode.incremental:
        if container.identifier is None:
            raise not_configured(container)
        if container.partitioned_on is not None and request.greater_than is not None:
            by, column = "/".join(container.identifier.columns), container.partitioned_on.columns[0]
            raise ConfigurationError(
                f"{container.label}: what is above a threshold of {by} may lie in any partition of {column}, and a scan reads whole "
                f"partitions. Name the partitions, or leave the threshold out: then all rows are scanned."
            )
        if container.partitioned_on is not None:
            since = None  # for the same reason all rows are scanned
        elif request.greater_than is not None:
            since = threshold(container, request.greater_than, container.timezone)
        elif scanned_to is not None:
            # Each incremental scan reads the lag window again, as a sync does. A table that was loaded anew may have a watermark below that
            # of its scans: then the scan begins there.
            since = container.lag_window.window(scanned_to if in_lake is None else min(scanned_to, in_lake)).lower
    keys = request.keys if request.mode is ScanMode.partitions else None
    definition_of_keys = partitions_definition(definition)
    if definition_of_keys is None:
        return whole_table(container)
    partitions = container_partitions(definition, instance)
    if partitions is not None:
        return scope_of_partitions(container, partitions, keys, since, request.nulls or keys is None, _filled_to(container, in_lake), noted)
    known = definition_of_keys.get_partition_keys(dynamic_partitions_store=instance)
    folders = container.partitioning.folders if container.partitioning is not None else None
    if folders is not None:
        expect_same_partitions(container, state)
    if folders is not None and since is not None:
        # Whole partitions are scanned, so also the older files of those that have newer ones.
        changed = {folders.partition_of(key) for key in Manifest(lake_root(), container.key_path).modified_since(since)}
        modified = folder_predicate(folders, sorted(changed))
    else:
        modified = None if since is None else f"{backticked(MODIFIED.name)} >= {literal(CursorType.TIMESTAMP, since)}"
    # Partitions of files are no contiguous range of modification times. So a scan of given files covers no window, and does not move the
    # watermark.
    windows = (EVERYTHING,) if keys is None and since is None else (Window(since, None),) if since is not None else ()
    return scope_of_files(container, known, keys, modified, windows, noted)


def scanned_after(container: Container, head: Head, scan_scope: ScanScope, scanned_to: int | None) -> int | None:
    """The watermark of the scans after a scan of this scope. ``scanned_to``: the watermark before it.

    It moves only over a contiguous range that was scanned, including the safety lag below the old watermark. It never passes the table's
    own watermark, because rows above that may still come.
    """
    state = head.state(container) if head.signature() == container.signature else None
    if container.identifier is None or state is None or state.watermark is None:
        return scanned_to
    if container.partitioned_on is not None and (scan_scope.windows != (EVERYTHING,) or not scan_scope.nulls):
        return scanned_to  # some partitions say nothing about ranges of the identifier
    reach = container.lag_window.covered_to(scan_scope.windows, scanned_to)
    if reach is None or reach is False:
        return scanned_to
    return state.watermark if reach is True else min(state.watermark, int(reach))


def _filled_to(container: Container, watermark: int | None) -> int | None:
    """Up to where no more rows are expected, as a value of the axis: the watermark. None where nothing tells it.

    Where partitions are cut along another column, a time up to which all changes are known is taken for one up to which all rows have come.
    """
    if container.partitioned_on is None or container.identifier is None or watermark is None:
        return watermark
    own, axis = container.identifier.cursor_type, container.partitioned_on.cursor_type
    if not own.is_time or not axis.is_time:
        return None
    return watermark * (MICROS_PER_DAY // own.steps_per_day) // (MICROS_PER_DAY // axis.steps_per_day)


def _columns(container: Container) -> Sequence[str]:
    return container.identifier.columns if container.identifier is not None else ()
