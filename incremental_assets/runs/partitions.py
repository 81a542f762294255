"""The keys of a container in Dagster: its asset key and its partition keys."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.container import Container
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.files import decode_path, encode_path
from incremental_assets.core.names import nearest
from incremental_assets.core.partitions import Partitions
from incremental_assets.files.manifest import Manifest
from incremental_assets.project.folders import lake_root
from incremental_assets.runs.partitioning import dagster_partitions, partitions_of

PARTITION = "dagster/partition"
"""Dagster's tag of a run of one partition."""
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
"""Dagster's tags of a run of a range of partitions: its first and its last key, both inclusive."""
KEYS_A_BATCH = 1000
"""How many partition keys are added by one statement: SQLite limits the variables of a statement."""
_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
"""The statuses of runs that still need the partitions which their tags name."""


def container_key(container: Container) -> dg.AssetKey:
    """The asset key of the container: ``[datastore, container]``, both as encoded names."""
    return dg.AssetKey(list(container.key_path))


def partitions_definition(definition: ContainerDefinition) -> dg.PartitionsDefinition | None:
    """Dagster's partitions definition of the container; None where it has no partitions."""
    return dagster_partitions(definition.container)


def is_by_file(definition: ContainerDefinition) -> bool:
    """Whether each partition of the container is a file."""
    partitioning = definition.container.partitioning
    return partitioning is not None and partitioning.by_file


def container_partitions(definition: ContainerDefinition, instance: dg.DagsterInstance) -> Partitions | None:
    """The container's partitions as windows of its axis; None where it has no partitions, and where each partition is a file."""
    container, in_dagster = definition.container.along_axis, partitions_definition(definition)
    if in_dagster is None or container.cursor_type is None or container.partitioning is None or container.partitioning.by_file:
        return None
    return partitions_of(container.cursor_type, container.partitioning, in_dagster, instance)


def keys_of_run(context: Any, definition: ContainerDefinition) -> list[str] | None:
    """The partition keys that the run was launched with, from its tags; None where it was launched without partitions."""
    tags: Mapping[str, str] = context.run.tags
    partitions_def = partitions_definition(definition)
    if partitions_def is None:
        return None
    if PARTITION in tags:
        return [tags[PARTITION]]
    if RANGE_START in tags:
        known = partitions_def.get_partition_keys(dynamic_partitions_store=context.instance)
        return between(known, tags[RANGE_START], tags[RANGE_END])
    return None


def between(known: Sequence[str], first: str, last: str) -> list[str]:
    """The partition keys from ``first`` to ``last``, both inclusive, in Dagster's order.

    An end may be missing from ``known``, because the partition of a deleted file is removed. Its position is then unknown, and the range is
    the keys that lie between the two ends by name.
    """
    if first in known and last in known:
        return list(known[known.index(first) : known.index(last) + 1])
    return [key for key in known if first <= key <= last]


def keys_between(definition: ContainerDefinition, instance: dg.DagsterInstance, first: str, last: str) -> list[str]:
    """The partitions from one to another, both included. Of a time, the beginning of keys is enough: ``2026-03``.

    Raises ConfigurationError for a key that is none.
    """
    dagster_definition, partitions = partitions_definition(definition), container_partitions(definition, instance)
    assert dagster_definition is not None
    keys, axis = dagster_definition.get_partition_keys(dynamic_partitions_store=instance), definition.container.axis
    if partitions is None:
        return _files_between(definition, keys, first, last)
    is_time = axis is not None and axis.cursor_type.is_time
    if is_time:
        first, last = _completed(first, keys, 0), _completed(last, keys, -1)
    try:
        partitions.windows_of([first, last])  # raises for a key that is none
    except ConfigurationError as error:
        raise ConfigurationError(f"{definition.container.label}: {error}") from error
    if axis is not None and not is_time:
        chosen = [key for key in keys if int(first) <= int(key) <= int(last)]
    else:
        chosen = [key for key in keys if first <= key <= last]
    if not chosen:
        raise ConfigurationError(f"{definition.container.label}: --from {first} lies after --to {last}.")
    return chosen


