"""Capture: a container that follows the log of its source, and how far into the log its Delta table has come.

Positions in the log (LSNs) are integers. The log up to a position is the half-open interval below it: a transaction is below a position if
its commit record begins below it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Capture(str, Enum):
    """How a container learns what has changed.

    ``NONE``: by its incremental identifier. ``LOG``: from the log of the source (PostgreSQL's logical decoding), deletes included.
    """

    NONE = "none"
    LOG = "log"


def lsn_text(lsn: int) -> str:
    """A position as PostgreSQL writes it: ``16/B374D848``."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """The inverse of ``lsn_text``."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


@dataclass(frozen=True)
class RetainedLog:
    """How much of its log a source keeps for a replication slot, at the beginning of a sync.

    ``bytes``: what it cannot remove because of the slot. ``most``: from so many bytes on, that is a warning. ``seconds``: how long ago the
    oldest transaction was committed that the slot still has; None if it has none, or if nobody has looked.
    """

    slot: str
    bytes: int
    most: int
    seconds: float | None = None

    @property
    def warning(self) -> str | None:
        """What to say if it is too much, with the command that tells why; None if it is not."""
        if self.bytes < self.most:
            return None
        return (
            f"the source keeps {self.bytes / 1e9:.1f} GB of its log for the replication slot {self.slot}: incremental-assets capture "
            "status says which container has not been synced for so long"
        )


@dataclass(frozen=True)
class ColumnShape:
    """One column of a source's table.

    ``number``: its number, which no other column of the table ever gets. ``type``: its type's id and modifier. ``changed_by``: the
    transaction that has last changed its definition. ``fills``: rows that were there before the column have a value in it (a default that
    is stored apart from the rows, or a generated value). ``computed``: identifies the expression of a column whose values are stored
    nowhere; empty for others, and if an earlier version of this product has noted the column.
    """

    number: int
    name: str
    type: str
    changed_by: str
    fills: bool
    computed: str = ""


@dataclass(frozen=True)
class PartShape:
    """One partition of a source's table, or the table itself if it has none.

    ``file``: the id of the file that has its rows. A statement that writes the rows anew (and VACUUM FULL) makes a new one. ``attached``:
    identifies how it was attached to the table; empty for the table itself. ``published``: identifies why it is in the publication: its own
    entry, or else all that decides it, with the definition of the table, as what becomes of that decides it, too (``UNLOGGED``, another
    schema); empty if an earlier version of this product has noted it.
    """

    file: int
    attached: str = ""
    published: str = ""


@dataclass(frozen=True)
class Shape:
    """What is compared to notice a change of a table that sends nothing through the log.

    ``columns``: of the table. ``parts``: its leaf partitions by their OIDs; of a table without partitions, itself.
    """

    columns: tuple[ColumnShape, ...]
    parts: Mapping[int, PartShape]

    def unlogged_change(self, now: "Shape") -> str | None:
        """What has happened to the table between ``self`` and ``now`` that the log does not tell row by row, in words; None if nothing."""
        before = {column.number: column for column in self.columns}
        for column in now.columns:
            old = before.get(column.number)
            if old is None and column.fills:
                return f"column {column.name} was added, and has a value in the rows that were there"
            if old is not None and old.type != column.type:
                return f"the type of column {column.name} was changed"
            if old is not None and old.computed and old.computed != column.computed:
                return f"the expression of column {column.name} was changed"
            if old is not None and old.name != column.name:
                return f"column {old.name} was renamed to {column.name}"
        gone = [part for part, old in self.parts.items() if part not in now.parts or now.parts[part].attached != old.attached]
        if gone:
            return f"{len(gone)} of its partitions {'was' if len(gone) == 1 else 'were'} detached or dropped"
        if any(old.published not in ("", now.parts[part].published) for part, old in self.parts.items()):
            return "its definition or its publication was changed, so that changes may be missing in the log (UNLOGGED, another schema)"
        if any(now.parts[part].file != old.file for part, old in self.parts.items()):
            redefined = {(c.number, c.changed_by) for c in now.columns} - {(c.number, c.changed_by) for c in self.columns}
            if redefined:
                return "its rows were written anew by an ALTER TABLE"
        return None

    def new_parts(self, now: "Shape") -> list[int]:
        """The OIDs of the partitions that the table has got since. One that was attached has brought rows that are in no log."""
        return sorted(now.parts.keys() - self.parts.keys())

    def to_json(self) -> dict[str, Any]:
        return {
            "columns": [[c.number, c.name, c.type, c.changed_by, c.fills, c.computed] for c in self.columns],
            "parts": [[part, one.file, one.attached, one.published] for part, one in sorted(self.parts.items())],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Shape":
        return cls(
            tuple(ColumnShape(*column) for column in data["columns"]),
            {part: PartShape(*noted) for part, *noted in data["parts"]},
        )


@dataclass(frozen=True)
class CapturePosition:
    """How far into the source's log a Delta table has come. It is a part of the table's sync state.

    ``slot``: the name of the replication slot. ``system``: the source's system identifier and database (``Server.source``).
    ``timeline``: the timeline of its log. ``lsn``: all transactions below it are in the table. ``membership``: identifies the entry of the
    table in its publication; it changes if the table was out of the publication for a time. ``settings``: those of the YAML that decide
    which rows and columns are read. ``shape``: of the source's table. ``loaded``: False while a load goes window by window and has not come
    to its end.
    """

    slot: str
    system: str
    timeline: str
    lsn: int
    membership: str
    settings: str
    shape: Shape = field(repr=False)
    loaded: bool = True

    def to_json(self) -> dict[str, Any]:
        return {
            "slot": self.slot,
            "system": self.system,
            "timeline": self.timeline,
            "lsn": lsn_text(self.lsn),
            "membership": self.membership,
            "settings": self.settings,
            "shape": self.shape.to_json(),
            "loaded": self.loaded,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> "CapturePosition | None":
        if data is None:
            return None
        return cls(
            slot=data["slot"],
            system=data["system"],
            timeline=data["timeline"],
            lsn=parse_lsn(data["lsn"]),
            membership=data["membership"],
            settings=data["settings"],
            shape=Shape.from_json(data["shape"]),
            loaded=data["loaded"],
        )
