"""This version syncs a lake and a DAGSTER_HOME that an older version's code has made.

Belongs here: what an upgrade must not lose. Does not belong: catalogs of older formats (``test_catalog``).
"""

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from assets_tests.harness import Folder, Project
from assets_tests.soak import ROOT

MakeProject = Callable[..., Project]
BEFORE = "2296e75c9ee99c3eb916e7392e37fdc8a24ee7a1"


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the product's code of the older version."""
    done = subprocess.run(["git", "archive", BEFORE, "incremental_assets"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"this clone does not have the commit {BEFORE[:7]}: {done.stderr.decode(errors='replace').strip()}")
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    for name in (".jars", ".java"):
        if (ROOT / name).exists():
            (folder / name).symlink_to((ROOT / name).resolve())
    return folder


def older_sync(older: Path, project: Project | Folder) -> list[dict[str, Any]]:
    """Runs `sync` of the older version. It is started in the folder of its code, where Python looks first. Returns the lines of
    ``--json``."""
    for name in ("watermark_margin_seconds", "on_new_table"):
        project.attributes.pop(name, None)  # that version does not know this attribute
    project.write()
    command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(project.path), "sync", "--json"]
    done = subprocess.run(command, cwd=older, env=project.environment(), capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.long
def test_a_lake_of_an_older_version_is_not_loaded_anew_and_loses_no_row(project: MakeProject, older: Path) -> None:
    """After an upgrade, tables must not be loaded anew, and a row that was committed during the last sync of the old version must
    arrive."""
    shop = project(
        incremental=["public.appended:id:integer", "public.merged:at:timestamp!upsert"],
        containers={"appended": {"partition_by": 100}, "merged": {"partition_by": "month", "safety_lag": 3600}},
    )
    shop.execute("""create table appended (id bigserial primary key, note text);
        insert into appended (note) select 'a' from generate_series(1, 250);
        create table merged (id int primary key, note text, at timestamptz);
        insert into merged select i, 'a', timestamptz '2026-01-01' + i * interval '1 hour' from generate_series(1, 900) i;
        insert into merged values (0, 'undated', null);
        create table whole (id int, note text); insert into whole values (1, 'a')""")
    with psycopg.connect(shop.url) as late:
        assert {line["status"] for line in older_sync(older, shop)} == {"synced"}
        late.execute("insert into appended (note) values ('drawn during the second old sync')")
        shop.execute("insert into appended (note) values ('overtakes')")
        held = {str(line["container"]): line for line in older_sync(older, shop)}
        assert (held["shop/appended"]["watermark"]["previous"], held["shop/appended"]["watermark"]["new"]) == (250, 250)
        late.commit()
    shop.execute("update merged set note = 'b', at = '2026-02-20' where id in (3, 900); delete from merged where id = 899")
    shop.execute("update whole set note = 'b'")
    lines = shop.sync()
    assert {line["status"] for line in lines.values()} == {"synced"}, lines
    assert lines["appended"]["watermark"]["previous"] == 250 and lines["appended"]["rows_read"] < 10
    assert lines["merged"]["watermark"]["previous"] is not None and lines["merged"]["rows_read"] < 20
    for name in ("appended", "merged", "whole"):
        shop.assert_equal(name)
    assert {line["status"] for line in shop.sync().values()} == {"skipped"}


@pytest.mark.long
def test_files_that_an_older_version_has_read_are_not_read_again(folder: Callable[..., Folder], older: Path) -> None:
    """After an upgrade, files that were read must not be read again, unless they have changed."""
    landing = folder(containers={"all": {"glob": "*.csv", "format": "csv", "options": {"header": True}}}, settle_seconds=0)
    for name in ("a.csv", "b.csv", "c.csv"):
        landing.put(name, f"id,note\n1,{name}\n")
    assert {line["status"] for line in older_sync(older, landing)} == {"synced"}
    assert landing.one("all")["status"] == "skipped"
    landing.put("b.csv", "id,note\n1,b\n2,b\n")
    landing.put("d.csv", "id,note\n1,d\n")
    assert landing.one("all")["rows_read"] == 3
    assert landing.files("all") == {"a.csv": 1, "b.csv": 2, "c.csv": 1, "d.csv": 1}
