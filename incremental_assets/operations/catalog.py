"""``incremental-assets catalog``: runs the operation (``--dry-run``: only asks the source), and returns one record for each container."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition, is_outgrown
from incremental_assets.catalog.detect import Proposal
from incremental_assets.catalog.diff import Change
from incremental_assets.catalog.operation import announced, hide
from incremental_assets.catalog.state import Known
from incremental_assets.core.errors import ConfigurationError, SyncError
from incremental_assets.project.folders import current_project
from incremental_assets.runs.catalog_run import CatalogConfig, catalog_options, run_catalog
from incremental_assets.runs.loading import Datastore, find_datastore, refuse_collisions, reload_catalog


def catalog_records(
    datastore: Datastore, instance: dg.DagsterInstance, config: Mapping[str, Any], dry_run: bool, progress: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One record for each known container, for each announced table, and for each container that was pruned; the fields are those of
    ``_record``.

    ``config``: the run config of the operation (``CatalogConfig``). With ``dry_run`` nothing is stored and there is no Dagster run.
    ``progress`` is called with messages of a dry run. Raises SourceError or ConfigurationError.
    """
    component = datastore.component
    if dry_run:
        options = catalog_options(CatalogConfig.model_validate(config), component.settings())
        outcome = component.take_catalog(component.store(current_project()).load(instance), options, progress)
        datastore.definitions = definitions = component.definitions(outcome.catalog)
    else:
        run = run_catalog(component, datastore.definitions, instance, "command line", config)
        problem = run.refused or run.failure
        if problem is not None or run.outcome is None:
            raise problem or SyncError(f"{component.name}: the catalog's run {run.run_id} ended without a result")
        reload_catalog(current_project(), datastore)
        outcome, definitions = run.outcome, datastore.definitions
    differences, troubles = [difference.record() for difference in outcome.differences], outcome.troubles
    changes = {difference["container"]: difference for difference in differences}
    records = [_record(d, changes.get(d.table.name, {}), troubles.get(d.table.name)) for d in definitions]
    pruned = [name for name, difference in changes.items() if difference["change"] == Change.PRUNED.value]
    declarations = component.declarations()
    new = [
        _new_table(component.name, one, declarations.schema, why, changes.get(one.table.name, {}).get("change"))
        for one, why in announced(outcome.catalog, declarations)
    ]
    return records + new + [_forgotten(f"{component.name}/{name}") for name in pruned]


def missing_privileges(datastore: Datastore, instance: dg.DagsterInstance) -> tuple[str, ...]:
    """Those of the stored catalog (``Catalog``)."""
    catalog = datastore.component.store(current_project()).load(instance)
    return () if catalog is None else catalog.missing_privileges


def name_collisions(datastores: Sequence[Datastore], records: Sequence[dict[str, Any]]) -> None:
    """Says in the records, once all catalogs of the command are taken, which containers are not synced because of others' names."""
    refuse_collisions(datastores)
    refused = {f"{one.name}/{name}": str(error) for one in datastores for name, error in one.refused.items()}
    for record in records:
        record["trouble"] = record["trouble"] or refused.get(record["container"])


def remove_containers(datastores: Sequence[Datastore], labels: Sequence[str], instance: dg.DagsterInstance) -> list[str]:
    """Hides the named containers (``datastore/container``) until a catalog operation recreates them. Returns their labels.

    Raises ConfigurationError, before anything is stored, for a label without a container and for a container that the YAML names; and for
    one that is not in the catalog, after which containers of other datastores may be hidden already.
    """
    if not labels:
        raise ConfigurationError("catalog remove: name what is to be removed, DATASTORE/CONTAINER.")
    chosen: dict[str, list[str]] = {}
    for label in labels:
        name, slash, container = label.partition("/")
        component = find_datastore(datastores, name).component
        if not slash or not container:
            raise ConfigurationError(f"catalog remove {label}: name a container, DATASTORE/CONTAINER.")
        if container in component.settings().named:
            raise ConfigurationError(f"{label}: the YAML names it; take it out there, or list it under exclude.")
        chosen.setdefault(name, []).append(container)
    for name, containers in chosen.items():
        store = find_datastore(datastores, name).component.store(current_project())
        with store.locked():
            catalog = store.load(instance)
            if catalog is None:
                raise ConfigurationError(f"{name} has no catalog yet; run: incremental-assets catalog {name}")
            try:
                store.save(hide(catalog, containers), instance)
            except ConfigurationError as error:
                raise ConfigurationError(f"{name}: {error}") from error
    return list(labels)


