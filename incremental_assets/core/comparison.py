"""Compares the rows of two sides, a container's source and its table in the lake, by hashes that each side computes itself.

Each row has a hash over the text of all its columns, the same text on both sides. A sum of hashes does not depend on the order of the rows,
so equal numbers of rows and equal sums mean equal rows. Where they differ, the rows are divided into buckets by a hash of their keys, and
only buckets that differ are read row by row: what travels is the rows that differ and their buckets.
"""

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol, TypeVar

from incremental_assets.core.container import Container
from incremental_assets.core.cursor_type import CursorType, format_value
from incremental_assets.core.partitions import IntegerPartitions, Partitions
from incremental_assets.core.schema import Column
from incremental_assets.core.window import EVERYTHING, Window

ROWS_A_BUCKET = 100
"""About how many rows a bucket has."""
MOST_BUCKETS = 200_000
MOST_EXAMPLES = 10
"""How many keys of each kind of difference are named."""
_CURSOR_TYPES = {"date": CursorType.DATE, "timestamp": CursorType.TIMESTAMP, "timestamp_ntz": CursorType.TIMESTAMP_NTZ}
_Result = TypeVar("_Result")
_BUCKETS_A_QUERY = 20_000
"""So many buckets are named in one query at most."""


@dataclass(frozen=True)
class Checksum:
    """The number of some rows, and the sum of their hashes."""

    rows: int = 0
    total: int = 0


@dataclass(frozen=True)
class RowScope:
    """Some rows of a container: those in the windows and, with ``include_nulls``, those without identifier.

    For a container without identifier it means all rows. ``files``: of a container of files, the rows of the files with these keys and no
    others; None for all other containers.
    """

    windows: tuple[Window, ...] = (EVERYTHING,)
    include_nulls: bool = True
    files: tuple[str, ...] | None = None

    def synced(self, container: Container) -> "RowScope":
        """Those of the rows that the container's syncs read: the others are not in the lake."""
        if container.identifier is None:
            return self
        inside = (window.intersect(container.identifier.domain) for window in self.windows)
        windows = tuple(window for window in inside if window is not None)
        return replace(self, windows=windows, include_nulls=self.include_nulls and container.has_null_identifiers)


@dataclass(frozen=True)
class Buckets:
    """A division of rows into ``number`` buckets by their keys. ``chosen``: those that are meant."""

    number: int
    chosen: tuple[int, ...] = ()


@dataclass(frozen=True)
class HashedRow:
    """A row. ``key``: the texts of its primary key's columns; empty if the container has none."""

    bucket: int
    key: tuple[str | None, ...]
    hash: int


PartitionValue = int | str | None
"""What stands for a partition: a value in it, as an integer of the cursor type, or the key of a file.

None stands for rows without identifier, and for all rows of a container without partitions.
"""


class HashedRows(Protocol):
    """One side of a comparison, at one moment. All methods raise SyncError if a query fails."""

    def by_partition(self, scope: RowScope) -> Mapping[PartitionValue, Checksum]:
        """The checksums of the partitions that have rows. Several values may lie in one partition."""
        ...

    def by_bucket(self, scope: RowScope, buckets: int) -> Mapping[int, Checksum]:
        """The checksums of the buckets that have rows."""
        ...

    def of_buckets(self, scope: RowScope, buckets: Buckets) -> Iterator[HashedRow]:
        """The rows of the chosen buckets, in the order of the buckets."""
        ...


Key = tuple[str | None, ...]
"""The texts of the columns of a row's primary key; the hash of the row if the container has no key."""


class Difference(str, Enum):
    """What can be wrong with a row of the lake.

    ``MISSING``: the source has it, and the lake does not. ``STALE``: both have its key, with other values. ``SURPLUS``: the lake has it,
    and the source does not. Without a primary key, a stale row is a missing and a surplus one.
    """

    MISSING = "missing"
    STALE = "stale"
    SURPLUS = "surplus"


@dataclass(frozen=True)
class PartitionDifference:
    """A partition whose rows differ. ``key``: its partition key; None for the rows without identifier, and without partitions.

    ``reason``: where the numbers do not show what is wrong, such as with a file that cannot be read; else None.
    """

    key: str | None
    source: Checksum
    lake: Checksum
    reason: str | None = None


