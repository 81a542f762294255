"""Runs of the catalog operation: its asset, whose materializations show the differences, its job, and how the command line runs it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition, Settings
from incremental_assets.catalog.diff import Change, Difference
from incremental_assets.catalog.operation import CatalogOptions, CatalogResult
from incremental_assets.catalog.state import Catalog, Presence
from incremental_assets.core.container import Kind
from incremental_assets.core.errors import ConfigurationError, MisfitError, SyncError
from incremental_assets.core.names import encode_name
from incremental_assets.core.shown_text import counted
from incremental_assets.project.catalogued import CataloguedComponent
from incremental_assets.project.folders import current_project, reloads_by_itself
from incremental_assets.runs.loggers import LOGGERS
from incremental_assets.runs.ordinary_run import run_here
from incremental_assets.runs.records.operation_rows import record_catalog
from incremental_assets.runs.records.run_tags import DATASTORE_TAG, OPERATION_TAG, PREFIX, RESULT_TAG, STARTED_BY_TAG, started_by

CHECK = "complete"
"""The name of the asset check of a catalog."""
SHOWN_DIFFERENCES = 500
"""At most so many differences, and troubles, are in the metadata of one materialization."""
LINES_A_MESSAGE = 100
"""How many differences one log message lists."""
FIRST_AGAIN_SECONDS = 300
"""How long the sensor of a new datastore waits after a failed run."""


class Included(str, Enum):
    """The kinds of relations that become containers. Dagster's run config addresses the members of an enum by their names."""

    table = "table"
    view = "view"


class CatalogConfig(dg.Config):
    """The run config of the operation. An option that is left out (None) is as ``catalog:`` of the YAML says.

    ``prune``: containers that are gone from the source are forgotten. ``recreate``: containers that a person has removed are added again.
    ``include``: only tables, or only views, are compared; the others stay as they are known.
    """

    prune: bool | None = None
    recreate: bool | None = None
    include: list[Included] | None = None


def kinds_of(include: Sequence[str]) -> frozenset[Kind]:
    """The kinds of relations that the words ``table`` and ``view`` mean."""
    return frozenset(kind for kind in Kind if ("view" if kind.is_view else "table") in include)


def catalog_key(name: str, definitions: Sequence[ContainerDefinition]) -> dg.AssetKey:
    """The key of the catalog's asset: ``[datastore, "catalog"]``.

    ``_`` is put in front of ``catalog`` until no container has that name.
    """
    taken = {definition.container.key_path[1] for definition in definitions}
    last = "catalog"
    while last in taken:
        last = f"_{last}"
    return dg.AssetKey([encode_name(name), last])


def job_name(name: str) -> str:
    """The name of the catalog's job."""
    return f"catalog_{encode_name(name)}"


def op_name(name: str) -> str:
    """The name of the op behind the catalog's asset.

    Run configs name it, so unlike the asset key it does not depend on the names of the containers.
    """
    return f"{encode_name(name)}_catalog"


def asset_and_job(
    component: CataloguedComponent, settings: Settings, known: Sequence[ContainerDefinition], report: Callable[[CatalogResult], None]
) -> tuple[dg.AssetsDefinition, Any]:
    """The asset and the job of the operation. ``report`` is called with the result of each run in this process."""
    asset = _asset(component, settings, catalog_key(settings.name, known), report)
    job = dg.define_asset_job(
        job_name(settings.name),
        selection=dg.AssetSelection.assets(asset),
        description=f"Finds out what is in {settings.name}, and what has changed.",
        tags={OPERATION_TAG: "catalog", DATASTORE_TAG: settings.name},
    )
    return asset, job