def _record(definition: ContainerDefinition, difference: Mapping[str, Any], trouble: str | None) -> dict[str, Any]:
    """The record of one container.

    ``difference``: what the operation found to have changed, empty for nothing. ``trouble``: what could not be found out, None for nothing.
    In the record ``rows`` is an estimate; ``safety_lag`` is in seconds, or in values for integers.
    """
    container, table = definition.container, definition.table
    partitioning = container.partitioning
    return {
        "container": container.label,
        "status": "present" if definition.missing_since is None else "missing",
        "missing_since": definition.missing_since,
        "kind": container.kind.value,
        "strategy": container.strategy.value,
        "identifier": "/".join(container.identifier.columns) if container.identifier else None,
        "partition_by": None if partitioning is None else partitioning.word,
        "primary_key": list(container.primary_key),
        "safety_lag": None if container.identifier is None else container.lag,
        "safety_lag_is_auto": container.lag_is_auto,
        "safety_lag_reason": container.lag_reason or None,
        "rows": table.rows,
        "bytes": table.bytes,
        "first": table.first,
        "last": table.last,
        "glob": table.glob,
        "format": table.format,
        "files": table.files,
        "columns": [{"name": c.name, "type": c.type, "not_null": c.not_null} for c in container.columns],
        "change": difference.get("change"),
        "fields": difference.get("fields", []),
        "row_security": container.row_security.value,
        "left_out": [{"name": name, "why": why} for name, why in container.left_out.items()],
        "trouble": trouble or container.refusal,
        "not_synced": None,
        "proposal": _proposal(definition),
    }


def _proposal(definition: ContainerDefinition) -> dict[str, Any] | None:
    """What the catalog proposes for the container; None where the YAML has decided."""
    if definition.is_specified:
        return None
    return {
        **_proposed(definition.proposal, definition.entry),
        "used": definition.is_detected,
        "outgrown": is_outgrown(definition),
    }


def _proposed(proposal: Proposal, entry: str | None) -> dict[str, Any]:
    """A proposal that is not used. ``entry``: the one for the YAML."""
    return {
        "entry": entry,
        "partition_by": proposal.partition_by,
        "ordering": list(proposal.primary_key) if proposal.type is None else [],
        "trusted": proposal.trusted,
        "used": False,
        "outgrown": False,
        "why": list(proposal.reasons),
    }


def _new_table(datastore: str, known: Known, schema: str, why: str, change: str | None) -> dict[str, Any]:
    """The record of a table that was announced. ``why``: that it is not synced, in words. ``change``: whether this run has found it."""
    table = known.table
    return {
        **_forgotten(f"{datastore}/{table.name}"),
        "status": known.presence.value,
        "kind": table.kind.value,
        "primary_key": list(table.primary_key),
        "rows": table.rows,
        "bytes": table.bytes,
        "columns": [{"name": c.name, "type": c.type, "not_null": c.not_null} for c in table.columns],
        "change": change,
        "not_synced": why,
        "proposal": _proposed(known.proposal, known.proposal.entry(schema, table.name)),
    }


def _forgotten(label: str) -> dict[str, Any]:
    """The record of a container that was pruned: all fields of ``_record``, without values."""
    names = "missing_since kind strategy identifier partition_by rows bytes first last glob format files row_security trouble not_synced"
    empty = dict.fromkeys([*names.split(), "safety_lag", "safety_lag_is_auto", "safety_lag_reason"])
    lists: dict[str, list[Any]] = {"primary_key": [], "columns": [], "fields": [], "left_out": []}
    return {"container": label, "status": "pruned", "change": Change.PRUNED.value, "proposal": None, **empty, **lists}
