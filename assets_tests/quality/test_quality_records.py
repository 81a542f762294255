"""The records of scans, in real Delta tables through delta-rs; without Spark.

Each test says what a reader of the records, or the next scan, would take for true that is not.
"""

import contextlib
import dataclasses
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from incremental_assets.core.anomalies import Anomaly, Finding, State, after_scan, by_person
from incremental_assets.core.errors import LakeError
from incremental_assets.core.rules.rule import FailedRow, Severity, Status, Verdict
from incremental_assets.delta import append_only, maintenance
from incremental_assets.delta.append_only import AppendOnly
from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.table import LakeTable
from incremental_assets.quality import records as module
from incremental_assets.quality.records import OperationResult, Records, ScanOperation, ScanWatermark
from incremental_assets.quality.scan import ScanResult

SHOP, RULE, DAY = "shop/orders", "not_null_price", 24 * 3600 * 1_000_000
TABLES = ("failed_rows", "check_metrics", "anomalies", "scan_operations")  # as they are written
KEY = json.dumps({"id": 1})


def operation(
    id: str = "run1", container: str = SHOP, result: OperationResult = OperationResult.SUCCESS, watermark: str | None = None
) -> ScanOperation:
    return ScanOperation(
        id, container, 1_700_000_000_000_001, 1_700_000_000_000_002, result, message="one rule failed", triggered_by="ann",
        schedule="nightly", options='{"full": true}', delta_version=7, passes=2, rows=900, rules=3, failed_rules=1,
        watermark=watermark, identifier="o_date:date:day" if watermark else None,
    )  # fmt: skip


def verdict(partition: str | None = "a", value: float = 0.5, status: Status = Status.FAILED, rule: str = RULE) -> Verdict:
    return Verdict(rule, partition, status, Severity.WARN, True, 10, 8, 4, value, "4 of 8 rows: price is NULL")


def failed_row(number: int = 1, partition: str | None = "a") -> FailedRow:
    return FailedRow(partition, json.dumps({"id": number}), f'{{"id": {number}, "price": null}}', (RULE, "r2"))


def scan(
    records: Records, run: str, numbers: Iterable[int], container: str = SHOP, value: float = 0.5, watermark: str | None = None
) -> None:
    """Records a scan of one partition with failed rows of these keys, as a scan does."""
    findings = [Finding(RULE, "a", json.dumps({"id": n}), 1, "NULL", Severity.ERROR) for n in numbers]
    now = time.time_ns() // 1000
    changes = after_scan(records.anomalies(container), {(RULE, "a")}, findings, container, run, now, True)
    rows = [failed_row(number) for number in numbers]
    records.record(operation(run, container, watermark=watermark), [verdict("a", value)], rows, changes)


