"""Inspects a PostgreSQL schema: lists all tables and views, and reads columns, keys, indexes and spans of chosen ones."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from incremental_assets.core.container import ForeignKey, Heirs, Kind, Origin, RowSecurity, SourceColumn, SourceTable
from incremental_assets.core.cursor_type import CursorType
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.evidence import ListedContainer, TableEvidence
from incremental_assets.databases.postgres.connection import PostgresAddress, ask
from incremental_assets.databases.postgres.evidence import last_drawn, read_evidence
from incremental_assets.databases.postgres.failures import source_errors
from incremental_assets.databases.postgres.origins import Origins, read_origins
from incremental_assets.databases.postgres.queries import cursor_value_text, within_ends

_KINDS = {"r": Kind.TABLE, "p": Kind.PARTITIONED, "f": Kind.FOREIGN, "v": Kind.VIEW, "m": Kind.MATERIALIZED_VIEW}

# Other sessions do not see the rows of a temporary table, whatever it inherits from.
_HAS_HEIRS = """exists (
  select from pg_inherits i join pg_class heir on heir.oid = i.inhrelid where i.inhparent = c.oid and heir.relpersistence <> 't')"""
# Partitions are left out, because they are read through their partitioned table. The recursion follows domains to their base types. Nothing
# here opens a table, because that would wait for somebody's exclusive lock on it. pg_get_expr opens a table if it is given one, so its
# second argument is 0.
_COLUMNS = """
with recursive base as (
  select oid as domain, oid, typbasetype, typtype from pg_type
  union all
  select base.domain, t.oid, t.typbasetype, t.typtype from base join pg_type t on t.oid = base.typbasetype where base.typtype = 'd'
)
select c.oid::bigint as oid, c.relname, c.relkind::text as kind, c.reltuples::bigint as rows,
       obj_description(c.oid, 'pg_class') as comment, a.attname, a.attnotnull,
       coalesce(format_type(nullif(base.oid, a.atttypid), null), format_type(a.atttypid, a.atttypmod)) as type,
       format_type(base.oid, null) as base, case when a.attgenerated = '' then pg_get_expr(d.adbin, 0) end as "default",
       coalesce(col_description(c.oid, a.attnum), '') as said,
       pg_get_serial_sequence(format('%%I.%%I', n.nspname, c.relname), a.attname) as serial,
       (select format('%%I.%%I', sn.nspname, s.relname) from pg_depend dep join pg_class s on s.oid = dep.refobjid and s.relkind = 'S'
          join pg_namespace sn on sn.oid = s.relnamespace
         where dep.classid = 'pg_attrdef'::regclass and dep.objid = d.oid and dep.refclassid = 'pg_class'::regclass limit 1) as drawn,
       c.relkind in ('r', 'f') and {has_heirs} as has_heirs, c.relpages = 0 and pg_stat_get_live_tuples(c.oid) = 0 as has_no_rows,
       coalesce(has_table_privilege(to_regclass('_timescaledb_catalog.hypertable'), 'select'), false) as has_hypertables
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
left join base on base.domain = a.atttypid and base.typtype <> 'd'
left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
where n.nspname = %(schema)s and c.relkind in ('r', 'p', 'f', 'v', 'm') and not c.relispartition
  and c.relname = any(%(tables)s::text[])
order by c.relname, a.attnum
""".replace("{has_heirs}", _HAS_HEIRS)
_HYPERTABLES = "select table_name::text from _timescaledb_catalog.hypertable where schema_name = %(schema)s"
_INDEXES = """
select i.indrelid::bigint as oid, i.indisprimary as primary, i.indisunique and i.indpred is null and i.indexprs is null as unique,
       i.indpred is null and i.indisvalid as whole,
       (select array_agg(a.attname::text order by k.n) from unnest(i.indkey::int2[]) with ordinality k(attnum, n)
          join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum where k.n <= i.indnkeyatts) as columns
