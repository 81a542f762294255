"""What PostgreSQL knows of a table's columns beyond their types: statistics, triggers, unique indexes, how often rows were changed.

Belongs here: the queries. Does not belong: what follows from the answers (``catalog.detect``).
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.rows import dict_row

from incremental_assets.model.evidence import ColumnEvidence, TableEvidence
from incremental_assets.sources.postgres.connection import ask

# Of a partitioned table, those of all its rows (inherited) where it was analyzed.
_STATISTICS = """
select distinct on (tablename, attname) tablename, attname, correlation::float8, null_frac::float8, n_distinct::float8
from pg_stats where schemaname = %(schema)s and tablename = any(%(tables)s::text[]) order by tablename, attname, inherited desc
"""
# Those that run for each row, whatever it holds and whichever of its columns is changed.
_TRIGGERS = """
select c.relname, t.tgname, t.tgtype::int as type, p.prosrc
from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace join pg_proc p on p.oid = t.tgfoid
where n.nspname = %(schema)s and c.relname = any(%(tables)s::text[]) and not t.tgisinternal and t.tgenabled in ('O', 'A')
  and t.tgqual is null and t.tgattr::text = ''
order by t.tgname
"""
_SEQUENCES = """
select c.relname, a.attname
from pg_sequence q join pg_depend x on x.objid = q.seqrelid and x.classid = 'pg_class'::regclass and x.deptype in ('a', 'i')
join pg_class c on c.oid = x.refobjid join pg_attribute a on a.attrelid = c.oid and a.attnum = x.refobjsubid
join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relname = any(%(tables)s::text[]) and q.seqcache = 1 and q.seqincrement > 0 and not q.seqcycle
"""
_UNIQUE = """
select c.relname, (select array_agg(a.attname::text order by k.n) from unnest(i.indkey::int2[]) with ordinality k(attnum, n)
                     join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum where k.n <= i.indnkeyatts) as columns
from pg_index i join pg_class c on c.oid = i.indrelid join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relname = any(%(tables)s::text[])
  and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
"""
_CHANGES = """
with recursive parts as (
  select c.relname, c.oid, c.relkind from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = %(schema)s and c.relname = any(%(tables)s::text[]) and c.relkind in ('r', 'p')
  union all
  select parts.relname, i.inhrelid, c.relkind from parts join pg_inherits i on i.inhparent = parts.oid join pg_class c on c.oid = i.inhrelid
)
select relname, sum(pg_stat_get_tuples_inserted(oid))::bigint as inserts,
       sum(pg_stat_get_tuples_updated(oid) + pg_stat_get_tuples_deleted(oid))::bigint as changes,
       sum(pg_stat_get_live_tuples(oid))::bigint as live
from parts group by relname
"""
_ROW, _BEFORE, _INSERT, _UPDATE = 1, 2, 4, 16
"""Bits of ``pg_trigger.tgtype``, by PostgreSQL's ``catalog/pg_trigger.h``."""
_CLOCK = r"(?:now|clock_timestamp|transaction_timestamp|statement_timestamp)\s*\(\s*\)|current_timestamp|current_date|localtimestamp"
_SET_TO_CLOCK = re.compile(rf'\s*new\.(?:"((?:[^"]|"")+)"|(\w+))\s*:?=\s*(?:{_CLOCK})\s*', re.IGNORECASE)
_NOT_CODE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$", re.DOTALL)
_BRANCHES = re.compile(r"\b(if|case|loop|while|for|exception|when|goto)\b|\breturn\s+old\b", re.IGNORECASE)


def read_evidence(connection: psycopg.Connection, schema: str, tables: Sequence[str]) -> dict[str, TableEvidence]:
    """By table; every name of ``tables`` has an entry."""
    parameters: dict[str, Any] = {"schema": schema, "tables": list(tables)}
    set_by: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for row in ask(connection, _TRIGGERS, parameters, dict_row):
        if row["type"] & _ROW and row["type"] & _BEFORE:
            for name in _always_set_to_clock(row["prosrc"]):
                for bit, moment in ((_INSERT, "at_insert"), (_UPDATE, "at_update")):
                    if row["type"] & bit:
                        set_by[row["relname"], name][moment] = str(row["tgname"])
    statistics = {(row["tablename"], row["attname"]): row for row in ask(connection, _STATISTICS, parameters, dict_row)}
    in_turn = {(row["relname"], row["attname"]) for row in ask(connection, _SEQUENCES, parameters, dict_row)}
    columns: dict[str, dict[str, ColumnEvidence]] = defaultdict(dict)
    for table, name in {*statistics, *set_by, *in_turn}:
        row = statistics.get((table, name), {})
        columns[table][name] = ColumnEvidence(
            row.get("correlation"),
            row.get("null_frac"),
            row.get("n_distinct"),
            set_by[table, name].get("at_insert"),
            set_by[table, name].get("at_update"),
            (table, name) in in_turn,
        )
    unique: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for row in ask(connection, _UNIQUE, parameters, dict_row):
        unique[row["relname"]].append(tuple(row["columns"]))
    counted = {row["relname"]: (row["inserts"], row["changes"], row["live"]) for row in ask(connection, _CHANGES, parameters, dict_row)}
    return {table: TableEvidence(columns[table], tuple(unique[table]), *counted.get(table, (None, None, None))) for table in tables}


def _always_set_to_clock(source: str) -> set[str]:
    """Columns of the new row that a PL/pgSQL function sets to the clock whatever happens: by a statement of their own, without branches."""
    code = _NOT_CODE.sub(" ", source)
    if _BRANCHES.search(code):
        return set()
    body = re.sub(r"^.*?\bbegin\b", "", code, count=1, flags=re.DOTALL | re.IGNORECASE)
    found = [match for statement in body.split(";") if (match := _SET_TO_CLOCK.fullmatch(statement)) is not None]
    return {match[1].replace('""', '"') if match[1] else match[2].lower() for match in found}
