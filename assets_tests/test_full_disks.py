"""A sync that runs out of disk space leaves the table whole, and the next one goes on.

Belongs here: full disks below the lake, below Spark's temporary files, and below DAGSTER_HOME.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assets_tests.harness import Project
from incremental_assets.delta.engine import WRITE_BY
from incremental_assets.spark.session import stop_server

MakeProject = Callable[..., Project]


@contextlib.contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """A file system of this size, mounted at the folder. The test is skipped where that is not allowed."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False).returncode:
        pytest.skip("a file system of a given size can only be mounted by root outside of containers")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MB."""
    with mounted(tmp_path / "small", "40m") as folder:
        yield folder


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 kB."""
    with mounted(tmp_path / "tiny", "400k") as folder:
        yield folder


def fill(folder: Path) -> Path:
    """Writes a file that takes all space of the folder's disk, and returns it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue
    return filler


@pytest.mark.long
def test_a_full_disk_below_the_lake_leaves_the_table_whole(project: MakeProject, tiny_disk: Path) -> None:
    """A half-written table must not be read as a whole one, and the next sync must write the rows once there is space."""
    made = project(incremental=["public.t:id:integer"])
    made.execute("create table t (id int, noise text); insert into t values (1, 'a')")
    made.lake = str(tiny_disk / "lake")
    made.one("t")
    noise = "(select string_agg(md5(random()::text || g || i), '') from generate_series(1, 50) g)"
    made.execute(f"insert into t select i, {noise} from generate_series(2, 900) i")
    full = made.one("t", ok=False)
    assert full["status"] == "failed" and "No space left" in full["message"] and "then sync again" in full["message"], full["message"]
    assert made.rows("t", "id") == [(1,)]
    subprocess.run(["mount", "-o", "remount,size=50m", str(tiny_disk)], check=True)
    made.one("t")
    made.assert_equal("t")


@pytest.mark.long
def test_a_full_disk_below_sparks_temporary_files_leaves_the_table_whole(
    project: MakeProject, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a query fails because it cannot write what it sorts, the old rows must stay and the next sync must bring the new ones."""
    monkeypatch.setenv(
        "INCREMENTAL_ASSETS_SPARK_CONF", f"{os.environ['INCREMENTAL_ASSETS_SPARK_CONF']};spark.sql.autoBroadcastJoinThreshold=-1"
    )
    monkeypatch.setenv("INCREMENTAL_ASSETS_SPARK_MEMORY", "1g")
    monkeypatch.setenv(WRITE_BY, "spark")  # so few rows would be written without it
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    shop = project(incremental=["public.t:at:timestamp!upsert"])
    shop.spark_home = small_disk
    shop.execute("""create table t (id int primary key, noise text, at timestamptz not null default now());
        insert into t select i, md5(i::text) from generate_series(1, 20000) i""")
    try:
        shop.one("t")
        before = sorted(shop.rows("t", "id, noise"))
        shop.execute("update t set noise = md5(noise) || md5(id::text), at = now(); delete from t where id > 19000")
        filler = fill(small_disk)
        full = shop.one("t", ok=False)
        assert full["status"] == "failed" and "No space left" in full["message"], full["message"]
        assert sorted(shop.rows("t", "id, noise")) == before
        filler.unlink()
        shop.one("t")
        shop.assert_equal("t")
    finally:
        stop_server(small_disk)


@pytest.mark.long
def test_a_full_disk_below_dagster_home_leaves_the_container_syncable(project: MakeProject, small_disk: Path) -> None:
    """A run that cannot be recorded must not leave a watermark without its rows, or a container that cannot be synced any more."""
    shop = project(incremental=["public.t:id:integer"])
    shop.write()
    shutil.rmtree(shop.home)
    shop.home.symlink_to(small_disk)
    shop.execute("create table t (id int, note text); insert into t select i, 'a' from generate_series(1, 100) i")
    shop.cli("sync", "--json")
    shop.execute("insert into t select i, 'b' from generate_series(101, 150) i")
    filler = fill(small_disk)
    code, lines, stderr = shop.cli("sync", "--json", check=None)
    assert code == 1, (lines, stderr)
    assert "Traceback" not in stderr and "cannot be used" in stderr and "Free space" in stderr, (lines, stderr)
    filler.unlink()
    shop.cli("sync", "--json")
    shop.assert_equal("t")