from pg_index i join pg_class c on c.oid = i.indrelid join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relname = any(%(tables)s::text[]) and i.indisvalid order by i.indisprimary desc, i.indexrelid
"""
# Foreign keys to tables of another schema are left out, as these are no containers of the datastore.
_FOREIGN_KEYS = """
select k.conrelid::bigint as oid, other.relname as referenced_table,
       (select array_agg(a.attname::text order by c.n) from unnest(k.conkey) with ordinality c(attnum, n)
          join pg_attribute a on a.attrelid = k.conrelid and a.attnum = c.attnum) as columns,
       (select array_agg(a.attname::text order by c.n) from unnest(k.confkey) with ordinality c(attnum, n)
          join pg_attribute a on a.attrelid = k.confrelid and a.attnum = c.attnum) as referenced
from pg_constraint k join pg_class c on c.oid = k.conrelid join pg_namespace n on n.oid = c.relnamespace
join pg_class other on other.oid = k.confrelid and other.relnamespace = c.relnamespace and not other.relispartition
where k.contype = 'f' and k.conparentid = 0 and n.nspname = %(schema)s and c.relname = any(%(tables)s::text[]) order by k.conname, k.oid
"""
# The fingerprint covers the columns with their defaults, sequences and comments, the indexes, the foreign keys, the triggers with their
# functions, subscriptions, and whether other tables inherit from the table. The catalog operation inspects a table more closely only if
# its fingerprint has changed.
# The sizes are those of the last VACUUM or ANALYZE. The functions that measure the current size open the table, and would wait for
# somebody's exclusive lock on it.
_LISTING = """
with recursive listed as (
  select c.oid, c.relname, c.relkind, c.reltuples, obj_description(c.oid, 'pg_class') as comment
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = %(schema)s and c.relkind in ('r', 'p', 'f', 'v', 'm') and not c.relispartition
), parts as (
  select oid as root, oid from listed where relkind in ('r', 'p', 'm')
  union all
  select parts.root, i.inhrelid from parts join pg_inherits i on i.inhparent = parts.oid join pg_class r on r.oid = parts.root
  where r.relkind = 'p'
), sizes as (
  select parts.root, sum(greatest(c.reltuples, 0))::bigint as rows, bool_or(c.reltuples >= 0) as known,
         sum(current_setting('block_size')::bigint * (c.relpages + coalesce(t.relpages, 0)
             + (select coalesce(sum(x.relpages), 0) from pg_index i join pg_class x on x.oid = i.indexrelid
                 where i.indrelid in (c.oid, c.reltoastrelid))))::bigint as bytes,
         sum(pg_stat_get_tuples_inserted(c.oid) + pg_stat_get_tuples_updated(c.oid) + pg_stat_get_tuples_deleted(c.oid))::bigint as activity
  from parts join pg_class c on c.oid = parts.oid and c.relkind <> 'p' left join pg_class t on t.oid = c.reltoastrelid
  group by parts.root
), columns as (
  select a.attrelid, string_agg(concat_ws(':', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attgenerated, a.attidentity,
                                          md5(case a.attgenerated when '' then pg_get_expr(d.adbin, 0) else d.adbin::text end),
                                          q.name, r.draws), ',' order by a.attnum) as said
  from listed join pg_attribute a on a.attrelid = listed.oid and a.attnum > 0 and not a.attisdropped
  left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
  left join lateral (
    select format('%%I.%%I', s.relnamespace::regnamespace, s.relname) as name from pg_depend x join pg_class s on s.oid = x.objid
    where x.refobjid = a.attrelid and x.refobjsubid = a.attnum and x.refclassid = 'pg_class'::regclass
      and x.deptype in ('a', 'i') and s.relkind = 'S' limit 1
  ) q on a.atttypid in (20, 21, 23)
  left join lateral (
    select string_agg(concat_ws('/', s.seqrelid, s.seqcache, s.seqincrement, s.seqcycle), ';' order by s.seqrelid) as draws
    from pg_sequence s where s.seqrelid in (
      select x.objid from pg_depend x where x.refobjid = a.attrelid and x.refobjsubid = a.attnum and x.refclassid = 'pg_class'::regclass
        and x.classid = 'pg_class'::regclass and x.deptype in ('a', 'i')
      union all
      select x.refobjid from pg_depend x where x.classid = 'pg_attrdef'::regclass and x.objid = d.oid
        and x.refclassid = 'pg_class'::regclass)
  ) r on d.oid is not null or a.attidentity <> ''
  group by a.attrelid
), indexes as (
  select i.indrelid,
         string_agg(concat_ws(':', i.indexrelid, i.indisprimary, i.indisunique, i.indisvalid), ',' order by i.indexrelid) as said
  from listed join pg_index i on i.indrelid = listed.oid group by i.indrelid
), triggers as (
  select t.tgrelid, string_agg(concat_ws(':', t.oid, t.tgenabled, t.tgtype, t.tgfoid, t.tgattr, md5(t.tgqual::text), md5(p.prosrc),
                                          coalesce(p.proconfig::text, '')), ',' order by t.oid) as said
  from listed join pg_trigger t on t.tgrelid = listed.oid and not t.tgisinternal join pg_proc p on p.oid = t.tgfoid group by t.tgrelid
), foreign_keys as (
  select k.conrelid, string_agg(concat_ws(':', k.oid, other.relname, other.relnamespace), ',' order by k.oid) as said
  from listed join pg_constraint k on k.conrelid = listed.oid and k.contype = 'f' and k.conparentid = 0
  join pg_class other on other.oid = k.confrelid
  group by k.conrelid
), comments as (
  select d.objoid, string_agg(concat_ws(':', d.objsubid, md5(d.description)), ',' order by d.objsubid) as said
  from listed join pg_description d on d.classoid = 'pg_class'::regclass and d.objoid = listed.oid and d.objsubid > 0 group by d.objoid
), subscribed as (
  select distinct parts.root from pg_subscription_rel s join parts on parts.oid = s.srrelid
), inherited as (
  select i.inhparent, max(case when c.relpersistence <> 't' and not c.relispartition then '|heirs' end) as said
  from pg_inherits i join pg_class c on c.oid = i.inhrelid group by i.inhparent
)
select l.relname, l.relkind::text as kind, coalesce(s.rows, l.reltuples::bigint) as rows, coalesce(s.known, l.reltuples >= 0) as known,
       s.bytes, s.activity, case when l.relkind in ('r', 'p') then l.oid::text end as identity,
       md5(concat_ws('|', l.oid, l.relkind, l.comment, c.said, '|', i.said, '|', t.said, b.root is not null, h.inhparent is not null)
           || coalesce('|' || f.said, '') || coalesce(h.said, '') || coalesce('|comments' || d.said, '')) as fingerprint
