"""Implements the protocols of a source (``databases.source``) for any database with a JDBC driver.

There is no snapshot that several queries share. Each read of rows is one statement, so that its rows are as consistent as the database
makes one statement; what changes between two statements is found by the next sync, as the fingerprint is taken before the rows are read.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from incremental_assets.core.comparison import HashedRows
from incremental_assets.core.container import Container
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.names import backticked
from incremental_assets.core.schema import Column
from incremental_assets.core.watermark import Activity, Holder, OpenTransactions
from incremental_assets.core.window import Window
from incremental_assets.databases.change_log import ChangeLog
from incremental_assets.databases.jdbc.queries import domain_predicate, quoted, relation_of, scope_predicate
from incremental_assets.databases.jdbc.reader import JdbcReader
from incremental_assets.databases.jdbc.session import JdbcSession
from incremental_assets.databases.jdbc.types import carried_columns
from incremental_assets.databases.limits import Limits
from incremental_assets.databases.source import Policies, Relation, Server, WindowRead
from incremental_assets.delta.hashed_rows import SparkHashedRows
from incremental_assets.delta.local_rows import local_frame
from incremental_assets.delta.sql import key_text
from incremental_assets.spark.persisted import PersistedRows

if TYPE_CHECKING:
    from pyspark.sql.column import Column as Column_
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame


def _nothing() -> None:
    """The default for ``JdbcSource.interrupt``: nothing is running that would have to be cancelled."""


class NoTransactions:
    """The ``OpenTransactionsQuery`` of a database that cannot be asked: nobody is known to be open, and the safety lag has to do."""

    def settle(self, clock: int, seconds: float) -> tuple[OpenTransactions, Activity]:
        return OpenTransactions(), Activity()

    def holders(self, noted: OpenTransactions) -> list[Holder]:
        return []


class JdbcSource(JdbcReader):
    """The ``SourceDatabase`` of one container."""

    def __init__(self, session: JdbcSession, container: Container, *, timezone: str, margin_seconds: float) -> None:
        super().__init__(session, container, timezone=timezone, margin_seconds=margin_seconds)
        self.limits = Limits()
        self.interrupt: Callable[[], None] = _nothing
        self.snapshot_seconds = 0.0
        self.transactions = NoTransactions()
        self.kept: list[PersistedRows] = []
        """The rows that Spark keeps until the snapshot ends."""

    def __enter__(self) -> "JdbcSource":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.session.close()

    @property
    def server(self) -> Server:
        return Server(
            source=f"jdbc-{self.session.address.identity}/{self.container.schema}",
            version=0,
            started=0,
            is_replica=False,
            is_pooled=False,
            shows_activity=False,
            hides_transactions=True,
            why_unwatched="JDBC does not tell of them",
        )

    def relation(self) -> Relation:
        """Nothing: JDBC has no id by which a table that was dropped and created anew is recognised."""
        return Relation()

    def point(self) -> None:
        """None: the fingerprint is made of the rows' values, so that rows of another history are others to it, too."""

    def policies(self) -> Policies:
        """None: PostgreSQL alone tells of its row security."""
        return Policies()

    def change_log(self, slot: str) -> ChangeLog:
        raise ConfigurationError(f"{self.container.label}: the log of a database that is reached by JDBC cannot be followed.")

    def loose_key(self) -> Sequence[str]:
        """None: JDBC does not tell collations."""
        return ()

    def index_statement(self, column: str) -> str:
        """The statement that makes an index which a column leads."""
        return f"CREATE INDEX <name> ON {relation_of(self.container)} ({quoted(column)})"

    def infinite_columns(self, container: Container, windows: Sequence[Window], *, sampled: bool = False) -> tuple[str, ...]:
        """None: a value that no type of the lake can hold fails the read."""
        return ()

    @property
    def reads_into_files(self) -> bool:
        return False

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """No state of the source is held: see the head of this module. What Spark keeps of its rows is freed at the end of the block."""
        self._counts.clear()
        try:
            yield
        finally:
            while self.kept:
                self.kept.pop().release()

    def snapshot_rows(self, container: Container, text_columns: Sequence[str]) -> "JdbcSnapshot":
        return JdbcSnapshot(self, container, text_columns)

    def still_there(self) -> None:
        """Nothing is held that could be lost: the rows have been read already."""

    def free_connections(self, most: int) -> int:
        """One: only one statement sees one state of the source."""
        return 1


