"""What a read hands to a write: rows of one frozen state of a source, and what the table is to remember of them.

Belongs here: the types between the rooms. A source's plan makes an ``Extraction``; the lake commits it and answers with an ``Outcome``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from incremental_assets.core.container import Container
from incremental_assets.core.partitions import Partitions
from incremental_assets.core.schema import Column, Evolution
from incremental_assets.core.watermark import TableState
from incremental_assets.core.window import Window

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame


@dataclass(frozen=True)
class Extraction:
    """Rows to be written by one commit.

    ``windows`` (and, with ``include_nulls``, the rows without identifier) are replaced by what ``frame`` reads. ``whole``: nothing of
    the old table stays, not even its schema. ``base_version``: the Delta version the plan saw (None: no table). ``state``: what the
    table will remember, its ``data_version`` still open. ``expected``: about how many rows. ``files``: keys of files whose rows are
    replaced; there are no windows then.
    """

    container: Container
    windows: tuple[Window, ...]
    include_nulls: bool
    whole: bool
    columns: tuple[Column, ...]
    base_version: int | None
    state: TableState
    expected: int
    allow_empty: bool
    story: dict[str, Any]
    frame: "Callable[[SparkSession], DataFrame]" = field(repr=False)
    still_there: Callable[[], None] = field(repr=False)
    emptied: Callable[[], Sequence[Window]] = field(repr=False, default=tuple)  # what was asked and has no row in the source
    by_key: "ByKey | None" = field(repr=False, default=None)
    files: tuple[str, ...] | None = None
    only_adds: bool = False  # the source knows that nothing is there yet of what is written


@dataclass(frozen=True)
class ByKey:
    """What an upsert asks of the source besides: the rows of given keys, and the positions of those keys that are there."""

    frame: "Callable[[SparkSession, Sequence[Sequence[str]]], DataFrame]" = field(repr=False)
    existing: Callable[[Sequence[Sequence[str]]], Iterable[int]] = field(repr=False)


@dataclass(frozen=True)
class Outcome:
    """What one commit changed. Row counts are rows of the lake that really changed; None where that is not known."""

    rows_read: int
    rows_inserted: int | None
    rows_updated: int | None
    rows_deleted: int | None
    data_version: int
    version: int
    evolution: Evolution = field(default_factory=Evolution)


@dataclass
class Extractions:
    """The output of a container's asset: the commits of one sync, each made while its snapshot is held.

    Iterated by the IO manager; ``done`` is told the outcome of each before the next one is opened. ``metadata`` gives what each event
    carries, once all is written; ``before_outside`` is told the keys that the run was not about.
    ``rows_of``: rows of each of the keys and of each that was written, where the source knows them; else they are counted in the lake.
    ``of_partition``: what the event of one partition carries besides. ``total``: rows of the whole table, where the source knows them.
    """

    container: Container
    partitions: Partitions | None
    steps: Iterator[AbstractContextManager[Extraction]]
    done: Callable[[Extraction, Outcome], None]
    metadata: Callable[[], dict[str, Any]]
    before_outside: Callable[[Sequence[str]], None]
    rows_of: Callable[[Sequence[str]], Mapping[str, int]] | None = None
    of_partition: Callable[[str], Mapping[str, Any]] = lambda _: {}
    total: Callable[[], int] | None = None