from listed l left join sizes s on s.root = l.oid left join columns c on c.attrelid = l.oid left join indexes i on i.indrelid = l.oid
left join triggers t on t.tgrelid = l.oid left join foreign_keys f on f.conrelid = l.oid
left join subscribed b on b.root = l.oid left join inherited h on h.inhparent = l.oid left join comments d on d.objoid = l.oid
order by l.relname
"""

# What the role lacks, as an administrator's statements. The last one is of databases where it was taken from PUBLIC.
_MISSING_PRIVILEGES = """
select format(m.statement, quote_ident(current_user), quote_ident(%(schema)s)) || '  -- ' || m.without from (values
  (1, 'GRANT SELECT ON ALL TABLES IN SCHEMA %%2$s TO %%1$s;', 'without it, some tables cannot be read',
   exists (select from pg_class where relnamespace = to_regnamespace(quote_ident(%(schema)s)) and relkind in ('r', 'p', 'f', 'v', 'm')
           and not has_table_privilege(oid, 'select') and not has_any_column_privilege(oid, 'select'))),
  (2, 'GRANT pg_read_all_stats TO %%1$s;', 'without it, whose transaction is open is not seen, and times need a safety lag',
   not pg_has_role('pg_read_all_stats', 'usage')),
  (3, 'GRANT SELECT ON ALL SEQUENCES IN SCHEMA %%2$s TO %%1$s;', 'without it, how far a sequence has gone does not limit a watermark',
   exists (select from pg_class where relnamespace = to_regnamespace(quote_ident(%(schema)s))
           and case when relkind = 'S' then not has_sequence_privilege(oid, 'select') end)),
  (4, 'GRANT EXECUTE ON FUNCTION pg_control_system() TO %%1$s;', 'without it, another server under the same address is not recognised',
   not has_function_privilege('pg_control_system()', 'execute'))
) m (number, statement, without, is_missing) where m.is_missing order by m.number
"""


class PostgresCatalog:
    """The queries of the catalog operation for one schema, over one connection. All methods raise SourceError if a query fails.

    ``row_security``: what is done with that of the table of this name. ``troubles``: messages by table, for tables that could not be
    inspected. ``missing_privileges``: see ``catalog.state.Catalog``.
    """

    def __init__(
        self,
        connection: psycopg.Connection,
        datastore: str,
        schema: str,
        address: PostgresAddress,
        row_security: Callable[[str], RowSecurity],
    ) -> None:
        self._connection, self._datastore, self._schema, self._address = connection, datastore, schema, address
        self._row_security = row_security
        self.troubles: dict[str, str] = {}
        self.missing_privileges: tuple[str, ...] = ()

    def listing(self) -> Mapping[str, ListedContainer]:
        """All tables and views of the schema by name. Raises ConfigurationError if the schema does not exist."""
        with source_errors(self._datastore, self._address):
            found = read_listing(self._connection, self._schema)
            self.missing_privileges = tuple(row[0] for row in ask(self._connection, _MISSING_PRIVILEGES, {"schema": self._schema}))
            if not found and self._connection.execute("select from pg_namespace where nspname = %s", [self._schema]).fetchone() is None:
                rows = self._connection.execute("select nspname from pg_namespace where nspname !~ '^(pg_|information_)'").fetchall()
                raise ConfigurationError(
                    f"{self._datastore}: there is no schema {self._schema!r}; the database has {', '.join(row[0] for row in rows)}."
                )
        return found

    def tables(self, names: Sequence[str]) -> Sequence[SourceTable]:
        """Those of the named tables and views that exist, with the origins of their columns; sizes and spans are left out."""
        with source_errors(self._datastore, self._address):
            origins = read_origins(self._connection, self._schema, names)
            return [_with_origins(table, origins[table.name]) for table in read_tables(self._connection, self._schema, names)]

    def evidence(self, names: Sequence[str]) -> Mapping[str, TableEvidence]:
        """The evidence by table (``read_evidence``)."""
        with source_errors(self._datastore, self._address):
            return read_evidence(self._connection, self._schema, names)

    def span(self, table: str, columns: Sequence[str], cursor_type: CursorType) -> tuple[int, int] | None:
        """The lowest and the highest value of the columns (``read_span``)."""
        with source_errors(f"{self._datastore}/{table}", self._address, sql.Identifier(self._schema, table).as_string(None)):
            return read_span(self._connection, self._schema, table, columns, cursor_type, self._row_security(table))

    def last_drawn(self, table: str, column: SourceColumn) -> int | None:
        """The last value of the column's sequence (``evidence.last_drawn``)."""
        with source_errors(f"{self._datastore}/{table}", self._address):
            sequence = column.sequence
            return None if sequence is None else last_drawn(lambda *query: ask(self._connection, *query)[0], sequence)