class JdbcSnapshot:
    """The ``SourceSnapshot`` of one container: each of its reads is one statement, whose rows Spark keeps until the snapshot ends."""

    def __init__(self, source: JdbcSource, container: Container, text_columns: Sequence[str]) -> None:
        self._source, self._container = source, container
        self._carried = carried_columns(container, text_columns)

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(one.column for one in self._carried)

    def windows(self, spark: "SparkSession", read: WindowRead) -> "DataFrame":
        return self._kept(spark, scope_predicate(self._container, read.windows, read.include_nulls))

    def local(self, read: WindowRead, most_bytes: int) -> pa.Table | None:
        return None

    def in_files(self, read: WindowRead) -> None:
        return None

    @property
    def why_no_ranges(self) -> str:
        return "only one statement sees one state of the source"

    def key_ranges(self, rows: int, readers: int) -> Sequence[Any]:
        return ()

    def by_key_ranges(self, spark: "SparkSession", ranges: Sequence[Any]) -> Sequence[PersistedRows]:
        raise AssertionError("there are no ranges of keys")

    def by_key(self, spark: "SparkSession", keys: Sequence[Sequence[str]]) -> "DataFrame":
        rows = self._kept(spark, domain_predicate(self._container))
        wanted = self._keys(spark, keys)
        return rows.join(wanted, self._same_key(), "left_semi")

    def existing(self, keys: Sequence[Sequence[str]]) -> list[int]:
        spark = self._source.session.spark
        carried = [one for one in self._carried if one.column.name in self._container.primary_key]
        with self._source.session.errors():
            rows = self._source.frame(spark, carried, domain_predicate(self._container))
            wanted = self._keys(spark, keys)
            found = wanted.join(rows, self._same_key(), "left_semi")
            return sorted(int(row["__incremental_assets_at"]) for row in found.select("__incremental_assets_at").collect())

    def hashed_rows(self, columns: Sequence[Column]) -> HashedRows:
        """The rows as Spark hashes them, as it does those of the lake: SQL has no common words for the text of a value."""
        session = self._source.session
        by_name = {one.column.name.lower(): one for one in self._carried}
        container = self._container
        named = {column.name.lower() for column in columns} | {name.lower() for name in _identifier(container)}
        carried = [one for one in self._carried if one.column.name.lower() in named]
        with session.errors():
            rows = self._source.frame(session.spark, carried, domain_predicate(container))
            types = {column.name.lower(): column.type for column in columns}
            shaped = [
                f"cast({backticked(one.column.name)} AS {types.get(one.column.name.lower(), one.column.type)})"
                f" AS {backticked(one.column.name)}"
                for one in carried
            ]
            kept = PersistedRows(session.spark, rows.selectExpr(*shaped))
            self._source.kept.append(kept)
            kept.frame.count()  # all questions are answered from the rows of this one statement
        compared = [Column(by_name[column.name.lower()].column.name, column.type) for column in columns]
        return SparkHashedRows(lambda: session.spark, kept.name, container, compared)

    def explained(self, error: Exception, windows: Sequence[Window], include_nulls: bool) -> Exception:
        return error

    # ------------------------------------------------------------------
    def _kept(self, spark: "SparkSession", scope: str) -> "DataFrame":
        """The rows of one statement, which is run once: what is written and what is compared are the same rows."""
        with self._source.session.errors():
            kept = PersistedRows(spark, self._source.frame(spark, self._carried, scope))
            self._source.kept.append(kept)
            kept.frame.count()
        return kept.frame

    def _keys(self, spark: "SparkSession", keys: Sequence[Sequence[str]]) -> "DataFrame":
        columns = {
            f"__incremental_assets_k{i}": pa.array([key[i] for key in keys], pa.string()) for i in range(len(self._container.primary_key))
        }
        return local_frame(spark, pa.table({"__incremental_assets_at": pa.array(range(len(keys)), pa.int64()), **columns}))

    def _same_key(self) -> "list[Column_]":
        """The conditions under which a row has the key of a row of ``_keys``."""
        from pyspark.sql import functions as f

        by_name = {one.column.name: one.column for one in self._carried}
        texts = [key_text(backticked(name), by_name[name].type) for name in self._container.primary_key]
        return [f.expr(f"{text} = __incremental_assets_k{i}") for i, text in enumerate(texts)]


def _identifier(container: Container) -> Sequence[str]:
    return container.identifier.columns if container.identifier is not None else ()
