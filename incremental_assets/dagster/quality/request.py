"""What a scan is asked to look at, and which rows that is.

Belongs here: from a request to a ``Ground``, and how far a scan of it lets the scan's own watermark move. Does not belong: the scan.
"""

import datetime
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.axis import MICROS_PER_DAY, Axis, parse_value
from incremental_assets.core.container import Container
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.files import MODIFIED
from incremental_assets.core.names import backticked
from incremental_assets.core.window import EVERYTHING, Window
from incremental_assets.dagster.partitions import container_partitions, partitions_definition
from incremental_assets.delta.sql import literal
from incremental_assets.delta.table import Head
from incremental_assets.quality.ground import Ground, ground_of, ground_of_files, whole_table


class Looks(str, Enum):
    """At which rows: all; those from a threshold on; those of given partitions."""

    full = "full"
    incremental = "incremental"
    partitions = "partitions"


@dataclass(frozen=True)
class ScanRequest:
    """``greater_than``: text of the threshold (None: the scan's own watermark). ``nulls``: with the rows that have no identifier."""

    looks: Looks = Looks.full
    keys: tuple[str, ...] = ()
    nulls: bool = False
    greater_than: str | None = None
    auto_resolve: bool = False

    def options(self) -> dict[str, Any]:
        """As an operation records them."""
        said: dict[str, Any] = {"looks": self.looks.value}
        if self.looks is Looks.partitions:
            said["partitions"] = list(self.keys)
        if self.greater_than is not None:
            said["greater_than"] = self.greater_than
        if self.auto_resolve:
            said["auto_resolve"] = True
        return said


def threshold(container: Container, text: str, timezone: str) -> int:
    """The least value above it; a day is above all times of the days before it. Raises ConfigurationError.

    ``timezone``: of the clock that identifiers without zone go by, for a threshold that has one.
    """
    axis = container.axis
    assert axis is not None
    try:
        if not axis.is_time or axis is Axis.INSTANT:
            return parse_value(axis, text) + 1
        local = parse_value(Axis.LOCAL, _on_the_clock(text, timezone))
        return local // MICROS_PER_DAY + 1 if axis is Axis.DAY else local + 1
    except ConfigurationError as error:
        raise ConfigurationError(f"{container.label}: the threshold of its identifier {'/'.join(_columns(container))}: {error}") from error


def _on_the_clock(text: str, timezone: str) -> str:
    """What a clock on the wall shows at this time, where the text has a zone."""
    try:
        at = datetime.datetime.fromisoformat(f"{text[:-1]}+00:00" if text[-1:] in "Zz" else text)  # Python 3.10 knows no Z
    except ValueError:
        return text  # told by who parses it
    return text if at.tzinfo is None else at.astimezone(zoneinfo.ZoneInfo(timezone)).replace(tzinfo=None).isoformat()


def not_configured(container: Container) -> ConfigurationError:
    return ConfigurationError(
        f"{container.label}: incremental field not configured. Add it under incremental:, or scan it whole: leave --incremental out."
    )


def ground_asked(
    definition: ContainerDefinition,
    instance: dg.DagsterInstance,
    request: ScanRequest,
    head: Head,
    scanned_to: int | None,
    noted: Sequence[str | None] = (),
) -> Ground:
    """``scanned_to``: the watermark of earlier scans. ``noted``: partitions of open anomalies. Raises ConfigurationError."""
    container = definition.container
    state = head.state(container) if head.signature() == container.signature else None
    in_lake = state.watermark if state is not None else None
    since: int | None = None
    if request.looks is Looks.incremental:
        if container.identifier is None:
            raise not_configured(container)
        if request.greater_than is not None:
            since = threshold(container, request.greater_than, definition.settings.timezone)
        elif scanned_to is not None:
            # Where the table was loaded anew, its watermark may be below.
            since = container.tail.window(scanned_to if in_lake is None else min(scanned_to, in_lake)).lower
    keys = request.keys if request.looks is Looks.partitions else None
    definition_of_keys = partitions_definition(definition)
    if definition_of_keys is None:
        return whole_table(container)
    partitions = container_partitions(definition, instance)
    if partitions is not None:
        return ground_of(container, partitions, keys, since, request.nulls or keys is None, in_lake, noted)
    known = definition_of_keys.get_partition_keys(dynamic_partitions_store=instance)
    modified = None if since is None else f"{backticked(MODIFIED.name)} >= {literal(Axis.INSTANT, since)}"
    windows = (EVERYTHING,) if keys is None and since is None else (Window(since, None),) if since is not None else ()
    return ground_of_files(container, known, keys, modified, windows, noted)


def scanned_after(container: Container, head: Head, ground: Ground, scanned_to: int | None) -> int | None:
    """The scan's watermark once the ground has been scanned: it moves only over ground that is covered without a gap, and never past the
    lake's own, as below that nothing more comes."""
    state = head.state(container) if head.signature() == container.signature else None
    if container.identifier is None or state is None or state.watermark is None:
        return scanned_to
    reach = container.tail.covered_to(ground.windows, scanned_to)
    if reach is None or reach is False:
        return scanned_to
    return state.watermark if reach is True else min(state.watermark, int(reach))


def _columns(container: Container) -> Sequence[str]:
    return container.identifier.columns if container.identifier is not None else ()