def test_only_the_owner_can_read_the_records(lake: Path, records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records keep failed rows, also rows that were deleted from the source since. A cluster's Spark may run as another user."""
    folder = lake / "shop" / "_quality"
    monkeypatch.setenv("SPARK_REMOTE", "sc://cluster")
    scan(records, "run1", [1])
    assert folder.stat().st_mode & 0o077
    monkeypatch.delenv("SPARK_REMOTE")
    scan(records, "run2", [1])
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake of ours"


@pytest.fixture
def records(lake: Path) -> Records:
    return Records(str(lake), "shop")


def table(lake: Path, name: str) -> DeltaTable:
    return DeltaTable(lake / "shop" / "_quality" / name)


def rows_of(lake: Path, name: str) -> list[dict]:
    return table(lake, name).to_pyarrow_table().to_pylist()


def open_keys(records: Records, container: str = SHOP) -> set[str | None]:
    return {one.key for one in records.anomalies(container).values() if one.is_open}


# ---------------------------------------------------------------- two scans side by side
def test_a_scan_does_not_overrule_verdicts_on_a_newer_version(records: Records) -> None:
    """A scan that began before a sync may end after the sync's checks. Rows that were corrected meanwhile must not be reported again."""
    began = operation("old")
    for run, version, ended in (("before", 8, began.started - 1), ("new", 8, began.started + 5), ("as old", 7, began.started + 5)):
        said = dataclasses.replace(operation(run), delta_version=version, ended=ended)
        records.record(said, [verdict(run), verdict("a", rule="r2")] if run == "new" else [verdict(run)], [], [])
    records.record(dataclasses.replace(operation("other", "shop/other"), delta_version=9, ended=began.ended), [verdict("x")], [], [])
    failed = dataclasses.replace(operation("failed", result=OperationResult.FAILURE), delta_version=None, ended=began.ended)
    records.record(failed, [], [], [])
    judged = records.judged(SHOP, 7, began.started)
    assert judged == {(RULE, "new"), ("r2", "a")}
    assert records.judged(SHOP, 8, began.started) == set()
    seen = ScanResult(7, 1, {"a": 10}, [verdict("a"), verdict("new")], [failed_row(1, "a"), failed_row(2, "new")])
    left = seen.without(judged)
    assert [(one.rule, one.partition) for one in left.verdicts] == [(RULE, "a")]
    assert [(row.partition, row.rules) for row in left.failed_rows] == [("a", (RULE,)), ("new", ("r2",))]


# ---------------------------------------------------------------- what is read is what was written
def test_records_are_read_as_they_were_written(records: Records) -> None:
    """Otherwise the list, the baselines or the watermark differ from what the scan found."""
    assert not records.anomalies() and not records.operations() and not records.metrics(SHOP, [RULE], ["a"]) and not records.history("x")
    assert records.scan_watermark(SHOP) is None and records.tidy() == 0
    anomalies = {
        id: Anomaly(id, SHOP, RULE, partition, key, rows, "4 of 8", severity, state, 1, 2, "scan run1", None, "run1")
        for id, partition, key, rows, severity, state in (
            ("1", "2026-01-01", '{"k": "ü\\n\'%"}', 1, Severity.ERROR, State.ACTIVE), ("2", None, None, None, Severity.WARN, State.RESOLVED)
        )
    }  # fmt: skip
    verdicts = {(v.rule, v.partition): v for v in (verdict("a"), verdict(None, 1e300), verdict("b", rule="r'2"))}
    number = dataclasses.replace(verdict("n"), failed=None, value=None, severity=Severity.ERROR, status=Status.PASSED)
    said = operation(watermark="2026-01-01T00:00:00.000001")
    records.record(said, [*verdicts.values(), number], [failed_row()], anomalies.values())
    assert records.anomalies() == records.anomalies(SHOP) == anomalies
    assert records.metrics(SHOP, {RULE, "r'2"}, ["a", None, "b", "n"]) == {**verdicts, (RULE, "n"): number}
    assert records.metrics(SHOP, {RULE}, [None]) == {(RULE, None): verdicts[RULE, None]}
    assert records.operations() == records.operations(SHOP) == [said]
    assert records.history("1") == [anomalies["1"]]


@pytest.mark.parametrize("container", ["shop/order items", "shop/50%2F=a", "shop/'; --", "shop/Ü\\x"])
def test_containers_of_any_name_have_records_of_their_own(records: Records, container: str) -> None:
    """Otherwise a container with such a name has no anomalies, or those of another."""
    scan(records, "run1", [1], container, value=0.1)
    scan(records, "run1", [1, 2], value=0.9)  # one run of Dagster's, another container
    assert len(records.anomalies(container)) == 1 and len(records.anomalies(SHOP)) == 2 and len(records.anomalies()) == 3
    assert [o.container for o in records.operations(container)] == [container] and len(records.operations()) == 2
    assert records.metrics(container, [RULE], ["a"])[RULE, "a"].value == 0.1


def test_records_have_times_and_can_be_read_and_written_with_spark_and_delta_rs(records: Records, lake: Path) -> None:
    """Otherwise readers have to convert microseconds, or a feature of Delta keeps Spark or delta-rs from using the tables."""
    scan(records, "run1", [1])
    for name in TABLES:
        delta = table(lake, name)
        protocol = delta.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version, protocol.reader_features) == (1, 2, None)
        assert delta.metadata().partition_columns == ["container"]
        assert delta.metadata().configuration["delta.enableDeletionVectors"] == "false"
        (row,) = rows_of(lake, name)
        assert row["container"] == SHOP and row["operation_id"] == "run1" and len(row["recording"]) == 32
        assert abs((row["recorded_at"] - datetime.now(timezone.utc)).total_seconds()) < 60
    (row,) = rows_of(lake, "scan_operations")
    assert row["started"] == datetime(2023, 11, 14, 22, 13, 20, 1, timezone.utc)
    assert rows_of(lake, "failed_rows")[0]["rules"] == [RULE, "r2"]


