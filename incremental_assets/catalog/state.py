"""Stores what is known of a datastore between two runs of the catalog operation: the component's state, with one entry per container."""

import json
import os
import tempfile
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from incremental_assets.catalog.detect import Proposal
from incremental_assets.core.container import SourceColumn, SourceTable
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.stored_format import WRITTEN_BY, expect_known, of_unknown, product_version

FORMAT = 3
"""The version of the file's format: from 2 on it has entries, from 3 on announced ones. ``Catalog.load`` still reads all before."""


class Presence(str, Enum):
    """Whether a container is there.

    ``MISSING``: it is gone from the source; its entry is kept until a catalog run prunes it. ``HIDDEN``: a person has removed it from the
    catalog (``catalog remove``); it stays out until a catalog run recreates it. ``ANNOUNCED``: it came after the first catalog run, and is
    not synced until the YAML names it (``on_new_table``).
    """

    PRESENT = "present"
    MISSING = "missing"
    HIDDEN = "hidden"
    ANNOUNCED = "announced"


@dataclass(frozen=True)
class Known:
    """The entry of one container: its table as the catalog operation last found it.

    ``since``: when it got its present ``presence``, or was announced (ISO 8601, UTC). ``fingerprint``, ``activity``, ``identity``: from
    the listing (see ``core.evidence.ListedContainer``). ``dropped``: columns that it has had and no longer has. ``pinned``: the proposal
    that ``identifiers: auto`` uses, kept from the first time that it was used; without columns, the container is synced as a snapshot;
    None: not decided yet. ``doubt``: why the pinned proposal should no longer be used; None: nothing speaks against it.
    ``profiled``: the id of the profile that ``proposal`` takes into account, and whether the table was newer; None: there was none.
    """

    table: SourceTable
    fingerprint: str
    since: str
    activity: int | None = None
    presence: Presence = Presence.PRESENT
    dropped: tuple[SourceColumn, ...] = ()
    proposal: Proposal = field(default_factory=Proposal)
    pinned: Proposal | None = None
    doubt: str | None = None
    identity: str | None = None
    profiled: str | None = None


@dataclass(frozen=True)
class Catalog:
    """The catalog of one datastore.

    ``found_on``: the day of the first catalog run, in days since 1970-01-01 UTC; the calendar of an empty table begins with it.
    ``found_at``: the time of the last run (ISO 8601, UTC). ``entries``: in the order of names. ``format``: see ``FORMAT``.
    ``missing_privileges``: statements that would give our role what helps, each with what is lost without it in a comment. ``left_out``:
    the containers that the YAML, or the options of the first run, left out so far; one that is no longer left out is not new.
    ``written_by``: the version of this product that has stored it.
    """

    found_on: int
    found_at: str
    entries: tuple[Known, ...]
    format: int = FORMAT
    missing_privileges: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    written_by: str | None = field(default_factory=product_version, compare=False)

    @property
    def by_name(self) -> dict[str, Known]:
        return {known.table.name: known for known in self.entries}

    def save(self, path: Path) -> None:
        """Replaces the file atomically: a reader sees the old catalog or the new one."""
        write_whole(path, _ADAPTER.dump_json(self, indent=1, by_alias=True))

    @classmethod
    def load(cls, path: Path, datastore: str | None = None) -> "Catalog":
        """Reads a catalog. ``datastore``: its name for messages; by default that of the file's folder.

        Raises NewerFormat if a newer version of this product wrote it, and ConfigurationError for a file of any other format.
        """
        name = datastore or path.parent.name
        what, written_by = f"{name}: its catalog", None
        try:
            data = json.loads(path.read_bytes())
            written_by = data.get(WRITTEN_BY)
            expect_known(what, data["format"], FORMAT, written_by)
            catalog = _ADAPTER.validate_python(_as_of_now(data), strict=False)
        except ValidationError as error:
            unknown = next((one["input"] for one in error.errors() if one["type"] == "enum"), None)
            if unknown is not None:
                raise of_unknown(what, unknown, written_by) from None
            catalog = None
        except (ValueError, KeyError, TypeError, AttributeError):
            catalog = None
        if catalog is None or catalog.format != FORMAT:
            raise ConfigurationError(f"{name}: its catalog cannot be read; delete that state and run: incremental-assets catalog")
        return replace(catalog, written_by=product_version())


def _as_of_now(data: dict[str, Any]) -> dict[str, Any]:
    """A stored catalog of an earlier format as one of this one. Raises KeyError."""
    if data["format"] == 1:  # tables only: with empty fingerprints all are inspected again, and keep their calendars
        known = [{"table": table, "fingerprint": "", "since": data["found_at"]} for table in data["tables"]]
        return {"format": FORMAT, "found_on": data["found_on"], "found_at": data["found_at"], "entries": known}
    return {**data, "format": FORMAT} if data["format"] == 2 else data


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file atomically: to a temporary file in the same folder, which is then moved over."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}", delete=False) as beside:
        beside.write(content)
    os.replace(beside.name, path)


_ADAPTER = TypeAdapter(Catalog)
