"""Implements the source adapter of a container of files: its plan, its sync, and the description of its asset.

Belongs here: listing the folder once for a plan or a sync, and keeping Dagster's partitions in step with the files. Does not belong: the
decisions of a plan (``files.plan``), or the steps of a sync (``files.sync``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import missing
from incremental_assets.core.errors import ContainerMissing
from incremental_assets.core.files import FILE, MODIFIED
from incremental_assets.core.plan import Action, Mode, Plan, Request
from incremental_assets.dagster.partitioning import WINDOWS_METADATA, windows_metadata
from incremental_assets.dagster.partitions import add_keys, container_key, ends_of_unfinished_runs, partitions_definition
from incremental_assets.delta.container_sync import ContainerSync
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import LakeTable
from incremental_assets.files.attempts import Attempts
from incremental_assets.files.definition import FileDefinition
from incremental_assets.files.manifest import Manifest
from incremental_assets.files.plan import FilesPlan, list_files, make_files_plan
from incremental_assets.files.rejected import rejected_table
from incremental_assets.files.sync import FileSync


@dataclass(frozen=True)
class FileAdapter:
    """The ``SourceAdapter`` of a container of files."""

    definition: FileDefinition

    @property
    def due(self) -> Request:
        return Request(Mode.INCREMENTAL, max_files=self.definition.settings.max_files_per_run)

    def plan(self, instance: dg.DagsterInstance, request: Request, lake: str) -> tuple[FilesPlan, list[str]]:
        """See ``SourceAdapter``. Raises ContainerMissing where the catalog has found all files gone, and none has come back."""
        plan = self._plan(request, lake)
        self._list_again(instance, plan)
        keys = [file.key for file in plan.files]
        # A refresh of given partitions also names those whose files are gone: their rows are removed in the same run.
        return plan, keys if request.keys is None else [*keys, *plan.drop]

    def begin(
        self, instance: dg.DagsterInstance, request: Request, scope: LakeScope, run_id: str, log: Callable[[str], None]
    ) -> ContainerSync | Plan:
        container = self.definition.container
        plan = self._plan(request, scope.lake)
        if plan.action is Action.SKIP:
            self._forget(instance, plan.phantoms)
            return plan
        log(f"{container.label}: {plan.reason}: {plan.requested}")
        table, manifest = scope.table(*container.key_path), Manifest(scope.lake, container.key_path)
        return FileSync(self.definition, plan, table, manifest, scope, run_id, log, lambda keys: self._forget(instance, keys))

    def preview(self, plan: Plan) -> Mapping[str, Any]:
        assert isinstance(plan, FilesPlan)
        return {"rows": None, "files": [file.path for file in plan.files], "drops": list(plan.drop)}

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
                    dg.TableColumn(FILE.name, FILE.type, description="the file, by its partition's key"),
                    dg.TableColumn(MODIFIED.name, MODIFIED.type, description="when it was modified"),
                ]
            ),
            WINDOWS_METADATA: windows_metadata(container),
        }
        what = f"Files `{definition.glob}` ({definition.format.value}) of {definition.settings.address.display}, each one partition."
        return dg.AssetSpec(
            container_key(container),
            deps=[self._source_key],
            kinds={"file", "deltalake", "spark"},
            description=what,
            metadata=metadata,
        )

    def keep_learned(self, instance: dg.DagsterInstance, plan: Plan, lake: str) -> int | None:
        return plan.watermark  # files have no open transactions whose end a plan could find out

    def companion_tables(self, lake: str) -> Sequence[LakeTable]:
        key_path = self.definition.container.key_path
        return [Manifest(lake, key_path).table, Attempts(lake, key_path).table, rejected_table(lake, key_path)]

    # ------------------------------------------------------------------
    @property
    def _source_key(self) -> dg.AssetKey:
        datastore, name = self.definition.container.key_path
        return dg.AssetKey([datastore, "files", name])

    def _plan(self, request: Request, lake: str) -> FilesPlan:
        definition, key_path = self.definition, self.definition.container.key_path
        # Where the YAML declares the containers, a container that is missing has no pattern of its own any more: files that its old pattern
        # matches may belong to another container by now.
        if definition.missing_since is not None and definition.settings.declares:
            raise ContainerMissing(missing(definition))
        listed = list_files(definition)
        if definition.missing_since is not None and not listed.stamps:
            raise ContainerMissing(missing(definition))
        return make_files_plan(definition, LakeTable(lake, *key_path), Manifest(lake, key_path), request, listed)

    def _list_again(self, instance: dg.DagsterInstance, plan: FilesPlan) -> None:
        """Repairs the list of partitions in Dagster.

        Where the list is empty although files were synced, it was lost with DAGSTER_HOME, and all keys are added again. Partitions of
        deleted files that an earlier sync had to leave, as an unfinished run named them, are removed.
        """
        partitions = partitions_definition(self.definition)
        assert isinstance(partitions, dg.DynamicPartitionsDefinition) and partitions.name is not None
        keys = instance.get_dynamic_partitions(partitions.name)
        if plan.known and not keys:
            add_keys(instance, partitions, list(plan.known))
        # Only if the plan skips is it certain that the manifest knows all files that have rows in the table.
        if plan.action is Action.SKIP:
            listed = plan.listed
            self._forget(instance, [key for key in keys if key not in listed.stamps and key not in plan.known and not listed.may_hide(key)])

    def _forget(self, instance: dg.DagsterInstance, keys: Sequence[str]) -> None:
        """Removes partitions from Dagster, such as those of files whose rows were removed.

        Keys that the tags of an unfinished run name are left for the next plan: Dagster refuses a run whose partitions do not exist.
        """
        partitions = partitions_definition(self.definition)
        assert isinstance(partitions, dg.DynamicPartitionsDefinition) and partitions.name is not None
        named = ends_of_unfinished_runs(instance) if keys else ()
        for key in (key for key in keys if key not in named):
            instance.delete_dynamic_partition(partitions.name, key)
