"""What is known of a datastore between two looks at it: the component's state, one entry a container.

Belongs here: the entries, and the file they are kept in. Does not belong: how they come about (``operation``).
"""

import json
import os
import tempfile
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from pydantic import TypeAdapter

from incremental_assets.catalog.detect import Proposal
from incremental_assets.core.container import SourceColumn, SourceTable
from incremental_assets.core.errors import ConfigurationError

FORMAT = 2


class Presence(str, Enum):
    """``missing``: gone from the source, and kept until somebody prunes. ``hidden``: removed by a person, until somebody recreates it."""

    PRESENT = "present"
    MISSING = "missing"
    HIDDEN = "hidden"


@dataclass(frozen=True)
class Known:
    """A container as it was found last. ``since``: when it got its presence (ISO 8601, UTC).

    ``fingerprint``, ``activity``, ``identity``: the listing's (``core.evidence.Listed``). ``dropped``: columns it has had and has no more.
    ``pinned``: what ``identifiers: auto`` goes by since it was first asked; without columns it is a snapshot. ``doubt``: why it should not
    any more.
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


@dataclass(frozen=True)
class Catalog:
    """All that is known, in the order of names; ``found_on`` is the day of the first look (days since 1970-01-01)."""

    found_on: int
    found_at: str
    entries: tuple[Known, ...]
    format: int = FORMAT

    @property
    def by_name(self) -> dict[str, Known]:
        return {known.table.name: known for known in self.entries}

    def save(self, path: Path) -> None:
        """Written beside and moved over: a reader sees the old state or the new one, whole."""
        write_whole(path, _ADAPTER.dump_json(self, indent=1))

    @classmethod
    def load(cls, path: Path) -> "Catalog":
        """Raises ConfigurationError for a file that is none of ours."""
        try:
            data = json.loads(path.read_bytes())
            if data["format"] == 1:  # tables alone; without fingerprints all of them are looked at again, and their calendars stay
                known = [{"table": table, "fingerprint": "", "since": data["found_at"]} for table in data["tables"]]
                data = {"format": FORMAT, "found_on": data["found_on"], "found_at": data["found_at"], "entries": known}
            catalog = _ADAPTER.validate_python(data, strict=False)
        except (ValueError, KeyError, TypeError):
            catalog = None
        if catalog is None or catalog.format != FORMAT:
            raise ConfigurationError(
                f"{path.parent.name}: its catalog is of another version; delete that state and run: incremental-assets catalog"
            )
        return catalog


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file that a reader sees whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}", delete=False) as beside:
        beside.write(content)
    os.replace(beside.name, path)


_ADAPTER = TypeAdapter(Catalog)
