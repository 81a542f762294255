"""What a scan of one new partition costs: `python -m benchmarks.quality [ROWS_A_PARTITION] [--rounds 7] [--commands 3]`, on this machine.

Belongs here: the influence of the number of rules (1, 10, 30), and of the size of the table (5 and 50 partitions). Does not belong: what
the rules find.

Each case is measured in two ways: the scan itself, on a Spark session that is open; and `incremental-assets scan … --partition`, the whole
process. Targets: of the command, 30 rules take at most 1.5 times as long as one; of what Spark is asked, at most 3 times as long, and over
a million rows at most 0.6 seconds; a table of 50 partitions takes at most 1.2 times as long as one of 5.
"""

import argparse
import datetime
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import yaml
from pydantic import TypeAdapter

from benchmarks.figures import Figure, report
from benchmarks.measure import Project
from incremental_assets.core.container import Container, ContainerOptions, Identifier, Kind, Partitioning
from incremental_assets.core.cursor_type import CursorType, IdentifierType, parse_value
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.partitions import Granularity, TimePartitions
from incremental_assets.core.rules.checks import AnyRule
from incremental_assets.core.rules.rule import Rule, Status
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import LakeTable
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.quality.records import Records
from incremental_assets.quality.scan import ScanResult, scan
from incremental_assets.quality.scan_scope import scope_of_partitions
from incremental_assets.spark.session import open_session

FIRST = parse_value(CursorType.DATE, "2026-01-01")
"""The first day of the tables, in days since 1970-01-01."""
SIZES, COUNTS = (5, 50), (1, 10, 30)
"""Partitions of each table, and how many rules are evaluated."""
ASKED, COMMAND = "asked of Spark", "the command"
"""The two ways in which each case is measured."""
RULES_TARGETS, SIZE_TARGET = {ASKED: 3.0, COMMAND: 1.5}, 1.2
"""How many times as long as one rule 30 rules may take, and as long as a table of 5 partitions one of 50."""
SECONDS_TARGETS = {(ASKED, 1_000_000): 0.6}
"""The seconds that 30 rules over a partition of so many rows may take."""
COLUMNS = """id bigint primary key, day date, ship date, customer int, price numeric(12,2), quantity int, discount numeric(4,2),
  tax numeric(4,2), email text, note text, status text, flag text"""
"""The columns of the source's tables. The tables in the lake have the same ones."""
RULES = """
- {rule: not_null, columns: [id]}
- {rule: not_null, columns: [customer, price]}
- {rule: between, column: price, min: 0, max: 1000}
- {rule: compare, column: ship, operator: ">=", field: day}
- {rule: positive, column: quantity}
- {rule: expected_values, column: status, values: [open, paid, sent]}
- {rule: length, column: note, min: 1, max: 60}
- {rule: sum, column: quantity, min: 1}
- {rule: expression, name: taxed, expression: "price * (1 - discount) + 1 >= tax", filter: "status = 'paid'"}
- {rule: matches_pattern, column: email, pattern: "^[^@]+@shop[.]example$"}
- {rule: not_null, columns: [email]}
- {rule: not_null, columns: [note]}
- {rule: not_null, columns: [status, flag]}
- {rule: not_null, columns: [quantity, discount, tax]}
- {rule: between, column: discount, min: 0, max: 0.1}
- {rule: between, column: tax, min: 0, max: 0.08}
- {rule: between, column: quantity, min: 1, max: 50}
- {rule: between, column: ship, min: "2026-01-01", max: "2027-01-01"}
- {rule: not_negative, column: price}
- {rule: not_negative, column: discount}
- {rule: not_negative, column: tax}
- {rule: positive, column: id}
- {rule: expected_values, column: flag, values: [A, N, R]}
- {rule: length, column: email, max: 80}
- {rule: length, column: status, min: 4, max: 4}
- {rule: contains_email, column: email}
- {rule: compare, column: discount, operator: "<=", value: 0.1, filter: "flag = 'R'"}
- {rule: expression, name: paid_has_price, expression: "price >= 0", filter: "status = 'paid' AND quantity > 10"}
- {rule: metric, name: mean_price, expression: "avg(price)", min: 1, max: 1000}
- {rule: metric, name: share_open, expression: "count_if(status = 'open') / count(*)", min: 0.1, max: 0.9}
"""
"""Thirty rules, all of which hold for the rows that `fill` writes."""