def _asset(
    component: CataloguedComponent, settings: Settings, key: dg.AssetKey, report: Callable[[CatalogResult], None]
) -> dg.AssetsDefinition:
    """The asset of the catalog with its check. Its materialization takes the catalog, stores it, and shows the differences."""
    spec = dg.AssetSpec(
        key,
        group_name=key.path[0],
        kinds={component.ui_kind},
        description=f"What is in the datastore `{settings.name}`: each run compares it with what is known, and shows the differences.",
    )
    check = dg.AssetCheckSpec(CHECK, asset=key, description="Whether each container could be looked at, and is as it should be.")

    @dg.multi_asset(name=op_name(settings.name), specs=[spec], check_specs=[check], pool="/".join(key.path))
    def catalog(context: dg.AssetExecutionContext, config: CatalogConfig) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        options = catalog_options(config, settings)
        tags = {
            f"{PREFIX}prune": str(options.prune).lower(),
            f"{PREFIX}recreate": str(options.recreate).lower(),
            f"{PREFIX}include": _include(options),
        }
        # *Materialize* in the UI starts Dagster's own job, which does not have the tags of ours.
        tags |= {OPERATION_TAG: "catalog", DATASTORE_TAG: settings.name}
        tags |= {STARTED_BY_TAG: started_by(context.run.tags)}
        context.instance.add_run_tags(context.run_id, tags)
        outcome = record_catalog(
            context.run,
            settings.name,
            lambda: renew_catalog(component, context.instance, options, context.log.info),
            context.log.warning,
        )
        report(outcome)
        # Each message is an event in the log. A message for each difference of a large datastore would take longer than the rest of the
        # operation.
        shown = outcome.differences
        if len(shown) == len(outcome.catalog.entries) and all(one.change is Change.NEW for one in shown):
            context.log.info(f"{settings.name}: {counted(len(shown), 'container')}, all of them new")
            shown = ()
        for at in range(0, len(shown), LINES_A_MESSAGE):
            context.log.info("\n".join(map(str, shown[at : at + LINES_A_MESSAGE])))
        for name, trouble in outcome.troubles.items():
            context.log.warning(f"{settings.name}/{name}: {trouble}")
        if _adds_assets(outcome.differences) and not reloads_by_itself():
            context.log.info("The UI shows new and forgotten containers once the code location is reloaded (Deployment → Reload).")
        context.instance.add_run_tags(context.run_id, {RESULT_TAG: "warning" if outcome.troubles else "success"})
        yield dg.MaterializeResult(asset_key=key, metadata=_metadata(outcome))
        yield dg.AssetCheckResult(
            asset_key=key,
            check_name=CHECK,
            passed=not outcome.troubles,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={name: trouble for name, trouble in list(outcome.troubles.items())[:SHOWN_DIFFERENCES]},
        )

    return catalog


def catalog_options(config: CatalogConfig, settings: Settings) -> CatalogOptions:
    """The options of one run: those of its config, with ``catalog:`` of the YAML for each that is left out.

    The config can only narrow what the YAML includes.
    """
    of_yaml = settings.catalog
    return CatalogOptions(
        of_yaml.prune if config.prune is None else config.prune,
        of_yaml.recreate if config.recreate is None else config.recreate,
        of_yaml.kinds if config.include is None else kinds_of([one.value for one in config.include]) & of_yaml.kinds,
    )


def _include(options: CatalogOptions) -> str:
    return ",".join(word for word in ("table", "view") if kinds_of([word]) & options.kinds)


def renew_catalog(
    component: CataloguedComponent, instance: dg.DagsterInstance, options: CatalogOptions | None, progress: Callable[[str], None]
) -> CatalogResult:
    """Takes the catalog and stores it. Raises SourceError or ConfigurationError; the stored catalog is unchanged then.

    ``options``: None means the options of the YAML. ``progress`` is called with messages for the log.
    """
    store = component.store(current_project())
    with store.locked():
        before = store.load(instance)
        outcome = component.take_catalog(before, options, progress, finished=store.finished(), keep=store.keep_finished)
        outcome = _fitting(component, before, outcome)
        store.save(outcome.catalog, instance)
    return outcome


def _fitting(component: CataloguedComponent, before: Catalog | None, outcome: CatalogResult) -> CatalogResult:
    """Replaces the new entry of each container that the YAML no longer fits by its old entry.

    The sync of such a container then fails, and the others go on. Raises ConfigurationError where there is no old entry, or where the YAML
    does not fit that one either: the project would not load with the new catalog.
    """
    old = before.by_name if before is not None else {}
    catalog, troubles = outcome.catalog, dict(outcome.troubles)
    while True:
        # The error is of the first container that does not fit. So this is repeated until no other one is found.
        try:
            there = [one.container for one in component.definitions(catalog) if one.missing_since is None]
            troubles |= {one.name: one.refusal for one in there if one.refusal is not None}
            return replace(outcome, catalog=catalog, troubles=troubles)
        except MisfitError as error:
            name = error.container
            kept = old.get(name)
            if kept is None or kept == catalog.by_name.get(name):
                raise
            entries = tuple(kept if one.table.name == name else one for one in catalog.entries)
            catalog, troubles[name] = replace(catalog, entries=entries), f"it stays as it was known: {error}"


