"""Links in a folder, and what becomes one while it is read: nothing outside of the folder comes into the lake, and no rows go.

Belongs here: links as a sync meets them. Elsewhere: listing them (``test_file_listing``).
"""

import bz2
import gzip
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assets_tests.harness import Folder, long
from incremental_assets.core.errors import SourceError
from incremental_assets.core.files import FileFormat
from incremental_assets.files import beneath
from incremental_assets.files.listing import FolderAddress
from incremental_assets.files.readers.read import FileRows, ReadFile, Reading
from incremental_assets.files.readers.staging import SPARE, Staging
from incremental_assets.spark.session import SparkSession, open_session

Make = Callable[..., Folder]


@pytest.fixture(scope="module")
def spark(spark_home: Path) -> Iterator[SparkSession]:
    with open_session(spark_home, name="test_files_links") as session:
        yield session


# ---------------------------------------------------------------- links that stay
def test_a_folder_that_became_a_link_keeps_its_rows(folder: Make) -> None:
    """Otherwise, where a folder is moved to a larger disk and a link is left in its place, prune_files removes all of its rows."""
    project = folder(prune_files=True, containers={"sales": {"glob": "**/*.csv"}})
    for number, name in enumerate(("eu/a.csv", "us/a.csv", "b.csv")):
        project.put(name, f"id\n{number}\n")
    assert project.one("sales")["rows_read"] == 3
    for gone in (False, True):
        (project.root / "eu").rename(project.path / "elsewhere")
        (project.root / "eu").symlink_to(project.path / ("unmounted" if gone else "elsewhere"))
        line = project.one("sales")
        assert line["status"] == "warning" and "'eu' in" in line["message"], line
        assert ("is a link to what is not there" if gone else "is a link to a folder, which is not followed") in line["message"]
        assert project.files("sales") == {"eu/a.csv": 1, "us/a.csv": 1, "b.csv": 1}
        (project.root / "eu").unlink()
        (project.path / "elsewhere").rename(project.root / "eu")
    assert project.one("sales")["status"] == "skipped"


def test_a_pattern_below_a_link_out_of_the_folder_is_refused_and_the_others_go_on(folder: Make) -> None:
    """Otherwise it is listed as if it were a folder, or its container stops all others; one within the folder is read as before."""
    project = folder(containers={"eu": {"glob": "eu/*.csv"}, "us": {"glob": "us/*.csv"}})
    project.put("us-2024/a.csv", "id\n1\n")
    (project.root / "us").symlink_to("us-2024")
    (project.root / "eu").symlink_to(project.path)
    lines = project.sync()
    assert lines["eu"]["status"] == "failed" and "'eu' in" in lines["eu"]["message"], lines
    assert "is a link that leads out of the folder" in lines["eu"]["message"]
    assert lines["us"]["status"] == "synced" and project.files("us") == {"us/a.csv": 1}


# ---------------------------------------------------------------- what becomes a link while it is read
class Landing:
    """A folder with one file in a sub-folder, and outside of it a secret in a file of the same name, which this user may read."""

    def __init__(self, path: Path, name: str, content: Callable[[str], bytes]) -> None:
        self.path, self.name, self._root = path / "landing", f"sub/{name}", path
        for folder, value in ((self.path, "good"), (path / "outside", "secret")):
            (folder / "sub").mkdir(parents=True)
            (folder / self.name).write_bytes(content(value))
        self.address = FolderAddress.parse("landing", str(self.path))
        self.is_swapped = False

    def swap(self, what: str) -> None:
        """Puts a link to the secret in the place of the file, or of the folder that the file is in."""
        if not self.is_swapped:
            swapped = self.name if what == "file" else "sub"
            (self.path / swapped).rename(self._root / "aside")
            (self.path / swapped).symlink_to(self._root / "outside" / swapped)
            self.is_swapped = True


def lines(value: str) -> bytes:
    return f"value\n{value}\n".encode()