def read_listing(connection: psycopg.Connection, schema: str) -> dict[str, ListedContainer]:
    """All tables and views of the schema by name. Raises psycopg.Error.

    One query lists them without opening any of them, so thousands of tables take a fraction of a second.
    """
    found: dict[str, ListedContainer] = {}
    for row in ask(connection, _LISTING, {"schema": schema}, dict_row):
        rows, size = (row["rows"], row["bytes"]) if row["known"] else (None, None)
        found[row["relname"]] = ListedContainer(_KINDS[row["kind"]], row["fingerprint"], rows, size, row["activity"], row["identity"])
    return found


def read_tables(connection: psycopg.Connection, schema: str, names: Sequence[str]) -> list[SourceTable]:
    """The columns, keys and indexes of those of the named tables and views that exist, without sizes and spans. Raises psycopg.Error."""
    parameters: dict[str, Any] = {"schema": schema, "tables": list(names)}
    rows = ask(connection, _COLUMNS, parameters, dict_row)
    indexes: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for index in ask(connection, _INDEXES, parameters, dict_row):
        indexes[index["oid"]].append(index)
    foreign_keys: dict[int, list[ForeignKey]] = defaultdict(list)
    for key in ask(connection, _FOREIGN_KEYS, parameters, dict_row):
        foreign_keys[key["oid"]].append(ForeignKey(tuple(key["columns"]), key["referenced_table"], tuple(key["referenced"])))
    hypertables: set[str] = set()
    if rows and rows[0]["has_hypertables"]:
        hypertables = {row[0] for row in ask(connection, _HYPERTABLES, parameters)}
    columns: dict[int, list[SourceColumn]] = defaultdict(list)
    first_row: dict[int, dict[str, Any]] = {}
    for row in rows:
        first_row.setdefault(row["oid"], row)
        if row["attname"] is None:  # a table without columns
            continue
        sequence = row["serial"] or row["drawn"]
        columns[row["oid"]].append(
            SourceColumn(row["attname"], row["type"], row["base"], row["attnotnull"], row["default"], sequence, comment=row["said"])
        )
    return [
        SourceTable(
            name=row["relname"],
            kind=_KINDS[row["kind"]],
            columns=tuple(columns[oid]),
            primary_key=_key(columns[oid], indexes[oid]),
            indexed=tuple(dict.fromkeys(i["columns"][0] for i in indexes[oid] if i["columns"] and i["whole"])),
            comment=row["comment"],
            foreign_keys=tuple(foreign_keys[oid]),
            heirs=_heirs(row, hypertables),
        )
        for oid, row in first_row.items()
    ]


