"""Runs the queries of one container's plan and sync: whether anything has changed, the highest identifier, and the rows in the windows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from incremental_assets.core.container import Identifier, Inherited, Kind, SourceTable
from incremental_assets.core.counted_changes import CountedChanges, counted_of
from incremental_assets.core.cursor_type import CursorType
from incremental_assets.core.errors import SourceError
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.history import HistoryPoint
from incremental_assets.core.window import Window
from incremental_assets.databases.postgres.connection import APPLICATION_NAME, ask
from incremental_assets.databases.postgres.evidence import COUNTED_SINCE, last_drawn
from incremental_assets.databases.postgres.history import REFUSED, point_of
from incremental_assets.databases.postgres.introspect import read_tables
from incremental_assets.databases.postgres.queries import (
    cursor_value_text,
    highest_expression,
    identifier_expression,
    literal,
    null_predicate,
    partition_value,
    placed_predicate,
    relation,
    scope_predicate,
    unplaced_predicate,
    user_where,
    where_clause,
)
from incremental_assets.databases.postgres.row_security import policies_of
from incremental_assets.databases.postgres.session import PostgresSession
from incremental_assets.databases.postgres.transactions import Transactions
from incremental_assets.databases.source import Highest, Policies, Relation, Unplaced

_BUCKET_TYPES = {
    CursorType.INTEGER: "numeric",
    CursorType.DATE: "date",
    CursorType.TIMESTAMP_NTZ: "timestamp",
    CursorType.TIMESTAMP: "timestamptz",
}
_RELATION = """
select %(r)s::regclass::oid::text, (select json_object_agg(attname, attnum) from pg_attribute
                                     where attrelid = %(r)s::regclass and attnum > 0 and not attisdropped)
"""
# The counters of updated and deleted rows are those of the table and of all that inherit from it. Those of a replica are its own.
_COUNTED = f"""{_RELATION}, (
  with recursive parts as (
    select %(r)s::regclass::oid as oid union select i.inhrelid from parts join pg_inherits i on i.inhparent = parts.oid
  )
  select sum(case when %(u)s then pg_stat_get_tuples_updated(oid) else 0 end + pg_stat_get_tuples_deleted(oid))::bigint from parts
  where not pg_is_in_recovery()
), coalesce(({COUNTED_SINCE}), 0)
"""
# Of a type that is made of others, all of them count. A modifier gives numbers one scale, in arrays, too.
_LOOSE = """
with recursive part(name, type, collated, typmod, depth) as (
  select attname::text, atttypid, attcollation, atttypmod, 0 from pg_attribute where attrelid = %(r)s::regclass and attname = any(%(key)s)
  union
  select part.name, x.type, x.collated, x.typmod, part.depth + x.deeper from part join pg_type t on t.oid = part.type
  cross join lateral (
    select t.typbasetype, t.typcollation, t.typtypmod, 0 where t.typtype = 'd'
    union all select t.typelem, part.collated, part.typmod, 1 where t.typcategory = 'A'
    union all select rngsubtype, rngcollation, -1, 1 from pg_range where rngtypid = t.oid
    union all select atttypid, attcollation, atttypmod, 1 from pg_attribute where attrelid = t.typrelid and attnum > 0 and t.typtype = 'c'
  ) x(type, collated, typmod, deeper)
)
select distinct part.name from part join pg_type t on t.oid = part.type left join pg_collation c on c.oid = part.collated
where not c.collisdeterministic or t.typname in ('jsonb', 'interval', 'citext', 'nummultirange') or (t.typname = 'numeric' and typmod = -1)
   or (t.typname = 'bpchar' and typmod = -1) or (t.typname in ('float4', 'float8') and depth > 0)
