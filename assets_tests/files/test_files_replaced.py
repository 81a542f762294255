"""Files that were replaced by others of the same name, modification time and size.

Belongs here: what a user sees of it in a real folder and a real lake. Does not belong: changes that time or size show (``test_files``).
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import write_deltalake

from assets_tests.harness import Folder
from incremental_assets.core.files import FileStamp
from incremental_assets.core.stored_format import WRITTEN_BY
from incremental_assets.files import mounts, trees
from incremental_assets.files.manifest import Manifest

Make = Callable[..., Folder]


def replaced(project: Folder, name: str, content: str) -> None:
    """Puts another file in the place of one, with its modification time, as a restored backup does."""
    old = project.root / name
    before = old.stat()
    other = old.with_name("_new")
    other.write_text(content)
    assert other.stat().st_size == before.st_size
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(old)


def test_a_file_replaced_by_one_of_the_same_time_and_size_is_read(folder: Make) -> None:
    """Otherwise the lake keeps the rows of a file that is no longer there, and each sync says that there is nothing to do."""
    project = folder(containers={"sales": {"glob": "*.csv"}})
    project.put("a.csv", "id,v\n1,10\n")
    project.put("b.csv", "id,v\n2,20\n")
    project.one("sales")
    replaced(project, "a.csv", "id,v\n1,11\n")
    line = project.one("sales")
    assert line["status"] == "synced" and "1 of the same time and size that may have been replaced" in line["message"], line
    assert sorted(project.rows("sales", "id, v")) == [(1, 11), (2, 20)]
    assert project.one("sales")["status"] == "skipped"

    os.chmod(project.root / "a.csv", 0o640)  # from now on, its hash decides
    same = project.one("sales")
    assert same["rows_read"] == 0 and "1 of them have the same content as before" in same["message"], same
    assert project.one("sales")["status"] == "skipped"
    replaced(project, "a.csv", "id,v\n1,12\n")
    project.one("sales")
    assert sorted(project.rows("sales", "id, v")) == [(1, 12), (2, 20)]


def test_files_that_an_earlier_version_has_read_get_an_identity_without_being_read(folder: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an upgrade reads all files again, or never notices that one of the older ones is replaced."""
    project = folder(containers={"sales": {"glob": "*.csv"}})
    project.put("a.csv", "id,v\n1,10\n")
    with monkeypatch.context() as patched:
        patched.setattr(trees, "identifies_files", lambda _folder: False)
        project.one("sales")
    manifest = Manifest(str(project.lake_root), ("landing", "sales")).table.opened()
    assert manifest is not None
    rows = manifest.to_pyarrow_table().drop_columns(["identity", "sha256", "format", WRITTEN_BY])
    write_deltalake(manifest, rows, mode="overwrite", schema_mode="overwrite")  # as an earlier version wrote it
    assert project.one("sales")["status"] == "skipped"
    project.put("b.csv", "id,v\n2,20\n")
    assert project.one("sales")["rows_read"] == 1
    replaced(project, "a.csv", "id,v\n1,11\n")
    assert project.one("sales")["rows_read"] == 1
    assert sorted(project.rows("sales", "id, v")) == [(1, 11), (2, 20)]


@pytest.mark.parametrize(("kind", "identifies"), [("ext4", True), ("nfs4", False), ("fuse.sshfs", False), ("9p", False)])
def test_network_mounts_do_not_identify_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, identifies: bool) -> None:
    """Otherwise a server that numbers its files anew has all of them read again at each tick."""
    inner = tmp_path / "in here"
    inner.mkdir()
    listed = tmp_path / "mountinfo"
    point = str(inner).replace(" ", "\\040")
    listed.write_text(f"22 1 8:1 / / rw - xfs /dev/sda1 rw\n23 22 0:40 / {point} rw,relatime shared:9 - {kind} server:/x rw\n")
    monkeypatch.setattr(mounts, "_MOUNTS", str(listed))
    (inner / "a.csv").touch()
    [(_, stamp)] = trees.LocalTree(str(inner)).entries("")
    assert isinstance(stamp, FileStamp) and (stamp.identity is not None) is identifies
    monkeypatch.setattr(mounts, "_MOUNTS", str(tmp_path / "none"))
    assert not mounts.identifies_files(str(inner))
