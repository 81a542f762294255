"""The tables that runs of the catalog have announced and that are not synced, as problems and as one sentence for ``status``."""

from collections.abc import Sequence

from incremental_assets.catalog.operation import announced
from incremental_assets.catalog.state import Known
from incremental_assets.core.yaml_text import flow
from incremental_assets.operations.alerts.problems import Problem, Severity
from incremental_assets.runs.loading import Datastore

_SHOWN = 10
"""How many tables a sentence names."""


def new_table_problems(datastores: Sequence[Datastore]) -> dict[str, Problem]:
    """One problem for all tables of a datastore that one run of the catalog has announced, by its key.

    Those of a later run are another problem, as there is only one message of each.
    """
    problems: dict[str, Problem] = {}
    for store in datastores:
        by_run: dict[str, list[str]] = {}
        for one in _announced(store):
            by_run.setdefault(one.since, []).append(one.table.name)
        for since, names in by_run.items():
            text = f"{store.name}: {_not_synced(names)}, new since {since}"
            problems[f"{store.name} new tables {since}"] = Problem(Severity.WARNING, text, _remedy(names[0]))
    return problems


def new_tables_line(datastores: Sequence[Datastore]) -> str | None:
    """One line for all announced tables of the datastores; None: there are none."""
    found = [(store.name, one.table.name) for store in datastores for one in _announced(store)]
    return f"{_not_synced([f'{store}/{name}' for store, name in found])}. {_remedy(found[0][1])}" if found else None


def _announced(store: Datastore) -> list[Known]:
    return [one for one, _ in announced(store.catalog, store.component.declarations())]


def _not_synced(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"{len(names):,} new {'table is' if len(names) == 1 else 'tables are'} not synced: {', '.join(names[:_SHOWN])}{more}"


def _remedy(name: str) -> str:
    return (
        f"To sync it, name it in the YAML: containers: {flow({name: {}})}, or the entry under incremental that incremental-assets catalog "
        f"proposes. To leave it out, list it under exclude."
    )
