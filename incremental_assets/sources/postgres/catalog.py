"""What is in a PostgreSQL schema: tables and views, columns, keys, indexes, sizes, first and last identifiers.

Belongs here: the queries on PostgreSQL's own catalog. Does not belong: what the YAML makes of it (``model.container``), or storing it.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from incremental_assets.model.axis import Axis, format_value
from incremental_assets.model.container import Kind, SourceColumn, SourceTable
from incremental_assets.model.errors import ConfigurationError
from incremental_assets.model.grammar import IncrementalSpec
from incremental_assets.model.resolve import identifier_axis
from incremental_assets.sources.postgres.connection import ask

_KINDS = {"r": Kind.TABLE, "p": Kind.PARTITIONED, "f": Kind.FOREIGN, "v": Kind.VIEW, "m": Kind.MATERIALIZED_VIEW}

# Partitions of a partitioned table are read through their parent. Domains are followed to their base type. Nothing here opens a table, as
# that waits for whoever has locked it: pg_get_expr does where it is told one.
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
       pg_get_serial_sequence(format('%%I.%%I', n.nspname, c.relname), a.attname) as serial,
       (select format('%%I.%%I', sn.nspname, s.relname) from pg_depend dep join pg_class s on s.oid = dep.refobjid and s.relkind = 'S'
          join pg_namespace sn on sn.oid = s.relnamespace
         where dep.classid = 'pg_attrdef'::regclass and dep.objid = d.oid and dep.refclassid = 'pg_class'::regclass limit 1) as drawn
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
left join base on base.domain = a.atttypid and base.typtype <> 'd'
left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
where n.nspname = %(schema)s and c.relkind in ('r', 'p', 'f', 'v', 'm') and not c.relispartition
  and (%(tables)s::text[] is null or c.relname = any(%(tables)s::text[]))
order by c.relname, a.attnum
"""
_INDEXES = """
select i.indrelid::bigint as oid, i.indisprimary as primary, i.indisunique and i.indpred is null and i.indexprs is null as unique,
       i.indpred is null and i.indisvalid as whole,
       (select array_agg(a.attname::text order by k.n) from unnest(i.indkey::int2[]) with ordinality k(attnum, n)
          join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum where k.n <= i.indnkeyatts) as columns
from pg_index i join pg_class c on c.oid = i.indrelid join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and i.indisvalid order by i.indisprimary desc, i.indexrelid
"""
# As the last VACUUM or ANALYZE has left them: the functions that measure now wait for whoever has locked a table.
_SIZES = """
with recursive parts as (
  select c.oid as root, c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = %(schema)s and c.relkind in ('r', 'p', 'm') and not c.relispartition
    and (%(tables)s::text[] is null or c.relname = any(%(tables)s::text[]))
  union all
  select parts.root, i.inhrelid from parts join pg_inherits i on i.inhparent = parts.oid join pg_class r on r.oid = parts.root
  where r.relkind = 'p'
)
select parts.root::bigint as oid, sum(greatest(c.reltuples, 0))::bigint as rows, bool_or(c.reltuples >= 0) as known,
       sum(current_setting('block_size')::bigint * (c.relpages + coalesce(t.relpages, 0)
           + (select coalesce(sum(x.relpages), 0) from pg_index i join pg_class x on x.oid = i.indexrelid
               where i.indrelid in (c.oid, c.reltoastrelid))))::bigint as bytes
from parts join pg_class c on c.oid = parts.oid and c.relkind <> 'p' left join pg_class t on t.oid = c.reltoastrelid
group by parts.root
"""


