"""What a sync of files decides to do, from a real folder, a real manifest and a real Delta table; without Spark.

Each test says which rows or files a user would lose, keep for ever, or read for ever.
"""

import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from assets_tests.harness import Folder
from incremental_assets.core.cursor_type import CursorType
from incremental_assets.core.errors import ConfigurationError, ContainerMissing, EmptyRefused
from incremental_assets.core.files import encode_path
from incremental_assets.core.plan import Action, Mode, Request
from incremental_assets.core.watermark import TableState
from incremental_assets.dagster.components.files import FileDatastore
from incremental_assets.dagster.schedules import _Tick
from incremental_assets.dagster.sensors import Cursor, find_unclaimed, tick
from incremental_assets.delta.maintenance import tidy
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import CONTAINER_PROPERTY, STATE_PROPERTY, LakeTable
from incremental_assets.files.container_listing import FileListing, list_files
from incremental_assets.files.definition import FileDefinition
from incremental_assets.files.manifest import COMPACT_AFTER, FileRecord, Manifest
from incremental_assets.files.plan import FilesPlan, make_files_plan
from incremental_assets.files.sync import FileSync
from incremental_assets.runs.adapters.file_adapter import FileAdapter

BY_HAND, TICK = Request(Mode.INCREMENTAL), Request(Mode.INCREMENTAL, max_files=2)


class Lake:
    """A container's table of one commit (version 0), and its manifest; whatever a test wants to have been."""

    def __init__(self, project: Folder, name: str) -> None:
        self.project, self.name = project, name
        self.table, self.manifest = LakeTable(str(project.lake_root), "landing", name), Manifest(str(project.lake_root), ("landing", name))

    @property
    def definition(self) -> FileDefinition:
        found = self.project.definition(self.name)
        assert isinstance(found, FileDefinition)
        return found

    def holds(self, rows: Mapping[str, int], refused: Mapping[str, str] | None = None, **record: Any) -> None:
        """Files of the folder (or gone ones) that the table has rows of, as a sync records them."""
        state = TableState(self.definition.container.signature, "append", (), "files", 0, data_version=0, loaded=True)
        keys = pa.array([key for key, count in rows.items() for _ in range(count)], pa.string())
        write_deltalake(self.table.url, pa.table({"_file": keys}))
        properties = {CONTAINER_PROPERTY: f"landing/{self.name}", STATE_PROPERTY: state.to_json(CursorType.TIMESTAMP)}
        DeltaTable(self.table.url).alter.set_table_properties(properties, raise_if_not_exists=False)
        head = self.table.head()
        assert head is not None
        self.record(rows, refused or {}, table_id=head.table_id, **record)

    def record(self, rows: Mapping[str, int], refused: Mapping[str, str], **values: Any) -> None:
        stamps = list_files(self.definition).stamps
        how = self.definition.how
        records = []
        for key in {**rows, **refused}:
            stamp = stamps.get(key)
            modified, size = (stamp.modified, stamp.size) if stamp else (1, 1)
            one = FileRecord(
                key, modified, size, None, rows.get(key, 0), 0, refused.get(key), False, "", 0, time.time_ns() // 1000, "r", how
            )
            records.append(dataclasses.replace(one, **values))
        self.manifest.add(records)

    def plan(self, request: Request = BY_HAND, listed: FileListing | None = None) -> FilesPlan:
        definition = self.definition
        return make_files_plan(definition, self.table, self.manifest, request, listed or list_files(definition))


@pytest.fixture
def lake(folder: Callable[..., Folder]) -> Lake:
    return Lake(folder(containers={"all": {"glob": "**/*.csv"}}), "all")


def read(plan: FilesPlan) -> list[str]:
    return [file.key for file in plan.due]