"""
_HAS_FOREIGN_PARTS = """
with recursive part(oid) as (select %(r)s::regclass::oid union select inhrelid from pg_inherits join part on inhparent = part.oid)
select exists (select from part join pg_class using (oid) where relkind = 'f')
"""


@dataclass(frozen=True)
class Limit:
    """The highest value that the source can have made by now, by its clock (times) or by its sequence's last value (integers).

    ``value``: no identifier above it counts for the watermark; None if no limit is known. ``settled``: the same, computed from the clock
    minus the margin; None for integers, which have no margin. Both are integers of the cursor type. ``clock``: the source's clock in
    microseconds since 1970 UTC; 0 for integers.
    """

    value: int | None
    settled: int | None = None
    clock: int = 0


class PostgresReader(PostgresSession):
    """A connection for one container, with the queries of its plan and sync. All methods raise SourceError if a query fails."""

    # ------------------------------------------------------------------ the table, and whether it has changed
    def table(self) -> SourceTable | None:
        """The container as the source has it now, without sizes and spans; None if it no longer exists."""
        with self._errors():
            found = read_tables(self._live(), self.container.schema, [self.container.name])
        return found[0] if found else None

    def expect_readable(self) -> None:
        """See ``SourceDatabase.expect_readable``. The query opens all tables that the view reads, and reads none of their rows."""
        self.rows(sql.SQL("select from {} limit 0").format(relation(self.container)))

    def relation(self) -> Relation:
        """The OID of the table, by which a table that was dropped and created anew is recognised, and the numbers of its columns.

        There is no id of a view: a view that is created anew still shows the same rows.
        """
        oid, numbers, *counted = self._relation()
        if self.container.kind not in (Kind.TABLE, Kind.PARTITIONED):
            return Relation(None, numbers or {})
        changes = None if not counted or counted[0] is None else CountedChanges(counted[0], counted_of(self.container, oid), counted[1])
        return Relation(oid, numbers or {}, changes=changes)

    def _relation(self) -> Sequence[Any]:
        """The row of ``_COUNTED``, or of ``_RELATION`` where the changes are not of interest or not counted."""
        if self.container.is_watched and self._tells_changes and self.snapshot_id is None:
            with self._errors():
                try:
                    updates = self.container.strategy is Strategy.APPEND
                    return ask(self._live(), _COUNTED, {"r": self._regclass(), "u": updates})[0]
                except REFUSED:
                    self._tells_changes = False  # it is no PostgreSQL, or not all of it
        return self._row(_RELATION, {"r": self._regclass()})

    def point(self) -> HistoryPoint | None:
        """See ``SourceDatabase.point``. A server that has refused the query is not asked again: in a snapshot, that would end it."""
        if self._tells_point:
            with self._errors():
                found = point_of(self._live(), is_replica=self.server.is_replica)
            self._tells_point = found is not None
            return found
        return None

    def policies(self) -> Policies:
        """See ``SourceDatabase.policies``."""
        with self._errors():
            return policies_of(self._live(), self._regclass())

    def fingerprint(self, windows: Sequence[Window], include_nulls: bool) -> str | None:
        """A text that changes whenever a row of the windows, a column of the table, or a setting that selects rows changes.

        It has four parts, divided by dots: the number of rows, the sum of a hash over the ``tableoid``, ``xmin`` and ``ctid`` of each row,
        a hash of the columns, and a hash of the settings. PostgreSQL writes a new ``xmin`` and ``ctid`` with each insert and update, and a
        sum does not depend on the order of the rows. The result is None for views and foreign tables, whose rows have no ``xmin``, and for
        tables of which a foreign table is a part; nor for a role that is granted columns alone, which does not see it.
        """
        if not self.has_whole_table or self.container.kind not in (Kind.TABLE, Kind.PARTITIONED, Kind.MATERIALIZED_VIEW):
            return None
        has_parts = self.container.kind is Kind.PARTITIONED or self.container.inherited is Inherited.INCLUDE
        if has_parts and self._row(_HAS_FOREIGN_PARTS, {"r": self._regclass()})[0]:
            return None
        # hash_record_extended exists since PostgreSQL 14.
        row_hash = (
            "hash_record_extended(row(tableoid, xmin, ctid), 0)"
            if self.server.version >= 140000
            else "hashtextextended(tableoid::text || xmin::text || ',' || ctid::text, 0)"
        )
        query = sql.SQL(
            "select count(*)::text, coalesce(sum({hash}::numeric), 0)::text,"
            " (select md5(string_agg(attname || ':' || atttypid || ':' || atttypmod || ':' || attnotnull, ',' order by attnum))"
            "  from pg_attribute where attrelid = {name}::regclass and attnum > 0 and not attisdropped),"
            " md5({settings}) from {table} where {scope}"
        ).format(
            hash=sql.SQL(row_hash),
            name=sql.Literal(self._regclass()),
            settings=sql.Literal(self.container.settings_text),
            table=relation(self.container),
            # A row that gets a value which no window holds is left out, and a sync has to say so.
            scope=scope_predicate(self.container, windows, include_nulls, with_unplaced=True),
        )
        try:
            return ".".join(self._row(query))
        except SourceError:
            if self.snapshot_id is not None:
                raise
            self.has_whole_table = bool(self._row("select has_table_privilege(%(r)s::regclass, 'select')", {"r": self._regclass()})[0])
            if self.has_whole_table:
                raise
            return None

    # ------------------------------------------------------------------ the highest identifier, and open transactions
    def highest(self) -> Highest:
        """The highest identifier, limited by the source's clock (times) or by its sequence's last value (integers).

        The limit keeps a single row with a time in the future from moving the watermark past all rows that follow.
        """
        identifier = self.container.identifier
        assert identifier is not None
        filters = where_clause(self.container)
        query = sql.SQL("select {} from {}").format(
            cursor_value_text(identifier.cursor_type, highest_expression(identifier)), relation(self.container)
        )
        if filters:
            query = query + sql.SQL(" where ") + sql.SQL(" and ").join(filters)
        text = self._row(query)[0]
        # The clock is read after the highest identifier, so that no transaction that began before that read counts as later than the clock.
        limit = self._limit(identifier)
        seen = int(text) if text is not None else None
        return Highest.limited(seen, limit.value, limit.settled, limit.clock, limit.value if identifier.sequence else None)

    def lowest(self) -> int | None:
        """The lowest identifier in the container's domain (from ``@start`` on); None if no row has one."""
        identifier = self.container.identifier
        assert identifier is not None
        scope = scope_predicate(self.container, [identifier.domain], False)
        lowest = sql.SQL("min({})").format(identifier_expression(identifier))
        query = sql.SQL("select {} from {} where {}").format(
            cursor_value_text(identifier.cursor_type, lowest), relation(self.container), scope
        )
        text = self._row(query)[0]
        return int(text) if text is not None else None

    def distinct_starts(self, windows: Sequence[Window], width: int) -> list[int]:
        """Lower bounds of the integer partitions that have rows in the windows, ascending."""
        identifier = self.container.identifier
        assert identifier is not None
        query = sql.SQL("select distinct (floor({c}::numeric / {w}) * {w})::text as k from {t} where {s}").format(
            c=sql.Identifier(identifier.columns[0]),
            w=sql.Literal(width),
            t=relation(self.container),
            s=scope_predicate(self.container, windows, False),
        )
        return sorted(int(row[0]) for row in self.rows(query))

    def _limit(self, identifier: Identifier) -> Limit:
        """The limit from the source's clock, in the identifier's precision and time zone, or from the identifier's sequence."""
        if identifier.cursor_type is CursorType.INTEGER:
            return Limit(last_drawn(self._row, identifier.sequence) if identifier.sequence else None)
        # The margin is needed because a client's message that has arrived, and determines now(), is not visible in pg_stat_activity for a
        # moment. It is subtracted from the exact clock, before that is cut to the column's precision.
        query = sql.SQL("with now as (select clock_timestamp() as t) select {}, {}, {} from now").format(
            cursor_value_text(CursorType.TIMESTAMP, sql.SQL("t")),
            self._on_axis(identifier, sql.SQL("t")),
            self._on_axis(identifier, sql.SQL("t - make_interval(secs => {})").format(sql.Literal(self.margin_seconds))),
        )
        clock, value, settled = (int(text) for text in self._row(query))
        return Limit(value, settled, clock)

    def _on_axis(self, identifier: Identifier, instant: sql.Composable) -> sql.Composable:
        """SQL for the text of the value that the identifier's column has at an instant, as an integer of the cursor type."""
        if identifier.cursor_type is not CursorType.TIMESTAMP:
            instant = sql.SQL("(({}) at time zone {})").format(instant, sql.Literal(self.timezone))
        if identifier.cursor_type is CursorType.DATE:
            instant = sql.SQL("({})::date").format(instant)
        else:
            # A column of type timestamp(3) rounds to milliseconds, and the rounded value may lie after the clock. So this truncates.
            instant = sql.SQL("date_trunc({}, {})").format(sql.Literal(self._precision(identifier)), instant)
        return cursor_value_text(identifier.cursor_type, instant)

    def _precision(self, identifier: Identifier) -> str:
        """The unit for ``date_trunc``, from the least number of fractional digits that a column of the identifier has."""
        types = [c.type for c in self.container.columns if c.name in identifier.columns]
        digits = min(int(t[t.index("(") + 1]) if "(" in t else 6 for t in types)
        return "second" if digits == 0 else "millisecond" if digits <= 3 else "microsecond"

    @property
    def transactions(self) -> Transactions:
        """The queries for the transactions that are open in the source. For times, sessions are noted, too (``Activity.noted``)."""
        by_session = self.container.cursor_type is not None and self.container.cursor_type.is_time
        return Transactions(self.rows, self._regclass(), self.container.options.hold_back, self.server.started, by_session)

    # ------------------------------------------------------------------ the rows in the windows
    def estimate(self, windows: Sequence[Window], include_nulls: bool) -> int:
        """The number of rows in the windows, as PostgreSQL's planner estimates it."""
        # Of a table without statistics the planner would take the ends of what windows hold for few rows.
        scope = scope_predicate(self.container, windows, include_nulls, with_unplaced=True)
        return int(self._planned(sql.SQL("select 1 from {} where {}").format(relation(self.container), scope))["Plan Rows"])

    def cost(self, scope: sql.Composable) -> float:
        """What it costs PostgreSQL to find and read the rows that fulfil a condition, in the planner's own unit."""
        return self._planned(sql.SQL("select * from {} where {}").format(relation(self.container), scope))["Total Cost"]

    def _planned(self, query: sql.Composable) -> Mapping[str, Any]:
        """The planner's plan of a query: its uppermost node."""
        plan: Any = self._row(sql.SQL("explain (format json) {}").format(query))[0]
        return (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]

    def count(self, windows: Sequence[Window], include_nulls: bool) -> int:
        """The exact number of rows in the windows. PostgreSQL has to read them for it."""
        return self._row(
            sql.SQL("select count(*) from {} where {}").format(
                relation(self.container), scope_predicate(self.container, windows, include_nulls)
            )
        )[0]

    def is_empty(self, windows: Sequence[Window], include_nulls: bool) -> bool:
        """Whether there is no row in any of the windows."""
        query = sql.SQL("select not exists (select from {} where {})").format(
            relation(self.container), scope_predicate(self.container, windows, include_nulls)
        )
        return self._row(query)[0]

    def without_rows(self, windows: Sequence[Window]) -> list[Window]:
        """Those of the windows in which there is no row. One query reads the rows of all windows once."""
        identifier = self.container.identifier
        assert identifier is not None
        edges = sorted({bound for window in windows for bound in (window.lower, window.upper) if bound is not None})
        # PostgreSQL before 14 requires both arguments of width_bucket to have the same type.
        type_ = sql.SQL(_BUCKET_TYPES[identifier.cursor_type])  # pyright: ignore[reportArgumentType]
        query = sql.SQL("select distinct width_bucket({}::{}, array[{}]::{}[]) from {} where {}").format(
            identifier_expression(identifier),
            type_,
            sql.SQL(", ").join(literal(identifier.cursor_type, edge) for edge in edges),
            type_,
            relation(self.container),
            scope_predicate(self.container, windows, False),
        )
        filled = {row[0] for row in self.rows(query)}  # bucket n begins at the n-th edge; bucket 0 lies below the first edge
        first = [0 if window.lower is None else edges.index(window.lower) + 1 for window in windows]
        last = [len(edges) if window.upper is None else edges.index(window.upper) for window in windows]
        return [window for window, a, b in zip(windows, first, last, strict=True) if filled.isdisjoint(range(a, b + 1))]

    def partitions_with_values(self, columns: Sequence[str], windows: Sequence[Window]) -> Mapping[str, Sequence[int]]:
        """See ``SourceDatabase.partitions_with_values``."""
        filled = [sql.SQL("bool_or({} is not null)").format(sql.Identifier(name)) for name in columns]
        query = sql.SQL("select {}, {} from {} where {} group by 1").format(
            partition_value(self.container),
            sql.SQL(", ").join(filled),
            relation(self.container),
            scope_predicate(self.container, windows, False),
        )
        rows = self.rows(query)
        found = {name: [int(row[0]) for row in rows if row[0] is not None and row[i + 1]] for i, name in enumerate(columns)}
        return {name: sorted(values) for name, values in found.items() if values}

    def count_nulls(self) -> int:
        """The number of rows without identifier."""
        assert self.container.identifier is not None
        parts = [null_predicate(self.container.identifier), *where_clause(self.container)]
        return self._row(sql.SQL("select count(*) from {} where {}").format(relation(self.container), sql.SQL(" and ").join(parts)))[0]

    def unplaced(self) -> Unplaced | None:
        """See ``SourceDatabase.unplaced``."""
        others = unplaced_predicate(self.container)
        if others is None:
            return None
        condition = sql.SQL(" and ").join([others, *user_where(self.container)])
        rows = self._row(sql.SQL("select count(*) from {} where {}").format(relation(self.container), condition))[0]
        return Unplaced(rows, sql.SQL(" and ").join(placed_predicate(self.container)).as_string(None)) if rows else None

    def pages(self) -> int:
        """The number of blocks of an ordinary table, which ranges of ``ctid`` divide."""
        return self._row("select pg_relation_size(%(r)s::regclass) / current_setting('block_size')::bigint", {"r": self._regclass()})[0]

    def bytes(self) -> int:
        """The size of an ordinary table with the values that are stored apart from its pages (TOAST), without its indexes."""
        return self._row("select pg_table_size(%(r)s::regclass)", {"r": self._regclass()})[0]

    def quantiles(self, column: str, parts: int) -> list[str]:
        """Values (as text) that divide a column into at most ``parts`` parts of about equally many rows, ascending.

        They come from the histogram in PostgreSQL's statistics; the result is empty if the table was never analyzed.
        """
        rows = self.rows(
            "select histogram_bounds::text::text[] from pg_stats where schemaname = %(schema)s and tablename = %(table)s"
            " and attname = %(column)s and histogram_bounds is not null order by inherited desc limit 1",
            {"schema": self.container.schema, "table": self.container.name, "column": column},
        )
        bounds: list[str] = rows[0][0] if rows else []
        parts = min(parts, len(bounds))
        chosen = [bounds[len(bounds) * i // parts] for i in range(1, parts)]
        return list(dict.fromkeys(chosen))

    def loose_key(self) -> Sequence[str]:
        """See ``SourceDatabase.loose_key``."""
        key = [name for name in self.container.primary_key if name not in self.container.canonical]
        found = {row[0] for row in self.rows(_LOOSE, {"r": self._regclass(), "key": key})}
        return [name for name in key if name in found]

    def index_statement(self, column: str) -> str:
        """The statement that makes an index which a column leads."""
        statement = sql.SQL("CREATE INDEX CONCURRENTLY ON {} ({})")
        return statement.format(relation(self.container), sql.Identifier(column)).as_string(None)

    def free_connections(self, most: int) -> int:
        """How many more connections may be opened until this product has ``most`` of them on the database; at least one."""
        used = self._row(
            "select count(*) from pg_stat_activity where application_name = %(ours)s and datname = current_database()",
            {"ours": APPLICATION_NAME},
        )[0]
        return max(1, most - used)

    def duplicate_keys(self, windows: Sequence[Window], include_nulls: bool) -> str | None:
        """A primary key (as text) that is NULL or occurs more than once in the windows; None if there is no such key."""
        key = sql.SQL(", ").join(sql.Identifier(name) for name in self.container.primary_key)
        anyone_null = sql.SQL(" or ").join(sql.SQL("{} is null").format(sql.Identifier(name)) for name in self.container.primary_key)
        rows = self.rows(
            sql.SQL("select row({key})::text from {table} where {scope} group by {key} having count(*) > 1 or {null} limit 1").format(
                key=key,
                table=relation(self.container),
                scope=scope_predicate(self.container, windows, include_nulls),
                null=sql.SQL("bool_or({})").format(anyone_null),
            )
        )
        return rows[0][0] if rows else None

    def any_true(
        self, conditions: dict[str, sql.Composable], windows: Sequence[Window], include_nulls: bool, share: float = 1.0
    ) -> list[str]:
        """The names of those conditions that hold for at least one row of the windows. One query reads the rows once.

        ``share``: below 1, only about this share of the pages of a table is read, which are chosen at random.
        """
        if not conditions:
            return []
        query = sql.SQL("select {} from {}{} where {}").format(
            sql.SQL(", ").join(sql.SQL("coalesce(bool_or({}), false)").format(c) for c in conditions.values()),
            relation(self.container),
            sql.SQL(" tablesample system ({})").format(sql.Literal(100 * share)) if share < 1 else sql.SQL(""),
            scope_predicate(self.container, windows, include_nulls),
        )
        return [name for name, holds in zip(conditions, self._row(query), strict=True) if holds]