def _completed(key: str, keys: Sequence[str], which: int) -> str:
    """The first (0) or the last (-1) of the keys that begin with this one; itself where it is one of them, or none does."""
    begun = [one for one in keys if one.startswith(f"{key}-")]
    return begun[which] if begun and key not in keys else key


def _files_between(definition: ContainerDefinition, known: Sequence[str], first: str, last: str) -> list[str]:
    """In the order in which they came; by name where an end is gone. One by itself may be new: the plan knows whether there is such a
    file."""
    container = definition.container
    if first == last:
        return [first if first in known or decode_path(first) is not None else encode_path(first)]
    assert container.partitioning is not None
    gone = frozenset(map(container.partitioning.of_file, Manifest(lake_root(), container.key_path).files()))
    expect_known(container, known, [key for key in (first, last) if key not in gone])
    keys = between(known, first, last)
    if not keys:
        where = "came after" if first in known and last in known else "and all files that are left lie outside of the range to"
        raise ConfigurationError(f"{container.label}: --from {first} {where} --to {last}.")
    return keys


def restore_range(instance: dg.DagsterInstance, definition: ContainerDefinition, tags: Mapping[str, str]) -> None:
    """Adds the ends of a run's range of files again where they were removed after the run was launched.

    Dagster itself looks up both ends, several times in a run, and fails where one is missing. It finds a range by the order in which keys
    were added. So the keys that lie between the two ends by name are removed and added again together with the ends.
    """
    partitions_def, partitioning = partitions_definition(definition), definition.container.partitioning
    if RANGE_START not in tags or partitioning is None or not partitioning.by_file:
        return
    assert isinstance(partitions_def, dg.DynamicPartitionsDefinition) and partitions_def.name is not None
    first, last = tags[RANGE_START], tags[RANGE_END]
    known = instance.get_dynamic_partitions(partitions_def.name)
    if first in known and last in known:
        return
    keys = list(dict.fromkeys((first, *between(known, first, last), last)))
    for key in keys:
        instance.delete_dynamic_partition(partitions_def.name, key)
    add_keys(instance, partitions_def, keys)


def ends_of_unfinished_runs(instance: dg.DagsterInstance) -> set[str]:
    """The partition keys that the tags of unfinished runs name.

    They must not be removed: Dagster refuses such a run, even while it executes, once one of them does not exist any more.
    """
    runs = instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED))
    return {run.tags[tag] for run in runs for tag in (PARTITION, RANGE_START, RANGE_END) if tag in run.tags}


def expect_files(definition: ContainerDefinition, instance: dg.DagsterInstance, keys: Sequence[str]) -> None:
    """Raises ConfigurationError for a partition key of a file that Dagster does not have.

    It does nothing for other kinds of partitions: their keys are checked when they are turned into windows.
    """
    in_dagster, partitioning = partitions_definition(definition), definition.container.partitioning
    if in_dagster is None or partitioning is None or not partitioning.by_file:
        return
    expect_known(definition.container, in_dagster.get_partition_keys(dynamic_partitions_store=instance), keys)


def expect_known(container: Container, known: Sequence[str], keys: Sequence[str]) -> None:
    """Raises ConfigurationError for the first of ``keys`` that is not in ``known``, and names the nearest known key."""
    folders = container.partitioning.folders if container.partitioning is not None else None
    what = "the file's path below the folder" if folders is None else f"a value of {folders.name} of its folders"
    for key in keys:
        if key not in known:
            raise ConfigurationError(f"{container.label}: there is no partition {key!r}; it is {what}.{nearest(key, known)}")


def add_keys(instance: dg.DagsterInstance, partitions_def: dg.PartitionsDefinition | None, keys: Sequence[str]) -> None:
    """Adds the partition keys that a dynamic partitions definition does not have yet.

    Other definitions derive their keys and need no adding. Keys are added in batches, because SQLite limits the variables of a statement.
    """
    if not keys or not isinstance(partitions_def, dg.DynamicPartitionsDefinition) or partitions_def.name is None:
        return
    known = set(instance.get_dynamic_partitions(partitions_def.name))
    new = [key for key in keys if key not in known]
    for at in range(0, len(new), KEYS_A_BATCH):
        instance.add_dynamic_partitions(partitions_def.name, new[at : at + KEYS_A_BATCH])