@dataclass(frozen=True)
class Comparison:
    """What a comparison has found.

    ``keys``: the partitions that have rows on one of the sides, in the order of their values; None, which comes last, stands for the rows
    without identifier, and for all rows of a container without partitions. ``rows``: how many rows the source has.
    ``different``: the partitions that differ, in the order of their values, those without identifier last. ``counts``: the true number of
    rows of each kind of difference. ``examples``: some of their keys. ``version``: of the lake's table; ``seconds``: how long it took.

    ``notes``: sentences about what was not compared, and why. ``rejected``: of a container of files, the number of rows that do not fit
    their columns, which are not among ``rows``; None for all other containers. ``following``: where the next comparison has to go on
    (``AuditRequest.start``), as one snapshot of the source is not enough for all rows; None: all that were asked for were compared.
    """

    keys: tuple[str | None, ...]
    rows: int
    different: tuple[PartitionDifference, ...] = ()
    counts: Mapping[Difference, int] = field(default_factory=lambda: dict.fromkeys(Difference, 0))
    examples: Mapping[Difference, Sequence[Key]] = field(default_factory=dict[Difference, Sequence[Key]])

    version: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    rejected: int | None = None
    following: int | None = None

    @property
    def equal(self) -> bool:
        return not self.different


def compare(source: HashedRows, lake: HashedRows, partitions: Partitions | None, scope: RowScope) -> Comparison:
    """Compares the rows of both sides in the scope. ``partitions``: None where the container has none."""
    with _beside(lambda: lake.by_partition(scope)) as found_in_lake:
        ours = _by_key(partitions, source.by_partition(scope))
        theirs = _by_key(partitions, found_in_lake())
    every = {**ours, **theirs}
    values = {key: value for key, (value, _) in every.items()}
    in_order = sorted(every, key=lambda key: (key is None, _place(values[key])))
    none = (None, Checksum())
    different = tuple(
        PartitionDifference(key, ours.get(key, none)[1], theirs.get(key, none)[1]) for key in in_order if _differs(key, ours, theirs)
    )
    rows = sum(checksum.rows for _, checksum in ours.values())
    if not different:
        return Comparison(tuple(in_order), rows)
    counts, examples = _rows_that_differ(source, lake, _scope_of(partitions, different, scope), different)
    return Comparison(tuple(in_order), rows, different, counts, examples)


@contextlib.contextmanager
def _beside(work: Callable[[], _Result]) -> Generator[Callable[[], _Result]]:
    """Does the work in a thread while the block goes on, as the two sides are two servers. Yields a function that returns its result.

    Where the block fails, nobody waits for the work, so that the caller can cancel it.
    """
    pool = ThreadPoolExecutor(1)
    try:
        yield pool.submit(work).result
    finally:
        pool.shutdown(wait=False)


_ByKey = Mapping[str | None, tuple[PartitionValue, Checksum]]


def _place(value: PartitionValue) -> tuple[int, str]:
    """A number or text by which partitions are ordered."""
    return (0, value) if isinstance(value, str) else (value or 0, "")


def _by_key(partitions: Partitions | None, by_value: Mapping[PartitionValue, Checksum]) -> _ByKey:
    """The checksums by partition key, with a value in the partition."""
    found: dict[str | None, tuple[PartitionValue, Checksum]] = {}
    for value, checksum in by_value.items():
        key = value if isinstance(value, str) else None
        if partitions is not None and isinstance(value, int):
            key = partitions.key_of(value)
        _, before = found.get(key, (None, Checksum()))
        found[key] = value, Checksum(before.rows + checksum.rows, before.total + checksum.total)
    return found


def _differs(key: str | None, ours: _ByKey, theirs: _ByKey) -> bool:
    none = (None, Checksum())
    return ours.get(key, none)[1] != theirs.get(key, none)[1]


def _scope_of(partitions: Partitions | None, different: Sequence[PartitionDifference], scope: RowScope) -> RowScope:
    """The rows of the partitions that differ."""
    keys = [one.key for one in different if one.key is not None]
    if scope.files is not None:
        return RowScope((), False, tuple(keys))
    if partitions is None:
        return scope
    if isinstance(partitions, IntegerPartitions):
        partitions = partitions.with_keys(keys)  # rows may lie in partitions that Dagster does not know yet
    return RowScope(partitions.windows_of(keys), any(one.key is None for one in different))


def _rows_that_differ(
    source: HashedRows, lake: HashedRows, scope: RowScope, different: Sequence[PartitionDifference]
) -> tuple[Mapping[Difference, int], Mapping[Difference, Sequence[Key]]]:
    """Counts the rows that differ, and names some."""
    buckets = compare_buckets(source, lake, scope, sum(max(one.source.rows, one.lake.rows) for one in different))
    counts = dict.fromkeys(Difference, 0)
    examples: dict[Difference, list[Key]] = {kind: [] for kind in Difference}
    for kind, key, times in rows_that_differ(source, lake, scope, buckets):
        counts[kind] += times
        if len(examples[kind]) < MOST_EXAMPLES:
            examples[kind].append(key)
    return counts, examples


