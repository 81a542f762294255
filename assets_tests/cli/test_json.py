"""The fields that docs/json.md names are those that the code writes; without Spark.

Belongs here: the names of fields. Does not belong: their values, which the tests of each command look at.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets_tests.harness import Folder, Project
from incremental_assets.catalog.detect import Proposal
from incremental_assets.core.anomalies import Anomaly, State
from incremental_assets.core.rules.rule import Severity, Status, Verdict
from incremental_assets.core.watermark import Holder
from incremental_assets.databases.postgres.dialect import PostgresDialect
from incremental_assets.databases.sweep import Sweep
from incremental_assets.delta.write_batch import Way, WriteResult
from incremental_assets.operations import catalog as catalog_command
from incremental_assets.operations import scans as command
from incremental_assets.operations.alerts.current import CurrentProblem
from incremental_assets.operations.alerts.problems import Problem
from incremental_assets.operations.alerts.problems import Severity as AlertSeverity
from incremental_assets.operations.check import _Checked
from incremental_assets.operations.check import _record as _checked_record
from incremental_assets.operations.dry_run import dry_run_lines
from incremental_assets.operations.history import operations
from incremental_assets.operations.status import status_lines
from incremental_assets.project.defs_files import YamlPlace
from incremental_assets.quality.records import OperationResult, ScanOperation
from incremental_assets.quality.scan import ScanResult
from incremental_assets.runs.partitions import container_key
from incremental_assets.runs.quality.summary import ScanSummary, line_of
from incremental_assets.runs.records.metadata import as_metadata, line
from incremental_assets.runs.records.watermarks import current, history
from incremental_assets.runs.runner import SyncOptions

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "json.md"
TABLES, FILES = {"sql"}, {"files", "drops"}
"""Fields of a dry run that only the one kind of container has."""


def documented(section: str) -> set[str]:
    """The names in the first column of the section's table."""
    found = re.search(rf"^##+ {re.escape(section)}\n(.*?)(?=^##|\Z)", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    assert found is not None, f"docs/json.md has no section {section!r}"
    return {name for row in re.findall(r"^\| (`.*?) \|", found[1], re.M) for name in re.findall(r"`([^`]+)`", row)}


def fields(value: Any, before: str = "") -> Iterator[str]:
    """Names of all fields, nested ones as ``a.b`` and ``a[].b``; an object has a row of its own only where it may be null."""
    for name, inner in value.items():
        path = f"{before}{name}"
        if isinstance(inner, dict):
            yield from fields(inner, f"{path}.") if inner else [path]
        elif isinstance(inner, list) and inner and isinstance(inner[0], dict):
            yield path
            yield from fields(inner[0], f"{path}[].")
        else:
            yield path


def same(section: str, record: dict[str, Any], nullable: tuple[str, ...] = ()) -> None:
    """``nullable``: objects that have a row of their own."""
    assert documented(section) == {*fields(record), *nullable}


def scan_summary() -> ScanSummary:
    verdict = Verdict("not_null_id", "2026-03-01", Status.FAILED, Severity.ERROR, True, 10, 10, 1, 0.1, "1 row", "")
    operation = ScanOperation("r", "shop/orders", 0, 1, OperationResult.SUCCESS)
    result = ScanResult(3, 1, {"2026-03-01": 10}, [verdict], ())
    return ScanSummary("shop/orders", operation, result, {}, 1, 0, 0, 1, None, "2026-03-01", 0.1)


def test_a_line_of_sync_has_the_documented_fields() -> None:
    """Without it, a field is added or renamed and those who read it from a script are not told."""
    holder = Holder(1, "u", "a", datetime.now(timezone.utc).isoformat())
    held = {"watermark/held_back_by": dg.MetadataValue.json([dataclasses.asdict(holder)])}
    checks = line_of(scan_summary())
    empty = WriteResult(0, 0, 0, 0, 1, 1, Way.ALREADY_THERE)
    swept = Sweep(rows=10, gone=1, refused=True, most=0, returned=0, missing=0, result=empty).metadata()
    told = line("shop/orders", "synced", metadata={**held, **as_metadata(swept)}, checks=None)
    same("sync", told, ("sweep",))
    assert told["sweep"]["refused"] is True and line("shop/orders", "synced")["sweep"] is None
    assert line("shop/orders", "failed").keys() == told.keys()
    assert documented("checks of a sync") == checks.keys()
    assert set(command._NUMBERS) <= checks.keys()


def test_a_line_of_scan_has_the_documented_fields(folder: Callable[..., Folder]) -> None:
    """``recorded`` is what the run's event says, which is the same as under ``checks``."""
    workspace = folder(containers={"all": {"glob": "*.csv"}})
    record = command._line(workspace.definition("all"), "failed", message="", recorded=line_of(scan_summary()))
    same("scan", record, ("anomalies", "watermark"))


def test_a_line_of_profile_has_the_documented_fields(folder: Callable[..., Folder], monkeypatch: pytest.MonkeyPatch) -> None:
    watermark = {"previous": None, "new": 1}
    ran = command.EndedRun("r", (), "", "", 0.1), {"rows_profiled": 1, "watermark": watermark}
    monkeypatch.setattr(command, "_run", lambda *arguments: ran)
    workspace = folder(containers={"all": {"glob": "*.csv"}})
    with workspace.instance() as instance:
        [told] = command.profile_lines(workspace.dagster(), [workspace.definition("all")], command.ScanOptions(), instance)
    same("profile", told, ("watermark",))


def test_a_line_of_status_has_the_documented_fields(folder: Callable[..., Folder]) -> None:
    workspace = folder(containers={"all": {"glob": "*.csv"}})
    with workspace.instance() as instance:
        [record] = status_lines(instance, [workspace.definition("all")], datetime.now(timezone.utc))
    same("status", record)


def test_a_line_of_alerts_has_the_documented_fields() -> None:
    same("alerts", CurrentProblem("shop/orders sync", Problem(AlertSeverity.FAILURE, "shop/orders: the last sync has failed")).record)


def test_a_line_of_check_has_the_documented_fields(tmp_path: Path) -> None:
    place = YamlPlace(tmp_path / "defs.yaml", "attributes: {name: shop}", 0)
    same("check", _checked_record(_Checked(place.file, "PostgresDatastore", problems=["it is wrong"], place=place), tmp_path))


def test_a_line_of_anomalies_has_the_documented_fields() -> None:
    one = Anomaly("1", "shop/orders", "r", None, None, None, "", Severity.WARN, State.ACTIVE, 0, 0, "scan r")
    same("anomalies", command._anomaly(one))


def test_lines_of_a_dry_run_and_of_catalog_have_the_documented_fields(
    project: Callable[..., Project], folder: Callable[..., Folder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a real source, whose table has a proposal, and by a real folder."""
    shop = project(incremental=["public.orders:id:integer"])
    shop.execute(
        "create table orders (id bigint primary key); create table notes (id bigint primary key, at point); insert into orders values (1)"
    )
    files = folder(containers={"all": {"glob": "*.csv"}})
    files.put("a.csv", "id\n1\n")
    for workspace, name, not_its_own in ((shop, "orders", FILES), (files, "all", TABLES)):
        monkeypatch.setenv("INCREMENTAL_ASSETS_LAKE", workspace.lake)
        with workspace.instance() as instance:
            [planned] = dry_run_lines([workspace.definition(name)], SyncOptions(), instance)
        assert documented("sync --dry-run") - not_its_own == {*fields(planned)}
    # PostgreSQL has a text for each type, so that no column of its tables is left out.
    monkeypatch.setattr(PostgresDialect, "reason_against", lambda _, column, __: "a place" if column.type == "point" else None)
    definition = dataclasses.replace(shop.definition("notes"), proposal=Proposal())
    changed = {"change": "changed", "fields": [{"field": "a", "change": "type", "before": "x", "after": "y"}]}
    known = catalog_command._record(definition, changed, None)
    same("catalog", known, ("proposal",))
    assert catalog_command._forgotten("shop/notes").keys() == known.keys()


def test_a_line_of_watermarks_has_the_documented_fields(folder: Callable[..., Folder]) -> None:
    workspace = folder(containers={"all": {"glob": "*.csv"}})
    container = workspace.definition("all").container
    with workspace.instance() as instance:
        same("watermarks", current(instance, container, workspace.lake, None, None))
        instance.report_runless_asset_event(dg.AssetMaterialization(container_key(container), metadata={"sync/rows_read": 1}))
        [told] = history(instance, container)
    same("watermarks", told)


def test_a_line_of_operations_has_the_documented_fields() -> None:
    @dg.job
    def sync_shop() -> None: ...

    with dg.DagsterInstance.ephemeral() as instance:
        sync_shop.execute_in_process(instance=instance)
        [told] = operations(instance, 1)
    same("operations", told)
