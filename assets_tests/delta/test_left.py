"""What the last sync has left in a table is known by its commit's id: another commit of the same number is not taken for it.

Belongs here: tables whose commit of rows was replaced, states that have no id yet, and whose commits have one. Does not belong: later
commits that change rows (``test_stages``).
"""

import json
import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from assets_tests.harness import Folder, Project, long
from incremental_assets.core.watermark import TableState
from incremental_assets.delta.engine import WRITE_BY
from incremental_assets.delta.properties import set_property_without_spark
from incremental_assets.delta.store import version_file
from incremental_assets.delta.table import STATE_PROPERTY, LakeTable, Left

MakeProject = Callable[..., Project]


def synced_twice(project: MakeProject) -> Project:
    """Two containers with a commit of rows after that of their first load: nothing but that commit has the rows 10 to 14."""
    shop = project(incremental=["public.appended:id:integer", "public.merged:id:integer!upsert"])
    for name in ("appended", "merged"):
        shop.execute(f"create table {name} (id int primary key, note text); insert into {name} select i, 'a' from generate_series(1, 9) i")
    shop.sync()
    for name in ("appended", "merged"):
        shop.execute(f"insert into {name} select i, 'b' from generate_series(10, 14) i")
    shop.sync()
    return shop


def state_of(shop: Project, name: str) -> TableState:
    head = shop.table(name).head()
    state = head.state(shop.definition(name).container) if head is not None else None
    assert state is not None
    return state


def replace_commit(table: LakeTable, version: int) -> None:
    """Puts another host's commit in the place of this one: of the same operation, with the first of its rows alone."""
    path = Path(table.address, version_file(version))
    actions: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["txnId"] = str(uuid.uuid4())
        elif "add" in action and "deletionVector" not in action["add"]:
            added = action["add"]
            first = pq.read_table(Path(table.address, added["path"])).slice(0, 1)
            added["path"] = f"other-{added['path']}"
            pq.write_table(first, Path(table.address, added["path"]))
            added |= {"size": Path(table.address, added["path"]).stat().st_size, "stats": '{"numRecords":1}'}
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of the file, where Spark has written it


@pytest.mark.parametrize("write_by", ["", *long("spark")])
def test_rows_of_a_commit_that_was_replaced_by_another_of_its_number_come_back(
    project: MakeProject, monkeypatch: pytest.MonkeyPatch, write_by: str
) -> None:
    """The source has not changed, and the log has a commit of that number, so that a sync would find nothing to do. The rows are below the
    watermark, so that reading on from there would not bring them back either."""
    monkeypatch.setenv(WRITE_BY, write_by)
    shop = synced_twice(project)
    assert {line["status"] for line in shop.sync().values()} == {"skipped"}
    for name in ("appended", "merged"):
        state = state_of(shop, name)
        assert state.data_version is not None and shop.table(name).left(state) is Left.THERE
        replace_commit(shop.table(name), state.data_version)
        assert shop.table(name).left(state) is Left.REPLACED
    lines = shop.sync()
    for name in ("appended", "merged"):
        assert lines[name]["rows_read"] == 14 and "another one has its number" in lines[name]["message"], lines[name]
        shop.assert_equal(name)
        assert len(shop.rows(name)) == 14
    assert {line["status"] for line in shop.sync().values()} == {"skipped"}


def test_files_of_a_commit_that_was_replaced_are_read_again(folder: Callable[..., Folder]) -> None:
    """The manifest says that the file was read, so that its rows would stay missing."""
    landing = folder(containers={"all": {"glob": "*.csv", "format": "csv", "options": {"header": True}}}, settle_seconds=0)
    for name in ("a.csv", "b.csv"):
        landing.put(name, f"id,note\n1,{name}\n")
        landing.one("all")
    assert landing.one("all")["status"] == "skipped"
    table, container = landing.table("all"), landing.definition("all").container
    head = table.head()
    state = head.state(container) if head is not None else None
    assert state is not None and state.data_version is not None
    replace_commit(table, state.data_version)
    assert landing.one("all")["status"] == "synced"
    assert landing.files("all") == {"a.csv": 1, "b.csv": 1}
    assert landing.one("all")["status"] == "skipped"


def test_a_state_that_has_only_a_number_takes_the_commit_of_that_number_once(
    project: MakeProject, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade must not load every table anew, and from then on a commit that is replaced has to be noticed."""
    shop = synced_twice(project)
    table, before = shop.table("appended"), state_of(shop, "appended")
    head = table.head()
    assert head is not None and before.data_commit is not None and before.data_version is not None
    older = json.loads(head.properties[STATE_PROPERTY])
    del older["data_commit"]
    assert set_property_without_spark(table, head.version, STATE_PROPERTY, json.dumps(older))
    assert state_of(shop, "appended").data_commit is None
    with caplog.at_level(logging.INFO, "incremental_assets.delta.table"):
        for _ in range(2):
            assert shop.one("appended")["status"] == "skipped"
    (said,) = (record.getMessage() for record in caplog.records if "only the number" in record.getMessage())
    assert f"version {before.data_version} is taken for it" in said
    assert state_of(shop, "appended") == before
    replace_commit(table, before.data_version)
    assert shop.one("appended")["rows_read"] == 14
    shop.assert_equal("appended")


def test_what_was_left_is_known_without_reading_a_commit(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an object store each commit that is read is a request, for each container and each tick of its schedule."""
    shop = synced_twice(project)
    with monkeypatch.context() as patch:
        patch.setattr(LakeTable, "_commits", lambda *_: pytest.fail("a commit was read"))
        assert {line["status"] for line in shop.sync().values()} == {"skipped"}


@pytest.mark.parametrize("write_by", ["", "spark"])
def test_every_commit_of_rows_has_an_id(project: MakeProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, write_by: str) -> None:
    """Without one, another commit in its place would not be noticed."""
    monkeypatch.setenv(WRITE_BY, write_by)
    shop = synced_twice(project)
    for name in ("appended", "merged"):
        shop.execute(f"delete from {name} where id = 14; insert into {name} values (15, 'c')")
    shop.sync()
    operations = set[str]()
    for name in ("appended", "merged"):
        state, commits = state_of(shop, name), {commit.version: commit for commit in shop.table(name).commits(100)}
        assert state.data_version is not None and state.data_commit == commits[state.data_version].id
        assert len({commit.id for commit in commits.values()}) == len(commits)
        operations.add(commits[state.data_version].operation)
    assert operations == ({"WRITE", "MERGE"} if write_by else {"WRITE"})
    for _ in range(2):
        write_deltalake(tmp_path / "rs", pa.table({"id": [1]}), mode="append")
    assert len({commit.id for commit in LakeTable(str(tmp_path / "rs")).commits(2)}) == 2
