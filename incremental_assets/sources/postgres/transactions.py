"""Who is open at the source: the transactions that may still commit rows below what has been read.

Belongs here: asking PostgreSQL for them, waiting for them, naming them. Does not belong: what they mean for the watermark
(``model.watermark``).
"""

import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from incremental_assets.model.container import HoldBack
from incremental_assets.model.watermark import OpenTransactions
from incremental_assets.sources.postgres.connection import APPLICATION_NAME

_WRITE_LOCKS = ["RowExclusiveLock", "ShareUpdateExclusiveLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"]

# Whoever may write rows: sessions, and workers (an apply worker of logical replication, pg_cron's). Where a role may not see it, NULL.
_MAY_WRITE = (
    "coalesce(a.backend_type, '') not in ('autovacuum launcher', 'autovacuum worker', 'walsender', 'walreceiver', 'walwriter', "
    "'checkpointer', 'background writer', 'startup', 'archiver', 'logical replication launcher', 'parallel worker', 'io worker', "
    "'walsummarizer', 'slotsync worker')"
)
# Virtual ids first, prepared transactions after, never in one statement: one may be prepared in between (design, experiments).
_OPEN_ALL = f"""
select l.virtualtransaction from pg_locks l left join pg_stat_activity a using (pid)
where l.locktype = 'virtualxid' and l.granted and l.pid <> pg_backend_pid() and (a.datname = current_database() or a.pid is null)
  and coalesce(a.application_name, '') <> %(ours)s and {_MAY_WRITE}
"""
_PREPARED_ALL = (
    "select transaction::text, (extract(epoch from prepared) * 1000000)::bigint from pg_prepared_xacts where database = current_database()"
)
# The table with its partitions, and with the tables that inherit from it.
_PARTS = """with recursive parts as (
  select %(relation)s::regclass::oid as oid union select i.inhrelid from pg_inherits i join parts on i.inhparent = parts.oid)
  select oid from parts"""
_OPEN_WRITERS = f"""
select l.virtualtransaction from pg_locks l left join pg_stat_activity a using (pid)
where l.locktype = 'relation' and l.granted and l.pid is not null and l.pid <> pg_backend_pid() and l.mode = any(%(modes)s)
  and l.database = (select oid from pg_database where datname = current_database())
  and l.relation in ({_PARTS})
  and coalesce(a.application_name, '') <> %(ours)s and {_MAY_WRITE}
"""
# A prepared transaction keeps the virtual id of who prepared it until the server restarts; then it is "-1/xid". Its own xid is a lock too.
_PREPARED_WRITERS = f"""
with locks as materialized (select * from pg_locks where pid is null)
select p.transaction::text, (extract(epoch from p.prepared) * 1000000)::bigint from pg_prepared_xacts p
where p.database = current_database() and exists (
  select from locks own join locks l on l.virtualtransaction = own.virtualtransaction
  where own.locktype = 'transactionid' and own.transactionid = p.transaction
    and l.locktype = 'relation' and l.mode = any(%(modes)s) and l.relation in ({_PARTS}))
"""
_WHO = """
select distinct l.pid, a.usename, a.application_name, a.xact_start
from pg_locks l left join pg_stat_activity a using (pid) where l.locktype = 'virtualxid' and l.virtualtransaction = any(%(ids)s)
"""
_WHO_PREPARED = "select transaction::text, owner, gid, prepared from pg_prepared_xacts where transaction::text = any(%(ids)s)"


@dataclass(frozen=True)
class Holder:
    """Somebody who holds the watermark back. ``pid`` is None for a prepared transaction, whose ``application`` is its name."""

    pid: int | None
    user: str | None
    application: str | None
    since: str | None

    def age_seconds(self) -> float:
        """How long it has been open, by this machine's clock."""
        if self.since is None:
            return 0.0
        return (datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.fromisoformat(self.since)).total_seconds()


@dataclass(frozen=True)
class Transactions:
    """Those of one table's database. ``rows`` runs a query; ``relation`` is the table's quoted name, ``server_started`` in microseconds."""

    rows: Callable[..., list[tuple[Any, ...]]]
    relation: str
    hold_back: HoldBack
    server_started: int

    def open_now(self) -> OpenTransactions:
        """Who is open now, as far as the container's ``hold_back`` counts them."""
        noted_at = self.rows("select (extract(epoch from clock_timestamp()) * 1000000)::bigint")[0][0]
        writers = self.hold_back is HoldBack.WRITERS
        parameters = {"ours": APPLICATION_NAME, "modes": _WRITE_LOCKS, "relation": self.relation}
        virtual = self.rows(_OPEN_WRITERS if writers else _OPEN_ALL, parameters)
        prepared = self.rows(_PREPARED_WRITERS if writers else _PREPARED_ALL, parameters)
        return OpenTransactions(
            virtual=frozenset(row[0] for row in virtual),
            prepared=frozenset(row[0] for row in prepared),
            noted_at=noted_at,
            server_started=self.server_started,
            last_prepared=max((row[1] for row in prepared), default=None),
        )

    def settle(self, noted: OpenTransactions, seconds: float) -> OpenTransactions:
        """Waits up to ``seconds`` for the noted ones to end; who is open then."""
        deadline = time.monotonic() + seconds
        pause = 0.01
        while True:
            now = self.open_now()
            if not noted.still_open(now) or time.monotonic() >= deadline:
                return now
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(pause * 2, 0.2)

    def holders(self, noted: OpenTransactions) -> list[Holder]:
        """Who they are, as far as this role may see it."""
        rows = self.rows(_WHO, {"ids": sorted(noted.virtual)}) if noted.virtual else []
        found = [Holder(r[0], r[1], r[2], r[3].isoformat() if r[3] else None) for r in rows]
        prepared = self.rows(_WHO_PREPARED, {"ids": sorted(noted.prepared)}) if noted.prepared else []
        return found + [Holder(None, r[1], f"prepared transaction {r[2]}", r[3].isoformat()) for r in prepared]
