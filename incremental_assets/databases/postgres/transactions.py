"""Finds the sessions and transactions in the source that may still commit rows below the highest identifier that was read.

The queries are run outside of a transaction, because inside of one PostgreSQL keeps showing the activity that the first query saw.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from incremental_assets.core.container import HoldBack
from incremental_assets.core.watermark import Activity, Holder, OpenTransactions, Session
from incremental_assets.databases.postgres.connection import APPLICATION_NAME, OWN_LOCK

_WRITE_LOCKS = ["RowExclusiveLock", "ShareUpdateExclusiveLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"]

# All processes that may write rows: client sessions, and background workers such as an apply worker of logical replication or pg_cron's.
# backend_type is NULL if the role may not see it; such a process counts.
_MAY_WRITE = (
    "coalesce(a.backend_type, '') not in ('autovacuum launcher', 'autovacuum worker', 'walreceiver', 'walwriter', 'checkpointer', "
    "'background writer', 'startup', 'archiver', 'logical replication launcher', 'parallel worker', 'io worker', 'walsummarizer', "
    "'slotsync worker')"
)
# Our own sessions do not count. They have our application name, hold the advisory lock that each of our transactions takes, and have no
# transaction id, which every transaction that writes has. The name alone would not do: every client can set it.
_OURS = f"""
coalesce(a.application_name, '') = %(ours)s and a.backend_xid is null and exists (
  select from locks m where m.pid = a.pid and m.locktype = 'advisory' and m.objsubid = 2 and m.classid = {OWN_LOCK}::oid)
"""
_LOCKS = "with locks as materialized (select * from pg_locks where granted and pid is not null and pid <> pg_backend_pid())"
# A connection with ``replication=database`` runs SQL like any other, until it streams the log: one long message, which never writes, and in
# which only a virtual id shows that it reads the catalog. A role that may not see which of them stream goes by virtual ids, too.
_RUNS_SQL = "coalesce(w.state = 'startup', w.pid is null)"
# The full join also returns sessions that have no virtual transaction id, as their current message may still begin a transaction.
# Virtual transaction ids and sessions are read first, and prepared transactions after them, never in one statement: a transaction that is
# prepared in between would be missed otherwise (experiments have shown it). PostgreSQL shows no state of sessions that the role may not
# watch, and the state "disabled" of those with track_activities off; for them the session's identity is NULL here.
_AT_WORK = f"""
{_LOCKS}
select v.virtualtransaction, pid::text,
  case when a.state <> 'disabled' and a.backend_start is not null and {_RUNS_SQL}
    then pid::text || '/' || (extract(epoch from a.backend_start) * 1000000)::bigint end,
  (extract(epoch from a.xact_start) * 1000000)::bigint, (extract(epoch from a.query_start) * 1000000)::bigint,
  coalesce(a.state = 'idle', false)
from (select distinct pid, virtualtransaction from locks where locktype = 'virtualxid') v full join pg_stat_activity a using (pid)
left join pg_stat_get_wal_senders() w using (pid)
where (v.virtualtransaction is not null or {_RUNS_SQL})
  and pid <> pg_backend_pid() and (a.datname = current_database() or a.pid is null) and {_MAY_WRITE} and not ({_OURS})
"""
_PREPARED_ALL = "select transaction::text from pg_prepared_xacts where database = current_database()"
# The OIDs of the table, its partitions, and the tables that inherit from it.
_PARTS = """with recursive parts as (
  select %(relation)s::regclass::oid as oid union select i.inhrelid from pg_inherits i join parts on i.inhparent = parts.oid)
  select oid from parts"""
_WRITERS = f"""
{_LOCKS}
select l.virtualtransaction from locks l left join pg_stat_activity a using (pid)
where l.locktype = 'relation' and l.mode = any(%(modes)s)
  and l.database = (select oid from pg_database where datname = current_database())
  and l.relation in ({_PARTS})
  and {_MAY_WRITE} and not ({_OURS})
