"""What is wrong with the log that sources keep for the replication slots of ``capture: log``.

The sources are asked, by one short query for each datastore: a log grows as long as no sync runs, and then no sync records it.
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.capture import lsn_text
from incremental_assets.core.duration import for_people
from incremental_assets.core.errors import SyncError
from incremental_assets.databases.definition import DatastoreSettings, TableDefinition
from incremental_assets.databases.postgres.capture.setup import CaptureSetup, SlotStatus
from incremental_assets.delta.table import LakeTable
from incremental_assets.operations.alerts.problems import Limits, Problem, Severity, as_line, moment
from incremental_assets.project.folders import lake_root

LEAST_BYTES = 64 << 20
"""Less log than this is kept for any slot: its position moves by files of 16 MB, and a source without changes adds none."""
_CURSOR = "incremental_assets/slot/"
"""Under which names it is noted since when a slot has stood at the same place of the log."""
_AT_ONCE = 8


def slot_problems(
    instance: dg.DagsterInstance, chosen: Sequence[ContainerDefinition], limits: Limits, now: float
) -> tuple[Mapping[str, Problem], frozenset[str]]:
    """The problems of the slots by their keys, and the keys of those of which nothing is known, as their source does not answer.

    ``now``: in seconds since 1970 UTC.
    """
    by_store: dict[str, list[TableDefinition]] = {}
    for one in chosen:
        if isinstance(one, TableDefinition) and one.container.is_captured:
            by_store.setdefault(one.settings.name, []).append(one)
    problems: dict[str, Problem] = {}
    undecided: set[str] = set()
    if not by_store:
        return problems, frozenset()
    with ThreadPoolExecutor(min(_AT_ONCE, len(by_store))) as pool:
        statuses = dict(zip(by_store, pool.map(_status, (some[0].settings for some in by_store.values())), strict=True))
    for name, status in statuses.items():
        if status is None:
            undecided.add(_key(name))
            continue
        problem = _problem(by_store[name], status, limits, now, _stands_since(instance, name, status, now))
        if problem is not None:
            problems[_key(name)] = problem
    return problems, frozenset(undecided)


def _key(datastore: str) -> str:
    return f"{datastore} log"


def _status(settings: DatastoreSettings) -> SlotStatus | None:
    """How the slot of a datastore stands; None if its source does not answer, which the syncs report."""
    try:
        with CaptureSetup(settings.address, settings.name, settings.schema, settings.slot) as setup:
            return setup.status()
    except SyncError:
        return None


def _stands_since(instance: dg.DagsterInstance, datastore: str, status: SlotStatus, now: float) -> float:
    """Since when the slot needs the log from the same place on, as far as the looks before have seen it."""
    storage, key = instance.daemon_cursor_storage, f"{_CURSOR}{datastore}"
    before = json.loads(storage.get_cursor_values({key}).get(key) or "{}")
    place = f"{status.slot} {status.restart}"
    if before.get("place") == place:
        return float(before["since"])
    storage.set_cursor_values({key: json.dumps({"place": place, "since": now})})
    return now


def _problem(some: Sequence[TableDefinition], status: SlotStatus, limits: Limits, now: float, since: float) -> Problem | None:
    """What is wrong with the slot of these containers; None if nothing is."""
    settings = some[0].settings
    if status.status == "lost":
        return Problem(Severity.FAILURE, f"{settings.name}: {as_line(status.message)}")
    retained = status.retained or 0
    most = settings.capture_warning_bytes if limits.retained_bytes is None else limits.retained_bytes
    stands = limits.retained_seconds is not None and now - since > limits.retained_seconds and retained >= LEAST_BYTES
    if retained < most and not stands:
        return None
    for_long = f", from the same place on for {for_people(now - since)} (since {moment(since)})" if stands else ""
    limit = f" of at most {_size(status.limit)}" if status.limit is not None else ""
    text = f"{settings.name}: its server keeps {_size(retained)}{limit} of its log for the replication slot {status.slot}{for_long}"
    return Problem(Severity.WARNING, f"{text}; {_furthest_behind(some)}", _remedy(settings.name, status))


def _remedy(datastore: str, status: SlotStatus) -> str:
    end = "the server removes it, and the containers have to be loaded anew" if status.limit is not None else "its disk is full"
    return (
        f"The log grows until {end}. Sync the containers that are behind (incremental-assets capture status {datastore} shows them), or "
        f"end a transaction of the source that has been open for long. A slot that nobody needs: incremental-assets capture drop "
        f"{datastore}."
    )


def _furthest_behind(some: Sequence[TableDefinition]) -> str:
    """Which of the containers has read least of the log."""
    reached: dict[str, int] = {}
    for one in some:
        try:
            head = LakeTable(lake_root(), *one.container.key_path).head()
            position = head.captured_to if head is not None else None
        except SyncError as error:
            return f"the table of {one.container.label} cannot be read: {as_line(str(error))}"
        if position is None:
            return f"{one.container.label} was not loaded yet"
        reached[one.container.label] = position[1]
    label = min(reached, key=lambda one: reached[one])
    return f"{label} has read it up to {lsn_text(reached[label])}" + (", the least of its containers" if len(reached) > 1 else "")


def _size(number: int) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"