@dataclass(frozen=True)
class ComparedBuckets:
    """A comparison by buckets. ``different``: the buckets that differ. ``source_rows``, ``lake_rows``: how many rows each side has."""

    different: Buckets
    source_rows: int
    lake_rows: int


def compare_buckets(source: HashedRows, lake: HashedRows, scope: RowScope, rows: int) -> ComparedBuckets:
    """Divides the rows of both sides into buckets by their keys, and compares the checksums. ``rows``: about how many rows there are."""
    number = min(MOST_BUCKETS, rows // ROWS_A_BUCKET + 1)
    with _beside(lambda: lake.by_bucket(scope, number)) as found_in_lake:
        ours = source.by_bucket(scope, number)
        theirs = found_in_lake()
    different = tuple(bucket for bucket in range(number) if ours.get(bucket) != theirs.get(bucket))
    return ComparedBuckets(Buckets(number, different), _rows_in(ours), _rows_in(theirs))


def rows_that_differ(
    source: HashedRows, lake: HashedRows, scope: RowScope, compared: ComparedBuckets
) -> Iterator[tuple[Difference, Key, int]]:
    """The differences between the rows of both sides in these buckets, as ``differences`` returns them."""
    number, chosen = compared.different.number, compared.different.chosen
    for first in range(0, len(chosen), _BUCKETS_A_QUERY):
        buckets = Buckets(number, chosen[first : first + _BUCKETS_A_QUERY])
        for in_source, in_lake in _side_by_side(source.of_buckets(scope, buckets), lake.of_buckets(scope, buckets), buckets.chosen):
            yield from differences(in_source, in_lake)


def _rows_in(checksums: Mapping[int, Checksum]) -> int:
    return sum(checksum.rows for checksum in checksums.values())


def _side_by_side(
    ours: Iterable[HashedRow], theirs: Iterable[HashedRow], buckets: Sequence[int]
) -> Iterator[tuple[list[HashedRow], list[HashedRow]]]:
    """The rows of both sides, bucket by bucket."""
    left = itertools.groupby(ours, key=lambda row: row.bucket)
    right = itertools.groupby(theirs, key=lambda row: row.bucket)
    ahead: list[tuple[int, list[HashedRow]] | None] = [None, None]
    for bucket in buckets:
        found: list[list[HashedRow]] = []
        for side, groups in enumerate((left, right)):
            one = ahead[side]
            if one is None:
                following = next(groups, None)
                one = None if following is None else (following[0], list(following[1]))
            here = one is not None and one[0] == bucket
            found.append(one[1] if one is not None and here else [])
            ahead[side] = None if here else one
        yield found[0], found[1]


def differences(ours: Sequence[HashedRow], theirs: Sequence[HashedRow]) -> Iterator[tuple[Difference, Key, int]]:
    """The differences between rows of the source and rows of the lake: the kind, the key, and how many rows it is about.

    A row without key is named by its hash.
    """
    in_source, in_lake = _hashes_by_key(ours), _hashes_by_key(theirs)
    for key in dict.fromkeys((*in_source, *in_lake)):
        here, there = in_source.get(key, Counter[int]()), in_lake.get(key, Counter[int]())
        only_here, only_there = (here - there).total(), (there - here).total()
        stale = min(only_here, only_there)
        for kind, times in (
            (Difference.STALE, stale), (Difference.MISSING, only_here - stale), (Difference.SURPLUS, only_there - stale)
        ):  # fmt: skip
            if times:
                yield kind, key, times


def key_of(container: Container, columns: Sequence[Column]) -> Sequence[str]:
    """The columns that identify a row; empty if there is no key, or if one of its columns is not compared.

    A table that an earlier version has filled has no canonical forms of its key.
    """
    compared = {column.name.lower() for column in columns}
    return next((key for key in (container.lake_key, container.primary_key) if {name.lower() for name in key} <= compared), ())


def shown_key(key: Key, types: Sequence[str]) -> Key:
    """A key for people: dates and times instead of their numbers. ``types``: of its columns in the lake."""
    return (
        tuple(
            text if text is None or type_ not in _CURSOR_TYPES else format_value(_CURSOR_TYPES[type_], int(text))
            for text, type_ in zip(key, types, strict=False)
        )
        or key
    )


def _hashes_by_key(rows: Sequence[HashedRow]) -> dict[Key, Counter[int]]:
    found: dict[Key, Counter[int]] = {}
    for row in rows:
        found.setdefault(row.key or (f"{row.hash:015x}",), Counter[int]())[row.hash] += 1
    return found
