"""Finds out how the values of a column are made, from PostgreSQL's system catalogs: identities, sequences, triggers, subscriptions."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import dict_row

from incremental_assets.core.container import Origin
from incremental_assets.core.zones import has_folds
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
       max(q.block)::bigint as block, bool_and(q.in_turn) as in_turn, bool_or(q.counts_down) as counts_down
from tree join pg_attribute a on a.attrelid = tree.oid and a.attnum > 0 and not a.attisdropped
left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
left join lateral (
  select max(least(s.seqcache::numeric * abs(s.seqincrement), 1000000000)) as block,
         bool_and(s.seqcache = 1 and s.seqincrement > 0 and not s.seqcycle) as in_turn, bool_or(s.seqincrement < 0) as counts_down
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
       bool_and(t.tgqual is null and t.tgattr::text = '') as always,
       (select substr(s, 10) from unnest(p.proconfig) s where s ilike 'timezone=%%') as zone
from tree join pg_trigger t on t.tgrelid = tree.oid join pg_proc p on p.oid = t.tgfoid join pg_language l on l.oid = p.prolang
where t.tgenabled in ('O', 'A') and t.tgtype & 3 = 3
group by tree.relname, t.tgname, t.tgtype, t.tgfoid, p.prosrc, p.proconfig, l.lanname order by t.tgname collate "C"
"""
)
# The columns that have a time zone, also by a domain.
_ZONED = (
    _TREE
    + """
select distinct tree.relname, a.attname
from tree join pg_attribute a on a.attrelid = tree.oid and not a.attisdropped join pg_type t on t.oid = a.atttypid
where coalesce(nullif(t.typbasetype, 0), t.oid) = 'timestamptz'::regtype
"""
)
_INSERT, _UPDATE = 4, 16
"""Bits of ``pg_trigger.tgtype``, from PostgreSQL's ``catalog/pg_trigger.h``; the bits of 3 are BEFORE and FOR EACH ROW."""
# The patterns below recognise simple PL/pgSQL functions without branches. Every statement that they do not recognise makes the function
# count as unreadable, which only leads to a larger safety lag.
_INSTANT = r"(?:(?:now|clock_timestamp|transaction_timestamp|statement_timestamp)\s*\(\s*\)|current_timestamp)"
_TO_CLOCK = re.compile(
    rf"\s*(?:(?P<instant>{_INSTANT})|current_date|localtimestamp"
    rf"|\(?\s*{_INSTANT}\s+at\s+time\s+zone\s+'(?P<at>\d+)'\s*\)?(?:\s*::\s*(?:date|timestamp))?"
    rf"|timezone\s*\(\s*'(?P<of>\d+)'\s*,\s*{_INSTANT}\s*\))\s*",
    re.IGNORECASE,
)
_SET = re.compile(r'new\.(?:"((?:[^"]|"")+)"|(\w+))\s*:?=(.*)', re.IGNORECASE | re.DOTALL)
_NOT_CODE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$", re.DOTALL)
_BRANCHES = re.compile(r"\b(if|case|loop|while|for|exception|when|goto)\b|\breturn\s+old\b", re.IGNORECASE)
_LEAVES_THE_ROW = re.compile(
    r"return\s+new|end(\s+\w+)?|null|(?:perform|raise|insert|update|delete)\b.*|(?!new\b)\w+\s*:?=.*", re.IGNORECASE | re.DOTALL
)
_STORES_RESULT = re.compile(r"\breturning\b", re.IGNORECASE)


