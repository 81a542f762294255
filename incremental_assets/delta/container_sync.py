"""Defines a sync of one container as the lake sees it: the write batches to be committed, and what is asked of the sync around them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from incremental_assets.core.container import Container
from incremental_assets.core.looks import Look
from incremental_assets.core.partitions import Partitions
from incremental_assets.core.window import Window
from incremental_assets.delta.result import MISSED_CHANGES, SyncResult, result_values
from incremental_assets.delta.table import LakeTable
from incremental_assets.delta.write_batch import WriteBatch, WriteResult

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession


class ReadAgain(Exception):
    """The rows of a write batch have to be read again in another form, or fewer of them, as the message says. Nothing was committed."""


class ContainerSync(ABC):
    """One sync, which carries out one plan. It is the output value of a container's asset, and an instance is used once.

    The calls come in this order: ``prepare``; then, for each of ``write_batches``, its commit, ``sweep``, ``inspect`` and ``committed``;
    then the questions about what was written; ``finish`` after the last event was logged. The context of a write batch may raise
    ``ReadAgain``: nothing was committed then, and the next write batch is in its place. ``result`` is complete when all write batches
    have been committed. ``partitions``: how rows are assigned to partitions; None where they are not.
    """

    def __init__(self, table: LakeTable, partitions: Partitions | None, result: SyncResult) -> None:
        self.table, self.partitions, self.result = table, partitions, result

    @property
    def container(self) -> Container:
        return self.result.plan.container

    @property
    def look(self) -> Look | None:
        """See ``Plan.look``. It is known when the last write batch has been committed."""
        look = self.result.plan.look
        return None if look is None else look._replace(missed=self.result.more.get(MISSED_CHANGES, 0))

    def prepare(self) -> bool:
        """Does what comes before the first commit. Returns whether there is anything to commit; if not, ``result`` has the reason."""
        return True

    def needs_spark(self) -> bool:
        """Whether Spark will be asked for something. If that is not certain, the answer is the likelier one."""
        return True

    def is_inspected(self) -> bool:
        """Whether Spark will be asked by ``inspect``, after the commit, even where the commit does not need it."""
        return False

    @abstractmethod
    def write_batches(self) -> Iterator[AbstractContextManager[WriteBatch]]:
        """The write batches. Each is a context manager that holds a snapshot of the source while its batch is committed."""

    @abstractmethod
    def committed(self, write_batch: WriteBatch, outcome: WriteResult) -> None:
        """Records the outcome of one commit. It is called before the next write batch is opened."""

    def sweep(
        self, spark: Callable[[], "SparkSession"], write_batch: WriteBatch, outcome: WriteResult, expect_lease: Callable[[], None]
    ) -> None:
        """Removes the rows that the source no longer has, while the snapshot of the write batch is still held, if the plan says so.

        ``spark`` returns a session. It is called after the commit of the batch, with its outcome. ``expect_lease`` is called right before
        the commit, and raises ConcurrentWriteError if another host may have taken the container over.
        """
        return None

    def inspect(self, spark: Callable[[], "SparkSession"], outcome: WriteResult) -> None:
        """Looks at what was committed while the snapshot of the write batch is still held. ``spark`` returns a session."""
        return None

    def rows_of(self, keys: Sequence[str]) -> Mapping[str, int] | None:
        """The number of rows of each given partition and of each partition that was written. None: they are to be counted in the lake."""
        return None

    def written_windows(self, write_batch: WriteBatch) -> Sequence[Window]:
        """The windows of partitions in which the batch may have written rows, where ``changed_partitions`` does not tell it."""
        return write_batch.windows

    def changed_partitions(self) -> Collection[str]:
        """The keys of partitions in which rows have changed, as far as the windows of the write batches do not tell it."""
        return ()

    def total_rows(self) -> int | None:
        """The number of rows of the whole table. None: they are to be counted in the lake."""
        return None

    def metadata(self) -> dict[str, Any]:
        """The metadata that all materialization events of this sync have in common, as plain values by metadata key."""
        return result_values(self.result, self.table.url)

    def partition_metadata(self, key: str) -> Mapping[str, Any]:
        """Further metadata of the event of one partition."""
        return {}

    def finish(self) -> None:
        """Does what has to happen after the last event of the run's step was logged."""
        return None