def fill(spark: Any, url: str, partitions: int, rows: int) -> None:
    """Writes the table, a commit for each partition, as syncs would."""
    for number in range(partitions):
        frame = spark.range(number * rows + 1, (number + 1) * rows + 1).selectExpr(
            "id", f"date_add(DATE'2026-01-01', {number}) AS day", f"date_add(DATE'2026-01-01', {number} + cast(id % 7 AS int)) AS ship",
            "cast(id * 7919 % 1000003 AS int) AS customer", "cast(id % 99900 / 100.0 AS decimal(12,2)) AS price",
            "cast(1 + id % 50 AS int) AS quantity", "cast(id % 11 / 100.0 AS decimal(4,2)) AS discount",
            "cast(id % 9 / 100.0 AS decimal(4,2)) AS tax", "concat('customer', id % 1000003, '@shop.example') AS email",
            "concat('note of ', id) AS note", "element_at(array('open', 'paid', 'sent'), cast(1 + id % 3 AS int)) AS status",
            "element_at(array('A', 'N', 'R'), cast(1 + id % 1009 % 3 AS int)) AS flag",
        )  # fmt: skip
        frame.write.format("delta").mode("append").save(url)


class Bench:
    """A project in an empty folder, with a container for each size of table."""

    def __init__(self, work: Path, url: str, rows: int) -> None:
        self.rows, self.project = rows, Project(work / "project", url)
        self.entries: list[dict[str, Any]] = yaml.safe_load(RULES)
        self.rules: list[Rule] = list(TypeAdapter(list[AnyRule]).validate_python(self.entries))
        self.tables = {count: self._container(count) for count in SIZES}

    def _container(self, partitions: int) -> tuple[Container, LakeTable, TimePartitions]:
        """The container, its table and its partitions, as the project defines them."""
        identifier = Identifier(("day",), IdentifierType.DATE, CursorType.DATE)
        partitioning = Partitioning(Granularity.DAY, FIRST)
        options = ContainerOptions()
        name = f"t{partitions}"
        container = Container("bench", "public", name, Kind.TABLE, (), identifier, partitioning, Strategy.APPEND, ("id",), True, 0, options)
        table = LakeTable(str(self.project.lake), *container.key_path)
        return container, table, TimePartitions(CursorType.DATE, Granularity.DAY, FIRST, FIRST + partitions - 1)

    def prepare(self, url: str) -> None:
        """Fills the source and the lake.

        Each table of PostgreSQL gets one row, so that the catalog knows where partitions begin. The tables in the lake, which a scan reads,
        get all.
        """
        with psycopg.connect(url, autocommit=True) as connection:
            for size in SIZES:
                for text in (f"create table t{size} ({COLUMNS})", f"insert into t{size} (id, day) values (1, '2026-01-01')"):
                    connection.execute(text.encode())
        self.configure(1)
        self.project.command("catalog", "bench")
        with open_session(self.project.home, name="benchmark") as spark:
            for size, (_, table, _) in self.tables.items():
                started = time.perf_counter()
                fill(spark, table.url, size, self.rows)
                print(f"table of {size} partitions of {self.rows:,} rows: written in {time.perf_counter() - started:.0f} s", flush=True)

    def configure(self, count: int) -> None:
        """Writes the project's YAML with the first ``count`` rules."""
        containers = {f"t{size}": {"partition_by": "day", "checks": self.entries[:count]} for size in SIZES}
        attributes = {
            "name": "bench",
            "url": "{{ env.BENCH_URL }}",
            "safety_lag_seconds": 0,
            "incremental": [f"public.t{size}:day:date" for size in SIZES],
        }
        entry = {"type": "incremental_assets.PostgresDatastore", "attributes": {**attributes, "containers": containers}}
        self.project.define("bench", yaml.safe_dump(entry))

    def asked_of_spark(self, lake: LakeScope, size: int, count: int) -> float:
        """The seconds of a scan of the last partition on an open session."""
        container, table, partitions = self.tables[size]
        head = table.head()
        assert head is not None
        now = datetime.datetime.now(datetime.timezone.utc)
        records = Records(lake.lake, container.key_path[0])
        scan_scope = scope_of_partitions(container, partitions, [partitions.key_of(partitions.last)], nulls=False)
        started = time.perf_counter()
        result = scan(lake, head, scan_scope, self.rules[:count], now=now, timezone="UTC", earlier=records, anomalies=())
        spent = time.perf_counter() - started
        self.expect(result, count)
        return spent

    def expect(self, result: ScanResult, count: int) -> None:
        """Fails where a rule was not evaluated or did not hold: measurements of rules that were not evaluated would say nothing."""
        assert len(result.verdicts) == count, result.verdicts
        assert all(one.status is Status.PASSED and one.rows == self.rows for one in result.verdicts), result.verdicts

    def command(self, size: int, count: int) -> float:
        """The seconds of `incremental-assets scan` of the last partition, the whole process."""
        _, _, partitions = self.tables[size]
        self.configure(count)
        measured = self.project.command("scan", f"bench/t{size}", "--partition", partitions.key_of(partitions.last), "--json")
        line = measured.lines[0]
        assert (line["passed"], line["rows_scanned"]) == (count, self.rows), line
        return measured.seconds


