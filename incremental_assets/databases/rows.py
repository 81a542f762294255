"""Reads the rows of one write batch of a table or view."""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from incremental_assets.core.container import Engine
from incremental_assets.core.partitions import Partitions
from incremental_assets.core.shown_text import counted
from incremental_assets.core.window import Window
from incremental_assets.databases.definition import DatastoreSettings
from incremental_assets.databases.pieces import is_read_by_key
from incremental_assets.databases.plan import TablePlan
from incremental_assets.databases.source import SourceDatabase, SourceSnapshot, WindowRead
from incremental_assets.delta.engine import are_read_into_files, have_tasks, why_spark_reads
from incremental_assets.delta.write_batch import BatchRows, NotHere, RowsInFiles
from incremental_assets.spark.persisted import PersistedRows

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

MOST_LOCAL_ROWS, MOST_LOCAL_BYTES = 300_000, 64 << 20
"""Up to this estimated number of rows, which take no more memory than this, this process holds them. More are read into files."""
MOST_COMPARED_ROWS, MOST_COMPARED_BYTES = 3_000_000, 192 << 20
"""The same of rows that are compared with those that the table has in their place, so that only those that differ are written."""
_BY_KEY = "they are read by ranges of the primary key"


def may_be_local(plan: TablePlan, rows: int) -> bool:
    """Whether so many rows of a plan are read by this process, if nothing else is against it."""
    engine, most = plan.container.engine, MOST_COMPARED_ROWS if _are_compared(plan) else MOST_LOCAL_ROWS
    return rows <= most and why_spark_reads(engine) is None and not are_read_into_files(engine)


def _are_compared(plan: TablePlan) -> bool:
    """Whether the rows come to a table that has rows, as far as the plan knows, and do not replace all of it."""
    return plan.state is not None and plan.state.watermark is not None and not plan.whole


def may_be_in_files_here(engine: Engine) -> bool:
    """Whether this process reads many rows into files, if nothing else is against it."""
    return why_spark_reads(engine) is None and not have_tasks(engine)


class TableRows(BatchRows):
    """The ``BatchRows`` of one piece of a plan, in the snapshot that is held.

    ``windows`` and ``include_nulls``: what is read. ``highest``: the highest identifier, up to which the read is divided. ``messages``:
    what the result of the sync has to say of the read.
    """

    def __init__(
        self,
        plan: TablePlan,
        source: SourceDatabase,
        snapshot: SourceSnapshot,
        partitions: Partitions | None,
        settings: DatastoreSettings,
        windows: Sequence[Window],
        include_nulls: bool,
        highest: int | None,
        log: Callable[[str], None],
    ) -> None:
        self._plan, self._source, self._snapshot, self._partitions = plan, source, snapshot, partitions
        self._read = WindowRead(windows, include_nulls, highest, source.free_connections(settings.max_source_connections))
        self._settings, self._log = settings, log
        self._kept: list[PersistedRows] = []
        self.messages: list[str] = []

    def frame(self, spark: "SparkSession") -> "DataFrame":
        return self._by_key_ranges(spark) if self._is_read_by_key else self._snapshot.windows(spark, self._read)

    def local(self) -> pa.Table:
        if isinstance(self._local, str):
            raise NotHere(self._local)
        return self._local

    def in_files(self) -> RowsInFiles:
        if self._is_read_by_key:
            raise NotHere(_BY_KEY)
        return self._in_files or super().in_files()

    def still_there(self) -> None:
        self._source.still_there()

    def emptied(self) -> Sequence[Window]:
        """See ``BatchRows``. If several partitions are refreshed, each is checked by itself; otherwise it is all windows or none."""
        plan, partitions, windows = self._plan, self._partitions, self._read.windows
        keys, identifier = plan.request.keys, plan.reading.identifier
        is_apart = plan.container.partitioned_on is not None and not plan.by_partition
        if keys is None or len(keys) == 1 or partitions is None or identifier is None or plan.whole or is_apart:
            return windows if self._source.is_empty(windows, self._read.include_nulls) else ()
        each = [partitions.window_of(key).intersect(identifier.domain) for key in keys]
        # A piece may contain only one half of a partition, and that half may well have no rows. So the whole partition is checked.
        here = [window for window in each if window is not None and any(window.intersect(piece) for piece in windows)]
        return self._source.without_rows(here)

    def release(self) -> None:
        """Frees the rows that Spark keeps for this batch. It is called after the commit."""
        while self._kept:
            self._kept.pop().release()

    @functools.cached_property
    def _local(self) -> pa.Table | str:
        """The rows, or why this process does not read them."""
        plan = self._plan
        if not may_be_local(plan, self._source.estimate(self._read.windows, self._read.include_nulls)):
            return why_spark_reads(plan.container.engine) or "there are many rows"
        if self._is_read_by_key:
            return _BY_KEY
        found = self._snapshot.local(self._read, MOST_COMPARED_BYTES if _are_compared(plan) else MOST_LOCAL_BYTES)
        return "they take much memory, or have values that only Spark reads" if found is None else found

    @functools.cached_property
    def _in_files(self) -> RowsInFiles | None:
        return self._snapshot.in_files(self._read)

    @functools.cached_property
    def _is_read_by_key(self) -> bool:
        return is_read_by_key(self._plan, self._source, self._settings.rows_a_window)

    def _by_key_ranges(self, spark: "SparkSession") -> "DataFrame":
        """Reads a container without identifier by ranges of its primary key, each in a newer snapshot, so that none is held for long.

        The fingerprint in the new state was taken in the first snapshot, so the next sync finds what has changed since.
        """
        container, most = self._plan.container, self._settings.rows_a_window
        ranges = self._snapshot.key_ranges(most, self._read.most_readers)
        if len(ranges) < 2:
            self.messages.append(f"more than {counted(most, 'row')} were read in one snapshot, as {self._snapshot.why_no_ranges}")
            return self._snapshot.windows(spark, self._read)
        message = (
            f"more than {counted(most, 'row')}: read in {counted(len(ranges), 'range')} of {container.primary_key[0]}, "
            f"each in a snapshot of its own, and committed at once; the next sync finds what changed meanwhile"
        )
        self._log(f"{container.label}: {message}")
        self.messages.append(message)
        self._kept += self._snapshot.by_key_ranges(spark, ranges)
        return functools.reduce(lambda one, other: one.unionAll(other), [part.frame for part in self._kept])
