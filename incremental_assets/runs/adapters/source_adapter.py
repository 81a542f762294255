"""Defines the interface between Dagster and the source of a container: planning a sync, carrying it out, and describing the asset."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import dagster as dg

from incremental_assets.core.container import Container
from incremental_assets.core.plan import Plan, Request
from incremental_assets.databases.slot_counts import SlotCounts
from incremental_assets.databases.takeover import TakenOver
from incremental_assets.delta.container_sync import ContainerSync
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import Head, LakeTable


class SourceAdapter(Protocol):
    """Plans and syncs one container, and describes its asset. There is one implementation for each kind of source."""

    @property
    def due(self) -> Request:
        """The request that a schedule or sensor makes: an incremental sync, within the limits of the datastore."""
        ...

    def source(self) -> dg.AssetSpec:
        """The external asset that stands for the source table, or for the folder of files. It is upstream of the container's asset."""
        ...

    def asset_spec(self) -> dg.AssetSpec:
        """The part of the container's asset spec that depends on the kind of source: key, upstream asset, kinds, description, metadata."""
        ...

    def plan(
        self,
        instance: dg.DagsterInstance,
        request: Request,
        lake: str,
        events: Mapping[str, int | None] | None = None,
        counts: SlotCounts | None = None,
    ) -> tuple[Plan, list[str]]:
        """Plans a sync without Spark and without the container's lock. Returns the plan and the partition keys that its run would have.

        ``lake``: the folder or URL of the lake. ``events``: the watermarks of the newest events, by label, of those containers whose the
        caller has read already (``watermarks.newest_watermarks``). ``counts``: for all containers that the caller plans together; None: it
        plans this one alone. Raises SyncError.
        """
        ...

    def begin(
        self, instance: dg.DagsterInstance, request: Request, scope: LakeScope, run_id: str, log: Callable[[str], None]
    ) -> ContainerSync | Plan:
        """Makes a new plan and begins the sync. Returns the plan instead where there is nothing to do.

        The caller holds the container's lock. The plan by which the run was started was made before that, and may be outdated. Connections
        and other resources of the sync are released with ``scope.stack``. ``log``: writes to the run's log. Raises SyncError.
        """
        ...

    def keep_learned(self, instance: dg.DagsterInstance, plan: Plan, lake: str) -> int | None:
        """Stores the state that a skipping plan has found out (``Plan.confirmed``). Returns the watermark that counts afterwards.

        The caller holds the container's lock.
        """
        ...

    def reason_not_to_adopt(self, head: Head) -> str | None:
        """Why a table of another datastore cannot become the container's, whatever rows it has, in words; None if it can."""
        ...

    def take_over(self, instance: dg.DagsterInstance, table: LakeTable, before: Container, spark: Callable[[], Any]) -> TakenOver:
        """Finds out whether the rows of a table in the lake are the source's, where it may have been filled from another one.

        ``before``: the container that owns the table. ``spark``: returns a session, and is called only where the rows are many. The caller
        holds the container's lock. Raises RebuildNeeded where the table cannot go on, whatever its rows are, and SourceError.
        """
        ...

    def companion_tables(self, lake: str) -> Sequence[LakeTable]:
        """The small tables in the lake that belong to the container beside its own table, such as the manifest of its files.

        Maintenance covers them, too.
        """
        ...

    def preview(self, plan: Plan) -> Mapping[str, Any]:
        """The fields that a dry run shows of a plan: ``rows``, the number of rows to be read (None: not known), and what is read."""
        ...
