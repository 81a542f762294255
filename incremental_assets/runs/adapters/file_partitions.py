"""Keeps the list of a container's partitions in Dagster in step with its files."""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from incremental_assets.core.plan import Action
from incremental_assets.files.definition import FileDefinition
from incremental_assets.files.plan import FilesPlan
from incremental_assets.runs.partitions import add_keys, ends_of_unfinished_runs, partitions_definition


@dataclass(frozen=True)
class DagsterFilePartitions:
    """The ``files.sync.FilePartitions`` of a container in a Dagster instance."""

    instance: dg.DagsterInstance
    definition: FileDefinition

    def repair(self, plan: FilesPlan) -> None:
        """Repairs the list after a plan.

        Where the list is empty although files were synced, it was lost with DAGSTER_HOME, and all keys are added again. Partitions of
        deleted files that an earlier sync had to leave, as an unfinished run named them, are removed.
        """
        keys, of = self.instance.get_dynamic_partitions(self._name), self.definition.partition_of
        if plan.known and not keys:
            add_keys(self.instance, partitions_definition(self.definition), list(dict.fromkeys(map(of, plan.known))))
        # Only if the plan skips is it certain that the manifest knows all files that have rows in the table.
        if plan.action is Action.SKIP:
            listed = plan.listed
            if self.definition.folders is None:
                self.remove([key for key in keys if key not in listed.stamps and key not in plan.known and not listed.may_hide(key)])
            elif not listed.unseen:
                there = {of(key) for key in (*listed.stamps, *plan.known)}
                self.remove([key for key in keys if key not in there])

    def remove(self, keys: Sequence[str]) -> None:
        """See ``FilePartitions``.

        Keys that the tags of an unfinished run name are left for the next plan: Dagster refuses a run whose partitions do not exist.
        """
        named = ends_of_unfinished_runs(self.instance) if keys else ()
        for key in (key for key in keys if key not in named):
            self.instance.delete_dynamic_partition(self._name, key)

    @property
    def _name(self) -> str:
        partitions = partitions_definition(self.definition)
        assert isinstance(partitions, dg.DynamicPartitionsDefinition) and partitions.name is not None
        return partitions.name