def test_files_that_cannot_be_read_never_keep_others_from_being_read(lake: Lake) -> None:
    """Otherwise two broken files, being the oldest, fill each tick of two, and nothing is read any more."""
    for name in ("broken1.csv", "broken2.csv", "a.csv", "b.csv", "c.csv"):
        lake.project.put(name, "id\n1\n")
    lake.holds({}, {"broken1.csv": "half a gzip", "broken2.csv": "half a gzip"})
    assert read(lake.plan(TICK)) == ["a.csv", "b.csv"]
    assert read(lake.plan()) == ["a.csv", "b.csv", "c.csv", "broken1.csv", "broken2.csv"]
    lake.record({"a.csv": 1, "b.csv": 1, "c.csv": 1}, {}, table_id=lake.plan().remembered.files["broken1.csv"].table_id)
    quiet = lake.plan(TICK)
    assert quiet.action is Action.SKIP and quiet.alarm and "2 could not be read before: half a gzip" in quiet.reason
    assert "the 3 files are those of the last sync" in quiet.reason
    lake.project.configure(containers={"all": {"glob": "**/*.csv", "options": {"encoding": "latin1"}}})
    assert read(lake.plan(TICK)) == ["broken1.csv", "broken2.csv"]  # what was advised was done: a tick tries again


def test_a_broken_file_that_is_gone_is_no_longer_reported(lake: Lake) -> None:
    lake.project.put("a.csv", "id\n1\n")
    lake.holds({"a.csv": 1}, {"gone.csv": "half a gzip"})
    plan = lake.plan()
    assert plan.action is Action.SKIP and not plan.alarm and "could not be read" not in plan.reason and "gone" not in plan.reason


def test_files_of_a_folder_that_cannot_be_listed_are_not_taken_for_gone(lake: Lake) -> None:
    """Otherwise a folder without permission for an hour costs its files' rows, where files are pruned."""
    long = "夏/" + "漢" * 60 + ".csv"
    lake.project.put("a.csv", "id\n1\n")
    lake.holds({"a.csv": 1, encode_path(long): 1, encode_path("夏/b.csv"): 1, "other/c.csv": 1})
    lake.project.configure(prune_files=True)
    listed = dataclasses.replace(list_files(lake.definition), unseen={"夏": "no permission"})
    plan = lake.plan(listed=listed)
    assert plan.drop == ("other/c.csv",) and plan.alarm and "no permission" in plan.warnings
    assert set(lake.plan().drop) == {"other/c.csv", encode_path(long), encode_path("夏/b.csv")}


def test_a_file_that_belongs_to_another_container_now_leaves_the_table(folder: Callable[..., Folder]) -> None:
    """Otherwise its rows are in two tables, and the old one says that it is gone from the folder."""
    entries = {"all": {"glob": "*.csv"}, "late": {"glob": "late_*.csv"}}
    lake = Lake(folder(containers=entries), "all")
    for name in ("a.csv", "late_1.csv"):
        lake.project.put(name, "id\n1\n")
    lake.holds({"a.csv": 1, "late_1.csv": 1})
    plan = lake.plan()
    assert plan.drop == ("late_1.csv",) and "belong to another container now" in plan.reason and "are gone" not in plan.reason


def test_a_table_is_not_emptied_where_all_files_are_gone(lake: Lake) -> None:
    lake.holds({"a.csv": 1})
    assert "1 are gone from the folder; their rows stay" in lake.plan().reason
    lake.project.configure(prune_files=True)
    with pytest.raises(EmptyRefused, match="--allow-empty"):
        lake.plan()
    assert lake.plan(dataclasses.replace(BY_HAND, allow_empty=True)).drop == ("a.csv",)


def test_the_files_of_a_commit_without_a_record_are_found(lake: Lake) -> None:
    """Otherwise rows of a file whose sync was killed, and which was then removed, stay for good."""
    lake.project.put("a.csv", "id\n1\n")
    lake.holds({"a.csv": 1})
    assert lake.plan().action is Action.SKIP
    write_deltalake(lake.table.url, pa.table({"_file": ["b.csv"]}), mode="append")
    plan = lake.plan()
    assert plan.recheck and plan.action is Action.SYNC and "not recorded" in plan.reason


