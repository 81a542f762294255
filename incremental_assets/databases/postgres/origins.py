"""Finds out how the values of a column are made, from PostgreSQL's system catalogs: identities, sequences, triggers, subscriptions.

Belongs here: the queries, and the analysis of trigger functions. Does not belong: the safety lag that follows (``core.lag``).
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import dict_row

from incremental_assets.core.container import Origin
from incremental_assets.databases.postgres.connection import ask

# A table with its partitions and the tables that inherit from it. A query on the table reads all of them, and rows may be written to each
# of them directly, so a trigger or an identity counts only if all of them have it.
_TREE = """
with recursive tree as (
  select c.relname, c.oid, c.relkind from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = %(schema)s and c.relname = any(%(tables)s::text[]) and c.relkind in ('r', 'p')
  union
  select tree.relname, i.inhrelid, c.relkind from tree join pg_inherits i on i.inhparent = tree.oid join pg_class c on c.oid = i.inhrelid
)
"""
# Only superusers can read pg_subscription, but everybody can read pg_subscription_rel, which says what tables a subscription fills.
_RELATIONS = (
    _TREE
    + """
select tree.relname, count(*) as relations, bool_or(tree.relkind = 'f') as elsewhere, bool_or(s.srrelid is not null) as subscribed
from tree left join (select distinct srrelid from pg_subscription_rel) s on s.srrelid = tree.oid group by tree.relname
"""
)
# A column's sequences are those that belong to it and those from which its default draws. The cap keeps the product of cache size and
# increment within a sensible range.
_COLUMNS = (
    _TREE
    + """
select tree.relname, a.attname, count(*) filter (where a.attidentity = 'a') as identities,
       max(q.block)::bigint as block, bool_and(q.in_turn) as in_turn
from tree join pg_attribute a on a.attrelid = tree.oid and a.attnum > 0 and not a.attisdropped
left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
left join lateral (
  select max(least(s.seqcache::numeric * abs(s.seqincrement), 1000000000)) as block,
         bool_and(s.seqcache = 1 and s.seqincrement > 0 and not s.seqcycle) as in_turn
  from pg_sequence s where s.seqrelid in (
    select x.objid from pg_depend x where x.refclassid = 'pg_class'::regclass and x.refobjid = a.attrelid
      and x.refobjsubid = a.attnum and x.classid = 'pg_class'::regclass and x.deptype in ('a', 'i')
    union all
    select x.refobjid from pg_depend x where x.classid = 'pg_attrdef'::regclass and x.objid = d.oid
      and x.refclassid = 'pg_class'::regclass)
) q on true
where a.attidentity = 'a' or q.block is not null
group by tree.relname, a.attname
"""
)
# The triggers that run BEFORE and FOR EACH ROW, in the order in which PostgreSQL runs them (by name). Internal triggers are not left out,
# because in older versions of PostgreSQL the copies of a trigger that partitions have are internal ones.
_TRIGGERS = (
    _TREE
    + """
select tree.relname, t.tgname, t.tgtype::int as type, p.prosrc, l.lanname = 'plpgsql' as readable, count(*) as relations,
       bool_and(t.tgqual is null and t.tgattr::text = '') as always
from tree join pg_trigger t on t.tgrelid = tree.oid join pg_proc p on p.oid = t.tgfoid join pg_language l on l.oid = p.prolang
where t.tgenabled in ('O', 'A') and t.tgtype & 3 = 3
group by tree.relname, t.tgname, t.tgtype, t.tgfoid, p.prosrc, l.lanname order by t.tgname collate "C"
"""
)
_INSERT, _UPDATE = 4, 16
"""Bits of ``pg_trigger.tgtype``, from PostgreSQL's ``catalog/pg_trigger.h``; the bits of 3 are BEFORE and FOR EACH ROW."""
# The patterns below recognise simple PL/pgSQL functions without branches. Every statement that they do not recognise makes the function
# count as unreadable, which only leads to a larger safety lag.
_CLOCK = r"(?:now|clock_timestamp|transaction_timestamp|statement_timestamp)\s*\(\s*\)|current_timestamp|current_date|localtimestamp"
_SET = re.compile(r'new\.(?:"((?:[^"]|"")+)"|(\w+))\s*:?=(.*)', re.IGNORECASE | re.DOTALL)
_TO_CLOCK = re.compile(rf"\s*(?:{_CLOCK})\s*", re.IGNORECASE)
_NOT_CODE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$", re.DOTALL)
_BRANCHES = re.compile(r"\b(if|case|loop|while|for|exception|when|goto)\b|\breturn\s+old\b", re.IGNORECASE)
_LEAVES_THE_ROW = re.compile(
    r"return\s+new|end(\s+\w+)?|null|(?:perform|raise|insert|update|delete)\b.*|(?!new\b)\w+\s*:?=.*", re.IGNORECASE | re.DOTALL
)
_STORES_RESULT = re.compile(r"\breturning\b", re.IGNORECASE)


