"""Listing a real folder, a folder in memory, and one whose driver misbehaves; the first bytes of a file.

Belongs here: what is found, what is said when something cannot be. Elsewhere: what follows from it (``test_model_files``), S3.
"""

import bz2
import datetime
import gzip
import os
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.spec import AbstractFileSystem
from fsspec.utils import compressions

from incremental_assets.core.errors import ConfigurationError, SourceError, SourceInterrupted, SourceUnreachable
from incremental_assets.core.files import FileStamp
from incremental_assets.files.listing import FolderAddress

HOSTILE = [
    "a b.csv",
    "'\".csv",
    "a...b.csv",
    "two\nlines.csv",
    "ü😀.csv",
    "100%.csv",
    "%41.csv",
    "a::b.csv",
    "-.csv",
    "x" * 250 + ".csv",
    "~",
]


def address(folder: object) -> FolderAddress:
    return FolderAddress.parse("landing", str(folder))


def listed(folder: object, prefix: str = "") -> list[str]:
    return sorted(path for path, _ in address(folder).list(prefix))


def write(path: Path, data: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


class Canned(AbstractFileSystem):
    """A driver that tells what a test wants: details by folder, or an error."""

    protocol = "canned"
    cachable = False
    folders: ClassVar[dict[str, list[dict[str, Any]] | Exception]] = {}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        found = self.folders.get(path.strip("/"), FileNotFoundError(path))
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def canned() -> Iterator[dict[str, Any]]:
    fsspec.register_implementation("canned", Canned, clobber=True)
    Canned.folders = {}
    yield Canned.folders
    Canned.folders = {}


@pytest.fixture
def memory() -> Iterator[AbstractFileSystem]:
    files = fsspec.filesystem("memory")

    def empty() -> None:
        files.store.clear()
        files.pseudo_dirs[:] = [""]

    empty()  # other tests of this process have files there, too
    yield files
    empty()


# ---------------------------------------------------------------- local folders
def test_files_are_found_with_time_and_size(tmp_path: Path) -> None:
    """Otherwise a change goes unseen, or every file is read again at each tick."""
    os.utime(write(tmp_path / "sales" / "2024" / "a.csv", b"12345"), ns=(0, 1_700_000_000_123_456_789))
    os.utime(write(tmp_path / "old.csv"), ns=(0, -1_000))
    assert {path: stamp[:3] for path, stamp in address(tmp_path).list()} == {
        "sales/2024/a.csv": (1_700_000_000_123_456, 5, None),
        "old.csv": (-1, 0, None),
    }


def test_hostile_names_are_found_as_they_are(tmp_path: Path) -> None:
    """Otherwise one strange name ends the listing, or its file is never loaded."""
    for name in HOSTILE:
        write(tmp_path / name / name, b"x")
    with open(os.fsencode(tmp_path) + b"/\xff.csv", "wb") as file:
        file.write(b"no UTF-8")
    assert listed(tmp_path) == sorted([*(f"{name}/{name}" for name in HOSTILE), "\udcff.csv"])
    assert {address(tmp_path).head(f"{name}/{name}", 9) for name in HOSTILE} == {b"x"}
    assert address(tmp_path).head("\udcff.csv", 9) == b"no UTF-8"


@pytest.mark.parametrize("url", ["{}", "file://{}", "local://{}", "{}/"])
def test_a_local_folder_has_several_spellings(tmp_path: Path, url: str) -> None:
    """Otherwise a folder that worked with another tool's spelling is not found."""
    folder = tmp_path / "it's 100% a::b"
    write(folder / "a.csv", b"text")
    assert listed(url.format(folder)) == ["a.csv"]
    assert address(url.format(folder)).head("a.csv", 2) == b"te"


def test_hidden_files_and_folders_are_left_out(tmp_path: Path) -> None:
    """Otherwise markers and half-written files of a job are partitions. One that the YAML names is meant."""
    for path in ("_SUCCESS", "_temporary/0/a.csv", ".x.csv", "a/.part/b.csv", "a/b.csv"):
        write(tmp_path / path)
    assert listed(tmp_path) == ["a/b.csv"]
    assert listed(tmp_path, "_temporary") == ["_temporary/0/a.csv"]


def test_a_listing_begins_below_the_given_folder(tmp_path: Path) -> None:
    """Otherwise each container of a large datastore costs the listing of all of it. A folder that has no files any more is no failure."""
    write(tmp_path / "sales" / "a.csv")
    write(tmp_path / "sales2" / "b.csv")
    assert listed(tmp_path, "sales") == ["sales/a.csv"]
    assert listed(tmp_path, "gone/away") == []
    assert listed(tmp_path, "sales/a.csv") == []


TREE = ["x.csv", "orders_1.csv", "a/orders_1.csv", "a/x.csv", "a/b/x.csv", "a/b/c/x.csv", "a/_h/x.csv", "d/x.csv", "d/e/f/x.csv"]


@pytest.mark.parametrize(
    ("prefix", "wanted", "files", "folders"),
    [
        ("", ["orders_*.csv"], ["orders_1.csv"], [""]),
        ("", ["a/*/x.csv"], ["a/b/x.csv"], ["a", "a/b"]),
        ("a", ["a/*/x.csv"], ["a/b/x.csv"], ["a", "a/b"]),
        ("", ["a/b/x.csv"], ["a/b/x.csv"], ["a/b"]),
        ("", ["a/b/**"], ["a/b/c/x.csv", "a/b/x.csv"], ["a/b", "a/b/c"]),
        ("", ["*/x.csv", "d/**/x.csv"], ["a/x.csv", "d/e/f/x.csv", "d/x.csv"], ["", "a", "d", "d/e", "d/e/f"]),
        ("", ["a/b/x.csv", "a/orders_*.csv"], ["a/b/x.csv", "a/orders_1.csv"], ["a", "a/b"]),
        ("a/b", ["a/b/x.csv", "a/orders_*.csv"], ["a/b/x.csv"], ["a/b"]),
        ("a/b/", ["*/x.csv"], [], []),
        ("d", ["a/**", "a/b/x.csv"], [], []),
        ("a", ["ab/x.csv"], [], []),
        ("", ["a/_h/*.csv"], ["a/_h/x.csv"], ["a/_h"]),
        ("", ["gone/*.csv"], [], []),
        ("", [], sorted(path for path in TREE if "_h" not in path), ["", "a", "a/b", "a/b/c", "d", "d/e", "d/e/f"]),
    ],
)
def test_only_folders_that_can_hold_a_match_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str, wanted: list[str], files: list[str], folders: list[str]
) -> None:
    """Otherwise a container of a few files at the top costs the listing of everything below, at each tick; or some are missed."""
    for path in TREE:
        write(tmp_path / path)
    looked: list[str] = []
    real: Callable[[int], Any] = os.scandir

    def scandir(path: int) -> Any:
        looked.append(os.path.relpath(os.readlink(f"/proc/self/fd/{path}"), tmp_path).removeprefix("."))
        return real(path)

    monkeypatch.setattr("os.scandir", scandir)
    assert sorted(path for path, _ in address(tmp_path).list(prefix, None, wanted)) == files
    assert sorted(looked) == folders


