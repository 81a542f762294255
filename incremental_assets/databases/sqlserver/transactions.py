"""Finds the transactions that are open in SQL Server, and waits for them.

A session counts while it is in a transaction, and while it executes a request: GETDATE() and IDENTITY make their values while a statement
runs that may still wait for a lock. It is noted under the name of that transaction or request, so that it is released as soon as it is in
another one. A distributed transaction without session, which may be in doubt, is noted by its own id.
"""

from collections.abc import Callable
from dataclasses import dataclass

from incremental_assets.core.watermark import Activity, Holder, OpenTransactions, Session
from incremental_assets.databases.settling import Look, settle
from incremental_assets.databases.sqlserver.connection import APPLICATION_NAME, Row
from incremental_assets.databases.sqlserver.queries import micros_of, text_literal

TICK_MICROS = 10_000
"""The server knows since when a request runs to a 300th of a second, so that much is allowed for."""
_BETWEEN_LOOKS = 0.1


IS_AZURE = "serverproperty('EngineEdition') = 5"
SEES_ALL = (
    "has_perms_by_name(null, null, 'VIEW SERVER STATE') = 1"
    " or has_perms_by_name(null, null, 'VIEW SERVER PERFORMANCE STATE') = 1"
    f" or ({IS_AZURE} and has_perms_by_name(db_name(), 'DATABASE', 'VIEW DATABASE STATE') = 1)"
)
"""Whether this user may see all transactions: SQL Server 2022 has a narrower permission than older ones; Azure has one a database."""


def permission_query() -> str:
    """1 if this user may see all transactions."""
    return f"select case when {SEES_ALL} then 1 else 0 end"


def requests_query() -> str:
    """The sessions that execute a request now, and since when, in microseconds since 1970 UTC. Our own, which only read, are left out."""
    now = micros_of("sysutcdatetime()")
    return (
        f"select r.session_id, {now} - datediff_big(millisecond, r.start_time, sysdatetime()) * 1000 - {TICK_MICROS}"
        " from sys.dm_exec_requests as r join sys.dm_exec_sessions as s on s.session_id = r.session_id"
        f" where s.is_user_process = 1 and r.session_id <> @@spid and {_others()}"
    )


def transactions_query() -> str:
    """The open transactions: session (NULL: none), id, begin, whether it is distributed, its unit of work. Our own are left out."""
    return (
        "select st.session_id, a.transaction_id, convert(varchar(23), a.transaction_begin_time, 126), a.transaction_type,"
        " convert(nchar(36), a.transaction_uow)"
        " from sys.dm_tran_active_transactions as a"
        " left join sys.dm_tran_session_transactions as st on st.transaction_id = a.transaction_id"
        " left join sys.dm_exec_sessions as s on s.session_id = st.session_id"
        " where (st.session_id is null and a.transaction_type = 4)"
        f" or (st.session_id is not null and st.session_id <> @@spid and s.is_user_process = 1 and {_others()})"
    )


def who_query() -> str:
    """User, host and program of each session, and since when it has done what it does."""
    return (
        "select s.session_id, s.original_login_name, concat(s.host_name, ' ', s.program_name),"
        " convert(varchar(19), dateadd(minute, datediff(minute, sysdatetime(), sysutcdatetime()),"
        " coalesce(s.last_request_start_time, s.login_time)), 126)"
        " from sys.dm_exec_sessions as s where s.is_user_process = 1"
    )


def _others() -> str:
    return f"coalesce(s.program_name, '') <> {text_literal(APPLICATION_NAME)}"


def look_of(requests: list[Row], transactions: list[Row]) -> Look:
    """What the answers of the two queries say, of which that for requests must be asked first."""
    arrived = {str(session): int(since) for session, since in requests}
    began: dict[str, list[str]] = {}
    prepared: set[str] = set()
    for session, identity, begin, _, unit in transactions:
        if session is None:
            prepared.add(str(unit or identity))
        else:
            began.setdefault(str(session), []).append(f"{session}/{identity}.{begin}")
    # A 0 for the clock means that it is held until it is gone. A request outside of a transaction is another one if it arrived later; once
    # its session is in a transaction, that cannot be known.
    sessions = [Session(name, 0, None, False) for names in began.values() for name in names]
    sessions += [Session(_of_request(session), 0, None, False) for session in began]
    outside = arrived.keys() - began.keys()
    sessions += [Session(_of_request(session), None, arrived[session], False) for session in outside]
    noted = {name for names in began.values() for name in names} | {_of_request(session) for session in outside}
    return Look(Activity(prepared=frozenset(prepared), sessions=tuple(sessions)), frozenset(noted))


@dataclass(frozen=True)
class Transactions:
    """The queries for the open transactions of the server.

    ``rows`` runs a query. ``is_needed``: they count for this identifier, and this user may see them; if not, none are looked for.
    """

    rows: Callable[[str], list[Row]]
    is_needed: bool

    def look(self) -> Look:
        """Looks for the sessions and transactions that are open now."""
        if not self.is_needed:
            return Look(Activity(), frozenset())
        # The order matters: a session that has no request now, and no transaction a moment later, can only begin later ones.
        requests = self.rows(requests_query())
        return look_of(requests, self.rows(transactions_query()))

    def settle(self, clock: int, seconds: float) -> tuple[OpenTransactions, Activity]:
        """Waits up to ``seconds`` for the transactions to end that may still commit a value that was made by ``clock``.

        See ``databases.source.OpenTransactionsQuery``.
        """
        return settle(self.look, clock, seconds, _BETWEEN_LOOKS)

    def holders(self, noted: OpenTransactions) -> list[Holder]:
        """The users, hosts and session ids of noted transactions."""
        ids = {name.split("/")[0] for name in noted.sessions}
        found = [
            Holder(int(session), user, where, f"{since}+00:00")
            for session, user, where, since in (self.rows(who_query()) if ids else [])
            if str(session) in ids
        ]
        return found + [Holder(None, None, f"distributed transaction {unit}", None) for unit in sorted(noted.prepared)]


def _of_request(session: str) -> str:
    return f"{session}/request"