@dataclass(frozen=True)
class Clock:
    """That a column is set to the clock. ``is_local``: by an expression without time zone, which says in a way what local clocks show.
    ``zone``: in which zone they are, if the expression names one; otherwise that of the session."""

    is_local: bool = False
    zone: str | None = None


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
    zoned: dict[str, set[str]] = defaultdict(set)
    for row in ask(connection, _ZONED, parameters, dict_row):
        zoned[row["relname"]].add(row["attname"])
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
        at_insert, at_update = (_set_to_clock(triggers[table], bit, whole, zoned[table]) for bit in (_INSERT, _UPDATE))
        columns: dict[str, Origin] = {}
        for name in {*at_insert, *at_update, *numbers[table]}:
            number = numbers[table].get(name, {})
            identity = number.get("identities", 0) == whole != 0
            in_turn = bool(number.get("in_turn"))
            by = [found[name] for found in (at_insert, at_update) if name in found]
            columns[name] = Origin(
                identity,
                in_turn,
                number.get("block"),
                at_insert[name][0] if name in at_insert else None,
                at_update[name][0] if name in at_update else None,
                in_own_zone=bool(by) and all(in_own_zone for _, in_own_zone in by),
                counts_down=bool(number.get("counts_down")),
            )
        found[table] = Origins(columns, tree["subscribed"])
    return found


def _set_to_clock(triggers: Sequence[Mapping[str, Any]], event: int, relations: int, zoned: Set[str]) -> dict[str, tuple[str, bool]]:
    """The columns that a trigger sets to the clock at each ``event``, with the trigger's name, and whether the column has no time zone and
    is set to the time in a zone that the trigger names, by its expression or by its function's own setting, and that has no folds.

    ``event`` is ``_INSERT`` or ``_UPDATE``. A column counts only if the trigger exists in all ``relations``, runs without a condition, and
    no later trigger may set the column to something else. ``zoned``: the columns with a time zone. A local time does not say which instant
    it is, so that such a column may be set to another one by it.
    """
    found: dict[str, tuple[str, bool]] = {}
    for trigger in triggers:
        if not trigger["type"] & event:
            continue
        assigned = assigned_by(trigger["prosrc"]) if trigger["readable"] else None
        if assigned is None:
            found.clear()  # this trigger cannot be analysed, so it may set any column to anything
            continue
        for column, clock in assigned.items():
            if clock is None or (clock.is_local and column in zoned):
                found.pop(column, None)
            elif trigger["always"] and trigger["relations"] == relations:
                found[column] = str(trigger["tgname"]), column not in zoned and not _has_folds(clock.zone or trigger["zone"])
    return found


def _has_folds(zone: str | None) -> bool:
    """Whether local times of this zone may come twice; None is that of the session. PostgreSQL also knows ``utc`` by that name."""
    return zone is None or (has_folds(zone) and has_folds(zone.upper()))


def assigned_by(source: str) -> dict[str, Clock | None] | None:
    """The columns of the new row that a PL/pgSQL function sets in every case, and to which clock; None for any other value.

    ``source`` is the text of the function. The result is None if the function has branches or a statement that is not recognised.
    """
    texts: list[str] = []

    def without_text(found: re.Match[str]) -> str:
        """A blank for a comment; for a text, which may look like code, its number in quotes."""
        texts.append(found[0][1:-1])
        return f"'{len(texts) - 1}'" if found[0][0] == "'" else " "

    code = _NOT_CODE.sub(without_text, source)
    if _BRANCHES.search(code):
        return None
    body = re.sub(r"^.*?\bbegin\b", "", code, count=1, flags=re.DOTALL | re.IGNORECASE)
    assigned: dict[str, Clock | None] = {}
    for statement in filter(None, (part.strip() for part in body.split(";"))):
        match = _SET.fullmatch(statement)
        if match is not None:
            clock = _TO_CLOCK.fullmatch(match[3])
            zone = None if clock is None else clock["at"] or clock["of"]
            assigned[match[1].replace('""', '"') if match[1] else match[2].lower()] = (
                None if clock is None else Clock(clock["instant"] is None, texts[int(zone)] if zone else None)
            )
        elif not _LEAVES_THE_ROW.fullmatch(statement) or _STORES_RESULT.search(statement):
            return None
    return assigned
