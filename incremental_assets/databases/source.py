"""The protocol of a database as a source: everything that planning and carrying out a sync asks of it.

A second kind of database implements both protocols in a folder beside ``postgres``. All methods raise SourceError if a query fails.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from incremental_assets.core.comparison import HashedRows
from incremental_assets.core.container import Container, SourceTable
from incremental_assets.core.counted_changes import CountedChanges
from incremental_assets.core.history import HistoryPoint
from incremental_assets.core.schema import Column
from incremental_assets.core.watermark import Activity, Holder, OpenTransactions
from incremental_assets.core.window import Window
from incremental_assets.databases.change_log import ChangeLog
from incremental_assets.databases.limits import Limits
from incremental_assets.delta.write_batch import RowsInFiles
from incremental_assets.spark.persisted import PersistedRows

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame


@dataclass(frozen=True)
class Server:
    """Facts about the source's server.

    ``source``: identifies the database as ``<system identifier>/<id of the database>``; it is stored in the sync state. The system
    identifier is ``hidden`` if the role may not read it. ``version``: a number that grows with the server's version, e.g. 140000.
    ``started``: when the server was started, in microseconds since 1970 UTC. ``is_replica``: it is in recovery. ``is_pooled``: the
    connection goes through a connection pooler. ``shows_activity``: this role may see what the sessions of other roles are doing.
    ``hides_transactions``: if not, it does not even see which transactions are open. ``weaker_promise``: a warning, where the rows of one
    sync cannot be of one moment; empty where they are. ``not_set``: settings of the role or the database that a sync would make otherwise,
    and cannot behind a pooler. ``why_unwatched``: why it does not tell how many rows of the container were updated or deleted, for a
    message; empty if it does.
    """

    source: str
    version: int
    started: int
    is_replica: bool
    is_pooled: bool
    shows_activity: bool = True
    hides_transactions: bool = False
    weaker_promise: str = ""
    not_set: tuple[str, ...] = ()
    why_unwatched: str = ""


@dataclass(frozen=True)
class Relation:
    """What tells the container's table from others of the same name, and its columns from others of the same name.

    ``id``: an id that no other table of the database ever gets; None if there is none, as for views. ``numbers``: the numbers of the
    columns by their names: no other column of the table ever gets one, and a renamed column keeps it. Empty if the source has none.
    ``mark``: another one if the table or a column is another one, and after some other statements, too, so that it raises a doubt and
    proves nothing; None if there is an id, or nothing like it. ``changes``: of a container with
    ``append``, how many rows were updated or deleted, which tells nothing of what table it is; None if the source does not count, and in a
    snapshot, where a refused query would end it.
    """

    id: str | None = None
    numbers: Mapping[str, int] = field(default_factory=dict[str, int])
    mark: str | None = None
    changes: CountedChanges | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Policies:
    """The policies of row security that hide rows of a container from our role.

    ``digest``: another one means that other rows may be hidden; empty if no policy hides any. ``said``: the tables and policies, for
    people. ``guarded``: all tables with row security that the container reads, whether or not it hides rows from our role.
    """

    digest: str = ""
    said: str = ""
    guarded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unplaced:
    """Rows that are not read, as no window holds the value of their identifier or of what their partitions go by.

    ``rows``: how many there are. ``where``: a condition in the source's SQL for all other rows.
    """

    rows: int
    where: str


@dataclass(frozen=True)
class Highest:
    """The highest identifier of a container, at one moment. Values are integers of the cursor type.

    ``value``: the highest identifier, limited to what the source's clock or sequence allows; None if no row has an identifier. ``seen``:
    the highest identifier of the rows, without this limit. ``sequence``: the last value that the identifier's sequence gave out; None if
    there is no sequence that can be read. ``clock``: the source's clock just after the read, in microseconds since 1970 UTC. ``withheld``:
    what ``value`` would be without the margin below the clock; None if it would be the same.
    """

    value: int | None = None
    seen: int | None = None
    sequence: int | None = None
    clock: int = 0
    withheld: int | None = None

    @classmethod
    def limited(cls, seen: int | None, limit: int | None, settled: int | None, clock: int, sequence: int | None = None) -> "Highest":
        """The highest identifier ``seen``, limited by the highest value that the source can have made by now.

        ``limit``: no identifier above it counts; ``settled``: the same with the margin below the clock. None: there is no such limit.
        """
        value = seen if seen is None or limit is None else min(seen, limit)
        below = value if value is None or settled is None else min(value, settled)
        return cls(below, seen, sequence, clock, value if below != value else None)


@dataclass(frozen=True)
class WindowRead:
    """What one read by windows returns: the rows of the windows and, with ``include_nulls``, those without identifier.

    ``highest``: the highest identifier, up to which the read is divided; None if it is not known. ``most_readers``: how many parallel
    readers may take part in it.
    """

    windows: Sequence[Window]
    include_nulls: bool
    highest: int | None
    most_readers: int


class OpenTransactionsQuery(Protocol):
    """The queries for the transactions that are open in the source."""

    def settle(self, clock: int, seconds: float) -> tuple[OpenTransactions, Activity]:
        """Waits up to ``seconds`` for the transactions to end that may still commit a value that was made by ``clock``.

        ``clock`` is the source's clock in microseconds since 1970 UTC, read together with the highest identifier. Returns those of the
        transactions that are still open, and all activity at the moment when that was seen.
        """
        ...

    def holders(self, noted: OpenTransactions) -> list[Holder]:
        """The users, applications and process ids of noted transactions, as far as this role may see them."""
        ...


class SourceSnapshot(Protocol):
    """The rows of one container in one frozen state of the source, as a write batch reads them. It is used inside ``snapshot()``."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the lake, in the order of the DataFrames."""
        ...

    def windows(self, spark: "SparkSession", read: WindowRead) -> "DataFrame": ...

    def local(self, read: WindowRead, most_bytes: int) -> pa.Table | None:
        """The same rows as those of ``windows``, as an Arrow table in this process.

        None if they are more than ``most_bytes`` in memory, or if this source has no such way.
        """
        ...

    def in_files(self, read: WindowRead) -> RowsInFiles | None:
        """The same rows as those of ``windows``, for Spark's tasks to read into files of the lake; None if this source has no such way."""
        ...

    @property
    def why_no_ranges(self) -> str:
        """Why ``key_ranges`` may be empty, for a message."""
        ...

    def key_ranges(self, rows: int, readers: int) -> Sequence[Any]:
        """Divides the container into ranges of its primary key of about ``rows`` rows; empty if the source has no statistics of it."""
        ...

    def by_key_ranges(self, spark: "SparkSession", ranges: Sequence[Any]) -> Sequence[PersistedRows]:
        """Reads each of ``key_ranges`` in a newer snapshot. Spark keeps the rows on its disks until they are released."""
        ...

    def by_key(self, spark: "SparkSession", keys: Sequence[Sequence[str]]) -> "DataFrame":
        """The rows with the given primary keys. Each key is a sequence of texts (``delta.sql.key_text``)."""
        ...

    def existing(self, keys: Sequence[Sequence[str]]) -> Sequence[int]:
        """The positions, in ``keys``, of those primary keys that the container has."""
        ...

    def hashed_rows(self, columns: Sequence[Column]) -> HashedRows:
        """The rows as the source hashes them itself, for a comparison with the lake. ``columns``: those of the lake that are compared."""
        ...

    def explained(self, error: Exception, windows: Sequence[Window], include_nulls: bool) -> Exception:
        """The error to raise for a failed read: one that names the setting that helps, where the source's values were the cause."""
        ...


