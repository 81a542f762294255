"""Asks for the replication slot and the publication of a datastore, makes them, and says what is wrong with them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from incremental_assets.core.capture import ColumnShape, PartShape, Shape, parse_lsn
from incremental_assets.core.container import Container, Kind
from incremental_assets.core.errors import ConfigurationError, LogLost
from incremental_assets.databases.change_log import LogState
from incremental_assets.databases.postgres.connection import ask

PLUGIN = "pgoutput"
# Each entry is named with the transaction that has written it, as it may have been taken out and put back. A table with an entry of its own
# cannot become UNLOGGED, and stays published in whatever schema. For all others, their definition tells whether that may have happened.
_PARTS = """with recursive parts as (
  select %(relation)s::regclass::oid as oid, ''::text as attached, array[%(relation)s::regclass::oid] as path
  union select i.inhrelid, attached || i.xmin::text || '.', path || i.inhrelid from pg_inherits i join parts on i.inhparent = parts.oid
    join pg_class heir on heir.oid = i.inhrelid where heir.relispartition)
  select p.oid::bigint, pg_relation_filenode(p.oid)::bigint, attached, coalesce(
    (select 'r' || r.oid || ':' || r.xmin from pg_publication_rel r join pg_publication u on u.oid = r.prpubid
      where u.pubname = %(slot)s and r.prrelid = p.oid),
    concat_ws(',', 'c' || c.xmin,
      (select string_agg(r.oid || ':' || r.xmin, ',' order by r.oid) from pg_publication_rel r join pg_publication u on u.oid = r.prpubid
        where u.pubname = %(slot)s and r.prrelid = any(p.path)) {schemas}))
  from parts p join pg_class c on c.oid = p.oid where c.relkind <> 'p'"""
"""The tables that have the rows: the leaf partitions, or the table itself. With each, its file, how it was attached, and how published."""
_SCHEMAS = """, (select string_agg(s.oid || ':' || s.xmin, ',' order by s.oid) from pg_publication_namespace s
  join pg_publication u on u.oid = s.pnpubid where u.pubname = %(slot)s
    and s.pnnspid in (select t.relnamespace from pg_class t where t.oid = any(p.path)))"""
_SERVER = """select current_setting('wal_level'), current_setting('server_version_num')::int, pg_is_in_recovery(),
  (select rolreplication or rolsuper from pg_roles where rolname = current_user)
    or exists (select from pg_roles where rolname = 'rds_replication' and pg_has_role(oid, 'member'))"""
_SLOT = """select plugin, database = current_database(), confirmed_flush_lsn::text, {status}, active_pid,
    pg_wal_lsn_diff(pg_current_wal_insert_lsn(), restart_lsn)::bigint,
    pg_current_wal_flush_lsn()::text, substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
  from (values (1)) one(n) left join pg_replication_slots on slot_name = %(slot)s"""
_MEMBER = """select p.oid::text || ':' || p.xmin::text || ':' || coalesce(r.oid::text || ':' || r.xmin::text, 'all'),
    p.pubinsert and p.pubupdate and p.pubdelete and p.pubtruncate, {via_root}, {filtered},
    (select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = any(%(parts)s::oid[]) and not exists (
      select from pg_publication_tables t where t.pubname = p.pubname and t.schemaname = n.nspname and t.tablename = c.relname))
  from pg_publication p left join pg_publication_rel r on r.prpubid = p.oid and r.prrelid = %(relation)s::regclass
  where p.pubname = %(slot)s"""
# The entry of the table, and those of its partitions.
_FILTERED = """exists (select from pg_publication_rel e where e.prpubid = p.oid and (e.prqual is not null or e.prattrs is not null)
  and (e.prrelid = %(relation)s::regclass or e.prrelid = any(%(parts)s::oid[])))"""
# Of an index, the columns that are only included are no part of the identity, and one that is checked at the end of a transaction is none.
_IDENTITY = """select c.relreplident::text, c.relpersistence::text, n.nspname::text, c.relname::text,
  (select array_agg(a.attname::text) from pg_index i
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any((i.indkey::int2[])[0:i.indnkeyatts - 1])
    where i.indrelid = c.oid and i.indisvalid and i.indimmediate
      and case c.relreplident when 'd' then i.indisprimary when 'i' then i.indisreplident end)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = any(%(parts)s::oid[]) order by c.oid"""
_COLUMNS = """select attnum, attname::text, atttypid::text || ':' || atttypmod::text, xmin::text, atthasmissing {generated},
    case when {virtual} then (select md5(d.adbin::text) from pg_attrdef d where d.adrelid = attrelid and d.adnum = attnum) else '' end
  from pg_attribute where attrelid = %(relation)s::regclass and attnum > 0 and not attisdropped order by attnum"""


@dataclass(frozen=True)
class Replication:
    """What a server and a role permit. ``may_read``: the role may read slots."""

    wal_level: str
    version: int
    is_replica: bool
    may_read: bool


class SlotQueries:
    """The questions over one connection. ``slot``: the name of the slot and of the publication."""

    def __init__(self, connection: psycopg.Connection, slot: str, datastore: str) -> None:
        self._connection, self.slot, self._datastore = connection, slot, datastore

    def replication(self) -> Replication:
        return Replication(*self._row(_SERVER))

    def state(self, container: Container) -> LogState:
        """See ``ChangeLog.state``."""
        server = self.replication()
        setup = f"Run: incremental-assets capture setup {self._datastore}"
        if server.is_replica:
            raise ConfigurationError(f"{container.label}: capture: log reads the log of a primary server, and this one is a replica.")
        if server.wal_level != "logical":
            raise ConfigurationError(
                f"{container.label}: capture: log needs wal_level = logical, and the server has {server.wal_level}. {setup}"
            )
        if not server.may_read:
            raise ConfigurationError(f"{container.label}: this role may not read replication slots. {setup}")
        status = "wal_status" if server.version >= 130000 else "null"
        plugin, here, confirmed, wal_status, _, retained, flushed, timeline = self._row(_SLOT.format(status=status), slot=self.slot)
        if plugin is None:
            raise ConfigurationError(f"{container.label}: there is no replication slot {self.slot!r} for its changes. {setup}")
        if plugin != PLUGIN or not here:
            raise ConfigurationError(
                f"{container.label}: the replication slot {self.slot!r} belongs to another database or plugin ({plugin}). Name one of its "
                f"own: capture_slot"
            )
        if wal_status == "lost" or confirmed is None:
            raise LogLost(f"{container.label}: {lost(self._datastore, self.slot)}")
        relation = _regclass(container)
        shape = self.shape(relation, server.version)
        membership = self._membership(container, shape, server.version)
        return LogState(self.slot, parse_lsn(confirmed), parse_lsn(flushed), int(retained), timeline, membership, shape)

    def shape(self, relation: str, version: int) -> Shape:
        generated = "or attgenerated <> ''" if version >= 120000 else ""
        virtual = "attgenerated = 'v'" if version >= 180000 else "false"
        columns = tuple(ColumnShape(*row) for row in self._rows(_COLUMNS.format(generated=generated, virtual=virtual), relation=relation))
        query = _PARTS.format(schemas=_SCHEMAS if version >= 150000 else "")
        found = self._rows(query, relation=relation, slot=self.slot)
        return Shape(columns, {int(oid): PartShape(int(file or 0), *noted) for oid, file, *noted in found})

    def _membership(self, container: Container, shape: Shape, version: int) -> str:
        """Identifies the entry of the table in the publication. Raises ConfigurationError if changes would be missing in the log."""
        label, relation = container.label, _regclass(container)
        setup = f"Run: incremental-assets capture setup {self._datastore}"
        via_root = "p.pubviaroot" if version >= 130000 else "false"
        filtered = _FILTERED if version >= 150000 else "false"
        parts = list(shape.parts)
        found = self._rows(_MEMBER.format(via_root=via_root, filtered=filtered), slot=self.slot, relation=relation, parts=parts)
        if not found:
            raise ConfigurationError(f"{label}: there is no publication {self.slot!r} for its changes. {setup}")
        membership, all_kinds, via, is_filtered, unlisted = found[0]
        if via and container.kind is Kind.PARTITIONED:
            raise ConfigurationError(
                f"{label}: the publication {self.slot!r} does not tell when a single partition is truncated: ALTER PUBLICATION "
                f'"{self.slot}" SET (publish_via_partition_root = false);'
            )
        if unlisted:
            raise ConfigurationError(
                f"{label}: its table is not in the publication {self.slot!r}, so its changes are not captured. {setup}"
            )
        if not all_kinds:
            raise ConfigurationError(
                f"{label}: the publication {self.slot!r} leaves out some kinds of changes: ALTER PUBLICATION "
                f"\"{self.slot}\" SET (publish = 'insert, update, delete, truncate');"
            )
        if is_filtered:
            raise ConfigurationError(
                f"{label}: the publication {self.slot!r} leaves out rows or columns of its table. Let it have the table without WHERE and "
                "without a list of columns."
            )
        for statement, why in self.identities_needed(container):
            raise ConfigurationError(f"{label}: {why}. This helps: {statement}; (for REPLICA IDENTITY also USING INDEX …)")
        return str(membership)

    def identities_needed(self, container: Container) -> Iterator[tuple[str, str]]:
        """For each of its tables whose deleted rows the log does not name by the container's key: the statement that helps, and why."""
        shape = self.shape(_regclass(container), self.replication().version)
        for identity, persistence, schema, name, columns in self._rows(_IDENTITY, parts=list(shape.parts)):
            table = sql.Identifier(schema, name).as_string(None)
            if persistence != "p":
                yield f"ALTER TABLE {table} SET LOGGED", f"{name} is UNLOGGED or TEMPORARY, so its changes are in no log"
            missing = [] if identity == "f" else [key for key in container.primary_key if key not in (columns or ())]
            if identity == "n" or missing:
                lacks = ", ".join(missing or container.primary_key)
                also = "; each new partition needs it, too" if container.kind is Kind.PARTITIONED else ""
                yield (
                    f"ALTER TABLE {table} REPLICA IDENTITY FULL",
                    f"the log does not tell which rows are deleted from {name}: its replica identity has not {lacks}, or its key is "
                    f"DEFERRABLE, and while it is published, PostgreSQL refuses its updates and deletes{also}",
                )

    def tables(self, container: Container) -> list[tuple[str, str]]:
        """Schema and name of the tables that have the container's rows."""
        parts = list(self.shape(_regclass(container), self.replication().version).parts)
        return [(schema, name) for _, _, schema, name, _ in self._rows(_IDENTITY, parts=parts)]

    def _rows(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return ask(self._connection, query, parameters)

    def _row(self, query: str, **parameters: Any) -> tuple[Any, ...]:
        return self._rows(query, **parameters)[0]


def captured_names(connection: psycopg.Connection, slot: str, schema: str) -> list[str]:
    """The names of the tables of this schema that are in the publication; instead of a partition, the name of its table."""
    rows = ask(
        connection,
        """with recursive listed as (
            select c.oid from pg_publication_tables t join pg_namespace n on n.nspname = t.schemaname
              join pg_class c on c.relnamespace = n.oid and c.relname = t.tablename where t.pubname = %(slot)s
            union select i.inhparent from pg_inherits i join listed on i.inhrelid = listed.oid
              join pg_class part on part.oid = i.inhrelid where part.relispartition)
          select c.relname from listed join pg_class c using (oid) join pg_namespace n on n.oid = c.relnamespace
          where n.nspname = %(schema)s order by 1""",
        {"slot": slot, "schema": schema},
    )
    return [row[0] for row in rows]


def _regclass(container: Container) -> str:
    return sql.Identifier(container.schema, container.name).as_string(None)


def lost(datastore: str, slot: str) -> str:
    """What to say of a slot whose log the server has removed."""
    return (
        f"the server has removed the log that the replication slot {slot!r} needs (max_slot_wal_keep_size). To make the slot anew: "
        f"incremental-assets capture drop {datastore} && incremental-assets capture setup {datastore}; the next sync then loads its "
        "containers anew."
    )
