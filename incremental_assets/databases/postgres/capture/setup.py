"""Sets capture up in a database, says how it stands, and takes it away again.

Belongs here: the steps, each with the SQL for an administrator where the role may not take it. Does not belong: the checks of one container
(``slot``), and reading changes (``log``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from incremental_assets.core.container import Container
from incremental_assets.core.errors import SourceError
from incremental_assets.databases.postgres.capture.slot import PLUGIN, SlotQueries, captured_names, lost
from incremental_assets.databases.postgres.connection import PostgresAddress, ask
from incremental_assets.databases.postgres.failures import source_errors
from incremental_assets.databases.postgres.queries import relation

CREATE_SECONDS = 60
"""How long the creation of a slot waits for the transactions to end that have written something."""
_WHO = """select pid, usename, application_name, xact_start::text from pg_stat_activity
  where backend_xid is not null and pid <> pg_backend_pid() union all select null, owner, 'prepared transaction ' || gid, prepared::text
  from pg_prepared_xacts order by 4"""


@dataclass(frozen=True)
class Step:
    """One step of a set-up. ``status``: ``done``, ``there`` if it had been taken before, or ``needed`` if somebody else has to take it.

    ``sql``: the statement; None if it is more than a statement. ``message``: why somebody else has to take it, and other remarks.
    """

    step: str
    status: str
    sql: str | None
    message: str = ""


@dataclass(frozen=True)
class SlotStatus:
    """How the slot of a datastore stands. Positions are text. ``retained``: the bytes of the log that the server keeps for it. ``limit``:
    ``max_slot_wal_keep_size`` in bytes, from which on the server no longer keeps them; None if there is no limit. ``restart``: the position
    from which on it keeps the log."""

    slot: str
    status: str
    confirmed: str | None
    retained: int | None
    limit: int | None
    active_pid: int | None
    message: str
    restart: str | None = None


class CaptureSetup:
    """The set-up of one datastore, over one connection. Used as a context manager. All methods raise SourceError."""

    def __init__(self, address: PostgresAddress, datastore: str, schema: str, slot: str) -> None:
        self._address, self._datastore, self._schema, self._slot = address, datastore, schema, slot

    def __enter__(self) -> "CaptureSetup":
        self._connection = self._address.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    # ------------------------------------------------------------------ set-up
    def set_up(self, containers: Sequence[Container]) -> Iterator[Step]:
        """Takes the steps that are missing, for these containers, and yields each of them."""
        with self._errors():
            yield from self._server()
            is_new = not self._ask("select from pg_publication where pubname = %(slot)s")
            published = yield from self._publication(containers)
            yield from self._identities(containers)
            if published:
                yield from self._slot_steps(is_new)

    def _server(self) -> Iterator[Step]:
        server = SlotQueries(self._connection, self._slot, self._datastore).replication()
        if server.is_replica:
            raise SourceError(f"{self._datastore}: this server is a replica; capture: log reads the log of its primary.")
        if server.wal_level != "logical":
            yield Step(
                "wal_level", "needed", "ALTER SYSTEM SET wal_level = 'logical'",
                f"it is {server.wal_level}; the server has to be restarted afterwards. On a hosted server it is a parameter "
                "(docs/capture.md).",
            )  # fmt: skip
        else:
            yield Step("wal_level", "there", None)
        if not server.may_read:
            user = sql.Identifier(self._address.user).as_string(None)
            yield Step("role", "needed", f"ALTER ROLE {user} REPLICATION", "the role may not read replication slots")

    def _publication(self, containers: Sequence[Container]) -> Iterator[Step]:
        """Returns whether all containers are in the publication afterwards."""
        exists = bool(self._ask("select from pg_publication where pubname = %(slot)s"))
        listed = captured_names(self._connection, self._slot, self._schema)
        missing = [one for one in containers if one.name not in listed]
        if not missing:
            yield Step("publication", "there", None)
            return True
        tables = sql.SQL(", ").join(map(relation, missing))
        text = sql.SQL("ALTER PUBLICATION {} ADD TABLE {}" if exists else "CREATE PUBLICATION {} FOR TABLE {}")
        statement = text.format(sql.Identifier(self._slot), tables).as_string(None)
        step = self._taken("publication", statement)
        yield step
        return step.status == "done"

    def _identities(self, containers: Sequence[Container]) -> Iterator[Step]:
        queries = SlotQueries(self._connection, self._slot, self._datastore)
        for container in containers:
            for statement, why in queries.identities_needed(container):
                yield Step(f"replica identity of {container.name}", "needed", statement, why)

    def _slot_steps(self, publication_is_new: bool) -> Iterator[Step]:
        """``publication_is_new``: a slot from before it cannot be read, as its log has changes from when there was no publication."""
        found = self._ask("select plugin, database = current_database() from pg_replication_slots where slot_name = %(slot)s")
        if found:
            if found[0] != (PLUGIN, True):
                raise SourceError(f"{self._datastore}: the slot {self._slot!r} belongs to another database or plugin. Set capture_slot.")
            if not publication_is_new:
                yield Step("slot", "there", None)
                return
            yield self._taken("slot", self._drop_slot())
        used, most = self._ask("select (select count(*) from pg_replication_slots), current_setting('max_replication_slots')::int")[0]
        if used >= most:
            yield Step("slot", "needed", f"ALTER SYSTEM SET max_replication_slots = {most + 5}", f"all {most} replication slots are used")
            return
        statement = (
            sql.SQL("SELECT pg_create_logical_replication_slot({}, {})")
            .format(sql.Literal(self._slot), sql.Literal(PLUGIN))
            .as_string(None)
        )
        try:
            self._connection.execute(f"set statement_timeout = '{CREATE_SECONDS}s'".encode())
            yield self._taken("slot", statement)
        except psycopg.errors.QueryCanceled:
            self._connection.execute("reset statement_timeout")
            who = ", ".join(
                f"{'pid ' + str(pid) if pid else application} (user {user}, application {application or 'unnamed'}, open since {since})"
                for pid, user, application, since in self._ask(_WHO)
            )
            raise SourceError(
                f"{self._datastore}: a replication slot is made only after all transactions have ended that have written something, and "
                f"after {CREATE_SECONDS} s these were still open: {who or 'unknown'}. End them, or run this again later."
            ) from None
        finally:
            if not self._connection.closed:
                self._connection.execute("reset statement_timeout")
        yield from self._limit()

    def _limit(self) -> Iterator[Step]:
        if self._keep_size() is None:
            yield Step(
                "max_slot_wal_keep_size", "there", None,
                "it is not limited: if syncs stop, the server keeps its log until its disk is full. ALTER SYSTEM SET "
                "max_slot_wal_keep_size = '50GB' ends that; the containers are then loaded anew",
            )  # fmt: skip

    def _keep_size(self) -> int | None:
        found = self._ask("select setting::bigint from pg_settings where name = 'max_slot_wal_keep_size'")
        return found[0][0] << 20 if found and found[0][0] >= 0 else None

    def _taken(self, name: str, statement: str) -> Step:
        try:
            self._connection.execute(statement.encode())
        except psycopg.errors.InsufficientPrivilege as error:
            return Step(name, "needed", statement, " ".join(str(error).split()))
        return Step(name, "done", statement)

    # ------------------------------------------------------------------ status, and the end
    def status(self) -> SlotStatus:
        version = SlotQueries(self._connection, self._slot, self._datastore).replication().version
        with self._errors():
            wal_status = "wal_status" if version >= 130000 else "null"
            found = self._ask(
                f"select confirmed_flush_lsn::text, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), restart_lsn)::bigint, active_pid,"
                f" {wal_status}, restart_lsn::text from pg_replication_slots where slot_name = %(slot)s"
            )
            limit = self._keep_size()
        if not found:
            message = f"there is no slot. Run: incremental-assets capture setup {self._datastore}"
            return SlotStatus(self._slot, "missing", None, None, limit, None, message)
        confirmed, retained, active_pid, state, restart = found[0]
        if state == "lost":
            return SlotStatus(self._slot, "lost", confirmed, retained, limit, active_pid, lost(self._datastore, self._slot))
        near = limit is not None and retained is not None and retained > limit // 2
        message = "more than half of max_slot_wal_keep_size is used" if near else ""
        return SlotStatus(self._slot, "warning" if near else "ok", confirmed, retained, limit, active_pid, message, restart)

    def drop(self) -> Iterator[Step]:
        """Drops slot and publication."""
        with self._errors():
            if self._ask("select from pg_replication_slots where slot_name = %(slot)s and database = current_database()"):
                yield self._taken("slot", self._drop_slot())
            if self._ask("select from pg_publication where pubname = %(slot)s"):
                yield self._taken("publication", sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(self._slot)).as_string(None))

    # ------------------------------------------------------------------
    def _drop_slot(self) -> str:
        return sql.SQL("SELECT pg_drop_replication_slot({})").format(sql.Literal(self._slot)).as_string(None)

    def _ask(self, query: str) -> list[tuple]:  # pyright: ignore[reportMissingTypeArgument]
        return ask(self._connection, query, {"slot": self._slot})

    def _errors(self):
        return source_errors(self._datastore, self._address)
