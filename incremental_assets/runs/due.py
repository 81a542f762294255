"""Whether a run of a container is due: its plan, and what is known of runs that sync it or are about to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition, is_named
from incremental_assets.core.errors import ContainerMissing
from incremental_assets.core.looks import Look
from incremental_assets.core.plan import Action, Plan
from incremental_assets.databases.slot_counts import SlotCounts
from incremental_assets.project.folders import dagster_home, lake_root
from incremental_assets.runs.adapters.choose import adapter_of
from incremental_assets.runs.launch import RunLaunch, keep_learned, launch_of
from incremental_assets.runs.locks import holder_of
from incremental_assets.runs.records.run_tags import CONTAINER_TAG, is_sync, tag_of
from incremental_assets.runs.records.watermarks import newest_watermarks

_WAITING = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED]
"""The statuses of a run that has not begun to execute, and so cannot hold the container's lock yet."""


@dataclass(frozen=True)
class NotDue:
    """The result for a container of which no run is started. ``reason``: a sentence for people.

    ``plan``: the plan that skips. None: no plan was made, because a run syncs the container or is about to, or because it is missing.
    """

    reason: str
    plan: Plan | None = None

    @property
    def look(self) -> Look | None:
        """See ``Plan.look``; None, too, where no plan was made."""
        return self.plan.look if self.plan is not None else None


@dataclass(frozen=True)
class LookedUp:
    """What a tick looks up once for all of its containers. The parts of Dagster's storage are read before it plans the first one.

    ``waiting``: by label, the newest run that is about to sync the container. ``events``: see ``watermarks.newest_watermarks``. A run that
    ends or begins after that is not missed: the watermark in the Delta table is read with the plan, the lower of both counts, and a run
    that is requested in spite of another one waits for its lock and makes a plan of its own.

    ``counts``: of the logs of the sources, which the first plan of a datastore looks at for all of its containers.
    """

    waiting: Mapping[str, str]
    events: Mapping[str, int | None]
    counts: SlotCounts

    @classmethod
    def now(cls, instance: dg.DagsterInstance, definitions: Sequence[ContainerDefinition]) -> "LookedUp":
        runs = [(tag_of(run, CONTAINER_TAG), run) for run in instance.get_runs(dg.RunsFilter(statuses=_WAITING)) if is_sync(run)]
        waiting = {label: run.run_id for label, run in reversed(runs) if label is not None}
        events = newest_watermarks(instance, [definition.container for definition in definitions])
        return cls(waiting, events, SlotCounts(definitions, lake_root()))


def at_work(instance: dg.DagsterInstance, definition: ContainerDefinition, known: LookedUp | None = None) -> NotDue | None:
    """Returns which run syncs the container or is about to; None where none does."""
    container = definition.container
    label = container.label
    # The lock says which run syncs the container; the status of a run does not. A killed run stays "started", and keeps its slot in the
    # pool, until it is reported as failed. `holder_of` does that.
    holder = holder_of(dagster_home(), container, instance)
    if holder is not None:
        return NotDue(f"{label}: it is being synced by {holder}")
    if known is not None:
        waiting = known.waiting.get(label)
    else:
        runs = instance.get_runs(dg.RunsFilter(statuses=_WAITING, tags={CONTAINER_TAG: label}), limit=20)
        waiting = next((run.run_id for run in runs if is_sync(run)), None)
    return None if waiting is None else NotDue(f"{label}: run {waiting} is about to sync it")


def launch_if_due(instance: dg.DagsterInstance, definition: ContainerDefinition, known: LookedUp | None = None) -> RunLaunch | NotDue:
    """Plans the container. Returns the config and tags to launch its run with, or the reason why no run is started.

    ``known``: what the tick has looked up for all containers; None: it is looked up for this one. Raises SyncError where it cannot be
    planned, and ContainerMissing where it is missing although the YAML names it.
    """
    busy = at_work(instance, definition, known)
    if busy is not None:
        return busy
    try:
        adapter = adapter_of(definition)
        events, counts = (known.events, known.counts) if known is not None else (None, None)
        plan, keys = adapter.plan(instance, adapter.due, lake_root(), events, counts)
    except ContainerMissing as error:
        if is_named(definition):
            raise
        return NotDue(str(error))
    return launch_planned(instance, definition, plan, keys)


def launch_planned(instance: dg.DagsterInstance, definition: ContainerDefinition, plan: Plan, keys: Sequence[str]) -> RunLaunch | NotDue:
    """Returns the same as ``launch_if_due`` for a plan. ``keys``: the partition keys that its run would have."""
    if plan.action is Action.SKIP:
        keep_learned(definition, instance, plan)
        return NotDue(f"{definition.container.label}: {plan.reason}", plan)
    return launch_of(definition, instance, plan, keys)
