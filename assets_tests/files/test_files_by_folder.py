"""Files that are partitioned by a column of their folders: ``partition_by: {column: month}``.

Belongs here: which files a partition has, and what each operation makes of a partition of several files. Does not belong: the columns
themselves (``test_files_hive``).
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from assets_tests.harness import Folder, long
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.folder_column import FolderColumn
from incremental_assets.dagster.io_manager import container_predicate
from incremental_assets.dagster.sensors import tick
from incremental_assets.delta.engine import WRITE_BY
from incremental_assets.operations.scans import ScanOptions, profile_lines
from incremental_assets.runs.partitioning import windows_metadata
from incremental_assets.runs.partitions import add_keys, partitions_definition

Make = Callable[..., Folder]
NONE = "__HIVE_DEFAULT_PARTITION__"


def by_month(make: Make, **attributes: Any) -> Folder:
    entry = {"glob": "s/**/*.csv", "partition_by": {"column": "month"}, **attributes.pop("entry", {})}
    return make(containers={"s": entry}, **attributes)


def in_dagster(project: Folder) -> Mapping[str, Any]:
    """How many rows the newest event of each partition says that it has; None for a partition without event."""
    with project.instance() as instance:
        keys = instance.get_dynamic_partitions("landing/s")
        records = instance.fetch_materializations(dg.AssetKey(["landing", "s"]), limit=100).records
    found: dict[str, Any] = dict.fromkeys(keys)
    for record in records:
        event = record.asset_materialization
        assert event is not None
        if event.partition in found and found[event.partition] is None:
            found[event.partition] = event.metadata["dagster/partition_row_count"].value
    return found


@pytest.mark.long
def test_files_of_folders_with_one_value_are_one_partition(folder: Make) -> None:
    """Otherwise a month of a thousand small files is a thousand partitions, and none can be read again, or scanned, as a whole."""
    project = by_month(folder)
    project.put("s/year=2025/month=01/a.csv", "id\n1\n2\n")
    project.put("s/year=2026/Month=01/b.csv", "id\n3\n")
    project.put("s/year=2026/month=x%2Fy z/a.csv", "id\n4\n")
    project.put(f"s/month={NONE}/a.csv", "id\n5\n")
    project.put("s/other.csv", "id\n6\n")
    first = project.one("s")
    assert first["status"] == "synced" and sorted(first["partitions"]) == ["01", NONE, "x/y%20z"], first
    assert in_dagster(project) == {"01": 3, "x/y%20z": 1, NONE: 2}
    assert sorted(project.rows("s", "id, month")) == [(1, "01"), (2, "01"), (3, "01"), (4, "x/y z"), (5, None), (6, None)]
    assert project.one("s")["status"] == "skipped"

    project.put("s/year=2027/month=01/new.csv", "id\n7\n")
    later = project.one("s")
    assert (later["partitions"], later["rows_read"]) == (["01"], 1), later
    assert in_dagster(project)["01"] == 4
    again = project.one("s", keys=("01", "01"))
    assert (again["partitions"], again["rows_read"]) == (["01"], 4), again
    assert "there is no partition '02'" in project.one("s", keys=("02", "02"), ok=False)["message"].replace("file for the ", "")
    assert sorted(project.rows("s", "id")) == [(n,) for n in range(1, 8)]


@pytest.mark.long
def test_a_partition_goes_with_its_last_file(folder: Make) -> None:
    """Otherwise the partition of a month stays for ever, or goes while it still has rows."""
    project = by_month(folder, prune_files=True)
    paths = [project.put(f"s/month={name}.csv", f"id\n{id_}\n") for id_, name in enumerate(["01/a", "01/b", "02/a"])]
    project.one("s")
    paths[0].unlink()
    assert project.one("s")["partitions"] == ["01"]
    assert in_dagster(project) == {"01": 1, "02": 1}
    paths[1].unlink()
    assert project.one("s")["rows_deleted"] == 1
    assert in_dagster(project) == {"02": 1}
    assert project.audit("s")["s"]["status"] == "equal"


@pytest.mark.long
def test_the_partitions_come_back_where_dagster_has_lost_them(folder: Make) -> None:
    """Otherwise a project with a new DAGSTER_HOME shows no partition of what it has loaded."""
    project = by_month(folder)
    for name in ("01/a", "01/b", "02/a"):
        project.put(f"s/month={name}.csv", "id\n1\n")
    project.one("s")
    with project.instance() as instance:
        for key in instance.get_dynamic_partitions("landing/s"):
            instance.delete_dynamic_partition("landing/s", key)
        instance.add_dynamic_partitions("landing/s", [])
    assert project.one("s")["status"] == "skipped"
    assert sorted(in_dagster(project)) == ["01", "02"]


@pytest.mark.long
def test_a_sensor_starts_one_run_of_the_months_that_have_changed(folder: Make) -> None:
    """Otherwise a run of the daemon is launched with partitions that do not exist."""
    project = by_month(folder)
    for name in ("01/a", "01/b", "02/a"):
        project.put(f"s/month={name}.csv", "id\n1\n")
    with project.instance() as instance:
        [request] = tick(instance, project.definition("s"), None).run_requests or []
        assert instance.get_dynamic_partitions("landing/s") == ["01", "02"]
    assert {key: value for key, value in request.tags.items() if "partition_range" in key} == {
        "dagster/asset_partition_range_start": "01", "dagster/asset_partition_range_end": "02",
    }  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("one_type", ["int", *long("string", "date")])
def test_equal_values_are_one_partition_whatever_their_text(folder: Make, one_type: str) -> None:
    """Otherwise rows of one month are counted, scanned and read again in two halves."""
    texts = {"int": ("1", "01", "+1"), "string": ("1", "%31", ""), "date": ("2026-01-01", "2026-01-01", "2026-01-02")}[one_type]
    project = by_month(folder, entry={"columns": {"MONTH": one_type}})
    for number, text in enumerate(texts):
        project.put(f"s/month={text}/{number}.csv", "id\n1\n")
    project.put("s/month=no/9.csv", "id\n9\n")
    expected = {"int": {"1": 3}, "string": {"1": 2, NONE: 1, "no": 1}, "date": {"2026-01-01": 2, "2026-01-02": 1}}[one_type]
    line = project.one("s")
    assert line["status"] == ("synced" if one_type == "string" else "warning"), line
    assert sorted(line["partitions"]) == sorted(expected)
    assert {key: rows for key, rows in in_dagster(project).items() if rows} == expected
    found = project.audit("s")["s"]
    assert found["partitions_different"] == ([] if one_type == "string" else ["no"]), found  # it cannot be read


RULES = [{"rule": "unique", "columns": ["id"]}, {"rule": "not_null", "columns": ["id"]}]


@pytest.mark.long
@pytest.mark.parametrize("by", ["here", *long("spark")])
def test_a_scan_after_a_sync_looks_at_all_rows_of_a_partition(folder: Make, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise two files of one month that have the same key are never compared, and checks of others are made for nothing."""
    if by == "spark":
        monkeypatch.setenv(WRITE_BY, "spark")
    filtered = [{**rule, **({"filter": "id > -1 OR id IS NULL"} if by == "spark" else {})} for rule in RULES]
    project = by_month(folder, entry={"checks": filtered})
    project.put("s/month=01/a.csv", "id,x\n1,x\n")
    project.put("s/month=02/a.csv", "id,x\n1,x\n1,x\n,x\n")
    project.put("s/b.csv", "id,x\n1,x\n")
    in_02 = [("not_null_id", "02"), ("unique_id", "02")]
    assert broken(project.one("s")["checks"]) == in_02
    project.put("s/month=01/b.csv", "id,x\n1,x\n")
    later = project.one("s")["checks"]
    assert broken(later) == [("unique_id", "01")] and later["rows_scanned"] == 2, later
    looked = project.scan("s")["s"]
    assert broken(looked) == [("unique_id", "01"), *in_02] and looked["rows_scanned"] == 6, looked


