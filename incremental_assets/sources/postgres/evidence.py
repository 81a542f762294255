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
_TRIGGERS = """
select c.relname, t.tgname, t.tgtype::int as type, p.prosrc
from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace join pg_proc p on p.oid = t.tgfoid
where n.nspname = %(schema)s and c.relname = any(%(tables)s::text[]) and not t.tgisinternal and t.tgenabled in ('O', 'A')
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
       sum(pg_stat_get_tuples_updated(oid) + pg_stat_get_tuples_deleted(oid))::bigint as changes
from parts group by relname
"""
_ROW, _BEFORE, _INSERT, _UPDATE = 1, 2, 4, 16
"""Bits of ``pg_trigger.tgtype``, by PostgreSQL's ``catalog/pg_trigger.h``."""
_ASSIGNED = re.compile(r'\bnew\.(?:"((?:[^"]|"")+)"|(\w+))\s*:?=(?!=)', re.IGNORECASE)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


def read_evidence(connection: psycopg.Connection, schema: str, tables: Sequence[str]) -> dict[str, TableEvidence]:
    """By table; every name of ``tables`` has an entry."""
    parameters: dict[str, Any] = {"schema": schema, "tables": list(tables)}
    triggers: dict[tuple[str, str], tuple[str, bool]] = {}
    for row in ask(connection, _TRIGGERS, parameters, dict_row):
        if row["type"] & _ROW and row["type"] & _BEFORE:
            for name in _assigned(row["prosrc"]):
                at_update = bool(row["type"] & _UPDATE)
                if at_update or row["type"] & _INSERT:
                    before = triggers.get((row["relname"], name))
                    triggers[row["relname"], name] = (row["tgname"], at_update or (before is not None and before[1]))
    statistics = {(row["tablename"], row["attname"]): row for row in ask(connection, _STATISTICS, parameters, dict_row)}
    columns: dict[str, dict[str, ColumnEvidence]] = defaultdict(dict)
    for table, name in {*statistics, *triggers}:
        row = statistics.get((table, name), {})
        trigger, at_update = triggers.get((table, name), (None, False))
        columns[table][name] = ColumnEvidence(
            row.get("correlation"), row.get("null_frac"), row.get("n_distinct"), trigger=trigger, at_update=at_update
        )
    unique: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for row in ask(connection, _UNIQUE, parameters, dict_row):
        unique[row["relname"]].append(tuple(row["columns"]))
    counted = {row["relname"]: (row["inserts"], row["changes"]) for row in ask(connection, _CHANGES, parameters, dict_row)}
    return {table: TableEvidence(columns[table], tuple(unique[table]), *counted.get(table, (None, None))) for table in tables}


def _assigned(source: str) -> set[str]:
    """Columns of the new row that a PL/pgSQL function assigns to. Conditions (``if new.x = …``) are no assignments."""
    found: set[str] = set()
    for statement in _COMMENT.sub(" ", source).split(";"):
        for match in _ASSIGNED.finditer(statement):
            before = statement[: match.start()].split()
            condition = before and before[-1].lower() in ("if", "elsif", "when", "where", "and", "or", "not", "return", "(")
            if not condition or ":=" in match[0]:
                found.add(match[1].replace('""', '"') if match[1] else match[2].lower())
    return found
