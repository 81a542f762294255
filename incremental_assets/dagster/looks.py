"""Records when the source of each container was last looked at and found covered: one value for each datastore in Dagster's cursor storage.

Belongs here: reading and writing that record. Does not belong: which looks count (``Plan.covers_until``), and the lag that follows from
them (``core.looks``).

A look that finds nothing to do is no run and no event: of a schedule that ticks each minute, these would be half a million rows a year for
each container.
"""

import json
import logging
from collections.abc import Collection, Mapping

import dagster as dg
from sqlalchemy.exc import SQLAlchemyError

from incremental_assets.core.looks import Looks, latest

log = logging.getLogger(__name__)
_CURSOR = "incremental_assets/looks/"


def remember(instance: dg.DagsterInstance, looks: Mapping[str, float | None]) -> None:
    """Records looks. ``looks``: by the label of the container, in seconds since 1970 UTC; None: its look does not count.

    A sync has written its rows already, and a tick has made its plans, so that they do not fail where this cannot be recorded.
    """
    by_store: dict[str, dict[str, int]] = {}
    for label, at in looks.items():
        if at is not None:
            datastore, _, name = label.partition("/")
            by_store.setdefault(datastore, {})[name] = int(at)
    try:
        for datastore, found in by_store.items():
            _write(instance, datastore, found)
    except SQLAlchemyError as error:
        log.warning(
            f"{', '.join(by_store)}: Dagster's storage could not record when the source was looked at, so that the lag counts from the "
            f"last sync. If the storage was made by an older Dagster, run: dagster instance migrate. {error}"
        )


def _write(instance: dg.DagsterInstance, datastore: str, looks: Looks) -> None:
    # Dagster has no way to write a value only if it is still the one that was read. Of two processes that write at the same moment, the
    # second one may undo what the first one has added. That costs little: the looks that are lost are recorded by the next tick or sync of
    # their containers, and until then these seem to be further behind than they are, never less far.
    before = _read(instance, {datastore}).get(datastore, {})
    after = latest(before, looks)
    if after != before:
        instance.daemon_cursor_storage.set_cursor_values({_CURSOR + datastore: json.dumps(after, separators=(",", ":"))})


def looked_at(instance: dg.DagsterInstance, datastores: Collection[str]) -> Looks:
    """When the sources of the containers of these datastores were last looked at and found covered, by the containers' labels."""
    try:
        found = _read(instance, datastores)
    except SQLAlchemyError as error:
        log.warning(f"Dagster's storage does not know when sources were looked at: {error}")
        return {}
    return {f"{datastore}/{name}": at for datastore, looks in found.items() for name, at in looks.items()}


def _read(instance: dg.DagsterInstance, datastores: Collection[str]) -> Mapping[str, Looks]:
    values = instance.daemon_cursor_storage.get_cursor_values({_CURSOR + datastore for datastore in datastores})
    return {key.removeprefix(_CURSOR): json.loads(text) for key, text in values.items()}
