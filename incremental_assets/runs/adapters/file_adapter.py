"""Implements the source adapter of a container of files: its plan, its sync, and the description of its asset."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import missing
from incremental_assets.core.container import Container
from incremental_assets.core.errors import ContainerMissing
from incremental_assets.core.files import FILE, MODIFIED
from incremental_assets.core.plan import Action, Mode, Plan, Request
from incremental_assets.databases.slot_counts import SlotCounts
from incremental_assets.databases.takeover import TakenOver
from incremental_assets.delta.container_sync import ContainerSync
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.files.attempts import Attempts
from incremental_assets.files.audit import audit
from incremental_assets.files.container_listing import FileListing, list_files
from incremental_assets.files.definition import FileDefinition
from incremental_assets.files.manifest import Manifest
from incremental_assets.files.plan import FilesPlan, make_files_plan
from incremental_assets.files.rejected import rejected_table
from incremental_assets.files.sync import FileSync
from incremental_assets.runs.adapters.file_partitions import DagsterFilePartitions
from incremental_assets.runs.partitioning import WINDOWS_METADATA, windows_metadata
from incremental_assets.runs.partitions import container_key


@dataclass(frozen=True)
class FileAdapter:
    """The ``SourceAdapter`` of a container of files."""

    definition: FileDefinition

    @property
    def due(self) -> Request:
        return Request(Mode.INCREMENTAL, max_files=self.definition.settings.max_files_per_run)

    def plan(
        self,
        instance: dg.DagsterInstance,
        request: Request,
        lake: str,
        events: Mapping[str, int | None] | None = None,
        counts: SlotCounts | None = None,
    ) -> tuple[FilesPlan, list[str]]:
        """See ``SourceAdapter``. Raises ContainerMissing where the catalog has found all files gone, and none has come back."""
        return self.plan_from(self.listing(), instance, request, lake)

    def listing(self) -> FileListing:
        """Lists the container's files now. Raises ContainerMissing for a container that is missing, and none of whose files is there."""
        definition = self.definition
        # Where the YAML declares the containers, a container that is missing has no pattern of its own any more: files that its old pattern
        # matches may belong to another container by now.
        if definition.missing_since is not None and definition.settings.declares:
            raise ContainerMissing(missing(definition))
        listed = list_files(definition)
        if definition.missing_since is not None and not listed.stamps:
            raise ContainerMissing(missing(definition))
        return listed

    def plan_from(self, listed: FileListing, instance: dg.DagsterInstance, request: Request, lake: str) -> tuple[FilesPlan, list[str]]:
        """Returns the same as ``plan`` from a listing of some moments ago, so that a sensor's tick lists once.

        It may be outdated when the run begins, which makes a plan of its own: only ``begin``, under the lock, decides what is read.
        """
        plan = self._plan(listed, request, lake)
        DagsterFilePartitions(instance, self.definition).repair(plan)
        keys = [file.key for file in plan.due]
        # A refresh of given partitions also names those whose files are gone: their rows are removed in the same run.
        of_run = keys if request.keys is None else [*keys, *plan.drop]
        return plan, list(dict.fromkeys(map(self.definition.partition_of, of_run)))

    def begin(
        self, instance: dg.DagsterInstance, request: Request, scope: LakeScope, run_id: str, log: Callable[[str], None]
    ) -> ContainerSync | Plan:
        container, partitions = self.definition.container, DagsterFilePartitions(instance, self.definition)
        # Listed anew, now that no other sync of the container can run: what another one has read or dropped since the plan that launched
        # this run would be taken for new or for gone otherwise.
        plan = self._plan(self.listing(), request, scope.lake)
        if plan.action is Action.SKIP:
            partitions.remove(plan.unknown)
            if request.audit is None:
                return plan
            return replace(plan, audited=audit(self.definition, scope, request.audit, log))
        log(f"{container.label}: {plan.reason}: {plan.requested}")
        scope.progress.begin(container.label)
        table, manifest = scope.table(*container.key_path), Manifest(scope.lake, container.key_path)
        return FileSync(self.definition, plan, table, manifest, scope, run_id, log, partitions)

    def preview(self, plan: Plan) -> Mapping[str, Any]:
        assert isinstance(plan, FilesPlan)
        return {"rows": None, "files": [file.path for file in plan.due], "drops": list(plan.drop)}

    def source(self) -> dg.AssetSpec:
        container, address = self.definition.container, self.definition.settings.address
        return dg.AssetSpec(
            self._source_key,
            group_name=f"{container.key_path[0]}_source",
            kinds={"file", self.definition.format.value},
            description=f"The files `{self.definition.glob}` in {address.display}.",
        )

    def asset_spec(self) -> dg.AssetSpec:
        definition, container = self.definition, self.definition.container
        folder, _, names = definition.glob.rpartition("/")
        metadata: dict[str, Any] = {
            "files/path": folder or ".",
            "files/names": names,
            "files/format": definition.format.value,
            "dagster/column_schema": dg.TableSchema(
                [
                    dg.TableColumn(FILE.name, FILE.type, description="the file: its path, encoded"),
                    dg.TableColumn(MODIFIED.name, MODIFIED.type, description="when it was modified"),
                ]
            ),
            WINDOWS_METADATA: windows_metadata(container),
        }
        each = "each one partition" if definition.folders is None else f"partitioned by {definition.folders.name} of their folders"
        what = f"Files `{definition.glob}` ({definition.format.value}) of {definition.settings.address.display}, {each}."
        return dg.AssetSpec(
            container_key(container),
            deps=[self._source_key],
            kinds={"file", "deltalake", "spark"},
            description=what,
            metadata=metadata,
        )

    def keep_learned(self, instance: dg.DagsterInstance, plan: Plan, lake: str) -> int | None:
        return plan.watermark  # files have no open transactions whose end a plan could find out

    def reason_not_to_adopt(self, head: Head) -> str | None:
        return None if head.signature() == self.definition.container.signature else f"the table was filled by {head.signature()}"

    def take_over(self, instance: dg.DagsterInstance, table: LakeTable, before: Container, spark: Callable[[], Any]) -> TakenOver:
        return TakenOver()  # each sync compares the folder with what is known of each file

    def companion_tables(self, lake: str) -> Sequence[LakeTable]:
        key_path = self.definition.container.key_path
        return [Manifest(lake, key_path).table, Attempts(lake, key_path).table, rejected_table(lake, key_path)]

    # ------------------------------------------------------------------
    @property
    def _source_key(self) -> dg.AssetKey:
        datastore, name = self.definition.container.key_path
        return dg.AssetKey([datastore, "files", name])

    def _plan(self, listed: FileListing, request: Request, lake: str) -> FilesPlan:
        key_path = self.definition.container.key_path
        return make_files_plan(self.definition, LakeTable(lake, *key_path), Manifest(lake, key_path), request, listed)