@dataclass(frozen=True)
class Origins:
    """How the values of a table's columns are made, in the table and in all tables that belong to it (``_TREE``).

    ``columns``: the columns of which something is known. ``subscribed``: a subscription of logical replication fills one of these tables.
    """

    columns: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    subscribed: bool = False


def read_origins(connection: psycopg.Connection, schema: str, tables: Sequence[str]) -> dict[str, Origins]:
    """The origins by table. Every name of ``tables`` has an entry; it is empty for views and foreign tables. Raises psycopg.Error."""
    parameters: dict[str, Any] = {"schema": schema, "tables": list(tables)}
    trees = {row["relname"]: row for row in ask(connection, _RELATIONS, parameters, dict_row)}
    triggers: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in ask(connection, _TRIGGERS, parameters, dict_row):
        triggers[row["relname"]].append(row)
    numbers: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in ask(connection, _COLUMNS, parameters, dict_row):
        numbers[row["relname"]][row["attname"]] = row
    found: dict[str, Origins] = {}
    for table in tables:
        tree = trees.get(table)
        if tree is None:
            found[table] = Origins()
            continue
        # If a partition is a foreign table, rows written on its server pass none of these triggers. 0 then makes no trigger count.
        whole = 0 if tree["elsewhere"] else tree["relations"]
        at_insert, at_update = (_set_to_clock(triggers[table], bit, whole) for bit in (_INSERT, _UPDATE))
        columns: dict[str, Origin] = {}
        for name in {*at_insert, *at_update, *numbers[table]}:
            number = numbers[table].get(name, {})
            identity = number.get("identities", 0) == whole != 0
            in_turn = bool(number.get("in_turn"))
            columns[name] = Origin(identity, in_turn, number.get("block"), at_insert.get(name), at_update.get(name))
        found[table] = Origins(columns, tree["subscribed"])
    return found


def _set_to_clock(triggers: Sequence[Mapping[str, Any]], event: int, relations: int) -> dict[str, str]:
    """The columns that a trigger sets to the clock at each ``event``, with the trigger's name.

    ``event`` is ``_INSERT`` or ``_UPDATE``. A column counts only if the trigger exists in all ``relations``, runs without a condition, and
    no later trigger may set the column to something else.
    """
    found: dict[str, str] = {}
    for trigger in triggers:
        if not trigger["type"] & event:
            continue
        assigned = assigned_by(trigger["prosrc"]) if trigger["readable"] else None
        if assigned is None:
            found.clear()  # this trigger cannot be analysed, so it may set any column to anything
            continue
        for column, to_clock in assigned.items():
            if not to_clock:
                found.pop(column, None)
            elif trigger["always"] and trigger["relations"] == relations:
                found[column] = str(trigger["tgname"])
    return found


def assigned_by(source: str) -> dict[str, bool] | None:
    """The columns of the new row that a PL/pgSQL function sets in every case, and whether it sets them to the clock.

    ``source`` is the text of the function. The result is None if the function has branches or a statement that is not recognised.
    """
    code = _NOT_CODE.sub(" ", source)
    if _BRANCHES.search(code):
        return None
    body = re.sub(r"^.*?\bbegin\b", "", code, count=1, flags=re.DOTALL | re.IGNORECASE)
    assigned: dict[str, bool] = {}
    for statement in filter(None, (part.strip() for part in body.split(";"))):
        match = _SET.fullmatch(statement)
        if match is not None:
            assigned[match[1].replace('""', '"') if match[1] else match[2].lower()] = _TO_CLOCK.fullmatch(match[3]) is not None
        elif not _LEAVES_THE_ROW.fullmatch(statement) or _STORES_RESULT.search(statement):
            return None
    return assigned
