"""What releases have written is read by this version, and what a newer version has written is refused.

Belongs here: the tables, manifests and catalogs of releases, as they were checked in (``make_released``), and newer formats in a real sync.
Does not belong: a sync of a table of older code (``test_older_lake``).
"""

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from assets_tests.harness import Folder, Project
from assets_tests.make_released import FILES, LANDING, RELEASED, SHOP
from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.catalog.state import Catalog, Presence
from incremental_assets.core.cursor_type import json_value
from incremental_assets.core.errors import NewerFormat
from incremental_assets.core.plan import Mode
from incremental_assets.core.watermark import TableState
from incremental_assets.delta.folders import FILES_FOLDER
from incremental_assets.delta.properties import set_property_without_spark
from incremental_assets.delta.table import STATE_PROPERTY, LakeTable, Left, read_rows
from incremental_assets.files import manifest
from incremental_assets.files.manifest import Manifest
from incremental_assets.operations.alerts.messages import from_cursor
from incremental_assets.quality.records import ANOMALIES, Records

RELEASES = sorted(path.name for path in RELEASED.iterdir())
MakeProject = Callable[..., Project]
MakeFolder = Callable[..., Folder]


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what a release has left."""
    return Path(shutil.copytree(RELEASED / request.param, tmp_path / "released"))


def state_of(release: Path, definition: ContainerDefinition) -> tuple[TableState, LakeTable]:
    """The state in the container's table, whose rows are those of its last sync."""
    table = LakeTable(str(release / "tables"), *definition.container.key_path)
    head = table.head()
    assert head is not None and head.owner == definition.container.label
    state = head.state(definition.container)
    assert state is not None and table.left(state) is Left.THERE
    return state, table


def test_the_tables_of_each_release_are_read_by_their_catalogs(release: Path, project: MakeProject) -> None:
    """After an upgrade, a state or a catalog that is not read means that all tables are loaded anew."""
    catalog = Catalog.load(release / "shop-catalog.json", "shop")
    found = {one.table.name: one for one in project(**SHOP).component.definitions(catalog)}
    assert found.keys() == {"appended", "merged", "whole"}
    marks = {}
    for name in ("appended", "merged"):
        state, _ = state_of(release, found[name])
        cursor_type = found[name].container.cursor_type
        assert cursor_type is not None and state.relation and state.source and state.loaded
        marks[name] = json_value(cursor_type, state.watermark)
    assert marks == {"appended": 250, "merged": "2026-02-07T12:00:00Z"}
    assert state_of(release, found["whole"])[0].fingerprint


def test_the_files_that_each_release_has_read_are_known(release: Path, folder: MakeFolder) -> None:
    """After an upgrade, files that count as unknown are all read again."""
    catalog = Catalog.load(release / "landing-catalog.json", "landing")
    (found,) = folder(**LANDING).component.definitions(catalog)
    state, table = state_of(release, found)
    head = table.head()
    assert head is not None
    known = Manifest(str(release / "tables"), found.container.key_path).remembered(head.table_id, state.data_version)
    assert {name: one.rows for name, one in known.files.items()} == {name: text.count("\n") - 1 for name, text in FILES.items()}


# ---------------------------------------------------------------------- what a newer version has written
def test_a_table_that_a_newer_version_has_synced_is_refused(project: MakeProject) -> None:
    """Where two hosts share a lake and one is upgraded, the other must say so by name, and load nothing anew."""
    shop = project(incremental=["public.t:id:integer"])
    shop.execute("create table t (id int primary key); insert into t values (1)")
    shop.one("t")
    head = shop.table("t").head()
    assert head is not None
    newer = json.dumps({**json.loads(head.properties[STATE_PROPERTY]), "format": 99, "written_by": "9.1"})
    assert set_property_without_spark(shop.table("t"), head.version, STATE_PROPERTY, newer)
    for asked in ({}, {"reset": True}, {"mode": Mode.REFRESH}):
        line = shop.one("t", ok=False, **asked)
        assert line["status"] == "failed" and "incremental-assets, 9.1 (format 99" in line["message"], line
        assert "shop/t" in line["message"]
    after = shop.table("t").head()
    assert after is not None and after.version == head.version + 1, "nothing was written"


