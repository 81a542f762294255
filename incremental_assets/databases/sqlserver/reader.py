"""Runs the queries of one container's plan and sync: whether anything has changed, the highest identifier, and the rows in the windows."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence

from incremental_assets.core.container import Identifier, Kind, SourceTable
from incremental_assets.core.cursor_type import MICROS_PER_SECOND, CursorType, parse_value, value_at
from incremental_assets.core.window import Window
from incremental_assets.databases.source import Highest, Policies, Relation
from incremental_assets.databases.sqlserver.connection import driver, source_errors
from incremental_assets.databases.sqlserver.introspect import IDENTITY, read_tables
from incremental_assets.databases.sqlserver.queries import ROWVERSION, quoted, relation
from incremental_assets.databases.sqlserver.session import SQLServerSession
from incremental_assets.databases.sqlserver.statements import (
    CLOCK,
    LIMIT,
    any_query,
    count_query,
    duplicate_query,
    estimated_query,
    filled_query,
    fingerprint_query,
    highest_query,
    last_drawn_query,
    lowest_query,
    nulls_query,
    object_query,
    starts_query,
)
from incremental_assets.databases.sqlserver.transactions import Transactions
from incremental_assets.databases.sqlserver.types import carried_columns, carry, is_known

SHOWPLAN, NO_SHOWPLAN = "set showplan_xml on", "set showplan_xml off"
_ESTIMATED = re.compile(r'StatementEstRows="([0-9.eE+]+)"')
_PRECISION = re.compile(r"\((\d)\)")
_STEPS = {"datetime": 10_000, "smalldatetime": 60 * MICROS_PER_SECOND}
"""The steps to which values of these types are made, in microseconds; a ``datetime`` has three of them in a hundredth of a second."""


class SQLServerReader(SQLServerSession):
    """A connection for one container, with the queries of its plan and sync. All methods raise SourceError if a query fails."""

    # ------------------------------------------------------------------ the table, and whether it has changed
    def table(self) -> SourceTable | None:
        """The container as the source has it now, without sizes and spans; None if it no longer exists."""
        with source_errors(self.container.label, self.address):
            found = read_tables(self.live, self.container.schema, [self.container.name])
        return found[0] if found else None

    def relation(self) -> Relation:
        """The table's object id and the numbers of its columns; nothing for a view."""
        if self.container.kind is not Kind.TABLE:
            return Relation()
        found = self.rows(object_query(self.container))
        return Relation(str(found[0][0]), {name: int(number) for _, name, number in found}) if found else Relation()

    def point(self) -> None:
        """None: the fingerprint is made of the rows' values, so that rows of another history are others to it, too."""

    def policies(self) -> Policies:
        """None: PostgreSQL alone tells of its row security."""
        return Policies()

    def fingerprint(self, windows: Sequence[Window], include_nulls: bool) -> str | None:
        """A text that changes whenever a row of the windows, a column of the table, or a setting that selects rows changes."""
        # The columns are those of this moment: the catalog's may be older.
        table, options = self.table(), self.container.options
        listed = [] if table is None else list(table.columns)
        marks = [column for column in listed if column.base == ROWVERSION]
        read = [column for column in listed if column.name not in options.exclude_columns and is_known(column)]
        carried = [carry(column, options.text_columns) for column in dict.fromkeys([*read, *marks])]
        count, total = self.rows(fingerprint_query(self.container, carried, windows, include_nulls))[0]
        columns = json.dumps([(column.name, column.type, column.not_null) for column in listed])
        said = hashlib.md5(f"{columns}{self.container.settings_text}".encode(), usedforsecurity=False).hexdigest()
        return f"{count}.{total}.{said}"

    # ------------------------------------------------------------------ the highest identifier, and open transactions
    def highest(self) -> Highest:
        """The highest identifier, limited by the source's clock for times, and by the open transactions for a rowversion.

        Every row below MIN_ACTIVE_ROWVERSION() is committed or gone when the snapshot is taken, so that no other transaction counts.
        """
        container, identifier = self.container, self.container.identifier
        assert identifier is not None
        found: list[int] = []
        for column in container.columns:
            if column.name in identifier.columns:
                text = self.value(highest_query(container, column))
                if text is not None:
                    found.append(parse_value(identifier.cursor_type, str(text)))
        seen = max(found, default=None)
        if self.is_exact:
            limit, last = self.rows(LIMIT)[0]
            return Highest.limited(seen, int(limit), None, self._clock(), int(last))
        # The clock is read after the highest identifier, so that no transaction that began before that read counts as later than the clock.
        clock = self._clock()
        if identifier.cursor_type is CursorType.INTEGER:
            return Highest(seen, seen, self._last_drawn() if identifier.sequence == IDENTITY else None, clock)
        below = clock - int(self.margin_seconds * MICROS_PER_SECOND)
        return Highest.limited(seen, self._on_axis(identifier, clock), self._on_axis(identifier, below), clock)

    def lowest(self) -> int | None:
        """The lowest identifier in the container's domain (from ``@start`` on); None if no row has one."""
        assert self.container.identifier is not None
        text = self.value(lowest_query(self.container))
        return None if text is None else parse_value(self.container.identifier.cursor_type, str(text))

    def distinct_starts(self, windows: Sequence[Window], width: int) -> list[int]:
        """Lower bounds of the integer partitions that have rows in the windows, ascending."""
        return sorted(int(row[0] or 0) for row in self.rows(starts_query(self.container, windows, width)))

    def _clock(self) -> int:
        """The source's clock in microseconds since 1970 UTC."""
        return parse_value(CursorType.TIMESTAMP, str(self.value(CLOCK)))

    def _on_axis(self, identifier: Identifier, clock: int) -> int:
        """The value that the identifier's column has at this instant, cut to the column's precision and in its time zone."""
        moment = value_at(identifier.cursor_type, clock, self.timezone)
        if identifier.cursor_type is CursorType.DATE:
            return moment
        step = max(step_of(column.base, column.type) for column in self.container.columns if column.name in identifier.columns)
        return moment // step * step

    def _last_drawn(self) -> int | None:
        """The last value of IDENTITY that was given out; None if it is not known."""
        found = self.value(last_drawn_query(self.container))
        return None if found is None else int(found)

    @property
    def transactions(self) -> Transactions:
        """The queries for the transactions that are open in the source."""
        return Transactions(self.rows, not self.is_exact and self.sees_transactions)

    # ------------------------------------------------------------------ the rows in the windows
    def estimate(self, windows: Sequence[Window], include_nulls: bool) -> int:
        """The number of rows in the windows, as SQL Server's optimizer estimates it, or else that of the catalog."""
        query = estimated_query(self.container, windows, include_nulls)
        with source_errors(self.container.label, self.address):
            connection = self.live
            try:
                connection.execute(SHOWPLAN)
                try:
                    plan = connection.rows(query)
                finally:
                    if connection.is_open:
                        connection.execute(NO_SHOWPLAN)
            except driver().DatabaseError:  # without the permission SHOWPLAN
                return self.container.rows or 0
        return estimated_rows(str(plan[0][0]) if plan else "", self.container.rows)

    def count(self, windows: Sequence[Window], include_nulls: bool) -> int:
        """The exact number of rows in the windows. SQL Server has to read them for it."""
        return int(self.value(count_query(self.container, windows, include_nulls)))

    def is_empty(self, windows: Sequence[Window], include_nulls: bool) -> bool:
        """Whether there is no row in any of the windows."""
        return not self.rows(any_query(self.container, windows, include_nulls))

    def without_rows(self, windows: Sequence[Window]) -> list[Window]:
        """Those of the windows in which there is no row."""
        return [window for window in windows if self.is_empty([window], False)]

    def partitions_with_values(self, columns: Sequence[str], windows: Sequence[Window]) -> Mapping[str, Sequence[int]]:
        """See ``SourceDatabase.partitions_with_values``."""
        own = {column.name for column in self.container.columns}
        names = [name for name in columns if name in own]
        if not names:
            return {}
        rows = self.rows(filled_query(self.container, names, windows))
        found = {name: [int(row[0]) for row in rows if row[0] is not None and row[i + 1] == 1] for i, name in enumerate(names)}
        return {name: sorted(values) for name, values in found.items() if values}

    def count_nulls(self) -> int:
        """The number of rows without identifier."""
        return int(self.value(nulls_query(self.container)))

    def loose_key(self) -> Sequence[str]:
        """See ``SourceDatabase.loose_key``. By every collation, texts are equal that differ in spaces at their end."""
        texts = ("char", "varchar", "nchar", "nvarchar")
        return [one.name for one in self.container.columns if one.name in self.container.primary_key and one.base in texts]

    def expect_readable(self) -> None:
        """Nothing: a view that cannot be read fails its sync with the server's message."""

    def unplaced(self) -> None:
        """None: SQL Server has no infinity and no NaN in times and exact numbers."""

    def index_statement(self, column: str) -> str:
        """The statement that makes an index which a column leads."""
        return f"CREATE INDEX <name> ON {relation(self.container)} ({quoted(column)})"

    def free_connections(self, most: int) -> int:
        """One: only the connection that has taken the snapshot sees it."""
        return 1

    def duplicate_keys(self, windows: Sequence[Window], include_nulls: bool) -> str | None:
        """A primary key (as text) that is NULL or occurs more than once in the windows; None if there is no such key."""
        carried = carried_columns(self.container)
        found = self.rows(duplicate_query(self.container, carried, windows, include_nulls))
        return ", ".join("NULL" if value is None else str(value) for value in found[0]) if found else None


def step_of(base: str, type_: str) -> int:
    """The distance between two values of a time's type, in microseconds; 1 for the finest."""
    if base in _STEPS:
        return _STEPS[base]
    found = _PRECISION.search(type_)
    return int(10 ** max(0, 6 - int(found[1]))) if found else 1


def estimated_rows(plan: str, otherwise: int | None) -> int:
    """The estimate in the XML of a plan; ``otherwise`` if it has none."""
    found = _ESTIMATED.search(plan)
    return round(float(found[1])) if found else otherwise or 0
