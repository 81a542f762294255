"""Files that are larger than a limit: each is refused with a reason that names the setting, and is never unpacked as a whole.

Belongs here: the limits, with real files and without Spark. Does not belong: the other files of the folder (``test_file_reading``).
"""

import bz2
import contextlib
import gzip
import io
import resource
import subprocess
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from incremental_assets.core.errors import ConfigurationError, SourceError, SourceInterrupted
from incremental_assets.core.files import FileFormat, Limits
from incremental_assets.dagster.components.files import FileDatastore, FilesEntry
from incremental_assets.files.listing import FolderAddress
from incremental_assets.files.readers.beginning import Beginning
from incremental_assets.files.readers.measure import Meter, unzst
from incremental_assets.files.readers.reading import ReadFile, Reading
from incremental_assets.files.readers.staging import Staging

FILE = ReadFile("a.csv", "a.csv", 0)


def taken(folder: Path, name: str, limits: Limits, format: FileFormat = FileFormat.CSV, **options: str) -> Beginning | SourceError:
    staging = Staging(FolderAddress.parse("landing", str(folder)), Reading(format, options, limits=limits), folder.parent / "staging")
    try:
        return staging.take([ReadFile(name, name, 0)])[name]
    finally:
        staged = sum(path.stat().st_size for path in staging._folder.iterdir() if not path.is_symlink())
        assert staged <= 2 * limits.file_bytes, "too much was unpacked onto the disk"
        staging.close()


@given(st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"a", b"\n").replace(b"b", b"\r")), max_size=8), st.integers(1, 30))
def test_the_longest_line_is_found_whatever_the_chunks_are(chunks: list[bytes], most: int) -> None:
    """Otherwise a long line is accepted where it begins in one chunk and ends in another, or a good file is refused."""
    whole = b"".join(chunks)
    longest = max(len(line) for line in whole.replace(b"\r", b"\n").split(b"\n"))
    meter = Meter(FILE, Reading(FileFormat.CSV, limits=Limits(line_bytes=most)), record=False)
    with pytest.raises(SourceError, match="max_line_bytes") if longest > most else contextlib.nullcontext():
        for chunk in chunks:
            meter.feed(chunk)


