"""What Dagster asks of a container's source: to plan a sync, to carry it out, and to describe the container's asset.

Belongs here: the protocol. Does not belong: its implementations (``table_adapter``, ``file_adapter``), or what is the same for both.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import dagster as dg

from incremental_assets.core.plan import Plan, Request
from incremental_assets.delta.result import SyncResult
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import LakeTable
from incremental_assets.delta.write_batch import WriteBatches


class Sync(Protocol):
    """One sync that has begun. ``result`` is complete when its extractions have been committed."""

    @property
    def result(self) -> SyncResult: ...

    def write_batches(self, before_outside: Callable[[Sequence[str]], None]) -> WriteBatches | None:
        """What the IO manager commits; None where there turned out to be nothing, of which ``result`` says why."""
        ...

    def finish(self) -> None:
        """After the last event."""
        ...


class SourceAdapter(Protocol):
    """How one container is planned and synced, and how its asset looks in the UI."""

    @property
    def due(self) -> Request:
        """What a schedule or sensor asks for."""
        ...

    def source(self) -> dg.AssetSpec:
        """Where the data comes from, as an upstream asset."""
        ...

    def asset_spec(self) -> dg.AssetSpec:
        """The container's asset, as far as it depends on the source: key, upstream asset, kinds, description and metadata."""
        ...

    def plan(self, instance: dg.DagsterInstance, request: Request, lake: str) -> tuple[Plan, list[str]]:
        """The plan now, and the partition keys that its run would have. Without Spark. Raises SyncError."""
        ...

    def begin(
        self, instance: dg.DagsterInstance, request: Request, scope: LakeScope, run_id: str, log: Callable[[str], None]
    ) -> "Sync | Plan":
        """Plans anew under the lock, and begins; the plan where there is nothing to do. What it holds is on ``scope.stack``."""
        ...

    def keep_learned(self, instance: dg.DagsterInstance, plan: Plan, lake: str) -> int | None:
        """Writes down what a plan that skips has found out; the watermark that counts then. The container is locked."""
        ...

    def beside(self, lake: str) -> Sequence[LakeTable]:
        """Small tables that belong to the container's own."""
        ...

    def preview(self, plan: Plan) -> Mapping[str, Any]:
        """Of a dry run: how many rows would be read (None: not known), and how."""
        ...
