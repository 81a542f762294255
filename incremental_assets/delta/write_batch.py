"""Defines the types that pass between reading a source and writing the lake: write batches and their outcomes.

A sync (``delta.container_sync``) makes a ``WriteBatch`` (the rows of one commit, all of one snapshot of the source); the commit returns a
``WriteResult``.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from incremental_assets.core.container import Container, Identifier
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.schema import Column, Evolution
from incremental_assets.core.watermark import TableState
from incremental_assets.core.window import Window

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame


class NotHere(Exception):
    """One way of writing cannot write a batch, for the reason that the message gives, and nothing was done. Another one has to."""


class BatchRows(Protocol):
    """The rows of one write batch, as they are in the snapshot of the source that is held while the batch is committed.

    ``staged``: all of them in files that were written elsewhere; None if there are none.
    """

    @property
    def staged(self) -> "StagedFiles | None":
        return None

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """All rows of the batch. Spark reads them when the DataFrame is used."""
        ...

    def local(self) -> "pa.Table":
        """The same rows as an Arrow table in this process. Raises NotHere if they are many, or if the source cannot give them so.

        The table has the columns of the batch, with the Arrow types of their Delta types.
        """
        ...

    def in_files(self) -> "RowsInFiles":
        """The same rows, to be read into files of the table. Raises NotHere if the source cannot do that."""
        raise NotHere("these rows cannot be read into files")

    def still_there(self) -> None:
        """Raises SourceError if the snapshot of the source is no longer held."""
        ...

    def emptied(self) -> Sequence[Window]:
        """The requested windows for which the source has no row."""
        ...


class KeyLookup(Protocol):
    """The lookups by primary key that an upsert makes in the same snapshot.

    Each key is a sequence of texts, as ``delta.sql.key_text`` writes them.
    """

    def by_key(self, spark: "SparkSession", keys: Sequence[Sequence[str]]) -> "DataFrame":
        """The rows with the given keys."""
        ...

    def existing(self, keys: Sequence[Sequence[str]]) -> Iterable[int]:
        """The positions, in ``keys``, of those keys that exist in the source."""
        ...


@dataclass(frozen=True)
class InWindows:
    """Rows of these windows of ``of``: the container's identifier or, by partition, its axis; None for a container without identifier,
    whose one window is everything.

    ``include_nulls``: rows without identifier are among them.
    """

    of: Identifier | None
    windows: tuple[Window, ...]
    include_nulls: bool = False


@dataclass(frozen=True)
class OfFiles:
    """Rows of the source's files with these keys. ``only_adds``: the table is known to have no rows of them yet."""

    keys: tuple[str, ...]
    only_adds: bool = False


@dataclass(frozen=True)
class WithKeys:
    """Rows with these primary keys, wherever in the table they are.

    ``keys``: all keys that have changed, each once, with the types of the lake. ``rows``: the rows that the source has for them, with the
    columns of the batch. A key without a row is deleted.
    """

    keys: "pa.Table"
    rows: "pa.Table"


@dataclass(frozen=True)
class AllRows:
    """All rows of the table, and its schema. ``read``: those of the source that take their place."""

    read: InWindows | OfFiles


@dataclass(frozen=True)
class WriteBatch:
    """A write batch: the rows that one commit writes, with everything that the commit needs to know of them.

    ``replaces``: the rows of the table in whose place they come. ``columns``: the columns of the rows, with the types that they have in the
    lake. ``base_version``: the Delta version that the plan saw (None: no table existed). ``state``: the sync state to store after the rows;
    its ``data_version`` is filled in by the commit. ``expected``: the estimated number of rows. ``allow_empty``: the commit may delete rows
    although the source has none there. ``commit_metadata``: Delta's ``userMetadata``. ``by_key``: for upserts only. ``deleted_at``: rows
    that the source no longer has are marked with this time (microseconds since 1970 UTC) in the column ``core.deletes.MARK``; None: they
    are deleted instead. ``rewritten``: columns of types for which the table may be rewritten.
    """

    container: Container
    replaces: InWindows | OfFiles | WithKeys | AllRows
    columns: tuple[Column, ...]
    base_version: int | None
    state: TableState
    expected: int
    allow_empty: bool
    commit_metadata: dict[str, Any]
    rows: BatchRows = field(repr=False)
    by_key: KeyLookup | None = field(repr=False, default=None)
    deleted_at: int | None = None
    rewritten: frozenset[str] = frozenset()

    @property
    def whole(self) -> bool:
        """Whether nothing of the old table stays, not even its schema."""
        return isinstance(self.replaces, AllRows)

    @property
    def read(self) -> InWindows | OfFiles | WithKeys:
        """Which rows of the source were read."""
        return self.replaces.read if isinstance(self.replaces, AllRows) else self.replaces

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows that were read; none where the rows are not chosen by windows."""
        return self.read.windows if isinstance(self.read, InWindows) else ()

    @property
    def include_nulls(self) -> bool:
        """Whether rows without identifier were read beside those of the windows."""
        return isinstance(self.read, InWindows) and self.read.include_nulls

    @property
    def identifier(self) -> Identifier | None:
        """What the windows are about; None without identifier, and where the rows are not chosen by windows."""
        return self.read.of if isinstance(self.read, InWindows) else None

    @property
    def files(self) -> tuple[str, ...] | None:
        """The keys of the source's files that were read; None where the rows are not chosen by files."""
        return self.read.keys if isinstance(self.read, OfFiles) else None

    @property
    def only_adds(self) -> bool:
        """Whether the table is known to have no rows yet in the place of those to be written."""
        return isinstance(self.read, OfFiles) and self.read.only_adds


