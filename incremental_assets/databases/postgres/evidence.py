"""Reads evidence about tables from PostgreSQL: column statistics, triggers, sequences, unique indexes, and counts of changed rows."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from incremental_assets.core.evidence import ColumnEvidence, TableEvidence
from incremental_assets.databases.postgres.connection import ask
from incremental_assets.databases.postgres.origins import read_origins

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# For a partitioned table that was analyzed, the statistics of all its rows (inherited) are preferred.
_STATISTICS = r"""
select distinct on (s.tablename, s.attname) s.tablename, s.attname, s.correlation::float8, s.null_frac::float8, s.n_distinct::float8,
       case when a.atttypid in ('date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype) then array(
         select distinct left(v, 10)::date - '1970-01-01'::date
         from unnest(s.histogram_bounds::text::text[] || s.most_common_vals::text::text[]) v
         where v ~ '^\d{4}-\d\d-\d\d' and v !~ 'BC$'
       ) end as days
from pg_stats s join pg_namespace n on n.nspname = s.schemaname join pg_class c on c.relnamespace = n.oid and c.relname = s.tablename
join pg_attribute a on a.attrelid = c.oid and a.attname = s.attname
where s.schemaname = %(schema)s and s.tablename = any(%(tables)s::text[]) order by s.tablename, s.attname, s.inherited desc
"""
# Columns whose sequence gives out values one by one and upwards to all sessions: without CACHE, a negative increment, or CYCLE.
_SEQUENCES = """
select c.relname, a.attname
from pg_sequence q join pg_depend x on x.objid = q.seqrelid and x.classid = 'pg_class'::regclass and x.deptype in ('a', 'i')
join pg_class c on c.oid = x.refobjid join pg_attribute a on a.attrelid = c.oid and a.attnum = x.refobjsubid
join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relname = any(%(tables)s::text[]) and q.seqcache = 1 and q.seqincrement > 0 and not q.seqcycle
"""
# The columns of unique indexes that hold for all rows: indexes with a condition or an expression are left out.
_UNIQUE = """
select c.relname, (select array_agg(a.attname::text order by k.n) from unnest(i.indkey::int2[]) with ordinality k(attnum, n)
                     join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum where k.n <= i.indnkeyatts) as columns
from pg_index i join pg_class c on c.oid = i.indrelid join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relname = any(%(tables)s::text[])
  and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
"""
COUNTED_SINCE = """
select floor(extract(epoch from greatest(d.stats_reset, a.stats_reset, b.stats_reset)))::bigint
from pg_stat_database d, pg_stat_archiver a, pg_stat_bgwriter b where d.datname = current_database()
"""
"""Since when PostgreSQL has its counters, in seconds since 1970 UTC: they begin anew when somebody resets them, and after a crash, which
sets the times of the server's own statistics. It is a number, as a role may set another form of dates."""
# The counters of PostgreSQL's statistics, summed over a table and its partitions. When a table was made or altered is known only where the
# server keeps the times of commits. Sizes are measured, as those of the last ANALYZE leave large values out; that opens a table with its
# indexes and large values, and is left out while somebody has one of them locked.
_CHANGES = f"""
with recursive parts as (
  select c.relname, c.oid, c.relkind, c.xmin from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = %(schema)s and c.relname = any(%(tables)s::text[]) and c.relkind in ('r', 'p')
  union all
  select parts.relname, i.inhrelid, c.relkind, c.xmin
  from parts join pg_inherits i on i.inhparent = parts.oid join pg_class c on c.oid = i.inhrelid
), held as (
  select coalesce(i.indrelid, l.relation) as oid from pg_locks l left join pg_index i on i.indexrelid = l.relation
  where l.mode = 'AccessExclusiveLock' and l.relation is not null
), locked as (
  select oid from held union select c.oid from pg_class c join held on held.oid = c.reltoastrelid
)
select relname, sum(pg_stat_get_tuples_inserted(oid))::bigint as inserts,
       sum(pg_stat_get_tuples_updated(oid) + pg_stat_get_tuples_deleted(oid))::bigint as changes,
       sum(pg_stat_get_live_tuples(oid))::bigint as live,
       case when not bool_or(oid = any(array(select l.oid from locked l)))
         then sum(case when oid <> all(array(select l.oid from locked l)) then pg_total_relation_size(oid) end)::bigint end as bytes,
       ({COUNTED_SINCE}) as counted_since,
       max(case when current_setting('track_commit_timestamp')::bool and not pg_is_in_recovery()
             then floor(extract(epoch from pg_xact_commit_timestamp(xmin)))::bigint end) as made_at
from parts group by relname
"""


def read_evidence(connection: psycopg.Connection, schema: str, tables: Sequence[str]) -> dict[str, TableEvidence]:
    """The evidence by table. Every name of ``tables`` has an entry, also if nothing is known of the table. Raises psycopg.Error."""
    parameters: dict[str, Any] = {"schema": schema, "tables": list(tables)}
    origins = read_origins(connection, schema, tables)
    set_by = {(table, name): one for table in tables for name, one in origins[table].columns.items() if one.at_insert or one.at_update}
    statistics = {(row["tablename"], row["attname"]): row for row in ask(connection, _STATISTICS, parameters, dict_row)}
    in_turn = {(row["relname"], row["attname"]) for row in ask(connection, _SEQUENCES, parameters, dict_row)}
    columns: dict[str, dict[str, ColumnEvidence]] = defaultdict(dict)
    for table, name in {*statistics, *set_by, *in_turn}:
        row, origin = statistics.get((table, name), {}), set_by.get((table, name))
        columns[table][name] = ColumnEvidence(
            row.get("correlation"),
            row.get("null_frac"),
            row.get("n_distinct"),
            origin.at_insert if origin else None,
            origin.at_update if origin else None,
            (table, name) in in_turn,
            tuple(_EPOCH.date() + timedelta(days=day) for day in row.get("days") or ()),
        )
    unique: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for row in ask(connection, _UNIQUE, parameters, dict_row):
        unique[row["relname"]].append(tuple(row["columns"]))
    counted = {row.pop("relname"): {**row, **_times(row)} for row in ask(connection, _CHANGES, parameters, dict_row)}
    return {table: TableEvidence(columns[table], tuple(unique[table]), **counted.get(table, {})) for table in tables}


def _times(row: dict[str, Any]) -> dict[str, datetime | None]:
    return {name: None if row[name] is None else _EPOCH + timedelta(seconds=row[name]) for name in ("counted_since", "made_at")}


def last_drawn(row: Callable[..., Any], sequence: str) -> int | None:
    """The last value that the sequence gave out; None if the role may not read the sequence. ``row``: runs a query that has one row."""
    if not row("select has_table_privilege(%(s)s, 'select')", {"s": sequence})[0]:
        return None
    schema, name = row("select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
                       " where c.oid = %(s)s::regclass", {"s": sequence})  # fmt: skip
    last, called = row(sql.SQL("select last_value, is_called from {}").format(sql.Identifier(schema, name)))
    return last if called else last - 1  # before the first nextval(), last_value is the first value that will be given out
