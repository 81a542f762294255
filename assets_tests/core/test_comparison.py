"""The search for the rows that differ finds each of them, and no other, whatever the rows are.

Belongs here: the search over rows in memory. Does not belong: how databases hash their rows (``databases/test_hashed_rows``).
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incremental_assets.core import comparison
from incremental_assets.core.comparison import Buckets, Checksum, Difference, HashedRow, Key, PartitionValue, RowScope, compare, shown_key
from incremental_assets.core.partitions import IntegerPartitions
from incremental_assets.core.window import EVERYTHING


@dataclass(frozen=True)
class Row:
    """A row in memory. ``at``: its identifier."""

    key: int
    at: int | None
    value: int


class InMemory:
    """One side, which computes as a database would. ``reads``: how many rows were read one by one."""

    def __init__(self, rows: Sequence[Row], keyed: bool) -> None:
        self.rows, self.keyed, self.reads = rows, keyed, 0

    def by_partition(self, scope: RowScope) -> Mapping[PartitionValue, Checksum]:
        return {value: checksum for value, checksum in self._grouped(scope, lambda row: row.at).items()}

    def by_bucket(self, scope: RowScope, buckets: int) -> Mapping[int, Checksum]:
        return {b: c for b, c in self._grouped(scope, lambda row: self._bucket(row, buckets)).items() if b is not None}

    def of_buckets(self, scope: RowScope, buckets: Buckets) -> Iterator[HashedRow]:
        chosen = [row for row in self._in(scope) if self._bucket(row, buckets.number) in buckets.chosen]
        for row in sorted(chosen, key=lambda row: self._bucket(row, buckets.number)):
            self.reads += 1
            yield HashedRow(self._bucket(row, buckets.number), (str(row.key),) if self.keyed else (), _hash(row))

    def _in(self, scope: RowScope) -> list[Row]:
        return [
            row
            for row in self.rows
            if (row.at is None and scope.include_nulls) or (row.at is not None and any(w.contains(row.at) for w in scope.windows))
        ]

    def _bucket(self, row: Row, buckets: int) -> int:
        return (row.key * 2654435761 if self.keyed else _hash(row)) % buckets

    def _grouped(self, scope: RowScope, group) -> dict[int | None, Checksum]:
        found: dict[int | None, Checksum] = {}
        for row in self._in(scope):
            before = found.get(group(row), Checksum())
            found[group(row)] = Checksum(before.rows + 1, before.total + _hash(row))
        return found


def _hash(row: Row) -> int:
    """As databases do it. Python's own hash is the same for -1 and -2."""
    return int(hashlib.md5(repr(row).encode(), usedforsecurity=False).hexdigest()[:15], 16)


ROWS = st.lists(st.builds(Row, st.integers(0, 12), st.none() | st.integers(-5, 25), st.integers(0, 1)), max_size=30)


@given(ROWS, ROWS, st.booleans(), st.booleans())
def test_every_difference_is_found_and_none_is_invented(ours: list[Row], theirs: list[Row], keyed: bool, partitioned: bool) -> None:
    """An audit that overlooks a row proves nothing, and one that invents a difference has tables loaded for nothing."""
    if keyed:  # a key occurs once on each side
        ours, theirs = (list({row.key: row for row in rows}.values()) for rows in (ours, theirs))
    partitions = IntegerPartitions(5, (0, 5, 10)) if partitioned else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "ROWS_A_BUCKET", 2)
        patch.setattr(comparison, "_BUCKETS_A_QUERY", 3)
        found = compare(InMemory(ours, keyed), InMemory(theirs, keyed), partitions, RowScope((EVERYTHING,), True))
    only_ours, only_theirs = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
    stale = {row.key for row in only_ours} & {row.key for row in only_theirs} if keyed else set[int]()
    expected = {
        Difference.STALE: len(stale),
        Difference.MISSING: only_ours.total() - len(stale),
        Difference.SURPLUS: only_theirs.total() - len(stale),
    }
    assert found.counts == expected
    assert found.equal == (not only_ours and not only_theirs)
    assert found.rows == len(ours)
    if keyed:
        named: dict[Difference, set[Key]] = {kind: set(found.examples.get(kind, ())) for kind in Difference}
        missing = {(str(row.key),) for row in only_ours if row.key not in stale}
        assert named[Difference.MISSING] <= missing and len(named[Difference.MISSING]) == min(10, len(missing))


def test_only_buckets_that_differ_are_read() -> None:
    """To find one row, a whole partition would be moved."""
    ours = InMemory([Row(key, 0, 0) for key in range(50_000)], True)
    theirs = InMemory([Row(key, 0, 1 if key == 777 else 0) for key in range(50_000)], True)
    found = compare(ours, theirs, IntegerPartitions(10, (0,)), RowScope())
    assert found.counts[Difference.STALE] == 1 and found.examples[Difference.STALE] == [("777",)]
    assert ours.reads < 2 * comparison.ROWS_A_BUCKET and theirs.reads < 2 * comparison.ROWS_A_BUCKET


def test_keys_are_shown_as_dates_and_times() -> None:
    """Nobody can look up a row by the microseconds since 1970."""
    assert shown_key(("20000", "0", None, "x"), ("date", "timestamp", "int", "string")) == ("2024-10-04", "1970-01-01T00:00:00Z", None, "x")
    assert shown_key(("0a1b2c3d4e5f678",), ()) == ("0a1b2c3d4e5f678",)