def test_errors_in_folders_that_can_hold_no_match_are_not_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a closed folder beside the files of a container makes each of its runs warn, and its files count as not seen."""
    for path in ("closed/a.csv", "open/b.csv", "c.csv"):
        write(tmp_path / path)
    (tmp_path / "itself").symlink_to("itself")
    refusing(monkeypatch, tmp_path / "closed", PermissionError(13, "Permission denied"))
    for wanted, files, told in (
        ("*.csv", ["c.csv"], []),
        ("open/*", ["open/b.csv"], []),
        ("o*/*.csv", ["open/b.csv"], []),
        ("*/*.csv", ["open/b.csv"], ["closed", "itself"]),
        ("i*", [], ["itself"]),
    ):
        troubles: dict[str, str] = {}
        assert [path for path, _ in address(tmp_path).list("", troubles, [wanted])] == files
        assert sorted(troubles) == told, wanted
    with pytest.raises(SourceUnreachable, match="is not there"):
        list(address(tmp_path / "gone").list("x", None, ["a/*.csv"]))


def test_links_to_files_are_followed_and_circles_end(tmp_path: Path) -> None:
    """Otherwise the listing never ends, opens a pipe that nobody writes to, or fails at a link whose file is gone."""
    write(tmp_path / "real.csv", b"123")
    (tmp_path / "link.csv").symlink_to("real.csv")
    (tmp_path / "dangling.csv").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to(".")
    os.mkfifo(tmp_path / "pipe.csv")
    troubles: dict[str, str] = {}
    found = dict(address(tmp_path).list("", troubles))
    assert (sorted(found), found["link.csv"].size) == (["link.csv", "real.csv"], 3)
    assert sorted(troubles) == ["circle", "dangling.csv"], "a folder or file that has become a link is not gone"
    assert "'circle' in" in troubles["circle"] and "is a link to a folder, which is not followed" in troubles["circle"]
    assert "is a link to what is not there" in troubles["dangling.csv"]
    assert dict(address(tmp_path).list("", None, ["real.csv"])), "what no pattern matches is not reported"


def test_a_link_to_itself_is_reported(tmp_path: Path) -> None:
    """Otherwise one broken link hides all other files of its folder."""
    (tmp_path / "itself.csv").symlink_to("itself.csv")
    write(tmp_path / "a.csv")
    troubles: dict[str, str] = {}
    assert [path for path, _ in address(tmp_path).list("", troubles)] == ["a.csv"]
    assert list(troubles) == ["itself.csv"] and "symbolic links" in troubles["itself.csv"]


def test_a_link_that_leaves_the_folder_is_refused_and_named(tmp_path: Path) -> None:
    """Otherwise who may put a link into a landing folder reads every file of this machine through the lake."""
    secret = write(tmp_path / "secret.csv", b"password")
    inbox = tmp_path / "inbox"
    write(inbox / "sub" / "real.csv", b"123")
    (inbox / "inside.csv").symlink_to("sub/real.csv")
    (inbox / "sub" / "up.csv").symlink_to("../sub/real.csv")
    (inbox / "absolute.csv").symlink_to(secret)
    (inbox / "sub" / "climbs.csv").symlink_to("../../secret.csv")
    (inbox / "chain.csv").symlink_to("absolute.csv")
    (tmp_path / "inbox2").mkdir()
    (inbox / "sibling.csv").symlink_to(write(tmp_path / "inbox2" / "begins_alike.csv"))
    troubles: dict[str, str] = {}
    found = [path for path, _ in address(inbox).list("", troubles)]
    assert sorted(found) == ["inside.csv", "sub/real.csv", "sub/up.csv"]
    assert sorted(troubles) == ["absolute.csv", "chain.csv", "sibling.csv", "sub/climbs.csv"]
    assert f"'absolute.csv' in {inbox} is a link that leads out of the folder, to {secret}" in troubles["absolute.csv"]
    # One that takes a file's place after the listing is not followed either.
    with pytest.raises(SourceError, match="leads out of the folder"):
        address(inbox).head("absolute.csv", 9)
    with pytest.raises(SourceError, match="leads out of the folder"):
        address(inbox).descriptor("chain.csv")
    linked = tmp_path / "linked"
    linked.symlink_to(inbox)  # the folder itself may be one
    assert address(linked).head("inside.csv", 3) == b"123"


def test_a_link_of_a_remote_folder_is_refused(canned: dict[str, Any]) -> None:
    """A server's links lead anywhere on the server."""
    canned["x"] = [
        {"name": "x/a.csv", "size": 1, "type": "file", "mtime": 1.0},
        {"name": "x/b.csv", "size": 1, "type": "link", "mtime": 1.0},
        {"name": "x/c.csv", "size": 1, "type": "file", "islink": True, "mtime": 1.0},
    ]
    troubles: dict[str, str] = {}
    assert [path for path, _ in address("canned://x").list("", troubles)] == ["a.csv"]
    assert sorted(troubles) == ["b.csv", "c.csv"] and "is a link" in troubles["b.csv"]


