"""Runs the queries of one container's plan and sync through JDBC: whether anything has changed, the highest identifier, and rows.

What SQL has no common words for, Spark computes from the rows: hashes, parts of a partition, and comparisons of keys.
"""

import contextlib
import hashlib
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from incremental_assets.core.container import Container, Identifier, Kind, SourceTable
from incremental_assets.core.cursor_type import MICROS_PER_SECOND, CursorType, value_at
from incremental_assets.core.errors import SourceError
from incremental_assets.core.names import backticked
from incremental_assets.core.window import Window
from incremental_assets.databases.jdbc.introspect import read_columns, table_names, value_of
from incremental_assets.databases.jdbc.queries import (
    FALSE,
    TRUE,
    identifier_expression,
    null_predicate,
    placed_predicate,
    quoted,
    relation_of,
    scope_predicate,
    unplaced_predicate,
    where_clause,
)
from incremental_assets.databases.jdbc.session import JdbcSession
from incremental_assets.databases.jdbc.types import Carried, carried_columns
from incremental_assets.databases.source import Highest, Unplaced
from incremental_assets.delta.hashed_rows import canonical_text, checksums, hash_of
from incremental_assets.delta.sql import partition_start

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame


def select_of(container: Container, carried: Sequence[Carried], scope: str) -> str:
    """The query for the rows in ``scope``; its columns are named c0, c1 and so on."""
    listed = [f'{quoted(one.column.name)} as "c{i}"' for i, one in enumerate(carried) if not one.marks]
    return f"select {', '.join(listed)} from {relation_of(container)} where {scope}"


