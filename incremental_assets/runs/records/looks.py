"""Records when the source of each container was last looked at and found covered: one value for each datastore in Dagster's cursor storage.

A look that finds nothing to do is no run and no event: of a schedule that ticks each minute, these would be half a million rows a year for
each container.
"""

import json
from collections.abc import Collection, Mapping

import dagster as dg

from incremental_assets.core.looks import Look, Looks, latest

_CURSOR = "incremental_assets/looks/"
"""What the names of the values begin with. Each storage in which this Dagster loads a project has a table for them: it keeps there, too,
which catalogs are the newest."""


def remember(instance: dg.DagsterInstance, looks: Mapping[str, Look | None]) -> None:
    """Records looks. ``looks``: by the label of the container; None: its look does not count."""
    by_store: dict[str, dict[str, Look]] = {}
    for label, look in looks.items():
        if look is not None:
            datastore, _, name = label.partition("/")
            by_store.setdefault(datastore, {})[name] = look
    for datastore, found in by_store.items():
        _write(instance, datastore, found)


def _write(instance: dg.DagsterInstance, datastore: str, looks: Looks) -> None:
    # Dagster has no way to write a value only if it is still the one that was read. Of two processes that write at the same moment, the
    # second one may undo what the first one has added. That costs little: the looks that are lost are recorded by the next tick or sync of
    # their containers, and until then these seem to be further behind than they are, never less far.
    before = _read(instance, {datastore}).get(datastore, {})
    after = latest(before, looks)
    if after != before:
        # A time alone where nothing was missed, as older versions have written it.
        text = json.dumps({name: one if one.missed else one.at for name, one in after.items()}, separators=(",", ":"))
        instance.daemon_cursor_storage.set_cursor_values({_CURSOR + datastore: text})


def looked_at(instance: dg.DagsterInstance, datastores: Collection[str]) -> Looks:
    """The last looks at the sources of the containers of these datastores that found them covered, by the containers' labels."""
    return {f"{datastore}/{name}": one for datastore, looks in _read(instance, datastores).items() for name, one in looks.items()}


def _read(instance: dg.DagsterInstance, datastores: Collection[str]) -> Mapping[str, Looks]:
    values = instance.daemon_cursor_storage.get_cursor_values({_CURSOR + datastore for datastore in datastores})
    return {key.removeprefix(_CURSOR): _from_json(text) for key, text in values.items()}


def _from_json(text: str) -> Looks:
    return {name: Look(one) if isinstance(one, int) else Look(*one) for name, one in json.loads(text).items()}