def broken(checks: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The rules that are broken, each with the partition."""
    return sorted(((one["rule"], one["partition"]) for one in checks["verdicts"]), key=lambda one: one[::-1]) if checks else []


@pytest.mark.long
def test_a_scan_of_what_is_new_looks_at_whole_partitions(folder: Make) -> None:
    """Otherwise the older rows of a month are missing in its sums, or the months that have not changed are scanned again."""
    rule = {"rule": "sum", "column": "id", "min": 2}
    project = by_month(folder, entry={"checks": [rule]})
    project.put("s/month=01/a.csv", "id\n1\n", at=1_000_000_000)
    project.put("s/month=02/a.csv", "id\n1\n", at=1_100_000_000)
    project.put("s/month=01/b.csv", "id\n1\n", at=1_200_000_000)
    project.one("s")
    found = project.scan("s", incremental=True, after_time="2005-01-01T00:00:00Z")["s"]
    assert (found["rows_scanned"], found["verdicts"]) == (2, []), found


@pytest.mark.long
def test_an_audit_names_the_partition_and_its_repair_reads_all_of_it(folder: Make) -> None:
    """Otherwise a lost row is reported for a partition that does not exist, and the repair finds nothing to read."""
    project = by_month(folder)
    for name in ("01/a", "01/b", "02/a"):
        project.put(f"s/month={name}.csv", "id\n1\n2\n")
    project.one("s")
    DeltaTable(project.table("s").address).update({"id": "9"}, predicate="_file = 's/month=01/b.csv' AND id = 1")
    found = project.audit("s", keys=("01", "01"))["s"]
    assert (found["partitions_different"], found["missing"], found["surplus"]) == (["01"], 1, 1), found
    repaired = project.audit("s", repair=True)["s"]
    assert repaired["status"] == "repaired", repaired
    assert sorted(project.rows("s", "id")) == [(1,), (1,), (1,), (2,), (2,), (2,)]


@pytest.mark.long
@pytest.mark.parametrize(("before", "after"), [(None, "month"), *long(("month", None), ("month", "year"))])
def test_another_column_is_refused_once_there_are_rows(folder: Make, before: str | None, after: str | None) -> None:
    """Otherwise partitions of Dagster are no longer those of the rows: one that is asked for has none, and others are never shown."""
    project = folder()

    def configure(column: str | None) -> None:
        by = {} if column is None else {"partition_by": {"column": column}}
        project.configure(containers={"s": {"glob": "s/**/*.csv", **by}})

    configure(before)
    project.put("s/year=2026/month=01/a.csv", "id\n1\n")
    project.one("s")
    configure(after)
    refused = project.one("s", ok=False)
    assert refused["status"] == "failed" and "--reset-watermarks" in refused["message"], refused
    configure(before)
    assert project.one("s")["status"] == "skipped"
    configure(after)
    assert project.one("s", reset=True)["status"] == "synced"
    assert project.one("s")["status"] == "skipped"
    key = {"month": "01", "year": "2026", None: "s/year=2026/month=01/a.csv"}[after]
    assert in_dagster(project) == {key: 1}


def test_a_column_that_no_folder_names_is_refused(folder: Make) -> None:
    """Otherwise a misspelt name puts all files into the partition of those without value."""
    project = by_month(folder, entry={"partition_by": {"column": "mnth"}})
    project.put("s/month=01/a.csv", "id\n1\n")
    refused = project.one("s", ok=False)
    assert "no folder of its files names a column 'mnth'" in refused["message"] and "month" in refused["message"], refused
    assert project.table("s").head() is None
    with pytest.raises(ConfigurationError, match="'month', is double"):
        by_month(folder, entry={"columns": {"month": "double"}}).component.settings()


@pytest.mark.long
def test_a_file_with_the_column_outside_of_such_folders_is_left_out(folder: Make) -> None:
    """Otherwise its rows are of another partition than the file, and a refresh of either loses them."""
    project = by_month(folder)
    project.put("s/month=01/a.csv", "id\n1\n")
    project.one("s")
    project.put("s/b.csv", "id,month\n2,01\n")
    line = project.one("s")
    assert line["status"] == "warning" and "b.csv: its rows have other values of month" in line["message"], line
    project.put("s/c.csv", "id\n3\n")
    assert project.one("s")["partitions"] == [NONE]
    assert sorted(project.rows("s", "id, month")) == [(1, "01"), (3, None)]


@pytest.mark.long
def test_more_files_than_a_run_reads_are_read_partition_by_partition(folder: Make) -> None:
    """Otherwise a refresh of everything reads half a month, and counts it as the whole."""
    project = by_month(folder, max_files_per_run=2)
    for name in ("01/a", "01/b", "01/c", "02/a", "03/a"):
        project.put(f"s/month={name}.csv", "id\n1\n")
    assert sorted(project.one("s")["partitions"]) == ["01", "02", "03"]
    assert in_dagster(project) == {"01": 3, "02": 1, "03": 1}
    line = project.one("s", keys=("01", "03"))
    assert line["rows_read"] == 5 and sorted(line["partitions"]) == ["01", "02", "03"], line


@pytest.mark.long
def test_what_is_too_long_for_a_partition_is_left_out_and_named(tmp_path: Path, folder: Make) -> None:
    """Otherwise the rows of such a file are in a partition that nobody can ask for."""
    column = FolderColumn("month")
    assert column.partition_of("s/month=01/a.csv") == "01" and column.trouble("s/month=01/a.csv") is None
    long_path, long_value = f"{'d' * 250}/{'e' * 250}/month=01/a.csv", f"month={'ä' * 100}/a.csv"
    assert all("too long for a partition" in (column.trouble(path) or "") for path in (long_path, long_value))
    project = by_month(folder)
    project.put("s/month=01/a.csv", "id\n1\n")
    project.put(f"s/{long_value}", "id\n2\n")
    line = project.one("s")
    assert line["status"] == "warning" and "is too long for a partition" in line["message"], line
    assert project.rows("s", "id, month") == [(1, "01")]


@pytest.mark.long
def test_a_profile_has_the_partitions(folder: Make) -> None:
    """Otherwise rules are proposed from files, of which a month has many, and new files of a month are profiled beside the old ones."""
    project = by_month(folder)
    for name in ("month=01/a", "month=01/b", "month=02/a", "c"):
        project.put(f"s/{name}.csv", "id\n1\n")
    project.one("s")
    with project.instance() as instance:
        [line] = profile_lines(project.dagster(), [project.definition("s")], ScanOptions(), instance)
        assert (line["status"], line["rows_profiled"], line["partitions"]) == ("profiled", 4, 3), line
        project.put("s/month=01/c.csv", "id\n1\n")
        project.one("s")
        [later] = profile_lines(project.dagster(), [project.definition("s")], ScanOptions(incremental=True), instance)
    # Three of the month, and one of the partition whose file has the very time of the watermark.
    assert (later["status"], later["rows_profiled"], later["partitions"]) == ("profiled", 4, 2), later


def test_an_asset_that_depends_on_one_partition_gets_the_rows_of_all_its_files(folder: Make) -> None:
    """Otherwise it gets none, as no file has the partition's key."""
    project = by_month(folder)
    definition = project.definition("s")
    partitions = partitions_definition(definition)
    metadata = json.loads(json.dumps(windows_metadata(definition.container)))
    with project.instance() as instance:
        add_keys(instance, partitions, ["x/y%20z"])
        with dg.build_input_context(
            asset_key=["landing", "s"], partition_key="x/y%20z", asset_partitions_def=partitions, instance=instance,
            asset_partition_key_range=dg.PartitionKeyRange("x/y%20z", "x/y%20z"),
        ) as context:  # fmt: skip
            assert container_predicate(context, metadata) == "(`month` IN (try_cast('x/y z' AS string)))"
