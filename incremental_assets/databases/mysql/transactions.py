"""Finds the transactions that are open in MySQL, and waits for them.

A session counts while it is in a transaction that may write, and while it executes a statement outside of one: MySQL takes NOW() when a
statement arrives, and draws a value of AUTO_INCREMENT before InnoDB lists the transaction. It is noted under the name of that transaction
or statement, so that it is released as soon as it is in another one. A transaction that is prepared for a two-phase commit (XA) and whose
session is gone is noted by its own id.
"""

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from incremental_assets.core.errors import SourceError
from incremental_assets.core.watermark import Activity, Holder, OpenTransactions, Session
from incremental_assets.databases.mysql.connection import Row
from incremental_assets.databases.settling import Look, settle

FRESH_SECONDS = 0.11
"""InnoDB keeps its list for a tenth of a second after anybody has read it, be it an outdated one."""
MOST_SECONDS = 20.0
"""After so long a time of outdated lists it is given up."""
MOST_BETWEEN_TRIES = 1.5
"""Syncs that wait for each other's readings wait for a time that differs and grows up to this, so that one of them comes through."""
# What is no client's statement: a session that waits for one, the server's own threads, and those of replication.
_STATEMENTS = """
select id, floor(unix_timestamp(utc_timestamp(6)) * 1000000) - (cast(time as signed) + 1) * 1000000
from information_schema.processlist
where id <> connection_id() and user <> 'system user'
  and command not in ('Sleep', 'Daemon', 'Binlog Dump', 'Binlog Dump GTID', 'Delayed insert', 'Slave_IO', 'Slave_SQL', 'Slave_worker')
"""
_TRANSACTIONS = """
select trx_mysql_thread_id, trx_id, trx_started, trx_is_read_only and not trx_autocommit_non_locking,
       trx_mysql_thread_id = connection_id() and locate(%s, trx_query) > 0
from information_schema.innodb_trx
"""
# InnoDB shows times in the time zone of the server's system.
_WHO = """
select p.id, p.user, p.host, coalesce(timestampdiff(second, convert_tz(t.trx_started, 'SYSTEM', '+00:00'), utc_timestamp()), p.time)
from information_schema.processlist p left join information_schema.innodb_trx t on t.trx_mysql_thread_id = p.id
"""


@dataclass(frozen=True)
class Transactions:
    """The queries for the open transactions of the server.

    ``rows`` runs a query. ``is_visible``: this user may see all transactions (PROCESS); if not, none count, and a lag has to cover them.
    """

    rows: Callable[..., list[Row]]
    is_visible: bool

    def look(self) -> Look:
        """Looks for the sessions and transactions that are open now. Our own, which only read, are not among them."""
        if not self.is_visible:
            return Look(Activity(), frozenset())
        # The order matters: a session that has no statement now, and no transaction a moment later, can only begin later ones.
        statements = {str(thread): int(arrived or 0) for thread, arrived in self.rows(_STATEMENTS)}
        transactions: dict[str, str] = {}
        prepared: set[str] = set()
        for thread, identity, began, only_reads, _ in self._transactions():
            if only_reads == "1":
                statements.pop(str(thread), None)
            elif thread == "0":
                prepared.add(str(identity))
            else:
                transactions[str(thread)] = str(began)
        # Its begin, and a 0 for the clock, mean that it is held until it is gone. A statement outside of a transaction is another one if it
        # arrived later; once it is in a transaction, that cannot be known.
        sessions = [Session(_of_transaction(thread, began), 0, None, False) for thread, began in transactions.items()]
        sessions += [Session(_of_statement(thread), 0, None, False) for thread in transactions]
        outside = statements.keys() - transactions.keys()
        sessions += [Session(_of_statement(thread), None, statements[thread], False) for thread in outside]
        noted = {_of_transaction(thread, began) for thread, began in transactions.items()} | {_of_statement(one) for one in outside}
        return Look(Activity(prepared=frozenset(prepared), sessions=tuple(sessions)), frozenset(noted))

    def _transactions(self) -> list[Row]:
        """InnoDB's list as it is now. Raises SourceError if only older ones are to be had.

        A list that was made for somebody else's question does not show this very query as the statement of our own transaction.
        """
        self.rows("start transaction with consistent snapshot, read only")
        try:
            deadline, most = time.monotonic() + MOST_SECONDS, 2 * FRESH_SECONDS
            while time.monotonic() < deadline:
                found = self.rows(_TRANSACTIONS, (secrets.token_hex(8),))
                if any(row[4] == "1" for row in found):
                    return [row for row in found if row[4] != "1"]
                time.sleep(random.uniform(FRESH_SECONDS, most))
                most = min(2 * most, MOST_BETWEEN_TRIES)
        finally:
            self.rows("rollback")
        raise SourceError(
            "information_schema.innodb_trx was outdated each time it was read, as some program reads it more than ten times a second. "
            "Nothing was written. Let it read less often, and sync again."
        )

    def settle(self, clock: int, seconds: float) -> tuple[OpenTransactions, Activity]:
        """Waits up to ``seconds`` for the transactions to end that may still commit a value that was made by ``clock``.

        See ``databases.source.OpenTransactionsQuery``.
        """
        return settle(self.look, clock, seconds, FRESH_SECONDS)

    def holders(self, noted: OpenTransactions) -> list[Holder]:
        """The users, hosts and session ids of noted transactions."""
        ids = {name.split("/")[0] for name in noted.sessions}
        now = datetime.now(timezone.utc)
        found = [
            Holder(int(thread or 0), user, host, (now - timedelta(seconds=int(age or 0))).isoformat(timespec="seconds"))
            for thread, user, host, age in (self.rows(_WHO) if ids else [])
            if thread in ids
        ]
        return found + [Holder(None, None, f"XA transaction {identity}", None) for identity in sorted(noted.prepared)]


def _of_transaction(thread: str, began: str) -> str:
    return f"{thread}/{began}"


def _of_statement(thread: str) -> str:
    return f"{thread}/statement"
