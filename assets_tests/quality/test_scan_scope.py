"""Which rows a scan looks at: from thresholds and keys to windows, by plain values.

Belongs here: grounds and thresholds without Spark. Does not belong: what Delta reads for them (``test_scans``).
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from incremental_assets.core.container import Container, ContainerOptions, Identifier, Kind, Partitioning
from incremental_assets.core.cursor_type import CursorType, IdentifierType, parse_value
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.partitions import Granularity, IntegerPartitions, TimePartitions
from incremental_assets.core.rules.numbers import Metric
from incremental_assets.core.window import EVERYTHING, Window
from incremental_assets.quality.scan_scope import scope_of_files, scope_of_partitions, whole_table
from incremental_assets.runs.quality.request import threshold


def day(text: str) -> int:
    return parse_value(CursorType.DATE, text)


def container(cursor_type: CursorType = CursorType.DATE, partitioning: Partitioning | None = None) -> Container:
    kind = {CursorType.DATE: IdentifierType.DATE, CursorType.INTEGER: IdentifierType.INTEGER}.get(cursor_type, IdentifierType.TIMESTAMP)
    identifier = Identifier(("at",), kind, cursor_type)
    return Container(
        "shop", "public", "orders", Kind.TABLE, (), identifier, partitioning or Partitioning(Granularity.MONTH, day("2026-01-01")),
        Strategy.APPEND, ("id",), True, 0, ContainerOptions(),
    )  # fmt: skip


MONTHS = TimePartitions(CursorType.DATE, Granularity.MONTH, day("2026-01-01"), day("2026-06-01"))


@pytest.mark.parametrize(
    ("width", "since", "lower"),
    [(1, 201, 201), (1, 250, 250), (1, 301, 301), (1, 100, None), (1, 7, None), (50, 260, 250), (50, 120, None), (50, 999, 950)],
)
def test_a_threshold_need_not_be_a_partition(width: int, since: int, lower: int | None) -> None:
    """Otherwise `--greater-than-batch 200` fails where batches are 100, 200 and 300, or the newest one has been scanned."""
    known = IntegerPartitions(width, (100, 200, 300))
    scan_scope = scope_of_partitions(container(CursorType.INTEGER, Partitioning(width=width)), known, since=since)
    assert scan_scope.windows == (Window(lower, None),)
    assert (
        scope_of_partitions(container(CursorType.INTEGER, Partitioning(width=width)), IntegerPartitions(width), since=since).windows
        == (EVERYTHING,)
        or lower
    )


@pytest.mark.parametrize(
    ("since", "lower"), [("2026-03-15", "2026-03-01"), ("2026-01-15", None), ("2019-01-01", None), ("2030-01-01", "2026-06-01")]
)
def test_a_threshold_is_rounded_down_to_its_partition(since: str, lower: str | None) -> None:
    """Otherwise sums and shares of the partition it lies in are of a part of it."""
    scan_scope = scope_of_partitions(container(), MONTHS, since=day(since))
    assert scan_scope.windows == (Window(None if lower is None else day(lower), None),)


def test_records_of_partitions_that_no_longer_exist_stop_no_scan() -> None:
    """Otherwise, after ``partition_by`` went from day to month, one open anomaly of a day ends every full scan."""
    scan_scope = scope_of_partitions(container(), MONTHS, noted=["2026-01-15", "2026-02-01"])
    assert scan_scope.with_open_anomalies == ("2026-01-15", "2026-02-01")
    assert scan_scope.before("2026-01-15", 3) == () and not scan_scope.is_over("2026-01-15")
    assert list(scan_scope.before("2026-04-01", 2)) == ["2026-02-01", "2026-03-01"] and list(scan_scope.before("2026-01-01", 2)) == []
    numbers = scope_of_partitions(container(CursorType.INTEGER, Partitioning(width=10)), IntegerPartitions(10, (0, 20, 50, 60)))
    assert list(numbers.before("60", 2)) == ["20", "50"] and numbers.before("70", 2) == ()


@pytest.mark.parametrize(("keys", "nulls", "also"), [(None, True, (None,)), (None, False, ()), (["2026-02-01"], True, (None,))])
def test_rows_without_identifier_are_scanned_although_none_is_left(
    keys: Sequence[str] | None, nulls: bool, also: tuple[str | None, ...]
) -> None:
    """Otherwise a row that had no date is on the list of anomalies for good, though it was given one."""
    assert scope_of_partitions(container(), MONTHS, keys, nulls=nulls, noted=[None]).with_open_anomalies == also
    assert scope_of_partitions(container(), MONTHS, keys, nulls=nulls).with_open_anomalies == ()


def test_only_rows_of_one_partition_are_aggregated_without_groups() -> None:
    """Rows without identifier, or of a file that is gone, would be counted in the partition that was asked for."""
    files = container(CursorType.TIMESTAMP, Partitioning(by_file=True))
    one = scope_of_partitions(container(), MONTHS, ["2026-02-01"], nulls=False)
    assert one.is_one_partition and whole_table(container()).is_one_partition
    assert scope_of_files(files, ["a.csv"], ["a.csv"], None, ()).is_one_partition
    others = [
        scope_of_partitions(container(), MONTHS, ["2026-02-01"], nulls=True),
        scope_of_partitions(container(), MONTHS, ["2026-02-01", "2026-03-01"], nulls=False),
        scope_of_partitions(container(), MONTHS, since=day("2026-06-01"), nulls=False),
        scope_of_files(files, ["a.csv"], ["a.csv"], None, (), ["gone.csv"]),
        scope_of_files(files, ["a.csv"], None, "modified > 1", ()),
    ]
    assert not any(scope.is_one_partition for scope in others)


def test_every_scan_includes_files_that_are_gone() -> None:
    """Otherwise the anomaly of a file that was taken away stays on the list until somebody scans everything."""
    files = container(CursorType.TIMESTAMP, Partitioning(by_file=True))
    for keys, modified in ((["b.csv"], None), (None, "modified > 1")):
        scan_scope = scope_of_files(files, ["a.csv", "b.csv"], keys, modified, (), ["a.csv", "gone.csv"])
        assert scan_scope.with_open_anomalies == ("gone.csv",) and scan_scope.predicate is not None and "gone.csv" in scan_scope.predicate
    assert scope_of_files(files, ["a.csv"], None, None, (), ["gone.csv"]).predicate is None


@pytest.mark.parametrize(
    ("cursor_type", "text", "is_above"),
    [
        (CursorType.DATE, "2026-05-07", "2026-05-07"),
        (CursorType.DATE, "2026-05-07T02:00:00Z", "2026-05-06"),  # in New York it is still the day before
        (CursorType.TIMESTAMP_NTZ, "2026-05-07T02:00:00Z", "2026-05-06T22:00:00"),
        (CursorType.TIMESTAMP_NTZ, "2026-05-07T02:00:00", "2026-05-07T02:00:00"),
        (CursorType.TIMESTAMP, "2026-05-07T02:00:00Z", "2026-05-07T02:00:00Z"),
        (CursorType.INTEGER, "9000000", "9000000"),
    ],
)
def test_a_threshold_applies_to_times_with_and_without_a_zone(cursor_type: CursorType, text: str, is_above: str) -> None:
    """Otherwise a script that gives one threshold to many containers has to know which of them have a zone."""
    assert threshold(container(cursor_type), text, "America/New_York") == parse_value(cursor_type, is_above) + 1


def test_an_invalid_threshold_is_refused_with_the_container() -> None:
    """Of twenty containers one wants to know which."""
    with pytest.raises(ConfigurationError, match=r"\Ashop/orders: the threshold of its identifier at: .*yesterday"):
        threshold(container(), "yesterday", "UTC")


def test_numbers_of_other_partitions_are_not_compared() -> None:
    """Otherwise, after days were made months, each month has thirty times the rows of the "months" before it."""
    rule = Metric(name="rows", expression="count(*)", min=1)
    by_month, by_day = (
        whole_table(container(partitioning=Partitioning(one, day("2026-01-01")))) for one in (Granularity.MONTH, Granularity.DAY)
    )
    assert by_month.question_digest(rule) != by_day.question_digest(rule) == by_day.question_digest(replace(rule, min=5))