class JdbcReader:
    """The queries of one container. All methods raise SourceError if a query fails.

    ``timezone``: the time zone of columns without one. ``margin_seconds``: how far the watermark of a time stays below the clock.
    """

    def __init__(self, session: JdbcSession, container: Container, *, timezone: str, margin_seconds: float) -> None:
        self.session, self.container = session, container
        self.timezone, self.margin_seconds = timezone, margin_seconds
        self._counts: dict[str, int] = {}
        """The numbers of rows that were counted since the last snapshot began, by condition."""

    # ------------------------------------------------------------------ rows
    def frame(self, spark: "SparkSession", carried: Sequence[Carried], scope: str) -> "DataFrame":
        """The rows in ``scope`` as the lake has them. A value that the lake does not have fails the query that uses it."""
        texts = {f"c{i}": "STRING" for i, one in enumerate(carried) if one.as_text and not one.marks}
        found = self.session.frame(spark, select_of(self.container, carried, scope), texts)
        label = self.container.label
        return found.selectExpr(*(f"{one.in_lake(label, f'c{i}')} AS {backticked(one.column.name)}" for i, one in enumerate(carried)))

    @contextlib.contextmanager
    def view(self, carried: Sequence[Carried], scope: str) -> Iterator[str]:
        """The same rows as a temporary view of the plan's session, whose quoted name is yielded."""
        name = f"__incremental_assets_{uuid.uuid4().hex}"
        with self.session.errors():
            self.frame(self.session.spark, carried, scope).createTempView(name)
            try:
                yield backticked(name)
            finally:
                self.session.spark.catalog.dropTempView(name)

    # ------------------------------------------------------------------ the table, and whether it has changed
    def table(self) -> SourceTable | None:
        """The container as the source has it now; None if it no longer exists."""
        container = self.container
        try:
            columns = read_columns(self.session, container.schema, container.name)
        except SourceError:
            # Each database has its own words for a table that does not exist.
            if container.kind is Kind.TABLE and container.name not in table_names(self.session, container.schema):
                return None
            raise
        return SourceTable(name=container.name, kind=container.kind, columns=columns)

    def fingerprint(self, windows: Sequence[Window], include_nulls: bool) -> str | None:
        """A text that changes whenever a row of the windows, a column, or a setting that selects rows changes.

        Spark reads the rows and hashes them: number of rows, sum of their hashes, hash of the columns and the settings.
        """
        carried = [one for one in carried_columns(self.container) if not one.marks]
        texts = [canonical_text(one.column) for one in carried]
        with self.view(carried, scope_predicate(self.container, windows, include_nulls)) as rows:
            found = checksums(self.session.spark, f"SELECT {hash_of(texts)} AS hash FROM {rows}", "1")
        count, total = (found[0][1].rows, found[0][1].total) if found else (0, 0)
        columns = json.dumps([(column.name, column.type, column.not_null) for column in self.container.columns])
        said = hashlib.md5(f"{columns}{self.container.settings_text}".encode(), usedforsecurity=False).hexdigest()
        return f"{count}.{total}.{said}"

    # ------------------------------------------------------------------ identifiers
    def highest(self) -> Highest:
        """The highest identifier, limited by this machine's clock for times: JDBC has no common word for the source's."""
        container, identifier = self.container, self.container.identifier
        assert identifier is not None
        found: list[int] = []
        where = " and ".join([*where_clause(container), *placed_predicate(container)]) or TRUE
        for name in identifier.columns:
            text = self.session.texts(f'select max({quoted(name)}) as "c0" from {relation_of(container)} where {where}', 1)[0][0]
            if text is not None:
                found.append(self._value(identifier, text))
        seen = max(found, default=None)
        clock = time.time_ns() // 1000
        if identifier.cursor_type is CursorType.INTEGER:
            return Highest(seen, seen, None, clock)
        below = clock - int(self.margin_seconds * MICROS_PER_SECOND)
        limit, settled = (value_at(identifier.cursor_type, at, self.timezone) for at in (clock, below))
        return Highest.limited(seen, limit, settled, clock)

    def lowest(self) -> int | None:
        """The lowest identifier in the container's domain (from ``@start`` on); None if no row has one."""
        identifier = self.container.identifier
        assert identifier is not None
        scope = scope_predicate(self.container, [identifier.domain], False)
        query = f'select min({identifier_expression(identifier)}) as "c0" from {relation_of(self.container)} where {scope}'
        text = self.session.texts(query, 1)[0][0]
        return None if text is None else self._value(identifier, text)

    def distinct_starts(self, windows: Sequence[Window], width: int) -> list[int]:
        """Lower bounds of the integer partitions that have rows in the windows, ascending."""
        identifier, wide = self.container.identifier, int(width)
        assert identifier is not None
        carried = [one for one in carried_columns(self.container) if one.column.name in identifier.columns]
        with self.view(carried, scope_predicate(self.container, windows, False)) as rows:
            value = f"cast({backticked(identifier.columns[0])} AS decimal(38,0))"
            found = self.session.spark.sql(f"SELECT DISTINCT {value} - pmod({value}, {wide}) FROM {rows}").collect()
        return sorted(int(row[0]) for row in found)

    def _value(self, identifier: Identifier, text: str) -> int:
        try:
            return value_of(identifier.cursor_type, text, "/".join(identifier.columns))
        except SourceError as error:
            raise SourceError(f"{self.container.label}: {error}") from None

    # ------------------------------------------------------------------ the rows in the windows
    def estimate(self, windows: Sequence[Window], include_nulls: bool) -> int:
        """The number of rows in the windows, as it was counted since the last snapshot began."""
        scope = scope_predicate(self.container, windows, include_nulls)
        if scope not in self._counts:
            self._counts[scope] = self._count(scope)
        return self._counts[scope]

    def count(self, windows: Sequence[Window], include_nulls: bool) -> int:
        """The exact number of rows in the windows."""
        return self._count(scope_predicate(self.container, windows, include_nulls))

    def is_empty(self, windows: Sequence[Window], include_nulls: bool) -> bool:
        """Whether there is no row in any of the windows."""
        return self.count(windows, include_nulls) == 0

    def without_rows(self, windows: Sequence[Window]) -> list[Window]:
        """Those of the windows in which there is no row."""
        return [window for window in windows if self.is_empty([window], False)]

    def count_nulls(self) -> int:
        """The number of rows without identifier."""
        assert self.container.identifier is not None
        return self._count(" and ".join([null_predicate(self.container.identifier), *where_clause(self.container)]))

    def expect_readable(self) -> None:
        """Nothing: databases have no common word for a view that they cannot read. It fails its sync."""

    def unplaced(self) -> Unplaced | None:
        """See ``SourceDatabase.unplaced``. JDBC has no word for numbers such as NaN, which fail the read."""
        others = unplaced_predicate(self.container)
        found = 0 if others is None else self._count(" and ".join([f"({others})", *where_clause(self.container)]))
        return Unplaced(found, " and ".join(placed_predicate(self.container))) if found else None

    def partitions_with_values(self, columns: Sequence[str], windows: Sequence[Window]) -> Mapping[str, Sequence[int]]:
        """See ``SourceDatabase.partitions_with_values``."""
        identifier, partitioning = self.container.identifier, self.container.partitioning
        own = {column.name for column in self.container.columns}
        names = [name for name in columns if name in own]
        if not names or identifier is None or partitioning is None:
            return {}
        carried = [one for one in carried_columns(self.container) if one.column.name in {*names, *identifier.columns}]
        with self.view(carried, scope_predicate(self.container, windows, False)) as rows:
            filled = ", ".join(f"count({backticked(name)})" for name in names)
            found = self.session.spark.sql(f"SELECT {partition_start(identifier, partitioning)}, {filled} FROM {rows} GROUP BY 1").collect()
        by_name = {name: sorted(int(row[0]) for row in found if row[i + 1]) for i, name in enumerate(names)}
        return {name: values for name, values in by_name.items() if values}

    def duplicate_keys(self, windows: Sequence[Window], include_nulls: bool) -> str | None:
        """A primary key (as text) that is NULL or occurs more than once in the windows; None if there is no such key."""
        carried = [one for one in carried_columns(self.container) if one.column.name in self.container.primary_key]
        names = [backticked(name) for name in self.container.primary_key]
        null = " OR ".join(f"{name} IS NULL" for name in names)
        with self.view(carried, scope_predicate(self.container, windows, include_nulls)) as rows:
            statement = f"SELECT {', '.join(names)} FROM {rows} GROUP BY {', '.join(names)} HAVING count(*) > 1 OR {null} LIMIT 1"
            found = self.session.spark.sql(statement).collect()
        return ", ".join("NULL" if value is None else str(value) for value in found[0]) if found else None

    def _count(self, scope: str) -> int:
        if scope == FALSE:
            return 0
        return int(self.session.texts(f'select count(*) as "c0" from {relation_of(self.container)} where {scope}', 1)[0][0] or 0)