@dataclass(frozen=True)
class FilesTarget:
    """Where files of rows are written, and how.

    ``folder``: the table's folder. ``names``: the names of the columns in the table, in the order in which they are read. ``sort``: the
    columns by which rows are sorted within a file. ``indexed``: how many of the first columns get statistics.
    """

    folder: str
    names: tuple[str, ...]
    sort: tuple[str, ...]
    indexed: int


@dataclass(frozen=True)
class WrittenFile:
    """A file in a table's folder that no commit names yet: its path there, its size in bytes, its rows, and Delta's statistics (JSON)."""

    path: str
    size: int
    rows: int
    statistics: str


@dataclass(frozen=True)
class StagedFiles:
    """Files in another folder that have all rows of a batch and its columns. ``indexed``: how many of the first columns have statistics."""

    folder: str
    files: Sequence[WrittenFile]
    indexed: int


class RowsInFiles(Protocol):
    """The rows of a write batch, as a source can read them into files of the table itself.

    ``spark``: the server whose tasks do it; None: this process does.
    """

    def reason_against(self, spark: "SparkSession | None", folder: str) -> str | None:
        """Why that is not possible, in a table's folder; None if it is."""
        ...

    def write(self, spark: "SparkSession | None", target: FilesTarget, report: Callable[[int], None]) -> Sequence[WrittenFile]:
        """Reads all rows and writes each of them to one file. ``report`` gets the numbers of rows that this process reads.

        Raises SourceError if the source fails.
        """
        ...


class Way(Enum):
    """How the rows of a batch come into the table, as the metadata ``sync/way`` names it (docs/decisions/ways-of-writing.md)."""

    ALREADY_THERE = "already there"
    ADD_FILES = "add files"
    REWRITE_FILES = "rewrite files"
    MARK_ROWS = "mark rows"
    REPLACE_ALL = "replace all"
    REPLACE_WHERE = "replaceWhere"
    MERGE = "MERGE"


class By(Enum):
    """Who writes the rows of a batch into files. ``SPARK`` alone also commits them itself."""

    PROCESS = "this process"
    TASKS = "Spark's tasks"
    SPARK = "Spark"


@dataclass(frozen=True)
class WriteResult:
    """The result of one commit.

    ``rows_inserted``, ``rows_updated`` and ``rows_deleted`` count rows of the lake whose values have changed; None means that the number is
    not known. ``data_version`` is the Delta version that wrote the rows, and ``data_commit`` the id of its commit (``table.Commit``), which
    is known once the state is stored; ``version`` is the newest version afterwards, which also has the sync state. ``axis_values``: what
    the partitions are windows of (``Container.axis``), as integers of the cursor type, of the rows that were written and of those in whose
    place they are; None if the windows of the batch tell where these are. ``evolution``: the schema changes that were made before the rows
    were written. ``reasons``: why they were not written in the ways that were tried before ``way``. ``message``: what the user should know
    of this way.
    """

    rows_read: int
    rows_inserted: int | None
    rows_updated: int | None
    rows_deleted: int | None
    data_version: int
    version: int
    way: Way
    by: By = By.PROCESS
    reasons: tuple[str, ...] = ()
    evolution: Evolution = field(default_factory=Evolution)
    axis_values: frozenset[int] | None = None
    data_commit: str | None = None
    message: str | None = None

    @property
    def how(self) -> str:
        """Way, writer and reasons as a text for the user."""
        return f"{self.way.value}, by {self.by.value}" + (f": {'; '.join(self.reasons)}" if self.reasons else "")

    def named_in(self, state: TableState) -> TableState:
        """The state of a table whose rows this commit has left."""
        met = (self.rows_deleted or 0) + (0 if state.strategy == Strategy.UPSERT.value else self.rows_updated or 0)
        changes = state.changes.met(met) if state.changes is not None else None
        return replace(state, data_version=self.data_version, data_commit=self.data_commit, changes=changes)