def read_catalog(
    connection: psycopg.Connection,
    schema: str,
    specs: Mapping[str, IncrementalSpec],
    progress: Callable[[str], None] = lambda _: None,
    tables: list[str] | None = None,
) -> list[SourceTable]:
    """All tables and views of the schema (or only ``tables``), with first and last identifier of those that ``specs`` name."""
    parameters: dict[str, Any] = {"schema": schema, "tables": tables}
    rows = ask(connection, _COLUMNS, parameters, dict_row)
    indexes: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for index in ask(connection, _INDEXES, parameters, dict_row):
        indexes[index["oid"]].append(index)
    sizes = {row["oid"]: row for row in ask(connection, _SIZES, parameters, dict_row)}
    columns: dict[int, list[SourceColumn]] = defaultdict(list)
    first_row: dict[int, dict[str, Any]] = {}
    for row in rows:
        first_row.setdefault(row["oid"], row)
        columns[row["oid"]].append(
            SourceColumn(row["attname"], row["type"], row["base"], row["attnotnull"], row["default"], row["serial"] or row["drawn"])
        )
    found: list[SourceTable] = []
    for oid, row in first_row.items():
        size = sizes.get(oid)
        estimated = row["rows"] if size is None else size["rows"] if size["known"] else None
        table = SourceTable(
            name=row["relname"],
            kind=_KINDS[row["kind"]],
            columns=tuple(columns[oid]),
            primary_key=_key(columns[oid], indexes[oid]),
            indexed=tuple(dict.fromkeys(i["columns"][0] for i in indexes[oid] if i["columns"] and i["whole"])),
            rows=estimated if estimated is not None and estimated >= 0 else None,
            bytes=size["bytes"] if size is not None and size["known"] else None,
            comment=row["comment"],
        )
        spec = specs.get(table.name)
        if spec is not None and not spec.excluded:
            progress(f"{schema}.{table.name}: first and last {'/'.join(spec.columns)}")
            try:
                table = _with_span(connection, schema, table, spec)
            except psycopg.errors.LockNotAvailable:
                progress(f"{schema}.{table.name}: it is locked by somebody's ALTER, TRUNCATE or VACUUM FULL; first and last stay unknown")
        found.append(table)
    return found


def _key(columns: list[SourceColumn], indexes: list[dict[str, Any]]) -> tuple[str, ...]:
    """The primary key, or else a unique index whose columns are never NULL."""
    required = {column.name for column in columns if column.not_null}
    for index in indexes:
        if index["primary"] or (index["unique"] and index["columns"] and set(index["columns"]) <= required):
            return tuple(index["columns"])
    return ()


def _with_span(connection: psycopg.Connection, schema: str, table: SourceTable, spec: IncrementalSpec) -> SourceTable:
    chosen = [column for name in spec.columns if (column := table.column(name)) is not None]
    try:
        axes = {identifier_axis(table.name, column, spec.type) for column in chosen}
    except ConfigurationError:
        return table  # resolve() says what is wrong, where the user sees it
    if len(chosen) != len(spec.columns) or len(axes) != 1:
        return table
    axis = axes.pop()
    # min/max of finite values only: an index answers them, and infinity has no place on an axis.
    finite = sql.SQL("where isfinite({})") if axis.is_time else sql.SQL("")
    ends: list[list[int]] = [[], []]
    for column in chosen:
        name = sql.Identifier(column.name)
        for end, aggregate in enumerate(("min", "max")):
            extreme = sql.SQL("{}({})").format(sql.SQL(aggregate), name)
            if axis is Axis.INTEGER:
                value = sql.SQL("({})::text").format(extreme)
            elif axis is Axis.DAY:
                value = sql.SQL("({} - date '1970-01-01')::text").format(extreme)
            else:
                value = sql.SQL("(extract(epoch from {}) * 1000000)::bigint::text").format(extreme)
            query = sql.SQL("select {} from {} {}").format(value, sql.Identifier(schema, table.name), finite.format(name))
            value = ask(connection, query)[0][0]
            if value is not None:
                ends[end].append(int(value))
    if not ends[0]:
        return replace(table, span=0)
    first, last = min(ends[0]), max(ends[1])
    return replace(table, first=format_value(axis, first), last=format_value(axis, last), span=0 if axis.is_time else last - first)
