"""Facts about a table beyond its columns: its entry in the datastore's listing, statistics, triggers and unique indexes."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field

from incremental_assets.core.container import Kind

ON_UPDATE = "ON UPDATE CURRENT_TIMESTAMP"
"""Stands in the place of a trigger's name: the definition of a column in MySQL has this clause."""


@dataclass(frozen=True)
class ListedContainer:
    """One entry of a datastore's listing. The catalog compares it with the stored one to decide whether to inspect the container again.

    ``fingerprint`` changes with columns, keys, indexes, defaults and triggers. ``activity`` changes whenever rows were written; None if the
    source does not count writes. ``identity``: an id (PostgreSQL's OID) that distinguishes a table from a later one of the same name; None
    for views and files. ``rows`` is an estimate. ``files``: the number of files of a container of files.
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
    """What statistics, triggers and sequences say about a column. The statistics are None if the table was never analyzed.

    ``correlation``: between the order of the values and the physical order of the rows, -1 to 1 (``pg_stats.correlation``). ``null_share``:
    0 to 1. ``distinct``: as ``pg_stats.n_distinct`` (a negative value is minus a share of the rows). ``at_insert``, ``at_update``: the name
    of a trigger that sets the column to the clock at each insert or update, or ``ON_UPDATE``. ``in_turn``: its sequence returns values one
    by one and ascending across all sessions (CACHE 1, a positive increment, no CYCLE). ``days``: for dates and times, days of which the
    statistics have values.
    """

    correlation: float | None = None
    null_share: float | None = None
    distinct: float | None = None
    at_insert: str | None = None
    at_update: str | None = None
    in_turn: bool = False
    days: tuple[datetime.date, ...] = ()


@dataclass(frozen=True)
class TableEvidence:
    """What statistics and indexes say about a table.

    ``columns``: by column name. ``unique``: the columns of each unique index. ``inserts`` and ``changes``: the numbers of rows inserted,
    and of rows updated or deleted, since the source's counters were reset; None if the source does not count, as for views. ``live``: the
    number of rows according to the same counters. It is far from ``inserts`` after a TRUNCATE or a reset of the counters. ``bytes``: its
    size with indexes, where it was measured; else the listing may have it. ``counted_since``: since when there are these counters.
    ``made_at``: when the table was made, or not long after. Both are None where the source does not tell.
    """

    columns: Mapping[str, ColumnEvidence] = field(default_factory=dict[str, ColumnEvidence])
    unique: tuple[tuple[str, ...], ...] = ()
    inserts: int | None = None
    changes: int | None = None
    live: int | None = None
    bytes: int | None = None
    counted_since: datetime.datetime | None = None
    made_at: datetime.datetime | None = None


@dataclass(frozen=True)
class ProfiledColumn:
    """What a profile has counted of a column of dates, times or integers.

    ``rows``: all of them. ``nulls``: those without a value. ``minimum``, ``maximum``: as text; times with a zone are in UTC. ``distinct``:
    about how many different values there are; None: not known. ``in_order``: the share of neighbouring partitions of time of which the
    later one has no value below the greatest of the earlier one; None: there are no such partitions.
    """

    rows: int
    nulls: int
    minimum: str | None = None
    maximum: str | None = None
    distinct: int | None = None
    in_order: float | None = None


@dataclass(frozen=True)
class TableProfile:
    """What the newest profile of a container has counted in its Delta table, which has no more of the source than was synced by then.

    ``made_at``: when its oldest part was made (ISO 8601, UTC). ``id``: identifies the profile. ``is_older``: the table has changed since.
    ``columns``: by name.
    """

    made_at: str
    id: str
    is_older: bool
    columns: Mapping[str, ProfiledColumn]
