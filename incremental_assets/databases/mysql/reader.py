"""Runs the queries of one container's plan and sync: whether anything has changed, the highest identifier, and the rows in the windows."""

import hashlib
import json
from collections.abc import Mapping, Sequence

from incremental_assets.core.container import Identifier, Kind, SourceTable
from incremental_assets.core.counted_changes import CountedChanges, counted_of
from incremental_assets.core.cursor_type import MICROS_PER_SECOND, CursorType, parse_value, value_at
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.window import Window
from incremental_assets.databases.mysql.connection import HIDDEN_VIEW, driver, number_of, source_errors
from incremental_assets.databases.mysql.introspect import AUTO_INCREMENT, read_tables
from incremental_assets.databases.mysql.privileges import COUNTERS
from incremental_assets.databases.mysql.queries import (
    dated_predicate,
    identifier_expression,
    is_zero_date,
    null_predicate,
    partition_value,
    placed_predicate,
    quoted,
    relation,
    scope_predicate,
    text_literal,
    timed_columns,
    unplaced_predicate,
    where_clause,
    years_query,
)
from incremental_assets.databases.mysql.session import MySQLSession
from incremental_assets.databases.mysql.transactions import Transactions
from incremental_assets.databases.mysql.types import Carried, Wire, carry, is_known
from incremental_assets.databases.source import Highest, Policies, Relation, Unplaced

_CREATED = "select create_time from information_schema.tables where table_schema = %s and table_name = %s"
_NAMES = "select column_name from information_schema.columns where table_schema = %s and table_name = %s order by ordinal_position"
# InnoDB has an id for each partition of a table, and encodes names as those of files.
_INNODB_ID = (
    "select table_id from information_schema.innodb_{}tables where substring_index(cast(name as binary), '#P#', 1) ="
    " concat(cast(convert(%s using filename) as binary), '/', cast(convert(%s using filename) as binary)) order by table_id"
)
# Both times are of the statement's begin, so that their difference is exactly when the server was started. A table that nobody has used
# since then has no row.
_COUNTED = (
    "select coalesce(max({}), 0), cast(max(unix_timestamp() - s.variable_value) as signed)"
    f" from {{}}_schema.global_status s left join {COUNTERS} c"
    " on c.object_type = 'TABLE' and c.object_schema = %s and c.object_name = %s where s.variable_name = 'uptime'"
)
_NEXT = "select auto_increment from information_schema.tables where table_schema = %s and table_name = %s"