class SourceDatabase(Protocol):
    """A connection to the source for one container, with the queries of its plan and its sync.

    ``container``: what the queries are about; a sync replaces it where the source's columns have changed. ``limits``: those of each
    snapshot. ``interrupt``: cancels the write that reads from the snapshot; it is called if the snapshot had to be ended.
    """

    container: Container
    limits: Limits
    interrupt: Callable[[], None]

    @property
    def server(self) -> Server: ...

    @property
    def snapshot_seconds(self) -> float:
        """For how many seconds snapshots have been held so far."""
        ...

    @property
    def transactions(self) -> OpenTransactionsQuery: ...

    # ------------------------------------------------------------------ the table, and whether it has changed
    def table(self) -> SourceTable | None:
        """The container as the source has it now, without sizes and spans; None if it no longer exists."""
        ...

    def expect_readable(self) -> None:
        """Raises SourceWaits if the source itself cannot read the container, which is a view."""
        ...

    def relation(self) -> Relation:
        """The table's id and the numbers of its columns, as far as the source has them."""
        ...

    def fingerprint(self, windows: Sequence[Window], include_nulls: bool) -> str | None:
        """A text that changes whenever a row of the windows, a column, or a setting that selects rows changes; None if it cannot be known.

        It begins with the number of rows and a dot.
        """
        ...

    def point(self) -> HistoryPoint | None:
        """The point in its history that the server has reached; None if it has none, or hides it.

        It is asked in a snapshot only if it was asked before, outside of one, as the source may refuse the query.
        """
        ...

    def policies(self) -> Policies:
        """The policies by which the source hides rows from our role."""
        ...

    def change_log(self, slot: str) -> ChangeLog:
        """The log of the source, as far as it is kept by this slot."""
        ...

    def loose_key(self) -> Sequence[str]:
        """The columns of the key in which values may be equal to the source that look different, but for those with a canonical form."""
        ...

    def index_statement(self, column: str) -> str:
        """The statement that makes an index which a column leads, for a message."""
        ...

    # ------------------------------------------------------------------ identifiers
    def highest(self) -> Highest:
        """The highest identifier, limited by the source's clock (times) or by its sequence's last value (integers)."""
        ...

    def lowest(self) -> int | None:
        """The lowest identifier in the container's domain; None if no row has one."""
        ...

    def distinct_starts(self, windows: Sequence[Window], width: int) -> list[int]:
        """Lower bounds of the integer partitions that have rows in the windows, ascending."""
        ...

    # ------------------------------------------------------------------ rows
    def estimate(self, windows: Sequence[Window], include_nulls: bool) -> int:
        """About how many rows the windows have. It must be cheap, as it is asked many times."""
        ...

    def count(self, windows: Sequence[Window], include_nulls: bool) -> int:
        """The exact number of rows in the windows."""
        ...

    def is_empty(self, windows: Sequence[Window], include_nulls: bool) -> bool:
        """Whether there is no row in any of the windows."""
        ...

    def without_rows(self, windows: Sequence[Window]) -> list[Window]:
        """Those of the windows in which there is no row."""
        ...

    def partitions_with_values(self, columns: Sequence[str], windows: Sequence[Window]) -> Mapping[str, Sequence[int]]:
        """By column, a value of each partition that has a row in the windows with a value in this column. It reads all rows of the windows.

        Columns without values are left out.
        """
        ...

    def count_nulls(self) -> int:
        """The number of rows without identifier."""
        ...

    def unplaced(self) -> Unplaced | None:
        """The rows whose identifier no window holds; None if there are none."""
        ...

    def duplicate_keys(self, windows: Sequence[Window], include_nulls: bool) -> str | None:
        """A primary key (as text) that is NULL or occurs more than once in the windows; None if there is no such key."""
        ...

    def infinite_columns(self, container: Container, windows: Sequence[Window], *, sampled: bool = False) -> tuple[str, ...]:
        """The columns with values that no type of the lake can hold, which are therefore carried as text.

        ``sampled``: if a sample of the rows has no such value, the others are not looked at, and the result is empty.
        """
        ...

    @property
    def reads_into_files(self) -> bool:
        """Whether ``SourceSnapshot.in_files`` reads such a container, if its columns permit it."""
        ...

    # ------------------------------------------------------------------ the snapshot
    def snapshot(self) -> AbstractContextManager[object]:
        """Freezes one state of the source until the block ends. All queries and all readers in the block see that state."""
        ...

    def snapshot_rows(self, container: Container, text_columns: Sequence[str]) -> SourceSnapshot:
        """The rows of the snapshot that is held. ``text_columns`` are carried as text, in addition to those that the YAML names."""
        ...

    def still_there(self) -> None:
        """Raises SourceError if the snapshot is lost or a limit is passed. This is the last check before a commit."""
        ...

    def free_connections(self, most: int) -> int:
        """How many more connections may be opened until this product has ``most`` of them on the database; at least one."""
        ...


@contextmanager
def along_axis(source: SourceDatabase) -> Iterator[None]:
    """Lets windows that the source is asked about be those of partitions, until the block ends (``Container.along_axis``)."""
    before = source.container
    source.container = before.along_axis
    try:
        yield
    finally:
        source.container = before
