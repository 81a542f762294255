"""Sets capture up in a database, says how it stands, and takes it away again."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from incremental_assets.core.container import Container
from incremental_assets.core.errors import ConfigurationError, SourceError
from incremental_assets.databases.postgres.capture.slot import PLUGIN, SlotQueries, captured_names, lost
from incremental_assets.databases.postgres.connection import PostgresAddress, ask
from incremental_assets.databases.postgres.failures import source_errors
from incremental_assets.databases.postgres.queries import relation
from incremental_assets.databases.source_checks import check_readable

CREATE_SECONDS = 60
"""How long the creation of a slot waits for the transactions to end that have written something."""
_WHO = """select pid, usename, application_name, xact_start::text from pg_stat_activity
  where backend_xid is not null and pid <> pg_backend_pid() union all select null, owner, 'prepared transaction ' || gid, prepared::text
  from pg_prepared_xacts order by 4"""
_MADE = "made by incremental-assets:"
_COMMENT = "select coalesce(obj_description(oid, 'pg_publication'), '') from pg_publication where pubname = %(slot)s"
_KEY = """select array_agg(a.attname::text) from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey)
  where i.indrelid = %(table)s::regclass and i.indisprimary and i.indimmediate and i.indisvalid having count(*) > 0"""
# The published tables that have neither an index of their identity that works, nor the whole row as their identity.
_BROKEN = """select t.schemaname::text, t.tablename::text from pg_publication_tables t join pg_namespace n on n.nspname = t.schemaname
    join pg_class c on c.relnamespace = n.oid and c.relname = t.tablename
  where t.pubname = %(slot)s and c.relkind = 'r' and c.relreplident <> 'f' and not c.relispartition and not exists (
    select from pg_index i where i.indrelid = c.oid and i.indisvalid and i.indimmediate
      and case c.relreplident when 'd' then i.indisprimary when 'i' then i.indisreplident end) order by 1, 2"""


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
    """The set-up of one datastore, over one connection. Used as a context manager. All methods raise SourceError.

    ``is_named``: the YAML names the slot, so that it and the publication may be somebody else's.
    """

    def __init__(self, address: PostgresAddress, datastore: str, schema: str, slot: str, *, is_named: bool = False) -> None:
        self._address, self._datastore, self._schema, self._slot = address, datastore, schema, slot
        self._is_named = is_named

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
            able: list[Container] = []
            for container in containers:
                steps = list(self._obstacles(container))
                yield from steps
                able += [] if steps else [container]
            is_new = not self._has_publication()
            yield from self._publication(able)
            yield from self._others(containers)
            if self._has_publication():
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

    def _obstacles(self, container: Container) -> Iterator[Step]:
        """What has to be done before the container's table may enter the publication: PostgreSQL refuses updates and deletes of a published
        table whose rows it cannot name in its log."""
        try:
            check_readable(container)
        except ConfigurationError as error:
            yield Step(f"inherited of {container.name}", "needed", None, str(error))
            return
        for statement, why in SlotQueries(self._connection, self._slot, self._datastore).identities_needed(container):
            yield Step(f"replica identity of {container.name}", "needed", statement, why)

    def _publication(self, containers: Sequence[Container]) -> Iterator[Step]:
        """Adds the tables that are missing, if that breaks no update and no delete of theirs: both are tried before it is committed."""
        exists = self._has_publication()
        listed = captured_names(self._connection, self._slot, self._schema)
        missing = [one for one in containers if one.name not in listed]
        for one in containers:
            if one.name in listed and (step := self._breaks(one)) is not None:
                yield step
        while missing:
            text = sql.SQL("ALTER PUBLICATION {} ADD TABLE {}" if exists else "CREATE PUBLICATION {} FOR TABLE {}")
            statement = text.format(sql.Identifier(self._slot), sql.SQL(", ").join(map(relation, missing))).as_string(None)
            if exists and not self._is_ours("publication"):
                yield Step("publication", "needed", statement, f"capture setup has not made it, and leaves it as it is; {self._adopted()}")
                return
            broken: dict[str, Step] = {}
            try:
                with self._connection.transaction():
                    self._connection.execute(statement.encode())
                    broken = {one.name: step for one in missing if (step := self._breaks(one)) is not None}
                    if broken:
                        raise psycopg.Rollback
                    if not exists:
                        self._mark("publication")
            except psycopg.errors.InsufficientPrivilege as error:
                yield Step("publication", "needed", statement, " ".join(str(error).split()))
                return
            yield from broken.values()
            if not broken:
                yield Step("publication", "done", statement)
                return
            missing = [one for one in missing if one.name not in broken]
        if exists:
            yield Step("publication", "there", None)

    def _breaks(self, container: Container) -> Step | None:
        """What has to be done if the publication, as it is now, breaks updates or deletes of the container's table or its partitions.

        The statements are planned and not run, so that no trigger fires. PostgreSQL checks the identity when it begins one.
        """
        for schema, name in SlotQueries(self._connection, self._slot, self._datastore).tables(container):
            table, column = sql.Identifier(schema, name), sql.Identifier(container.primary_key[0])
            deletes = sql.SQL("explain delete from only {}").format(table)
            updates = sql.SQL("explain update only {} set {} = default").format(table, column)
            for query in (deletes, updates):
                try:
                    with self._connection.transaction():
                        self._connection.execute(query)
                except (psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.InvalidColumnReference) as error:
                    statement, why = self._other_identity(container, schema, name), " ".join(str(error).split())
                    return Step(f"replica identity of {container.name}", "needed", statement, why)
                except psycopg.errors.InsufficientPrivilege:
                    continue  # this role may not write to it, which says nothing of others
        return None

    def _other_identity(self, container: Container, schema: str, name: str) -> str | None:
        """The statement that makes the table's primary key its identity again, if that names its rows; else None."""
        keys = self._ask(_KEY, table=sql.Identifier(schema, name).as_string(None))
        if not keys or not set(container.primary_key) <= set(keys[0][0]):
            return None
        return sql.SQL("ALTER TABLE {} REPLICA IDENTITY DEFAULT").format(sql.Identifier(schema, name)).as_string(None)

    def _others(self, containers: Sequence[Container]) -> Iterator[Step]:
        """The tables of our publication whose updates and deletes fail, and which no container follows: an earlier version has added the
        tables that inherit from a captured one."""
        known = [(one.schema, one.name) for one in containers]
        for schema, name in self._ask(_BROKEN) if self._is_ours("publication") else []:
            if (schema, name) not in known:
                text = sql.SQL("ALTER PUBLICATION {} DROP TABLE ONLY {}").format(sql.Identifier(self._slot), sql.Identifier(schema, name))
                why = "no container follows it, and PostgreSQL refuses its updates and deletes while it is published"
                yield Step(f"replica identity of {name}", "needed", text.as_string(None), why)

    def _slot_steps(self, publication_is_new: bool) -> Iterator[Step]:
        """``publication_is_new``: a slot from before it cannot be read, as its log has changes from when there was no publication."""
        found = self._ask("select plugin, database = current_database() from pg_replication_slots where slot_name = %(slot)s")
        if found:
            if found[0] != (PLUGIN, True):
                raise SourceError(f"{self._datastore}: the slot {self._slot!r} belongs to another database or plugin. Set capture_slot.")
            if not publication_is_new:
                yield Step("slot", "there", None)
                return
            if not self._is_ours("slot"):
                what = f"it is from before the publication, so that it cannot be read, and capture setup has not made it; {self._adopted()}"
                yield Step("slot", "needed", self._drop_slot(), what)
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
            step = self._taken("slot", statement)
            if step.status == "done" and self._is_ours("publication"):
                with contextlib.suppress(psycopg.errors.InsufficientPrivilege):  # an administrator has made the publication
                    self._mark("publication, slot")
            yield step
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
        """Drops slot and publication, as far as ``set_up`` has made them."""
        with self._errors():
            slot_is_ours = self._is_ours("slot")  # the publication says it
            if self._has_publication():
                # First, because a slot that is being read cannot be dropped, and published tables may refuse updates.
                if self._is_ours("publication"):
                    yield self._taken("publication", sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(self._slot)).as_string(None))
                else:
                    yield Step("publication", "there", None, f"capture setup has not made it, and leaves it as it is; {self._adopted()}")
            if self._ask("select from pg_replication_slots where slot_name = %(slot)s and database = current_database()"):
                if slot_is_ours:
                    yield self._taken("slot", self._drop_slot())
                else:
                    what = "capture setup has not made it; if nobody else reads it, it has to go, as the server keeps its log for it"
                    yield Step("slot", "needed", self._drop_slot(), what)

    # ------------------------------------------------------------------ what is ours
    def _has_publication(self) -> bool:
        return bool(self._ask("select from pg_publication where pubname = %(slot)s"))

    def _is_ours(self, what: str) -> bool:
        """Whether ``set_up`` has made the publication or the slot (``what``). They are only in doubt if the YAML names them."""
        return not self._is_named or any(said.startswith(_MADE) and what in said for (said,) in self._ask(_COMMENT))

    def _mark(self, what: str) -> None:
        """Notes at the publication that ``set_up`` has made it and, where ``what`` says so, the slot."""
        self._connection.execute(self._marked(what).encode())

    def _marked(self, what: str) -> str:
        text = sql.SQL("COMMENT ON PUBLICATION {} IS {}").format(sql.Identifier(self._slot), sql.Literal(f"{_MADE} {what}"))
        return text.as_string(None)

    def _adopted(self) -> str:
        return f"if both belong to this datastore alone: {self._marked('publication, slot')};"

    # ------------------------------------------------------------------
    def _drop_slot(self) -> str:
        return sql.SQL("SELECT pg_drop_replication_slot({})").format(sql.Literal(self._slot)).as_string(None)

    def _ask(self, query: str, **parameters: Any) -> list[tuple]:  # pyright: ignore[reportMissingTypeArgument]
        return ask(self._connection, query, {"slot": self._slot, **parameters})

    def _errors(self):
        return source_errors(self._datastore, self._address)
