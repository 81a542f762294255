"""What a source says of a table beyond its columns: that it is there, how large it is, statistics, triggers, unique indexes.

Belongs here: the facts. Does not belong: reading them (``databases``, ``files``), or what follows from them (``catalog.detect``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from incremental_assets.core.container import Kind


@dataclass(frozen=True)
class Listed:
    """One line of a datastore's listing, by which the catalog knows whether to look closer.

    ``fingerprint``: changes with columns, keys, indexes, defaults, triggers. ``activity``: changes whenever rows were written; None where
    nobody counts. ``identity``: of a table, which another one of its name does not have. ``files``: how many, of a container of files.
    """

    kind: Kind
    fingerprint: str
    rows: int | None = None
    bytes: int | None = None
    activity: int | None = None
    identity: str | None = None
    files: int | None = None


@dataclass(frozen=True)
class ColumnEvidence:
    """What statistics, triggers and sequences say of a column; None: the table was never analyzed.

    ``correlation``: of value and place in the table, -1 to 1. ``null_share``: 0 to 1. ``distinct``: as ``pg_stats.n_distinct`` (negative: a
    share of the rows). ``at_insert``, ``at_update``: triggers that set it to the clock, always. ``in_turn``: its sequence gives out values
    one by one, upwards, to all sessions alike.
    """

    correlation: float | None = None
    null_share: float | None = None
    distinct: float | None = None
    at_insert: str | None = None
    at_update: str | None = None
    in_turn: bool = False


@dataclass(frozen=True)
class TableEvidence:
    """``inserts``, ``changes``: rows inserted, and rows updated or deleted, since the source counts (None: it does not, as for views).

    ``live``: rows there are now, as the same counters have it; far from ``inserts`` after a TRUNCATE or where the counters began anew.
    """

    columns: Mapping[str, ColumnEvidence] = field(default_factory=dict[str, ColumnEvidence])
    unique: tuple[tuple[str, ...], ...] = ()
    inserts: int | None = None
    changes: int | None = None
    live: int | None = None