def parquet(value: str) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"value": [value]}), out)
    return out.getvalue().to_pybytes()


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_becomes_a_link_before_it_is_opened_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Otherwise who may write to a landing folder reads every file of this machine, by a link that comes after the path was looked at."""
    landing, real = Landing(tmp_path, "a.csv", lines), beneath.inside

    def then_swapped(root: str, path: str) -> str:
        found = real(root, path)
        landing.swap(what)
        return found

    monkeypatch.setattr(beneath, "inside", then_swapped)
    with pytest.raises(SourceError, match="is a link that leads out of the folder"):
        landing.address.head(landing.name, 10)
    assert landing.is_swapped


def test_a_folder_that_becomes_a_link_before_it_is_listed_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the names of files elsewhere become partitions."""
    landing, real = Landing(tmp_path, "a.csv", lines), beneath.inside

    def then_swapped(root: str, path: str) -> str:
        found = real(root, path)
        if path == "sub":
            landing.swap("folder")
        return found

    monkeypatch.setattr(beneath, "inside", then_swapped)
    troubles: dict[str, str] = {}
    assert list(landing.address.list("", troubles)) == [] and landing.is_swapped
    assert "'sub' in" in troubles["sub"] and "leads out of the folder" in troubles["sub"]


@pytest.mark.parametrize("way", ["descriptor", *long("copy")])
@pytest.mark.parametrize(
    ("format", "ending", "content", "what"),
    [
        ("text", "", str.encode, "file"),
        *long(
            ("text", "", str.encode, "folder"),
            ("csv", ".gz", lambda value: gzip.compress(lines(value)), "file"),
            ("csv", ".BZ2", lambda value: bz2.compress(lines(value)), "folder"),
            ("json", "", lambda value: b'{"value": "%s"}' % value.encode(), "file"),
            ("parquet", "", parquet, "file"),
            ("parquet", "", parquet, "folder"),
        ),
    ],
)
def test_what_becomes_a_link_before_spark_reads_it_is_not_followed(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
    ending: str,
    content: Callable[[str], bytes],
    what: str,
    way: str,
) -> None:
    """Spark opens a file by its path, some time after this was looked at: a link in that time would bring any file into the lake."""
    landing, real = Landing(tmp_path, f"a.{format}{ending}", content), Staging.load
    if way == "copy":
        monkeypatch.setenv("SPARK_REMOTE", "sc://a-server-that-may-see-no-descriptor-of-this-process")

    def swapped(self: Staging, *args: Any) -> Any:
        landing.swap(what)
        return real(self, *args)

    monkeypatch.setattr(Staging, "load", swapped)
    before = len(os.listdir("/proc/self/fd"))
    file = ReadFile(landing.name, landing.name, 0)
    rows = FileRows(spark, landing.address, Reading(FileFormat(format)), [file], [], tmp_path / "staging")
    try:
        assert [row["value"] for row in rows.good().collect()] == ["good"] and landing.is_swapped
        assert (len(os.listdir("/proc/self/fd")) > before) == (way == "descriptor")
    finally:
        rows.close()
    assert len(os.listdir("/proc/self/fd")) == before, "a descriptor that stays open keeps a removed file on the disk"


def test_files_beyond_the_limit_of_descriptors_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a sync of many files fails with Too many open files, where the system allows only some."""
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(str(number))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (0, len(os.listdir("/proc/self/fd")) + SPARE + 1))
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: limits.append(both))
    staging = Staging(FolderAddress.parse("landing", str(tmp_path)), Reading(FileFormat.TEXT), tmp_path / "staging")
    try:
        assert not any(
            isinstance(one, SourceError) for one in staging.take([ReadFile(f"{n}.txt", f"{n}.txt", 0) for n in range(3)]).values()
        )
        staged = sorted(next((tmp_path / "staging").iterdir()).iterdir())
        assert [path.is_symlink() for path in staged] == [True, False, False]
        assert [path.read_text() for path in staged] == ["0", "1", "2"] and len(limits) == 1
    finally:
        staging.close()