def _heirs(row: Mapping[str, Any], hypertables: Collection[str]) -> Heirs | None:
    if row["relname"] in hypertables:
        return Heirs.CHUNKS
    return None if not row["has_heirs"] else Heirs.ALL if row["has_no_rows"] else Heirs.BESIDE


def _with_origins(table: SourceTable, found: Origins) -> SourceTable:
    known = table.kind in (Kind.TABLE, Kind.PARTITIONED)
    columns = [replace(column, origin=found.columns.get(column.name, Origin()) if known else None) for column in table.columns]
    return replace(table, columns=tuple(columns), subscribed=found.subscribed)


def _key(columns: list[SourceColumn], indexes: list[dict[str, Any]]) -> tuple[str, ...]:
    """The columns of the primary key, or else of a unique index whose columns are all NOT NULL; empty if there is neither."""
    required = {column.name for column in columns if column.not_null}
    for index in indexes:
        if index["primary"] or (index["unique"] and index["columns"] and set(index["columns"]) <= required):
            return tuple(index["columns"])
    return ()


def read_span(
    connection: psycopg.Connection, schema: str, table: str, columns: Sequence[str], cursor_type: CursorType, row_security: RowSecurity
) -> tuple[int, int] | None:
    """The lowest and the highest value of the columns that a window can hold, as integers of the cursor type; None if there is none.

    Each is a query of its own, which an index on the column can answer. Raises psycopg.Error.
    """
    ends: list[list[int]] = [[], []]
    for column in columns:
        name = sql.Identifier(column)
        for end, aggregate in enumerate(("min", "max")):
            value = cursor_value_text(cursor_type, sql.SQL("{}({})").format(sql.SQL(aggregate), name))
            query = sql.SQL("select {} from {}").format(value, sql.Identifier(schema, table))
            where = sql.SQL(" where ") + within_ends(name, cursor_type)
            text = ask(connection, query + where if cursor_type.is_time else query, row_security=row_security)[0][0]
            if text == "NaN":  # only a numeric column can be compared with it
                text = ask(connection, query + where, row_security=row_security)[0][0]
            if text is not None:
                ends[end].append(int(text))
    return (min(ends[0]), max(ends[1])) if ends[0] else None
