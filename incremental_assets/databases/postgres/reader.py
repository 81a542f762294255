"""What a sync asks PostgreSQL about one container: has anything changed, how high is the identifier, what do the windows hold.

Belongs here: the questions of the design's plan, each one short query. Does not belong: what follows from the answers (``core.watermark``,
``databases.plan``), the connection and its snapshot (``session``), who is open (``transactions``), or Spark (``extract``).
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from incremental_assets.core.axis import Axis
from incremental_assets.core.container import Identifier, Kind, SourceTable
from incremental_assets.core.window import Window
from incremental_assets.databases.postgres.connection import APPLICATION_NAME, source_errors
from incremental_assets.databases.postgres.introspect import read_tables
from incremental_assets.databases.postgres.queries import (
    axis_text,
    highest_expression,
    identifier_expression,
    literal,
    null_predicate,
    relation,
    scope_predicate,
    where_clause,
)
from incremental_assets.databases.postgres.session import PostgresSession
from incremental_assets.databases.postgres.transactions import Transactions

_BUCKET_TYPES = {Axis.INTEGER: "numeric", Axis.DAY: "date", Axis.LOCAL: "timestamp", Axis.INSTANT: "timestamptz"}


@dataclass(frozen=True)
class Limit:
    """The highest value that the source can have made by now: its clock, or its sequence's last value.

    ``clock``: the source's clock, in microseconds since 1970, where the identifier is a time. ``value``: what it cuts identifiers to, None
    where nothing is known; ``settled``: the same a margin earlier, None where there is no margin.
    """

    value: int | None
    settled: int | None = None
    clock: int = 0


@dataclass(frozen=True)
class Highest:
    """The highest identifier (None: no row has one), already cut to what the source's clock or sequence allows.

    ``seen``: as the rows have it; ``sequence``: the last value drawn, where there is one; ``clock``: the source's clock just after, in
    microseconds; ``withheld``: what the value would be without the margin below the clock, where that is more.
    """

    value: int | None = None
    seen: int | None = None
    sequence: int | None = None
    clock: int = 0
    withheld: int | None = None


class PostgresReader(PostgresSession):
    """The questions of one sync. Raises SourceError for everything the source refuses."""

    # ------------------------------------------------------------------ what is this, and has anything happened?
    def table(self) -> SourceTable | None:
        """The container as the source has it now (without sizes and spans); None when it is gone."""
        with source_errors(self.container.label, self.address):
            found = read_tables(self._live(), self.container.schema, [self.container.name])
        return found[0] if found else None

    def relation(self) -> str | None:
        """Tells the table from another one of its name; None for views, which may be made anew and stay what they were."""
        if self.container.kind not in (Kind.TABLE, Kind.PARTITIONED):
            return None
        return self._row("select %(r)s::regclass::oid::text", {"r": self._regclass()})[0]

    def fingerprint(self, windows: Sequence[Window], include_nulls: bool) -> str | None:
        """Changes whenever a row of the windows, or the table's columns, did. None where rows carry no ``xmin`` (views)."""
        if self.container.kind not in (Kind.TABLE, Kind.PARTITIONED, Kind.MATERIALIZED_VIEW):
            return None
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
            settings=sql.Literal(self._settings()),
            table=relation(self.container),
            scope=scope_predicate(self.container, windows, include_nulls),
        )
        return ".".join(self._row(query))

    def _settings(self) -> str:
        """What else decides which rows and columns are carried: a change of it is a change."""
        options = self.container.options
        return json.dumps([options.where, sorted(options.exclude_columns), sorted(options.text_columns), options.on_null.value])

    # ------------------------------------------------------------------ how high, and who is open
    def highest(self) -> Highest:
        """The highest identifier, cut to the source's clock (time) or its sequence's last value (integers)."""
        identifier = self.container.identifier
        assert identifier is not None
        filters: list[sql.Composable] = [*where_clause(self.container)]
        if identifier.axis.is_time:
            # Infinite values lie above every watermark; each column's own index still answers max().
            filters += [sql.SQL("isfinite({})").format(sql.Identifier(n)) for n in identifier.columns[:1] if len(identifier.columns) == 1]
        query = sql.SQL("select {} from {}").format(axis_text(identifier.axis, highest_expression(identifier)), relation(self.container))
        if filters:
            query = query + sql.SQL(" where ") + sql.SQL(" and ").join(filters)
        text = self._row(query)[0]
        limit = self._limit(identifier)
        seen = int(text) if text is not None and text.lstrip("-").isdigit() else limit.value if text == "infinity" else None
        value = seen if seen is None or limit.value is None else min(seen, limit.value)
        settled = value if value is None or limit.settled is None else min(value, limit.settled)
        return Highest(settled, seen, limit.value if identifier.sequence else None, limit.clock, value if settled != value else None)

    def lowest(self) -> int | None:
        """The lowest identifier from ``@start`` on."""
        identifier = self.container.identifier
        assert identifier is not None
        scope = scope_predicate(self.container, [identifier.ground], False)
        lowest = sql.SQL("min({})").format(identifier_expression(identifier))
        query = sql.SQL("select {} from {} where {}").format(axis_text(identifier.axis, lowest), relation(self.container), scope)
        text = self._row(query)[0]
        return int(text) if text is not None and "infinity" not in text else None

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
        """The clock cut to the column's precision and zone, or the last value its sequence gave out."""
        if identifier.axis is Axis.INTEGER:
            return Limit(self._sequence_value(identifier.sequence) if identifier.sequence else None)
        # The margin comes off before anything is cut: a message that has arrived may show nothing of itself for a moment.
        query = sql.SQL("with now as (select clock_timestamp() as t) select {}, {}, {} from now").format(
            axis_text(Axis.INSTANT, sql.SQL("t")),
            self._on_axis(identifier, sql.SQL("t")),
            self._on_axis(identifier, sql.SQL("t - make_interval(secs => {})").format(sql.Literal(self.margin_seconds))),
        )
        clock, value, settled = (int(text) for text in self._row(query))
        return Limit(value, settled, clock)

    def _on_axis(self, identifier: Identifier, instant: sql.Composable) -> sql.Composable:
        """An instant as the text of a value that the identifier's column may have."""
        if identifier.axis is not Axis.INSTANT:
            instant = sql.SQL("(({}) at time zone {})").format(instant, sql.Literal(self.timezone))
        if identifier.axis is Axis.DAY:
            instant = sql.SQL("({})::date").format(instant)
        else:
            # timestamp(3) rounds to a millisecond, which may lie after the clock: cut downwards instead.
            instant = sql.SQL("date_trunc({}, {})").format(sql.Literal(self._precision(identifier)), instant)
        return axis_text(identifier.axis, instant)

    def _precision(self, identifier: Identifier) -> str:
        types = [c.type for c in self.container.columns if c.name in identifier.columns]
        digits = min(int(t[t.index("(") + 1]) if "(" in t else 6 for t in types)
        return "second" if digits == 0 else "millisecond" if digits <= 3 else "microsecond"

    def _sequence_value(self, sequence: str) -> int | None:
        row = self._row("select has_table_privilege(%(s)s, 'select')", {"s": sequence})
        if not row[0]:
            return None
        schema, name = self._row("select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
                                 " where c.oid = %(s)s::regclass", {"s": sequence})  # fmt: skip
        last, called = self._row(sql.SQL("select last_value, is_called from {}").format(sql.Identifier(schema, name)))
        return last if called else last - 1

    @property
    def transactions(self) -> Transactions:
        """Who is at work at the source."""
        by_session = self.container.axis is not None and self.container.axis.is_time
        return Transactions(self.rows, self._regclass(), self.container.options.hold_back, self.server.started, by_session)

    # ------------------------------------------------------------------ what do the windows hold?
    def estimate(self, windows: Sequence[Window], include_nulls: bool) -> int:
        """The planner's row estimate."""
        query = sql.SQL("explain (format json) select 1 from {} where {}").format(
            relation(self.container), scope_predicate(self.container, windows, include_nulls)
        )
        plan: Any = self._row(query)[0]
        return int((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]["Plan Rows"])

    def count(self, windows: Sequence[Window], include_nulls: bool) -> int:
        return self._row(
            sql.SQL("select count(*) from {} where {}").format(
                relation(self.container), scope_predicate(self.container, windows, include_nulls)
            )
        )[0]

    def is_empty(self, windows: Sequence[Window], include_nulls: bool) -> bool:
        """Whether the windows have no row at all."""
        query = sql.SQL("select not exists (select from {} where {})").format(
            relation(self.container), scope_predicate(self.container, windows, include_nulls)
        )
        return self._row(query)[0]

    def without_rows(self, windows: Sequence[Window]) -> list[Window]:
        """Those of the windows in which there is no row; one pass over their ground."""
        identifier = self.container.identifier
        assert identifier is not None
        edges = sorted({bound for window in windows for bound in (window.lower, window.upper) if bound is not None})
        # PostgreSQL before 14 wants both sides of one type.
        type_ = sql.SQL(_BUCKET_TYPES[identifier.axis])  # pyright: ignore[reportArgumentType]
        query = sql.SQL("select distinct width_bucket({}::{}, array[{}]::{}[]) from {} where {}").format(
            identifier_expression(identifier),
            type_,
            sql.SQL(", ").join(literal(identifier.axis, edge) for edge in edges),
            type_,
            relation(self.container),
            scope_predicate(self.container, windows, False),
        )
        filled = {row[0] for row in self.rows(query)}  # bucket n: from the n-th edge on, 0: below the first
        first = [0 if window.lower is None else edges.index(window.lower) + 1 for window in windows]
        last = [len(edges) if window.upper is None else edges.index(window.upper) for window in windows]
        return [window for window, a, b in zip(windows, first, last, strict=True) if filled.isdisjoint(range(a, b + 1))]

    def count_nulls(self) -> int:
        """Rows whose identifier is NULL."""
        assert self.container.identifier is not None
        parts = [null_predicate(self.container.identifier), *where_clause(self.container)]
        return self._row(sql.SQL("select count(*) from {} where {}").format(relation(self.container), sql.SQL(" and ").join(parts)))[0]

    def pages(self) -> int:
        """Blocks of an ordinary table, the ground that ``ctid`` ranges cut."""
        return self._row("select pg_relation_size(%(r)s::regclass) / current_setting('block_size')::bigint", {"r": self._regclass()})[0]

    def quantiles(self, column: str, parts: int) -> list[str]:
        """Texts of values that cut a column into at most so many about equal parts, by the statistics; none where it was never analyzed."""
        rows = self.rows(
            "select histogram_bounds::text::text[] from pg_stats where schemaname = %(schema)s and tablename = %(table)s"
            " and attname = %(column)s and histogram_bounds is not null order by inherited desc limit 1",
            {"schema": self.container.schema, "table": self.container.name, "column": column},
        )
        bounds: list[str] = rows[0][0] if rows else []
        parts = min(parts, len(bounds))
        chosen = [bounds[len(bounds) * i // parts] for i in range(1, parts)]
        return list(dict.fromkeys(chosen))

    def free_connections(self, most: int) -> int:
        """How many more connections the datastore's ``max_source_connections`` leaves, at least one."""
        used = self._row(
            "select count(*) from pg_stat_activity where application_name = %(ours)s and datname = current_database()",
            {"ours": APPLICATION_NAME},
        )[0]
        return max(1, most - used)

    def duplicate_keys(self, windows: Sequence[Window], include_nulls: bool) -> str | None:
        """One key (as text) that is NULL or occurs twice among the rows to be merged; None when all is well."""
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

    def any_true(self, conditions: dict[str, sql.Composable], windows: Sequence[Window], include_nulls: bool) -> list[str]:
        """Names of the conditions that hold for at least one row; one pass over the source."""
        if not conditions:
            return []
        query = sql.SQL("select {} from {} where {}").format(
            sql.SQL(", ").join(sql.SQL("coalesce(bool_or({}), false)").format(c) for c in conditions.values()),
            relation(self.container),
            scope_predicate(self.container, windows, include_nulls),
        )
        return [name for name, holds in zip(conditions, self._row(query), strict=True) if holds]


def shape_digest(table: SourceTable) -> str:
    """What a sync goes by (columns, types, NOT NULL, defaults, key, kind), to tell whether the catalog is still right."""
    columns = [(c.name, c.type, c.not_null, c.default, c.sequence) for c in table.columns]
    return hashlib.md5(json.dumps([columns, table.primary_key, table.kind.value]).encode(), usedforsecurity=False).hexdigest()