def test_a_record_of_a_commit_that_the_table_does_not_have_does_not_count(lake: Lake) -> None:
    lake.project.put("a.csv", "id\n1\n")
    lake.holds({}, {})
    head = lake.table.head()
    assert head is not None
    lake.record({"a.csv": 1}, {}, table_id=head.table_id, data_version=5)
    assert read(lake.plan()) == ["a.csv"] and lake.plan().remembered.idle
    lake.record({"a.csv": 1}, {}, table_id="of another table")
    assert read(lake.plan()) == ["a.csv"]
    lake.record({"a.csv": 1}, {}, table_id=head.table_id, at=1)  # by a clock that was set back
    assert read(lake.plan()) == []


def test_a_refresh_of_several_partitions_goes_on_where_one_is_gone(lake: Lake) -> None:
    lake.project.put("a.csv", "id\n1\n")
    lake.holds({"a.csv": 1})
    plan = lake.plan(Request(Mode.REFRESH, ("a.csv", "never.csv")))
    assert read(plan) == ["a.csv"] and plan.unknown == ("never.csv",) and "'never.csv'" in plan.warnings[0]
    with pytest.raises(ConfigurationError, match="there is no file for the partition"):
        lake.plan(Request(Mode.REFRESH, ("never.csv",)))


def test_files_of_a_container_that_left_the_yaml_go_to_another_one(folder: Callable[..., Folder]) -> None:
    """Otherwise a container that was renamed goes on under its old name too, with every row in two tables."""
    project = folder(containers={"old": {"glob": "*.csv"}})
    project.put("a.csv", "id\n1\n")
    project.catalog()
    project.configure(containers={"new": {"glob": "*.csv"}})
    old, new = (project.definition(name) for name in ("old", "new"))
    assert old.missing_since is not None and new.owns("a.csv")
    with project.instance() as instance, pytest.raises(ContainerMissing, match="not synced"):
        FileAdapter(old).plan(instance, BY_HAND, str(project.lake_root))
    both = {"new": {"glob": "*.csv"}, "twin": {"glob": "*.csv"}}
    project.configure(containers=both)
    with pytest.raises(ConfigurationError, match="same glob"):
        project.catalog()


def test_lists_of_partitions_come_back_when_dagsters_home_is_lost(lake: Lake) -> None:
    lake.project.put("a.csv", "id\n1\n")
    lake.holds({"a.csv": 1})
    with lake.project.instance() as instance:
        plan, keys = FileAdapter(lake.definition).plan(instance, TICK, str(lake.project.lake_root))
        assert plan.action is Action.SKIP and not keys
        assert instance.get_dynamic_partitions("landing/all") == ["a.csv"]


