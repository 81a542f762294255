"""Deletion of old records of scans: what scans and people may still need stays, and everything else that is old enough is deleted.

Belongs here: which records are deleted. Does not belong: when the maintenance runs (``test_scans``).
"""

import json
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from assets_tests.harness import long
from assets_tests.quality.test_quality_records import failed_row, operation, verdict
from incremental_assets.core.anomalies import Anomaly, Finding, State, after_scan, by_person, capped, fingerprint
from incremental_assets.core.rules.rule import Severity, Status
from incremental_assets.quality import records as module
from incremental_assets.quality.records import OperationResult, OperationType, Records
from incremental_assets.quality.retention import prune

SHOP, LINES = "shop/orders", "shop/lines"
HOUR = 3600 * 1_000_000
NOW = 1_800_000_000_000_000
RULES, PARTITIONS = ["r1", "r2"], ["a", "b", None]


def fill(records: Records, chance: random.Random, scans: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans and people over some months, until now."""
    for n in range(scans):
        at = NOW - (scans - n) * 60 * HOUR
        monkeypatch.setattr(module, "_now", lambda at=at: at)
        container = chance.choice([SHOP, LINES])
        run = chance.choice([f"run{n}", f"run{n - 1}"])  # sometimes one that is tried again
        status = {(rule, place): chance.choice(list(Status)) for rule in RULES for place in chance.sample(PARTITIONS, 2)}
        findings = [
            Finding(rule, place, json.dumps({"id": number}), 1, "NULL", Severity.ERROR)
            for rule, place in status
            for number in chance.sample(range(4), 2)
        ]
        known = records.anomalies(container)
        changes = after_scan(known, set(status), findings, container, run, at, True)
        verdicts = [verdict(place, float(n), which, rule) for (rule, place), which in status.items()]
        result = chance.choice([OperationResult.SUCCESS, OperationResult.SUCCESS, OperationResult.FAILURE])
        records.record(
            operation(run, container, result, chance.choice([None, f"2026-01-{n % 28 + 1:02}"])),
            verdicts,
            [failed_row(n)],
            changes,
        )
        mine = [one for one in records.anomalies(container).values() if one.state in (State.ACTIVE, State.ACKNOWLEDGED)]
        if mine and chance.random() < 0.5:
            one = chance.choice(mine)
            records.change(by_person(one, chance.choice([State.RESOLVED, State.DISCARDED]), "ann", "seen", at + 1))


def answers(records: Records) -> dict[str, object]:
    """Everything that scans and people read of the records."""
    found: dict[str, object] = {}
    for container in (SHOP, LINES):
        found[f"watermarks {container}"] = [records.scan_watermark(container, type) for type in OperationType]
        for statuses in ((Status.PASSED, Status.FAILED), (Status.PASSED, Status.FAILED, Status.UNASSERTED), (Status.ERRORED,)):
            found[f"{container} {statuses}"] = records.metrics(container, RULES, PARTITIONS, statuses)
        found[f"anomalies {container}"] = {i: a for i, a in records.anomalies(container).items() if a.state is not State.RESOLVED}
        found[f"newest {container}"] = records.operations(container)[:1]
    return found


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, *long(1, 2, 3)])
def test_what_scans_and_people_read_is_the_same_after_deletion(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records(str(tmp_path), "shop")
    fill(records, random.Random(seed), 24, monkeypatch)
    for age in (50, 20, 0):  # days; at last all of it is old
        before, rows = answers(records), sum(len(table.read()) for table in records.tables.values())
        limit = datetime.fromtimestamp(NOW / 1e6, timezone.utc) - timedelta(days=age)
        forgotten = prune(records, limit)
        assert answers(records) == before
        assert sum(len(table.read()) for table in records.tables.values()) == rows - forgotten
        assert prune(records, limit) == 0
    assert len(records.tables[module.FAILED_ROWS].read()) == 0
    assert len(records.tables[module.CHECK_METRICS].read()) <= 2 * len(RULES) * len(PARTITIONS) * len(Status)


def test_new_records_are_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records(str(tmp_path), "shop")
    fill(records, random.Random(5), 10, monkeypatch)
    before = {name: table.read().sort_by("recorded_at") for name, table in records.tables.items()}
    assert prune(records, datetime.fromtimestamp(NOW / 1e6, timezone.utc) - timedelta(days=365)) == 0
    assert {name: table.read().sort_by("recorded_at") for name, table in records.tables.items()} == before


@pytest.mark.long
def test_a_scan_takes_no_longer_after_many_earlier_scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After 100,000 scans, an object for each of them would take seconds in each further scan."""
    records = Records(str(tmp_path), "shop")
    for n in range(30):
        records.record(operation(f"run{n}", watermark=f"2026-01-{n + 1:02}"), [], [], [])
    monkeypatch.setattr(module, "ScanOperation", None)
    found = records.scan_watermark(SHOP)
    assert found is not None and found.text == "2026-01-30"
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", 7)
    assert records.scan_watermark(SHOP) == found
    assert records.scan_watermark(SHOP, OperationType.PROFILE) is None


# ---------------------------------------------------------------------- how many are open
def _found(numbers: range, partition: str = "a") -> list[Finding]:
    return [Finding("r", partition, json.dumps({"id": n}), 1, "NULL", Severity.ERROR) for n in numbers]


def test_the_number_of_anomalies_of_rows_is_limited_and_the_rest_is_counted() -> None:
    """A rule that very many rows break must not open more and more anomalies, as each scan reads all open ones."""
    known: dict[str, Anomaly] = {}
    for day in range(5):
        rest = Finding("r", str(day), None, 7, "NULL", Severity.ERROR)
        findings = capped([*_found(range(day * 10, day * 10 + 10), str(day)), rest], known, SHOP, most=25)
        assert sum(f.rows or 0 for f in findings) == 17  # none is lost
        known |= {one.id: one for one in after_scan(known, {("r", str(day))}, findings, SHOP, f"run{day}", day + 1, True)}
    assert sum(1 for one in known.values() if one.is_open and one.key is not None) == 25
    of_partitions = {one.partition: one.rows for one in known.values() if one.key is None}
    assert of_partitions == {"0": 7, "1": 7, "2": 12, "3": 17, "4": 17}


def test_open_and_discarded_anomalies_stay_although_the_limit_is_reached() -> None:
    identities = [fingerprint(SHOP, "r", "a", json.dumps({"id": n})) for n in range(10)]
    known = {one.id: one for one in after_scan({}, {("r", "a")}, _found(range(10)), SHOP, "run", 1, True)}
    known[identities[3]] = by_person(known[identities[3]], State.DISCARDED, "ann", None, 2)
    again = capped(_found(range(12)), known, SHOP, most=9)
    assert [f.key for f in again] == [*(json.dumps({"id": n}) for n in range(10)), None]
    assert again[-1].rows == 2
    changes = after_scan(known, {("r", "a")}, again, SHOP, "run2", 3, True)
    assert [(one.key, one.state) for one in changes] == [(None, State.ACTIVE)]