"""
# In pg_locks a prepared transaction keeps the virtual id of the session that prepared it, and "-1/xid" after a restart of the server. It is
# found by the lock on its own transaction id, which it holds, too.
_PREPARED_WRITERS = f"""
with locks as materialized (select * from pg_locks where pid is null)
select p.transaction::text from pg_prepared_xacts p
where p.database = current_database() and exists (
  select from locks own join locks l on l.virtualtransaction = own.virtualtransaction
  where own.locktype = 'transactionid' and own.transactionid = p.transaction
    and l.locktype = 'relation' and l.mode = any(%(modes)s) and l.relation in ({_PARTS}))
"""
_WHO = """
select distinct l.pid, a.usename, a.application_name, a.xact_start
from pg_locks l left join pg_stat_activity a using (pid) where l.locktype = 'virtualxid' and l.virtualtransaction = any(%(ids)s)
union
select a.pid, a.usename, a.application_name, coalesce(a.xact_start, a.query_start)
from pg_stat_activity a where a.pid::text = any(%(pids)s)
"""
_WHO_PREPARED = "select transaction::text, owner, gid, prepared from pg_prepared_xacts where transaction::text = any(%(ids)s)"


@dataclass(frozen=True)
class Transactions:
    """The queries for the open transactions in the database of one table.

    ``rows`` runs a query. ``relation``: the table's quoted name. ``server_started``: when the server was started, in microseconds since
    1970 UTC. ``by_session``: the identifier is a time, so sessions are noted (``Activity.noted``). With ``hold_back: writers`` only virtual
    transaction ids count, because locks belong to them.
    """

    rows: Callable[..., list[tuple[Any, ...]]]
    relation: str
    hold_back: HoldBack
    server_started: int
    by_session: bool

    def at_work(self) -> Activity:
        """The sessions and transactions that are open now and count by the container's ``hold_back``."""
        parameters = {"ours": APPLICATION_NAME, "modes": _WRITE_LOCKS, "relation": self.relation}
        if self.hold_back is HoldBack.WRITERS:
            virtual = frozenset(row[0] for row in self.rows(_WRITERS, parameters))
            prepared = frozenset(row[0] for row in self.rows(_PREPARED_WRITERS, parameters))
            return Activity(virtual, prepared, unwatched=virtual, server_started=self.server_started)
        found = self.rows(_AT_WORK, parameters)
        prepared = frozenset(row[0] for row in self.rows(_PREPARED_ALL, parameters))
        hidden = [(virtual, pid) for virtual, pid, identity, *_ in found if identity is None]
        return Activity(
            virtual=frozenset(virtual for virtual, *_ in found if virtual is not None),
            prepared=prepared,
            sessions=tuple(Session(*row) for _, _, *row in found if row[0] is not None),
            unwatched=frozenset(virtual for virtual, _ in hidden if virtual is not None),
            unwatched_pids=frozenset(pid for _, pid in hidden),
            server_started=self.server_started,
        )

    def settle(self, clock: int, seconds: float) -> tuple[OpenTransactions, Activity]:
        """Waits up to ``seconds`` for the transactions to end that may still commit a value that was made by ``clock``.

        ``clock`` is the source's clock in microseconds since 1970 UTC, read together with the highest identifier. Returns those of the
        transactions that are still open, and all activity at the moment when that was seen.
        """
        deadline = time.monotonic() + seconds
        pause = 0.01
        now = self.at_work()
        left = now.noted(clock, by_session=self.by_session)
        while left and time.monotonic() < deadline:
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(pause * 2, 0.2)
            now = self.at_work()
            left = left.still_open(now)
        return left, now

    def holders(self, noted: OpenTransactions) -> list[Holder]:
        """The users, applications and process ids of noted transactions, as far as this role may see them."""
        found: list[Holder] = []
        if noted.virtual or noted.sessions:
            pids = [identity.split("/")[0] for identity in noted.sessions]
            rows = self.rows(_WHO, {"ids": sorted(noted.virtual), "pids": sorted(pids)})
            found = [Holder(r[0], r[1], r[2], r[3].isoformat() if r[3] else None) for r in rows]
        prepared = self.rows(_WHO_PREPARED, {"ids": sorted(noted.prepared)}) if noted.prepared else []
        return found + [Holder(None, r[1], f"prepared transaction {r[2]}", r[3].isoformat()) for r in prepared]