def test_a_run_that_fails_is_not_started_at_each_tick(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a container whose columns cannot follow fails every 30 seconds, day and night."""
    lake.project.put("a.csv", "id\n1\n")
    monkeypatch.setenv("INCREMENTAL_ASSETS_LAKE", str(lake.project.lake_root))
    with lake.project.instance() as instance:
        first = tick(instance, lake.definition, None)
        assert len(first.run_requests or []) == 1
        instance.add_run(
            dg.DagsterRun(
                "sync_landing__all", status=dg.DagsterRunStatus.FAILURE, tags={"dagster/incremental_assets.container": "landing/all"}
            )
        )
        second = tick(instance, lake.definition, first.cursor)
        assert not second.run_requests and "has failed; the same is tried again in" in str(second.skip_reason)
        seen = Cursor.from_json(second.cursor)
        assert seen is not None
        later = dataclasses.replace(seen, at=seen.at - 61).to_json()
        third = tick(instance, lake.definition, later)
        assert len(third.run_requests or []) == 1 and "120 s" not in str(third.skip_reason)
        waiting = str(tick(instance, lake.definition, third.cursor).skip_reason)
        assert "in 120 s" in waiting or "in 119 s" in waiting
        lake.project.put("b.csv", "id\n1\n")
        assert tick(instance, lake.definition, third.cursor).run_requests  # something is new: at once


def test_a_tick_lists_the_folder_once_and_the_run_once_more(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a tick over a million files takes longer than Dagster waits, or a run goes by a listing from before its lock."""
    for number in range(3):
        lake.project.put(f"d/{number}.csv", "id\n1\n")
    monkeypatch.setenv("INCREMENTAL_ASSETS_LAKE", str(lake.project.lake_root))
    folders: list[str] = []
    scandir = os.scandir

    def counted(path: int) -> Any:
        folders.append(os.readlink(f"/proc/self/fd/{path}"))
        return scandir(path)

    definition = lake.definition
    with lake.project.instance() as instance, monkeypatch.context() as watched:
        watched.setattr("os.scandir", counted)
        asked = tick(instance, definition, None)
        [request] = asked.run_requests or []
        assert request.tags["dagster/asset_partition_range_end"] == "d/2.csv"
        assert sorted(folders) == [str(lake.project.root), f"{lake.project.root}/d"]
        (lake.project.root / "d/0.csv").unlink()
        lake.project.put("e/3.csv", "id\n1\n")
        scope = LakeScope(str(lake.project.lake_root), tmp_path, "test", print)
        begun = FileAdapter(definition).begin(instance, TICK, scope, "of a run", print)
    assert isinstance(begun, FileSync) and isinstance(begun.result.plan, FilesPlan)
    assert read(begun.result.plan) == ["d/1.csv", "d/2.csv"] and begun.result.plan.later == 1


def test_file_names_that_are_not_utf8_are_shown(lake: Lake) -> None:
    lake.project.put(os.fsdecode(b"latin-\xe9.csv"), "id\n1\n")
    assert "latin-\\xe9.csv" in lake.plan().requested
    searched = Folder(lake.project.path, Path(), catalog={})
    [found] = searched.catalog()
    assert found.table.glob == "latin-?.csv"


def test_a_manifest_of_another_version_is_written_anew(lake: Lake) -> None:
    """Otherwise an upgrade of the product stops each container of files with an error that nobody can do anything about."""
    lake.project.put("a.csv", "id\n1\n")
    lake.holds({"a.csv": 1})
    write_deltalake(lake.manifest.table.url, pa.table({"path": ["a.csv"]}), mode="overwrite", schema_mode="overwrite")
    plan = lake.plan()
    assert read(plan) == ["a.csv"] and plan.recheck
    lake.record({"a.csv": 1}, {}, table_id="x")
    assert lake.manifest.remembered("x", 0).files.keys() == {"a.csv"}


@pytest.mark.long
def test_the_manifest_survives_compaction_and_maintenance(lake: Lake) -> None:
    """Otherwise after fifty syncs, or a maintenance, all files are read again, or none is known to be gone."""
    names = [f"{number}.csv" for number in range(COMPACT_AFTER + 5)]
    lake.project.put(names[0], "id\n1\n")
    lake.holds({names[0]: 1})
    table_id = lake.plan().known[names[0]].table_id
    for name in names[1:]:
        lake.record({name: 1}, {}, table_id=table_id)
    lake.record({names[1]: 1}, {}, table_id=table_id, dropped=True)
    tidy(lake.manifest.table)
    assert set(lake.plan().known) == {*names} - {names[1]}


def test_files_of_no_container_start_the_catalog_once(folder: Callable[..., Folder]) -> None:
    """Otherwise a new kind of file lies in a searched folder until somebody thinks of the catalog."""
    project = folder(exclude=["tmp*"])
    project.put("orders_1.csv", "id\n1\n")

    def patterns() -> list[str]:
        return [definition.glob for definition in project.catalog() if isinstance(definition, FileDefinition)]

    def look(patterns: list[str], cursor: str | None) -> dg.SensorResult:
        with project.instance() as instance:
            return find_unclaimed(instance, project.component.settings(), patterns, cursor)

    known = patterns()
    project.put("orders_2.csv", "id\n1\n")
    known = patterns()
    project.put("orders_3.csv", "id\n1\n")  # of the container that there is: no difference
    project.put("README.md", "no format that is supported")
    quiet = look(known, None)
    assert not quiet.run_requests
    project.put("tmp.csv", "id\n1\n")
    project.put("clicks.jsonl", "{}")
    asked = look(known, quiet.cursor)
    assert len(asked.run_requests or []) == 1
    assert {d.table.name for d in project.catalog()} == {"orders", "clicks"}
    left = look(patterns(), asked.cursor)
    project.put("orders_4.csv", "id\n1\n")
    again = look(patterns(), left.cursor)
    assert not again.run_requests  # tmp stays out, and is not asked for again


def test_a_tick_that_plans_all_in_time_begins_with_the_first_again(folder: Callable[..., Folder]) -> None:
    """Else, after one slow tick, all later ones begin with the container that it has left, for ever."""
    project = folder(containers={"a": {"glob": "a.csv"}, "b": {"glob": "b.csv"}})
    definitions = project.catalog()
    with project.instance() as instance:
        instance.daemon_cursor_storage.set_cursor_values({"incremental_assets/tick/of_two": "landing/b"})
        ticks = _Tick("of_two", definitions)
        assert [one.table.name for one in ticks._in_turn(instance)] == ["b", "a"]
        with dg.build_schedule_context(instance, datetime.now(timezone.utc)) as context:
            [skipped] = ticks.requests(context)
        assert isinstance(skipped, dg.SkipReason) and str(skipped.skip_message).count("no file matches") == 2
        assert [one.table.name for one in ticks._in_turn(instance)] == ["a", "b"]


def test_a_relative_path_is_below_the_projects_folder(lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Otherwise the daemon, which runs elsewhere, looks into another folder than the command line."""
    monkeypatch.setenv("INCREMENTAL_ASSETS_PROJECT", str(lake.project.path))
    monkeypatch.chdir(tmp_path)
    component = FileDatastore(name="landing", path="landing")
    assert component.settings().address.display == str(lake.project.root)


def test_a_table_is_not_replaced_while_a_folder_cannot_be_listed(lake: Lake) -> None:
    """Otherwise --reset-watermarks costs the rows of all files there."""
    lake.project.put("a.csv", "id\n1\n")
    lake.holds({"a.csv": 1, "sub/b.csv": 7})
    listed = dataclasses.replace(list_files(lake.definition), unseen={"sub": "no permission"})
    reset = Request(Mode.INCREMENTAL, reset=True)
    with pytest.raises(EmptyRefused, match="no permission"):
        lake.plan(reset, listed)
    assert read(lake.plan(dataclasses.replace(reset, allow_empty=True), listed)) == ["a.csv"]


def test_the_last_file_of_a_container_can_move_to_another_one(folder: Callable[..., Folder]) -> None:
    """Otherwise it is refused as if the folder had been emptied, and the rows are in two tables for good."""
    lake = Lake(folder(containers={"all": {"glob": "*.csv"}, "late": {"glob": "late_*.csv"}}), "all")
    lake.project.put("late_1.csv", "id\n1\n")
    lake.holds({"late_1.csv": 1})
    assert lake.plan().drop == ("late_1.csv",)


def test_a_broken_file_that_is_being_written_anew_waits(lake: Lake) -> None:
    lake.project.configure(settle_seconds=60)
    lake.project.put("a.csv", "id\n1\n")
    lake.holds({}, {"a.csv": "half a gzip"})
    lake.project.put("a.csv", "id\n1\n2", at=time.time())
    plan = lake.plan()
    assert not plan.due and plan.recent == 1


def test_files_of_an_excluded_container_go_to_no_other_one(folder: Callable[..., Folder]) -> None:
    """Otherwise excluding a container puts its rows into its neighbour's table."""
    project = folder(containers={"all": {"glob": "*.csv"}, "late": {"glob": "late_*.csv"}}, exclude=["late"])
    project.put("late_1.csv", "id\n1\n")
    assert not project.definition("all").owns("late_1.csv")
