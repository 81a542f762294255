"""What a scan of one new partition costs: `python -m benchmarks.quality [ROWS_A_PARTITION]`, against Spark and Delta on this machine.

Belongs here: the number of rules (1, 10, 30), and the size of the table that the partition is in (5 and 50 partitions). Does not belong:
what rules find. Targets: 30 rules in at most 1.5 times the time of one; a table of 50 partitions in at most 1.2 times that of 5.
"""

import datetime
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from incremental_assets.lake.table import LakeTable
from incremental_assets.model.axis import Axis, IdentifierType, parse_value
from incremental_assets.model.container import Container, ContainerOptions, Cut, Identifier, Kind
from incremental_assets.model.grammar import Strategy
from incremental_assets.model.partitions import Granularity, TimePartitions
from incremental_assets.model.rules import Between, Compare, Expression, Length, MatchesPattern, NotNull, Operator, Rule, Sign, Sum
from incremental_assets.quality.ground import ground_of
from incremental_assets.quality.scan import Scanner
from incremental_assets.quality.verdict import ScanResult, Status
from incremental_assets.spark import open_session, stop_server

FIRST = parse_value(Axis.DAY, "2026-01-01")
ROUNDS = 7


def rules(count: int) -> list[Rule]:
    """Some of each kind, on different columns, so that more rules read more columns."""
    made: list[Rule] = [NotNull(columns=("id", "customer"))]
    made += [
        Between(column="price", min=0, max=1000),
        Compare(column="ship", operator=Operator.AT_LEAST, field="day"),
        Sign(rule="positive", column="quantity"),
    ]
    made += [
        MatchesPattern(column="email", pattern="^[^@]+@shop[.]example$"),
        Length(column="note", min=1, max=60),
        Sum(column="quantity", min=1),
    ]
    for number in range(40):
        made.append(
            Expression(name=f"e{number}", expression=f"price * (1 - discount) + {number} >= tax", filter=f"customer % 50 <> {number}")
        )
    return made[:count]


def fill(spark: Any, url: str, partitions: int, rows: int) -> None:
    """A partition a commit, as syncs write them."""
    for number in range(partitions):
        frame = spark.range(number * rows, (number + 1) * rows).selectExpr(
            "id", f"date_add(DATE'2026-01-01', {number}) AS day", f"date_add(DATE'2026-01-01', {number} + cast(id % 7 AS int)) AS ship",
            "cast(id * 7919 % 1000003 AS int) AS customer", "cast(id % 99900 / 100.0 AS decimal(12,2)) AS price",
            "cast(1 + id % 50 AS int) AS quantity", "cast(id % 11 / 100.0 AS decimal(4,2)) AS discount",
            "cast(id % 9 / 100.0 AS decimal(4,2)) AS tax", "concat('customer', id % 1000003, '@shop.example') AS email",
            "concat('note of ', id) AS note",
        )  # fmt: skip
        frame.write.format("delta").mode("append").save(url)


def scan(
    spark: Any, table: LakeTable, container: Container, partitions: TimePartitions, chosen: Sequence[Rule]
) -> tuple[float, ScanResult]:
    head = table.head()
    assert head is not None
    now = datetime.datetime.now(datetime.timezone.utc)
    scanner = Scanner(lambda: spark, "UTC", now, lambda name: None, lambda ids, keys: {}, dict)
    key = partitions.key_of(partitions.last)
    started = time.perf_counter()
    result = scanner.scan(container.label, table, head, ground_of(container, partitions, [key], nulls=False), chosen, ("id",))
    return time.perf_counter() - started, result


def main(rows: int) -> None:
    with tempfile.TemporaryDirectory() as work:
        try:
            with open_session(Path(work) / "home", name="benchmark") as spark:
                _measure(spark, str(Path(work) / "lake"), rows)
        finally:
            stop_server(Path(work) / "home")


def _measure(spark: Any, lake: str, rows: int) -> None:
    tables: dict[int, tuple[LakeTable, Container, TimePartitions]] = {}
    for count in (5, 50):
        identifier = Identifier(("day",), IdentifierType.DATE, Axis.DAY)
        container = Container(
            "bench",
            "public",
            f"t{count}",
            Kind.TABLE,
            (),
            identifier,
            Cut(Granularity.DAY, FIRST),
            Strategy.APPEND,
            ("id",),
            True,
            0,
            ContainerOptions(),
        )
        table = LakeTable(lake, *container.key_path)
        started = time.perf_counter()
        fill(spark, table.url, count, rows)
        print(f"table of {count} partitions of {rows:,} rows: written in {time.perf_counter() - started:.0f} s")
        tables[count] = table, container, TimePartitions(Axis.DAY, Granularity.DAY, FIRST, FIRST + count - 1)
    cases = [(partitions, number) for partitions in (5, 50) for number in (1, 10, 30)]
    seconds: dict[tuple[int, int], list[float]] = {case: [] for case in cases}
    for turn in range(ROUNDS + 1):
        for case in cases:  # in turns: what else the machine does falls on all
            spent, result = scan(spark, *tables[case[0]], rules(case[1]))
            assert all(verdict.status is Status.PASSED and verdict.rows == rows for verdict in result.verdicts), result.verdicts
            assert result.passes == 1, result.passes
            if turn:  # the first one warms up
                seconds[case].append(spent)
    middle = {case: statistics.median(found) for case, found in seconds.items()}
    for case in cases:
        spread = f"{min(seconds[case]):.2f} to {max(seconds[case]):.2f}"
        print(f"table of {case[0]:2} partitions, {case[1]:2} rules: {middle[case]:.2f} s (median of {ROUNDS}, {spread})")
    for partitions in (5, 50):
        print(f"30 rules / 1 rule, {partitions} partitions: {middle[partitions, 30] / middle[partitions, 1]:.2f} (target 1.5)")
    for number in (1, 10, 30):
        print(f"50 partitions / 5, {number} rules: {middle[50, number] / middle[5, number]:.2f} (target 1.2)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