class MySQLReader(MySQLSession):
    """A connection for one container, with the queries of its plan and sync. All methods raise SourceError if a query fails."""

    # ------------------------------------------------------------------ the table, and whether it has changed
    def table(self) -> SourceTable | None:
        """The container as the source has it now, without sizes and spans; None if it no longer exists."""
        with source_errors(self.container.label, self.address):
            found = read_tables(self.live, self.container.schema, [self.container.name])
        return found[0] if found else None

    def expect_readable(self) -> None:
        """See ``SourceDatabase.expect_readable``."""
        self.rows(f"select 1 from {relation(self.container)} limit 0")

    def relation(self) -> Relation:
        """A mark and the changes: MySQL has no id that tells a table that was dropped and created anew from one that was altered.

        The mark is made of the time when the table was created, of InnoDB's own id of it, which needs the privilege PROCESS, and of the
        columns' names in their order.
        """
        container = self.container
        if container.kind is not Kind.TABLE:
            return Relation()
        place = (container.schema, container.name)
        said = [self.rows(_CREATED, place), self.rows(_NAMES, place)]
        if self.server.shows_activity:
            said.append(self.rows(_INNODB_ID.format("sys_" if self.live.is_mariadb else ""), place))
        return Relation(mark=hashlib.md5(repr(said).encode(), usedforsecurity=False).hexdigest(), changes=self._changes(place))

    def _changes(self, place: tuple[str, str]) -> CountedChanges | None:
        """What the server has counted; None if it is not of interest, or the server does not count."""
        if not self.container.is_watched or self.server.why_unwatched:
            return None
        counted = "c.count_delete" if self.container.strategy is Strategy.UPSERT else "c.count_update + c.count_delete"
        count, since = self.rows(_COUNTED.format(counted, "information" if self.live.is_mariadb else "performance"), place)[0]
        table = counted_of(self.container, f"{self.server.source}/{self.container.name}")
        return CountedChanges(int(count or 0), table, int(since or 0), is_one=True)

    def point(self) -> None:
        """None: the fingerprint is made of the rows' values, so that rows of another history are others to it, too."""

    def policies(self) -> Policies:
        """None: PostgreSQL alone tells of its row security."""
        return Policies()

    def fingerprint(self, windows: Sequence[Window], include_nulls: bool) -> str | None:
        """A text that changes whenever a row of the windows, a column of the table, or a setting that selects rows changes.

        MySQL marks rows with nothing that changes with them, so that this hashes all their values: number of rows, sum of 60 bits of a hash
        of each row, hash of the columns and the settings.
        """
        # The columns are those of this moment: the catalog's may be older.
        table, options = self.table(), self.container.options
        listed = [] if table is None else [column for column in table.columns if column.name not in options.exclude_columns]
        carried = [carry(column, options.text_columns) for column in listed if is_known(column)]
        texts = ", ".join(["''", *map(_hashed, carried)])
        # A text that is too long for max_allowed_packet is NULL to MySQL. Such rows then never count as unchanged.
        row_hash = f"coalesce(cast(conv(substr(md5(concat({texts})), 1, 15), 16, 10) as unsigned), rand() * 1e9)"
        count, total = self.rows(
            f"select count(*), coalesce(sum({row_hash}), 0) from {relation(self.container)}"
            f" where {scope_predicate(self.container, windows, include_nulls)}"
        )[0]
        columns = json.dumps([(column.name, column.type, column.not_null) for column in listed])
        said = hashlib.md5(f"{columns}{self.container.settings_text}".encode(), usedforsecurity=False).hexdigest()
        return f"{count}.{total}.{said}"

    # ------------------------------------------------------------------ the highest identifier, and open transactions
    def highest(self) -> Highest:
        """The highest identifier, limited by the source's clock for times.

        The limit keeps a single row with a time in the future from moving the watermark past all rows that follow.
        """
        container, identifier = self.container, self.container.identifier
        assert identifier is not None
        found: list[int] = []
        for name in identifier.columns:
            text = self._greatest(name, dated_predicate(container))
            if text is not None and is_zero_date(text):  # it has a year, and no index tells such dates from others
                text = self._greatest(name, placed_predicate(container))
            if text is not None:
                found.append(parse_value(identifier.cursor_type, text))
        seen = max(found, default=None)
        # The clock is read after the highest identifier, so that no transaction that began before that read counts as later than the clock.
        clock = self._clock()
        if identifier.cursor_type is CursorType.INTEGER:
            return Highest(seen, seen, self._last_drawn() if identifier.sequence == AUTO_INCREMENT else None, clock)
        below = clock - int(self.margin_seconds * MICROS_PER_SECOND)
        return Highest.limited(seen, self._on_axis(identifier, clock), self._on_axis(identifier, below), clock)

    def _greatest(self, name: str, conditions: Sequence[str]) -> str | None:
        """The greatest value of a column in the rows for which the conditions hold."""
        where = " and ".join([*where_clause(self.container), *conditions]) or "true"
        return self.value(f"select max({quoted(name)}) from {relation(self.container)} where {where}")

    def lowest(self) -> int | None:
        """The lowest identifier in the container's domain (from ``@start`` on); None if no row has one."""
        identifier = self.container.identifier
        assert identifier is not None
        scope = scope_predicate(self.container, [identifier.domain], False)
        text = self.value(f"select min({identifier_expression(identifier)}) from {relation(self.container)} where {scope}")
        return None if text is None or is_zero_date(text) else parse_value(identifier.cursor_type, text)

    def distinct_starts(self, windows: Sequence[Window], width: int) -> list[int]:
        """Lower bounds of the integer partitions that have rows in the windows, ascending."""
        identifier = self.container.identifier
        assert identifier is not None
        # As decimals, the difference of unsigned integers cannot overflow, and the remainder of a negative one is brought above 0.
        value, wide = f"cast({quoted(identifier.columns[0])} as decimal(40,0))", int(width)
        found = self.rows(
            f"select distinct {value} - mod(mod({value}, {wide}) + {wide}, {wide}) from {relation(self.container)}"
            f" where {scope_predicate(self.container, windows, False)}"
        )
        return sorted(int(row[0] or 0) for row in found)

    def _clock(self) -> int:
        """The source's clock in microseconds since 1970 UTC."""
        return parse_value(CursorType.TIMESTAMP, self.value("select utc_timestamp(6)"))

    def _on_axis(self, identifier: Identifier, clock: int) -> int:
        """The value that the identifier's column has at this instant, cut to the column's precision and in its time zone."""
        moment = value_at(identifier.cursor_type, clock, self.timezone)
        if identifier.cursor_type is CursorType.DATE:
            return moment
        types = [c.type for c in self.container.columns if c.name in identifier.columns]
        step = 10 ** (6 - min(int(t[t.index("(") + 1]) if "(" in t else 0 for t in types))
        return moment // step * step

    def _last_drawn(self) -> int | None:
        """The last value of AUTO_INCREMENT that was given out, or a higher one; None if it is not known."""
        rows = self.rows(_NEXT, (self.container.schema, self.container.name))
        return int(rows[0][0]) - 1 if rows and rows[0][0] is not None else None

    @property
    def transactions(self) -> Transactions:
        """The queries for the transactions that are open in the source."""
        return Transactions(self.rows, self.server.shows_activity)

    # ------------------------------------------------------------------ the rows in the windows
    def estimate(self, windows: Sequence[Window], include_nulls: bool) -> int:
        """The number of rows in the windows, as MySQL's optimizer estimates it."""
        scope = scope_predicate(self.container, windows, include_nulls)
        with source_errors(self.container.label, self.address):
            try:
                return self.live.estimated_rows(f"select 1 from {relation(self.container)} where {scope}")
            except driver().Error as error:
                if number_of(error) != HIDDEN_VIEW:
                    raise
                return self.container.rows or 0

    def count(self, windows: Sequence[Window], include_nulls: bool) -> int:
        """The exact number of rows in the windows. MySQL has to read them for it."""
        scope = scope_predicate(self.container, windows, include_nulls)
        return int(self.value(f"select count(*) from {relation(self.container)} where {scope}"))

    def is_empty(self, windows: Sequence[Window], include_nulls: bool) -> bool:
        """Whether there is no row in any of the windows."""
        scope = scope_predicate(self.container, windows, include_nulls)
        return not self.rows(f"select 1 from {relation(self.container)} where {scope} limit 1")

    def without_rows(self, windows: Sequence[Window]) -> list[Window]:
        """Those of the windows in which there is no row."""
        return [window for window in windows if self.is_empty([window], False)]

    def partitions_with_values(self, columns: Sequence[str], windows: Sequence[Window]) -> Mapping[str, Sequence[int]]:
        """See ``SourceDatabase.partitions_with_values``."""
        own = {column.name for column in self.container.columns}
        names = [name for name in columns if name in own]
        if not names:
            return {}
        filled = ", ".join(f"max({quoted(name)} is not null)" for name in names)
        rows = self.rows(
            f"select {partition_value(self.container)} as part, {filled} from {relation(self.container)}"
            f" where {scope_predicate(self.container, windows, False)} group by part"
        )
        found = {name: [int(row[0]) for row in rows if row[0] is not None and row[i + 1] == "1"] for i, name in enumerate(names)}
        return {name: sorted(values) for name, values in found.items() if values}

    def count_nulls(self) -> int:
        """The number of rows without identifier."""
        assert self.container.identifier is not None
        parts = [null_predicate(self.container.identifier), *where_clause(self.container)]
        return int(self.value(f"select count(*) from {relation(self.container)} where {' and '.join(parts)}"))

    def loose_key(self) -> Sequence[str]:
        """See ``SourceDatabase.loose_key``. By most collations, texts are equal that differ in case, or in spaces at their end."""
        names = ", ".join(map(text_literal, self.container.primary_key))
        rows = self.rows(
            f"select column_name from information_schema.columns where table_schema = {text_literal(self.container.schema)}"
            f" and table_name = {text_literal(self.container.name)} and column_name in ({names}) and data_type not in ('enum', 'set')"
            " and collation_name is not null and collation_name not like '%nopad_bin' and collation_name not like '%0900_bin'"
        )
        found = {row[0] for row in rows}
        return [name for name in self.container.primary_key if name in found]

    def unplaced(self) -> Unplaced | None:
        """See ``SourceDatabase.unplaced``."""
        columns = timed_columns(self.container)
        if not columns:
            return None
        others = " or ".join(unplaced_predicate(one, self._years(one) if may_have else None) for one, may_have in columns.items())
        parts = [f"({others})", *where_clause(self.container)]
        rows = int(self.value(f"select count(*) from {relation(self.container)} where {' and '.join(parts)}"))
        return Unplaced(rows, " and ".join(placed_predicate(self.container))) if rows else None

    def _years(self, column: str) -> tuple[int, int] | None:
        """The first and the last year of a column, whose name is quoted; None if it has no dates."""
        first, last = self.rows(years_query(self.container, column))[0]
        return None if first is None or last is None else (int(first), int(last))

    def index_statement(self, column: str) -> str:
        """The statement that makes an index which a column leads."""
        return f"ALTER TABLE {relation(self.container)} ADD INDEX ({quoted(column)})"

    def free_connections(self, most: int) -> int:
        """One: only the connection that has taken the snapshot sees it."""
        return 1

    def duplicate_keys(self, windows: Sequence[Window], include_nulls: bool) -> str | None:
        """A primary key (as text) that is NULL or occurs more than once in the windows; None if there is no such key.

        Texts are compared by their bytes, as in the lake: by the column's collation, ``a`` and ``A`` may be the same.
        """
        keys = [f"cast({quoted(name)} as binary)" for name in self.container.primary_key]
        null = " or ".join(f"{quoted(name)} is null" for name in self.container.primary_key)
        scope = scope_predicate(self.container, windows, include_nulls)
        found = self.rows(
            f"select concat_ws(', ', {', '.join(f'coalesce(max({quoted(name)}), {_NULL})' for name in self.container.primary_key)})"
            f" from {relation(self.container)} where {scope} group by {', '.join(keys)} having count(*) > 1 or max({null}) limit 1"
        )
        return found[0][0] if found else None


_NULL = "'NULL'"


def _hashed(carried: Carried) -> str:
    """The part of a row's text that one column has, for a hash. No two rows have the same text."""
    value = f"md5({carried.select})" if carried.wire in (Wire.TEXT, Wire.BYTES) else carried.select
    return f"coalesce(concat({value}, ','), '-')"