def test_files_that_a_newer_version_has_recorded_are_not_read_again(folder: MakeFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the older one of two hosts reads all files again, and takes away what the newer one has noted of them."""
    landing = folder(**LANDING)
    landing.put("a.csv", FILES["a.csv"])
    with monkeypatch.context() as newer:
        newer.setattr(manifest, "FORMAT", 2)
        newer.setattr(manifest, "product_version", lambda: "9.1")
        landing.one("all")
    before = landing.table("all").head()
    landing.put("b.csv", FILES["b.csv"])
    for asked in ({}, {"reset": True}):
        line = landing.one("all", ok=False, **asked)
        assert line["status"] == "failed", line
        assert "landing/all: the list of files that it has read was written by" in line["message"] and "9.1 or newer" in line["message"]
    assert landing.table("all").head() == before and landing.files("all") == {"a.csv": 1}


def test_a_catalog_of_a_newer_version_is_refused(project: MakeProject) -> None:
    """Otherwise it says that the catalog should be deleted, and with it the identifiers and calendars that the newer version found."""
    shop = project()
    shop.execute("create table t (id int primary key)")
    shop.write()
    shop.cli("catalog", spark=False)
    (path,) = shop.path.glob("defs/.local_defs_state/*/state")
    newer = json.dumps({**json.loads(path.read_text()), "format": 99, "written_by": "9.1"})
    path.write_text(newer)
    _, lines, said = shop.cli("sync", "--json", spark=False, check=1)
    assert "shop" in said and "its catalog was written by a newer version of incremental-assets, 9.1 (format 99" in said and not lines
    assert path.read_text() == newer


def test_a_catalog_with_announced_tables_is_of_a_format_of_its_own(project: MakeProject, release: Path) -> None:
    """Versions before do not know announced tables, and said that the catalog should be deleted: it looked broken to them."""
    shop = project(on_new_table="announce")
    shop.execute("create table t (id int primary key)")
    shop.write()
    shop.cli("catalog", spark=False)
    shop.execute("create table later (id int primary key)")
    shop.cli("catalog", spark=False)
    (path,) = shop.path.glob("defs/.local_defs_state/*/state")
    before = json.loads((release / "shop-catalog.json").read_text())["format"]
    assert (before, json.loads(path.read_text())["format"]) == (2, 3)
    assert {one.table.name: one.presence for one in Catalog.load(path).entries}["later"] is Presence.ANNOUNCED


def test_a_value_that_only_a_newer_version_can_have_written_is_said_to_be_so(project: MakeProject) -> None:
    """Whoever forgets to raise a format must not send users off to delete what is stored, or to read the trace of a ValueError."""
    shop = project(incremental=["public.t:id:integer"], containers={"t": {"checks": [{"rule": "min", "column": "id", "min": 5}]}})
    shop.execute("create table t (id int primary key); insert into t values (1)")
    shop.one("t", ok=False)
    shop.write()
    shop.cli("catalog", spark=False)
    (path,) = shop.path.glob("defs/.local_defs_state/*/state")
    stored = json.loads(path.read_text())
    (entry,) = stored["entries"]
    for changed in ({"presence": "lent"}, {"table": {**entry["table"], "kind": "lent"}}):
        path.write_text(json.dumps({**stored, "entries": [{**entry, **changed}], "written_by": "9.1"}))
        _, _, said = shop.cli("status", spark=False, check=1)
        assert "its catalog was written by a newer version of incremental-assets, 9.1 (it has 'lent', which version" in said, said
    path.write_text(json.dumps(stored))
    records = Records(str(shop.lake_root), "shop")
    (row,) = records.tables[ANOMALIES].read().to_pylist()
    later = {**row, "recording": None, "severity": "lent", "changed_at": row["changed_at"] + timedelta(seconds=1)}
    records.tables[ANOMALIES].append([later])
    _, _, said = shop.cli("anomalies", spark=False, check=1)
    assert "shop/t: a record of its scans was written by a newer version of incremental-assets (it has 'lent'" in said, said
    with pytest.raises(NewerFormat, match="the cursor of the alerts was written by a newer version"):
        from_cursor(json.dumps({"x": {"problems": {"p": {"severity": "lent", "text": ""}}, "runs": {}}}))
    head = shop.table("t").head()
    assert head is not None
    newer = json.dumps({**json.loads(head.properties[STATE_PROPERTY]), "inherited": "lent", "written_by": "9.1"})
    assert set_property_without_spark(shop.table("t"), head.version, STATE_PROPERTY, newer)
    message = shop.one("t", ok=False)["message"]
    assert "shop/t: the state of its table was written by a newer version of incremental-assets, 9.1 (it has 'lent'" in message


def test_what_is_stored_says_which_version_has_written_it(release: Path) -> None:
    """Without it, the message about a newer format cannot say what to install."""
    head = LakeTable(str(release / "tables"), "shop", "appended").head()
    rows = LakeTable(str(release / "tables"), "landing", FILES_FOLDER, "all").opened()
    assert head is not None and rows is not None
    catalog = json.loads((release / "shop-catalog.json").read_text())
    noted = [catalog, json.loads(head.properties[STATE_PROPERTY]), *read_rows(rows).to_pylist()]
    assert {one["written_by"] for one in noted} == {catalog["written_by"]} and catalog["written_by"]
