"""Builds the asset of a container, and syncs the container when the asset is materialized."""

import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
from dagster._core.storage.tags import KIND_PREFIX

from incremental_assets.catalog.definition import ContainerDefinition, missing
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.dagster.io_manager import OF_A_CONTAINER
from incremental_assets.dagster.schedules import schedules_shown
from incremental_assets.runs.adapters.choose import adapter_of
from incremental_assets.runs.container_run import SyncConfig
from incremental_assets.runs.partitions import container_key, partitions_definition
from incremental_assets.runs.quality.evaluations import repeat_evaluations

MISSING_TAG = "incremental_assets/missing"
"""The tag of an asset whose container is gone from the source."""


# The schema is made once. When Dagster inferred it again for each asset, that took a third of the time in which many containers are loaded.
_CONFIG_SCHEMA: Any = SyncConfig.to_config_schema()


GetAssetSpec = Callable[[ContainerDefinition], dg.AssetSpec]
"""A function that returns the asset spec of a container."""
SyncContainer = Callable[[dg.AssetExecutionContext, ContainerDefinition], Iterator[dg.Output[Any]]]
"""A function that syncs a container in a run of its asset, and yields the output to be written, if there is any."""


def container_spec(definition: ContainerDefinition) -> dg.AssetSpec:
    """The spec of the container's asset, unless the component of its datastore overrides it."""
    container, spec, schedules = definition.container, adapter_of(definition).asset_spec(), schedules_shown(definition)
    spec = spec.merge_attributes(
        metadata={
            **({} if schedules is None else {"sync/schedule": schedules}),
            "dagster/table_name": ".".join(container.key_path),
            "sync/identifier": container.signature,
            "sync/safety_lag": container.lag,
            "sync/safety_lag_is_auto": container.lag_is_auto,
            "sync/safety_lag_reason": container.lag_reason,
        },
        tags={**container.options.tags, **({MISSING_TAG: "true"} if definition.missing_since else {})},
        owners=list(container.options.owners),
    )
    description = spec.description if definition.missing_since is None else f"**Missing.** {missing(definition)}"
    fails_after = container.options.freshness
    # Without the attribute there is none: Dagster counts materializations, and a sync that has nothing to do makes none.
    policy = None if fails_after is None else dg.FreshnessPolicy.time_window(timedelta(seconds=fails_after))
    return spec.replace_attributes(group_name=container.key_path[0], description=description, freshness_policy=policy)


def container_asset(definition: ContainerDefinition, get_asset_spec: GetAssetSpec, carry_out: SyncContainer) -> dg.AssetsDefinition:
    """The asset of one container. Raises ConfigurationError where ``get_asset_spec`` has changed the asset key."""
    spec = get_asset_spec(definition)
    if spec.key != container_key(definition.container):
        raise ConfigurationError(
            f"{definition.container.label}: get_asset_spec gave it the key {spec.key.to_user_string()}. Its key is where its table, its "
            f"watermark and its history are found; leave it, and change what else the asset shows."
        )
    with warnings.catch_warnings():
        # Backfill policies have been in beta since 2023. The characterization tests check the behaviour that is needed here.
        warnings.filterwarnings("ignore", message="Parameter `backfill_policy`", category=dg.BetaWarning)
        return _asset(definition, spec, carry_out)


def _asset(definition: ContainerDefinition, spec: dg.AssetSpec, carry_out: SyncContainer) -> dg.AssetsDefinition:
    container, partitions_def = definition.container, partitions_definition(definition)

    @dg.asset(
        key=spec.key,
        partitions_def=partitions_def,
        backfill_policy=dg.BackfillPolicy.single_run() if partitions_def else None,
        io_manager_key="delta",
        required_resource_keys={"lake"},
        deps=list(spec.deps),
        group_name=spec.group_name,
        kinds=spec.kinds,
        owners=list(spec.owners) or None,
        tags={name: value for name, value in spec.tags.items() if not name.startswith(KIND_PREFIX)},
        metadata={**spec.metadata, OF_A_CONTAINER: container.strategy.value},  # by this key the IO manager recognises a container
        description=spec.description,
        code_version=spec.code_version,
        automation_condition=spec.automation_condition,
        freshness_policy=spec.freshness_policy,
        pool="/".join(container.key_path),
        config_schema=_CONFIG_SCHEMA,
        output_required=False,
    )
    def sync(context: dg.AssetExecutionContext) -> Iterator[dg.Output[Any]]:
        writes = False
        for output in carry_out(context, definition):
            writes = True
            yield output
        # Dagster runs the checks of an asset only if the run has an output.
        if not writes:
            repeat_evaluations(context, definition)

    return sync