def bomb(name: str, megabytes: int, line: bytes) -> bytes:
    """So many megabytes of one repeated line, compressed."""
    piece = line * ((1 << 20) // len(line))
    packed = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zstandard.compress}[name.rpartition(".")[2]](piece)
    return packed * megabytes


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv.bz2", "a.csv.zst"])
def test_a_bomb_is_unpacked_neither_into_the_memory_nor_onto_the_disk(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for line, limits, reason in (
        (b"1,2\n", Limits(file_bytes=10 << 20), "max_file_bytes"),
        (b"\0", Limits(line_bytes=10 << 20), "max_line_bytes"),
    ):
        (folder / name).write_bytes(bomb(name, 300, line))
        assert (folder / name).stat().st_size < 1 << 20
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = taken(folder, name, limits)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert isinstance(found, SourceError) and reason in str(found) and name in str(found)
        assert grown < 90 << 10, grown


def test_a_zst_file_is_unpacked_in_pieces_of_limited_size() -> None:
    packer, piece = zstandard.ZstdCompressor(level=1).compressobj(), bytes(1 << 20)
    packed = b"".join([*(packer.compress(piece) for _ in range(500)), packer.flush()])
    assert len(packed) < 1 << 20  # as one piece it would be unpacked at once, to half a gigabyte
    assert max(len(chunk) for chunk in unzst(io.BytesIO(packed))) <= 64 << 20


def test_stored_bytes_lines_and_one_value_are_limited(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()

    def reason(content: bytes, limits: Limits, name: str = "a.csv", format: FileFormat = FileFormat.CSV, **options: str) -> str | None:
        (tmp_path / "in" / name).write_bytes(content)
        found = taken(tmp_path / "in", name, limits, format, **options)
        return str(found) if isinstance(found, SourceError) else found.trouble

    assert reason(b"id\n" * 30, Limits(file_bytes=90)) is None
    assert "it has 93 bytes, more than max_file_bytes (90)" in str(reason(b"id\n" * 31, Limits(file_bytes=90)))
    assert reason(b"id\n" + b"x" * 50 + b"\n" + b"y" * 50, Limits(line_bytes=50)) is None
    assert "a.csv: it has a line of more than max_line_bytes (50)" in str(reason(b"id\n" + b"x" * 51, Limits(line_bytes=50)))
    assert "max_line_bytes" in str(
        reason("id\n".encode("utf-16") + ("x" * 51).encode("utf-16-le"), Limits(line_bytes=50), encoding="utf-16")
    )
    # A line is measured as Spark reads it, in UTF-8: in UTF-16, these two have 80 bytes each, and the third has the byte of a line feed in
    # each of its characters.
    assert reason(("id\n" + "x" * 40 + "\n" + "y" * 40).encode("utf-16"), Limits(line_bytes=50), encoding="utf-16") is None
    assert "max_line_bytes" in str(reason(("id\n" + "Ċ" * 26).encode("utf-16"), Limits(line_bytes=50), encoding="utf-16"))
    array = b"[" + b",".join(b'{"id": 1}\n' for _ in range(10)) + b"]"
    assert reason(array, Limits(line_bytes=200), "a.json", FileFormat.JSON) is None
    assert "one JSON value" in str(reason(array, Limits(line_bytes=100), "a.json", FileFormat.JSON))
    assert reason(b'{"id": 1}\n' * 100, Limits(line_bytes=100), "a.json", FileFormat.JSON) is None
    assert "it has 3 cells in its first line, more than max_columns (2)" in str(reason(b"a,b,c\n", Limits(columns=2)))


def test_an_error_of_the_disk_does_not_refuse_the_file(tmp_path: Path) -> None:
    """A file that is refused is not read again until it changes, so an error of the disk must not refuse it. The kernel itself reports EIO
    here, as nothing is mapped at address 0."""
    reading = Reading(FileFormat.TEXT, {"encoding": "latin-1"})
    staging = Staging(FolderAddress.parse("landing", "/proc/self"), reading, tmp_path / "staging")
    with pytest.raises(SourceInterrupted, match="Input/output error"):
        staging.take([ReadFile("mem", "mem", 0)])
    staging.close()


def test_a_full_disk_below_the_staging_folder_does_not_refuse_the_file(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(small)], capture_output=True, check=False).returncode:
        pytest.skip("a file system of a given size can only be mounted by root outside of containers")
    try:
        (tmp_path / "a.csv.zst").write_bytes(zstandard.compress(b"id\n" * 300_000))
        staging = Staging(FolderAddress.parse("landing", str(tmp_path)), Reading(FileFormat.CSV), small)
        with pytest.raises(SourceInterrupted, match=r"No space left on device.*TMPDIR, then sync again"):
            staging.take([ReadFile("a.csv.zst", "a.csv.zst", 0)])
        subprocess.run(["mount", "-o", "remount,size=50m", str(small)], check=True)
        assert isinstance(staging.take([ReadFile("a.csv.zst", "a.csv.zst", 0)])["a.csv.zst"], Beginning)
        staging.close()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_limits_are_set_for_a_datastore_or_for_one_container() -> None:
    made = FileDatastore(
        name="landing",
        path="/x",
        max_columns=7,
        prune_files=True,
        containers={"a": FilesEntry(glob="a*.csv", max_line_bytes=5, prune_files=False), "b": FilesEntry(glob="b*.csv")},
    )
    settings = made.settings()
    assert (settings.options["a"].limits, settings.options["a"].prune) == (Limits(columns=7, line_bytes=5), False)
    assert (settings.options["b"].limits, settings.options["b"].prune) == (Limits(columns=7), True)
    assert (settings.defaults.limits, settings.defaults.prune) == (Limits(columns=7), True)  # of containers that the YAML does not name
    for wrong in (
        FileDatastore(name="landing", path="/x", max_file_bytes=0),
        FileDatastore(name="landing", path="/x", max_line_bytes=2**31),
        FileDatastore(name="landing", path="/x", containers={"a": FilesEntry(glob="a*.csv", max_columns=-1)}),
    ):
        with pytest.raises(ConfigurationError, match=r"max_\w+ is"):
            wrong.settings()