# ---------------------------------------------------------------- the commit point
@pytest.mark.parametrize("reached", range(4))
def test_a_scan_that_ends_early_leaves_no_rows_that_count(
    records: Records, lake: Path, reached: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a scan killed half way resolves anomalies, moves the watermark, or is a baseline."""
    scan(records, "run1", [1, 2], value=0.1, watermark="5")
    before = (records.anomalies(), records.operations(), records.metrics(SHOP, [RULE], ["a"]), records.scan_watermark(SHOP))
    written: list[str] = []
    plain = Records._append

    def killed(self: Records, name: str, rows: list) -> bool:
        if len(written) == reached:
            raise KeyboardInterrupt
        written.append(name)
        return plain(self, name, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Records, "_append", killed)
        with pytest.raises(KeyboardInterrupt):
            scan(records, "run2", [2, 3], value=0.9, watermark="9")
    assert tuple(written) == TABLES[:reached]
    assert all({row["operation_id"] for row in rows_of(lake, name)} == {"run1", "run2"} for name in written)
    assert before == (records.anomalies(), records.operations(), records.metrics(SHOP, [RULE], ["a"]), records.scan_watermark(SHOP))
    assert all(len(records.history(id)) == 1 for id in records.anomalies())
    scan(records, "run2", [2, 3], value=0.9, watermark="9")  # tried again, in the same run of Dagster's
    assert open_keys(records) == {json.dumps({"id": 2}), json.dumps({"id": 3})}
    assert records.metrics(SHOP, [RULE], ["a"])[RULE, "a"].value == 0.9 and records.scan_watermark(SHOP) == ScanWatermark(
        "9", "o_date:date:day"
    )
    assert max(len(records.history(id)) for id in records.anomalies()) == 2 and len(records.operations()) == 2


def test_an_operation_that_is_retried_is_listed_once(records: Records) -> None:
    """Otherwise a run that Dagster tried again stands twice in the list, and each anomaly was opened twice."""
    changes = after_scan({}, set(), [Finding(RULE, "a", KEY, 1, "NULL", Severity.ERROR)], SHOP, "run1", 10, True)
    failed = operation(result=OperationResult.FAILURE)
    records.record(failed, [verdict(value=0.1)], [failed_row()], changes)
    records.record(operation(watermark="5"), [verdict(value=0.9)], [failed_row()], changes)
    assert records.operations() == [operation(watermark="5")]
    assert records.metrics(SHOP, [RULE], ["a"])[RULE, "a"].value == 0.9
    assert records.history(changes[0].id) == changes and list(records.anomalies().values()) == changes
    scan(records, "run1", [])  # what it opened counts still, though the first recording of it does not
    assert [one.state for one in records.history(changes[0].id)] == [State.ACTIVE, State.RESOLVED]


def test_changes_of_another_scan_are_refused(records: Records) -> None:
    """Otherwise they count without the scan that made them, or are in the list of another container."""
    (change,) = after_scan({}, set(), [Finding(RULE, "a", KEY, 1, "NULL", Severity.ERROR)], SHOP, "run1", 10, True)
    for other in (operation("run2"), operation(container="shop/lines")):
        with pytest.raises(ValueError, match="of another scan"):
            records.record(other, [], [], [change])
    with pytest.raises(ValueError, match="by a scan"):
        records.change(change)
    assert not records.anomalies()


# ---------------------------------------------------------------- anomalies
def test_the_history_of_an_anomaly_shows_who_changed_it_when_and_why(records: Records, lake: Path) -> None:
    """Otherwise nobody knows who decided that an anomaly is no problem, or the list does not show the last change."""
    scan(records, "run1", [1])
    (id,) = records.anomalies()
    records.change(by_person(records.anomalies()[id], State.ACKNOWLEDGED, "ann", "asked the supplier", time.time_ns() // 1000))
    assert records.anomalies(SHOP)[id].state is State.ACKNOWLEDGED  # at once, without a scan
    scan(records, "run2", [])
    scan(records, "run3", [1])
    records.change(by_person(records.anomalies()[id], State.DISCARDED, "bob", "test data", 7))  # bob's clock is years behind
    scan(records, "run4", [1])
    history = [(one.state.value, one.changed_by, one.comment) for one in records.history(id)]
    assert history == [
        ("active", "scan run1", None), ("acknowledged", "ann", "asked the supplier"), ("resolved", "scan run2", None),
        ("active", "scan run3", None), ("discarded", "bob", "test data"),
    ]  # fmt: skip
    assert records.anomalies()[id] == records.history(id)[-1]
    times = [one.changed_at for one in records.history(id)]
    assert min(row["recorded_at"] for row in rows_of(lake, "anomalies")).year == datetime.now(timezone.utc).year  # by bob's clock too
    assert times == sorted(set(times)) and {one.first_seen for one in records.history(id)} == {times[0]}


def test_a_persons_change_counts_before_a_scans_of_the_same_microsecond(records: Records) -> None:
    """Otherwise a scan that did not know of a person's change undoes it. A scan's change would be repeated by the next scan."""
    scan(records, "run1", [1])
    (one,) = records.anomalies().values()
    now = one.changed_at + 5
    by_ann = by_person(one, State.DISCARDED, "ann", "no problem", now)
    by_scan = after_scan({one.id: one}, {(RULE, "a")}, [], SHOP, "run2", now, True)
    assert by_scan[0].changed_at == by_ann.changed_at
    records.change(by_ann)
    records.record(operation("run2"), [], [], by_scan)
    assert records.anomalies()[one.id] == by_ann
    assert records.history(one.id) == [one, *by_scan, by_ann]


# ---------------------------------------------------------------- watermark and metrics
def test_the_watermark_is_of_the_newest_successful_scan_that_has_one(records: Records) -> None:
    """Otherwise rows are never scanned (a failed scan's), or all again (a scan of one partition has none); text is kept to the digit."""
    exact = "2026-01-01 00:00:00.100000"
    records.record(operation("r1", watermark="2025-01-01"), [], [], [])
    records.record(dataclasses.replace(operation("r2", watermark=exact), identifier="updated_at:timestamp:instant"), [], [], [])
    records.record(operation("r3", result=OperationResult.FAILURE, watermark="2027-01-01"), [], [], [])
    records.record(operation("r4"), [], [], [])
    records.record(operation("r5", "shop/lines", watermark="2028-01-01"), [], [], [])
    assert records.scan_watermark(SHOP) == ScanWatermark(exact, "updated_at:timestamp:instant")
    assert [one.id for one in records.operations(SHOP)] == ["r4", "r3", "r2", "r1"]


def test_the_newest_record_is_found_although_a_clock_was_set_back(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an older scan's watermark and numbers come back, for as long as the clock was set back by."""
    for number, clock in enumerate((5_000, 3_000, 3_000, 6_000)):
        monkeypatch.setattr(module, "_now", lambda clock=clock: clock)
        records.record(operation(f"r{number}", watermark=str(number)), [verdict(value=number)], [], [])
        watermark = records.scan_watermark(SHOP)
        assert watermark is not None and watermark.text == str(number)
        assert records.metrics(SHOP, [RULE], ["a"])[RULE, "a"].value == number


def test_baselines_are_the_newest_numbers_of_the_same_rule(records: Records) -> None:
    """Otherwise a scan compares with numbers of another rule, or with a verdict without a number."""
    records.record(
        operation("r1"), [verdict("a", 1), verdict("b", 2, Status.PASSED), verdict(None, 3), verdict("a", 4, rule="other")], [], []
    )
    records.record(operation("r2"), [verdict("a", 5), verdict("b", 6, Status.ERRORED), verdict("c", 7, Status.UNASSERTED)], [], [])
    values = {partition: one.value for (_, partition), one in records.metrics(SHOP, [RULE], ["a", "b", "c", None, "d"]).items()}
    assert values == {"a": 5, "b": 2, None: 3}
    assert (
        not records.metrics(SHOP, [RULE], ["d"]) and not records.metrics(SHOP, [], ["a"]) and not records.metrics("shop/b", [RULE], ["a"])
    )
    assert set(records.metrics(SHOP, [RULE], ["c"], [Status.UNASSERTED])) == {(RULE, "c")}


# ---------------------------------------------------------------- upkeep
def test_maintenance_removes_only_rows_of_scans_that_ended_early_a_day_ago(
    records: Records, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise killed scans fill the lake, or a scan that is being recorded loses its rows, or a person's change is lost."""
    now, plain = module._now(), Records._append

    def broken_off(run: str, ago: int) -> None:
        def killed(self: Records, name: str, rows: list) -> bool:
            if name == TABLES[3]:
                raise KeyboardInterrupt
            return plain(self, name, rows)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(module, "_now", lambda: now - ago)
            patch.setattr(Records, "_append", killed)
            scan(records, run, [5, 6])

    broken_off("old", DAY + 60_000_000)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_now", lambda: now - 3 * DAY)
        scan(records, "older", [1, 2])
        for one in records.anomalies().values():
            records.change(by_person(one, State.ACKNOWLEDGED, "ann", None, 1))
    broken_off("running", DAY - 60_000_000)
    before = (records.anomalies(), records.operations(), [records.history(id) for id in records.anomalies()])
    assert records.tidy() == 2 + 1 + 2
    assert {row["operation_id"] for name in TABLES for row in rows_of(lake, name)} == {"older", "running", None}
    assert len(table(lake, "anomalies").file_uris()) == 1  # joined
    assert before == (records.anomalies(), records.operations(), [records.history(id) for id in records.anomalies()])
    assert records.tidy() == 0


def test_reading_does_not_slow_down_with_each_scan(records: Records, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, with a scan every five minutes, the list of anomalies takes seconds after a day."""
    monkeypatch.setattr(append_only, "COMPACT_AFTER", 5)
    scan(records, "first", [1])
    (one,) = records.anomalies().values()
    for number in range(8):
        records.record(operation(f"r{number}"), [], [], [])
        records.change(dataclasses.replace(one, operation=None, changed_by=f"p{number}", changed_at=one.changed_at + 1 + number))
    assert len(table(lake, "scan_operations").file_uris()) < 6 > len(table(lake, "anomalies").file_uris())
    assert len(records.operations(SHOP)) == 9 and len(records.history(one.id)) == 9


def test_records_that_cannot_be_written_are_reported_in_one_line(records: Records, lake: Path) -> None:
    """Otherwise the run ends with a stack trace of delta-rs."""
    scan(records, "run1", [1])
    (file,) = (lake / "shop" / "_quality" / "anomalies").rglob("*/*.parquet")
    file.unlink()
    with pytest.raises(LakeError, match="cannot be read"):
        records.anomalies()
    other = Records(str(lake / "file"), "shop")
    (lake / "file").write_text("")
    with pytest.raises(LakeError, match="cannot be written"):
        other.record(operation(), [], [], [])


def test_tables_of_another_version_are_read_and_written(records: Records, lake: Path) -> None:
    """Otherwise an update of the product, or going back, loses the records or cannot add to them."""
    scan(records, "run1", [1], watermark="5")
    path = str(lake / "shop" / "_quality" / "scan_operations")
    older = table(lake, "scan_operations").to_pyarrow_table().drop_columns(["schedule"])
    write_deltalake(path, older.append_column("added_later", pa.array(["x"])), mode="overwrite", schema_mode="overwrite")
    assert [one.schedule for one in records.operations()] == [None] and len(records.anomalies()) == 1
    scan(records, "run2", [1])
    assert [(one.id, one.schedule) for one in records.operations()] == [("run2", "nightly"), ("run1", None)]
    assert [row["added_later"] for row in sorted(rows_of(lake, "scan_operations"), key=lambda row: row["operation_id"])] == ["x", None]


# ---------------------------------------------------------------- side by side
def test_a_table_that_another_process_creates_at_the_same_time_is_used(
    records: Records, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the first scans of a datastore, when two hosts begin at once, end with an error."""
    create, opened, tries = DeltaTable.create, LakeTable.opened_to_change, []

    def made_by_another(*args: Any, **options: Any) -> DeltaTable:
        create(*args, **options)
        raise CommitFailedError("a table already exists")

    def with_a_log_a_moment_later(self: LakeTable) -> DeltaTable | None:
        tries.append(self)
        if len(tries) % 2:
            raise LakeError("holds something that is not a Delta table")
        return opened(self)

    monkeypatch.setattr(DeltaTable, "create", made_by_another)
    monkeypatch.setattr(LakeTable, "opened_to_change", with_a_log_a_moment_later)
    scan(records, "run1", [1])
    assert len(records.anomalies()) == 1 and len(rows_of(lake, "failed_rows")) == 1


def test_several_processes_create_a_table_only_once(tmp_path: Path) -> None:
    """Otherwise it is made anew above the first one's, and the first append of a scan is refused: the scan was for nothing."""
    tables = [AppendOnly(LakeTable(str(tmp_path), f"{number}"), pa.schema([("container", pa.string())])) for number in range(12)]
    together = threading.Barrier(3)

    def make_all() -> list[str | None]:
        made = []
        for one in tables:
            together.wait(20)
            made.append(str(one._made().metadata().id))
        return made

    with ThreadPoolExecutor(3) as pool:
        first, *others = (future.result() for future in [pool.submit(make_all) for _ in range(3)])
    assert others == [first, first]
    assert [len(list(tmp_path.glob(f"{number}/_delta_log/*.json"))) for number in range(12)] == [1] * 12


def test_an_append_that_conflicts_with_a_changed_property_is_retried(records: Records, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a scan is lost where somebody changes a property of the table meanwhile, or another version of the product adds a
    column."""
    scan(records, "run1", [1])
    opened, moved, times = AppendOnly.opened_to_change, [], 0

    def changed_after_it_was_opened(table: AppendOnly) -> DeltaTable | None:
        delta = opened(table)
        if delta is not None and len(moved) < times:
            moved.append(table)
            DeltaTable(table.table.address).alter.set_table_properties({"delta.logRetentionDuration": f"interval {len(moved)} days"})
        return delta

    monkeypatch.setattr(AppendOnly, "opened_to_change", changed_after_it_was_opened)
    (one,) = records.anomalies().values()
    for times, state in ((1, State.ACKNOWLEDGED), (3, State.RESOLVED)):
        moved.clear()
        with pytest.raises(LakeError, match="Metadata changed") if times == 3 else contextlib.nullcontext():
            records.change(by_person(one, state, "ann", None, 1))
    assert [row["state"] for row in rows_of(lake, "anomalies")].count("acknowledged") == 1
    assert records.anomalies()[one.id].state is State.ACKNOWLEDGED


def test_two_maintenances_at_once_are_no_error(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise maintenance fails because another one has done its work already. A full disk must still be reported."""
    scan(records, "run1", [1])
    for cause, is_reported in ((CommitFailedError("a concurrent transaction deleted data"), False), (OSError("No space left"), True)):

        def fails(_: LakeTable, cause: Exception = cause) -> None:
            with place_errors("there"):
                raise cause

        monkeypatch.setattr(maintenance, "join_files", fails)
        with pytest.raises(LakeError, match="No space left") if is_reported else contextlib.nullcontext():
            records.tidy()


_WORKER = """
import sys, time
from assets_tests.quality.test_quality_records import Records, by_person, scan, State
lake, container = sys.argv[1:]
records = Records(lake, "shop")
print("ready", flush=True)
sys.stdin.readline()
for number in range(4):
    scan(records, f"{container} {number}", [number], container, value=number)
    for one in records.anomalies(container).values():
        if one.state is State.RESOLVED:
            records.change(by_person(one, State.DISCARDED, "ann", "done", time.time_ns() // 1000))
"""


@pytest.mark.long
def test_two_processes_scan_while_a_third_one_maintains(records: Records, lake: Path) -> None:
    """Otherwise one of two hosts that scan at once fails or loses its records, or maintenance conflicts with them."""
    containers = ("shop/orders", "shop/lines")
    command = [sys.executable, "-c", _WORKER, str(lake)]
    workers = [
        subprocess.Popen([*command, container], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for container in containers
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("\n")
            worker.stdin.flush()
        while any(worker.poll() is None for worker in workers):
            records.tidy()
            time.sleep(0.3)
        for worker in workers:
            _, said = worker.communicate()
            assert worker.returncode == 0, said
    finally:
        for worker in workers:
            worker.kill()
    for container in containers:
        assert [one.id for one in records.operations(container)] == [f"{container} {number}" for number in reversed(range(4))]
        assert open_keys(records, container) == {json.dumps({"id": 3})}
        known = records.anomalies(container)
        assert len(known) == 4 and all(len(records.history(id)) == (3 if not one.is_open else 1) for id, one in known.items())
        assert records.metrics(container, [RULE], ["a"])[RULE, "a"].value == 3
    assert len(rows_of(lake, "failed_rows")) == 8