def test_an_error_of_disk_or_network_does_not_refuse_a_file(
    tmp_path: Path, canned: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an hour of a failing disk refuses good files, which are then not read until they change."""
    with pytest.raises(SourceInterrupted, match=r"Input/output error.*Have the disk looked at.*sync again"):
        address("/proc/self").head("mem", 10)  # the kernel's own EIO: nothing is mapped at address 0
    write(tmp_path / "a.csv", b"1")
    with pytest.raises(SourceInterrupted, match=r"No space left on device.*Free space"):
        with address(tmp_path).open("a.csv") as stream, open("/dev/full", "wb") as full:
            full.write(stream.read())
            full.flush()

    class ReadTimeoutError(Exception):
        """As botocore calls it, and it is no OSError."""

    def fails(error: Exception) -> Callable[..., Any]:
        def opened(*_: Any, **__: Any) -> Any:
            raise error

        return opened

    for error in (TimeoutError(), ConnectionResetError(104, "Connection reset by peer"), ReadTimeoutError("no answer for 60 s")):
        monkeypatch.setattr(Canned, "_open", fails(error))
        with pytest.raises(SourceInterrupted, match=r"Check the network, then sync again"):
            address("canned://x").head("a.csv", 1)
    monkeypatch.setattr(Canned, "_open", fails(PermissionError(13, "Permission denied")))
    with pytest.raises(SourceError) as refused:
        address("canned://x").head("a.csv", 1)
    assert not isinstance(refused.value, SourceInterrupted)


def refusing(monkeypatch: pytest.MonkeyPatch, folder: Path, error: OSError) -> None:
    """``os.scandir`` fails for one folder: tests run as root, whom no permission stops."""
    real: Callable[[int], Any] = os.scandir

    def scandir(path: int) -> Any:
        if os.path.samestat(os.fstat(path), folder.stat()):
            raise error
        return real(path)

    monkeypatch.setattr("os.scandir", scandir)


def test_a_sub_folder_that_may_not_be_read_is_reported_and_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise one closed folder stops all, or its files count as gone."""
    write(tmp_path / "closed" / "a.csv")
    write(tmp_path / "open" / "b.csv")
    refusing(monkeypatch, tmp_path / "closed", PermissionError(13, "Permission denied"))
    troubles: dict[str, str] = {}
    assert [path for path, _ in address(tmp_path).list("", troubles)] == ["open/b.csv"]
    assert list(troubles) == ["closed"]
    assert f"landing: 'closed' in {tmp_path} may not be read (Permission denied). Allow the user" in troubles["closed"]
    with pytest.raises(SourceError, match="may not be read"):
        listed(tmp_path)
    with pytest.raises(SourceUnreachable, match="closed may not be read"):
        listed(tmp_path, "closed")


def test_a_file_that_vanishes_meanwhile_is_skipped(tmp_path: Path) -> None:
    """Otherwise a listing fails whenever somebody tidies up."""
    for name in ("a.csv", "b.csv", "c/d.csv"):
        write(tmp_path / name)
    files = address(tmp_path).list()
    first, _ = next(files)
    for path in tmp_path.glob("**/*.csv"):
        path.unlink()
    (tmp_path / "c").rmdir()
    assert [first, *(path for path, _ in files)] == [first]


def test_a_datastore_that_vanishes_meanwhile_is_unreachable(tmp_path: Path) -> None:
    """Otherwise, when a disk is taken away during a listing, all files count as removed, and with prune_files their rows go."""
    folder = tmp_path / "landing"
    for name in ("a.csv", "b.csv", "c/d.csv"):
        write(folder / name)
    files = address(folder).list()
    next(files)
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(SourceUnreachable, match="is not there"):
        list(files)


def test_a_folder_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    """Otherwise a disk that is not mounted looks like a folder whose files were all removed."""
    message = f"landing: the folder {tmp_path}/gone is not there. Check the path, and that its disk is mounted."
    for prefix in ("", "sales"):
        with pytest.raises(SourceUnreachable) as raised:
            listed(tmp_path / "gone", prefix)
        assert str(raised.value) == message
    with pytest.raises(SourceUnreachable, match=r"is no folder\. Name the folder that the files are in"):
        listed(write(tmp_path / "a.csv"))


def test_a_file_is_listed_by_a_few_calls(tmp_path: Path) -> None:
    """Otherwise a tick over a large folder takes the sensor's minute."""
    for number in range(1000):
        (tmp_path / f"{number}.csv").touch()
    for wanted in ((), ("**/*.csv", "*.csv")):
        calls = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")  # of a function in Python, or in C

        sys.setprofile(count)
        try:
            found = list(address(tmp_path).list("", None, wanted))
        finally:
            sys.setprofile(None)
        assert len(found) == 1000
        assert calls < 20_000, "13 for each file; resolving its path alone would take 130"


def test_many_files_are_listed_with_little_memory(tmp_path: Path) -> None:
    """Otherwise a tick over a large folder takes the daemon's memory."""
    for number in range(20_000):
        (tmp_path / f"{number}.csv").touch()
    tracemalloc.start()
    assert sum(1 for _ in address(tmp_path).list()) == 20_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


# ---------------------------------------------------------------- other file systems
def test_files_of_another_file_system_are_found(memory: AbstractFileSystem) -> None:
    """Otherwise only local folders work."""
    before = time.time_ns() // 1000
    for path in ("/landing/sales/a b.csv", "/landing/c.csv", "/landing/_x/d.csv", "/landing/.e.csv", "/other/f.csv"):
        memory.pipe_file(path, b"123")
    found = dict(address("memory://landing").list())
    assert sorted(found) == ["c.csv", "sales/a b.csv"]
    assert all(stamp.size == 3 and before - 1000 <= stamp.modified <= time.time_ns() // 1000 + 1000 for stamp in found.values())
    assert listed("memory://landing", "sales") == ["sales/a b.csv"]
    assert listed("memory://landing", "gone") == []
    assert "landing/c.csv" in listed("memory://"), "also without a folder"
    assert address("memory://landing").head("sales/a b.csv", 2) == b"12"
    with pytest.raises(SourceUnreachable, match="memory://nothing is not there"):
        listed("memory://nothing")
    with pytest.raises(SourceUnreachable, match="is no folder"):
        listed("memory://landing/c.csv")


MOMENT = datetime.datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=datetime.timezone.utc)
MICROS = 1_704_164_645_678_000


@pytest.mark.parametrize(
    ("detail", "stamp"),
    [
        ({"LastModified": MOMENT, "ETag": '"abc"', "size": 7}, FileStamp(MICROS, 7, "abc")),  # s3fs
        ({"updated": "2024-01-02T03:04:05.678Z", "etag": "e", "md5Hash": "m", "size": 7}, FileStamp(MICROS, 7, "e")),  # gcsfs
        ({"last_modified": MOMENT, "etag": None, "size": 7}, FileStamp(MICROS, 7, None)),  # adlfs
        ({"mtime": MICROS / 1_000_000, "created": 0.0, "size": 7}, FileStamp(MICROS, 7, None)),
        ({"mtime": MOMENT.replace(tzinfo=None), "size": None}, FileStamp(MICROS, 0, None)),
        ({"modified": "2024-01-02T04:04:05.6780000+01:00", "size": 7}, FileStamp(MICROS, 7, None)),
        ({"created": 0, "md5Hash": "m", "size": 7}, FileStamp(0, 7, "m")),
    ],
)
def test_times_and_etags_of_each_driver_are_understood(canned: dict[str, Any], detail: dict[str, Any], stamp: FileStamp) -> None:
    """Otherwise files on one vendor's store are not read, or each time."""
    canned["x"] = [{"name": "x/a.csv", "type": "file", **detail}]
    assert dict(address("canned://x").list()) == {"a.csv": stamp}


def test_a_store_without_times_is_refused(canned: dict[str, Any]) -> None:
    """Otherwise its files are read once and never again."""
    canned["x"] = [{"name": "x/a.csv", "type": "file", "size": 1}]
    with pytest.raises(SourceUnreachable, match="it does not report when its files were modified"):
        listed("canned://x")


def test_a_remote_sub_folder_that_may_not_be_read_is_reported_and_skipped(canned: dict[str, Any]) -> None:
    """As for local folders; and what a driver raises may be anything."""
    canned["x"] = [
        {"name": "x", "type": "directory", "size": 0},
        {"name": "x/closed/", "type": "directory", "size": 0},
        {"name": "x/gone", "type": "directory", "size": 0},
        {"name": "x/a.csv", "type": "file", "size": 1, "mtime": 1},
    ]
    canned["x/closed"] = RuntimeError("403 Forbidden for the prefix.")
    canned[""] = [{"name": "x", "type": "directory", "size": 0}]
    troubles: dict[str, str] = {}
    assert [path for path, _ in address("canned://x").list("", troubles)] == ["a.csv"]
    assert troubles == {
        "closed": "landing: 'closed' in canned://x cannot be read: 403 Forbidden for the prefix. Check address, credentials and network."
    }


def test_a_password_is_never_shown(canned: dict[str, Any]) -> None:
    """Otherwise it is in the logs, in Dagster's database and in the UI."""
    url = "canned://me:p%40ss/w@rd@host/x?sig=signature"
    canned["me:p%40ss/w@rd@host/x?sig=signature"] = RuntimeError("cannot log in with p%40ss/w@rd or p@ss/w@rd, sig=signature")
    where = address(url)
    with pytest.raises(SourceUnreachable) as raised:
        list(where.list())
    with pytest.raises(SourceError) as in_head:
        where.head("a.csv", 1)
    for text in (str(raised.value), str(in_head.value), repr(where), where.display):
        assert not any(secret in text for secret in ("ss/w", "rd@", "signature")), text
    assert where.display == "canned://me:****@host/x"
    assert raised.value.__suppress_context__ and in_head.value.__suppress_context__
    azure = "abfss://container@account.dfs.core.windows.net/x"
    assert FolderAddress("landing", azure).display == azure, "this is no user"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "landing: path is empty; is the environment variable set"),
        (None, "landing: path is empty"),
        ("nothing://x", "landing: path begins with 'nothing', which no installed driver of fsspec is for. Use a local folder, an object"),
    ],
)
def test_an_invalid_path_is_refused_at_once(url: str | None, message: str) -> None:
    """Otherwise the mistake shows as a folder that is not there, in a place nobody wrote."""
    with pytest.raises(ConfigurationError, match=message):
        FolderAddress.parse("landing", url)


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the user sees an import error of a library that nobody mentioned."""

    def without(_: str) -> None:
        raise ImportError("SFTPFileSystem requires paramiko")

    monkeypatch.setattr("incremental_assets.files.listing.url_to_fs", without)
    with pytest.raises(ConfigurationError, match=r"needs a package that is not installed\. SFTPFileSystem requires paramiko"):
        list(address("sftp://host/x").list())


# ---------------------------------------------------------------- the first bytes
def test_the_first_bytes_of_a_file_are_decompressed(tmp_path: Path, memory: AbstractFileSystem) -> None:
    """Otherwise the header of a compressed file is noise, and its columns have no names."""
    text = b"id,name\n" + b"1,x\n" * 1000
    contents = {"a.csv": text, "a.csv.gz": gzip.compress(text), "A.CSV.BZ2": bz2.compress(text), "empty.csv": b""}
    for name, data in contents.items():
        write(tmp_path / name, data)
        memory.pipe_file(f"/landing/{name}", data)
    for where in (address(tmp_path), address("memory://landing")):
        assert {name: where.head(name, 8) for name in contents} == {name: b"" if name == "empty.csv" else b"id,name\n" for name in contents}
        assert where.head("a.csv.gz", 10**6) == text


def test_zstandard_is_read_where_its_package_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise compressed bytes are taken for a header."""
    zstandard = pytest.importorskip("zstandard")
    write(tmp_path / "a.csv.zst", zstandard.compress(b"id,name\n1,x\n"))
    assert address(tmp_path).head("a.csv.zst", 7) == b"id,name"
    monkeypatch.delitem(compressions, "zst")
    with pytest.raises(SourceError, match="the package zstandard is not installed"):
        address(tmp_path).head("a.csv.zst", 7)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("gone.csv", None, "No such file"),
        ("half.csv.gz", gzip.compress(os.urandom(1000))[:500], "ended before"),
        ("no.csv.gz", b"id,name\n", "Not a gzipped file"),
        ("no.csv.bz2", b"id,name\n", "Invalid data stream"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, data: bytes | None, reason: str) -> None:
    """Otherwise nobody knows which of thousands of files is broken."""
    if data is not None:
        write(tmp_path / name, data)
    with pytest.raises(SourceError, match=f"landing: the file '{name}' in .* cannot be read: .*{reason}"):
        address(tmp_path).head(name, 1000)