def report_medians(what: str, rows: int, seconds: dict[tuple[int, int], list[float]]) -> None:
    """Reports the measurements and the ratios that have targets. ``seconds``: by size of table and number of rules."""
    middle = {case: statistics.median(found) for case, found in seconds.items()}
    for (size, count), found in seconds.items():
        spread = f"{min(found):.2f} to {max(found):.2f}"
        target = SECONDS_TARGETS.get((what, rows)) if count == COUNTS[-1] else None
        report(
            f"{what}, table of {size:2} partitions, {count:2} rules: {middle[size, count]:.2f} s (median of {len(found)}, {spread})",
            Figure(f"{what}, {size} partitions of {rows:,} rows, {count} rules", middle[size, count], target=target),
        )
    for size in SIZES:
        ratio, target = middle[size, 30] / middle[size, 1], RULES_TARGETS[what]
        figure = Figure(f"{what}, {size} partitions of {rows:,} rows, 30 rules / 1 rule", ratio, "×", target)
        report(f"{what}, {size} partitions: 30 rules / 1 rule = {ratio:.2f} (target {target:g})", figure)
    for count in COUNTS:
        ratio = middle[50, count] / middle[5, count]
        figure = Figure(f"{what}, {count} rules, 50 partitions / 5 of {rows:,} rows", ratio, "×", SIZE_TARGET)
        report(f"{what}, {count} rules: 50 partitions / 5 = {ratio:.2f} (target {SIZE_TARGET:g})", figure)


def measure(rows: int, rounds: int, commands: int) -> None:
    """Prepares the tables and measures all cases.

    ``rows``: of each partition. ``rounds``, ``commands``: how many times each case is measured with an open session, and as a command; one
    more is made first and does not count. With no commands, none is made at all.
    """
    with tempfile.TemporaryDirectory() as work, EmbeddedPostgres(Path(work) / "postgres") as server:
        url = server.create_database("bench")
        bench = Bench(Path(work), url, rows)
        try:
            bench.prepare(url)
            cases: Sequence[tuple[int, int]] = [(size, count) for size in SIZES for count in COUNTS]
            asked: dict[tuple[int, int], list[float]] = {case: [] for case in cases}
            whole: dict[tuple[int, int], list[float]] = {case: [] for case in cases}
            lake = LakeScope(str(bench.project.lake), bench.project.home, "benchmark", print)
            with lake.stack:
                for turn in range(rounds + 1):
                    # The cases are measured in turns, so that other load on the machine falls on all of them.
                    for case in cases:
                        spent = bench.asked_of_spark(lake, *case)
                        # The first round warms the server up and does not count.
                        asked[case] += [spent] if turn else []
            report_medians(ASKED, rows, asked)
            for turn in range(commands + 1 if commands else 0):
                for case in cases:
                    spent = bench.command(*case)
                    whole[case] += [spent] if turn else []
            if commands:
                report_medians(COMMAND, rows, whole)
        finally:
            bench.project.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("rows", type=int, nargs="?", default=1_000_000, help="rows of each partition (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each case with an open session (default: %(default)s)")
    parser.add_argument("--commands", type=int, default=3, help="measurements of each case as a command (default: %(default)s)")
    asked = parser.parse_args()
    measure(asked.rows, asked.rounds, asked.commands)


if __name__ == "__main__":
    main()