def _adds_assets(differences: Sequence[Difference]) -> bool:
    """Whether the differences add or remove assets, which Dagster shows only after the code location is reloaded."""
    return any(d.change in (Change.NEW, Change.BACK, Change.PRUNED) for d in differences)


def _metadata(outcome: CatalogResult) -> dict[str, Any]:
    """The metadata of the materialization: counts, which the UI plots, the differences as a table, and the same as JSON for scripts."""
    entries = outcome.catalog.entries
    present = [known for known in entries if known.presence is Presence.PRESENT]
    counted = {change: sum(1 for d in outcome.differences if d.change is change) for change in Change}
    shown = outcome.differences[:SHOWN_DIFFERENCES]
    records = [dg.TableRecord({"container": d.container, "change": d.change.value, "fields": "; ".join(map(str, d.fields))}) for d in shown]
    schema = dg.TableSchema([dg.TableColumn(name) for name in ("container", "change", "fields")])
    details = {
        "differences": [d.record() for d in shown],
        "troubles": dict(outcome.troubles),
        "left_out": len(outcome.differences) - len(shown),
    }
    return {
        "catalog/containers": len(present),
        "catalog/fields": sum(len(known.table.columns) for known in present),
        "catalog/known_missing": sum(1 for known in entries if known.presence is Presence.MISSING),
        "catalog/known_announced": sum(1 for known in entries if known.presence is Presence.ANNOUNCED),
        "catalog/hidden": sum(1 for known in entries if known.presence is Presence.HIDDEN),
        **{f"catalog/{change.value}": count for change, count in counted.items()},
        "catalog/troubles": len(outcome.troubles),
        "catalog/looked_at": outcome.inspected,
        "catalog/result": "warning" if outcome.troubles else "success",
        "catalog/differences": dg.TableMetadataValue(records, schema),
        "catalog/details": dg.JsonMetadataValue(details),
    }


# ---------------------------------------------------------------------- from the command line
@dataclass(frozen=True)
class CatalogRun:
    """A run of the operation that has ended.

    ``refused``: the error where the YAML does not fit the source. ``failure``: the error where the run failed otherwise. ``outcome`` is the
    result where both are None.
    """

    run_id: str
    outcome: CatalogResult | None = None
    refused: ConfigurationError | None = None
    failure: SyncError | None = None


def run_catalog(
    component: CataloguedComponent,
    known: Sequence[ContainerDefinition],
    instance: dg.DagsterInstance,
    started_by: str,
    config: Mapping[str, Any] | None = None,
) -> CatalogRun:
    """Runs the operation as an ordinary Dagster run in this process.

    ``known``: the containers of the stored catalog. ``started_by``: a tag of the run. ``config``: see ``CatalogConfig``. Raises
    KeyboardInterrupt when the run was interrupted.
    """
    settings = component.settings()
    # Events have only the metadata of the outcome. The asset runs in this process and hands over the whole of it.
    outcomes: list[CatalogResult] = []
    asset, job = asset_and_job(component, settings, known, outcomes.append)
    runnable = dg.Definitions([asset], jobs=[job], executor=dg.in_process_executor, loggers=LOGGERS)
    run_config = {"ops": {op_name(settings.name): {"config": dict(config or {})}}}
    ended = run_here(runnable.resolve_job_def(job_name(settings.name)), instance, run_config, {STARTED_BY_TAG: started_by})
    if ended.error in (ConfigurationError.__name__, MisfitError.__name__):
        return CatalogRun(ended.run_id, refused=ConfigurationError(ended.failure))
    if ended.failure:
        return CatalogRun(ended.run_id, failure=SyncError(ended.failure))
    return CatalogRun(ended.run_id, outcomes[0])
