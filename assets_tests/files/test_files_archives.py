"""Archives and other files that are no text: each is read with all that is in it, or refused and named.

Belongs here: these, and endings that are not read, with real archives. Elsewhere: compressed files (``test_file_reading``) and their limits
(``test_file_limits``).
"""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from assets_tests.harness import Folder
from incremental_assets.core.errors import SourceError
from incremental_assets.core.files import FileFormat
from incremental_assets.files.archives import no_text
from incremental_assets.files.listing import FolderAddress
from incremental_assets.files.readers.beginning import Beginning
from incremental_assets.files.readers.local import LocalRows
from incremental_assets.files.readers.local_files import LocalFiles
from incremental_assets.files.readers.reading import ReadFile, Reading
from incremental_assets.files.readers.staging import Staging

Make = Callable[..., Folder]


def zipped(files: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


def tarred(mode: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # pyright: ignore[reportCallIssue, reportArgumentType]
        one = tarfile.TarInfo("a.csv")
        one.size = 5
        archive.addfile(one, io.BytesIO(b"id\n1\n"))
    return out.getvalue()


def test_a_zip_is_read_whole_or_refused_by_name(folder: Make) -> None:
    """Otherwise only its first file is read: half of the rows are missing, and the audit, which reads it likewise, says equal."""
    project = folder(containers={"sales": {"glob": "*.zip", "format": "csv"}})
    project.put("one.zip", zipped({"a.csv": "id\n1\n"}))
    project.put("mac.zip", zipped({"sales/": "", "sales/a.csv": "id\n2\n", "__MACOSX/sales/._a.csv": "\0\5", "sales/.DS_Store": "\0"}))
    project.put("two.zip", zipped({"a.csv": "id\n3\n", "b.csv": "id\n4\n"}))
    line = project.one("sales")
    assert line["status"] == "warning" and project.files("sales") == {"one.zip": 1, "mac.zip": 1}
    assert (
        "'two.zip' in" in line["message"] and "is a zip with 2 files: a.csv, b.csv. A zip is read if one file is in it" in line["message"]
    )


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("none.zip", zipped({"sales/": ""}), "is a zip with 0 files."),
        ("many.zip", zipped({f"{number}.csv": "" for number in range(5)}), "is a zip with 5 files: 0.csv, 1.csv, 2.csv, …."),
        ("broken.zip", zipped({"a.csv": "id\n1\n" * 1000})[:-30], "File is not a zip file"),
        ("a.tar", tarred("w"), "it is a tar archive, as its first bytes show"),
        ("a.tar.gz", tarred("w:gz"), "it is a tar archive"),
        ("a.csv.bz2", tarred("w:bz2"), "it is a tar archive"),
        ("book.xlsx", zipped({"[Content_Types].xml": "<Types/>"}), "it is a zip archive or a spreadsheet"),
        ("book.csv", zipped({"[Content_Types].xml": "<Types/>"}), "it is a zip archive or a spreadsheet"),
        ("packed.csv", gzip.compress(b"id\n1\n"), "it is a gzip file"),
        ("a.csv", b"7z\xbc\xaf\x27\x1c\0\4", "it is a 7z archive"),
        ("a.txt", b"Rar!\x1a\x07\x01\0", "it is a rar archive"),
        ("b.csv", b"PAR1\x15\0", "it is a Parquet file"),
    ],
)
@pytest.mark.parametrize("format", [FileFormat.CSV, FileFormat.JSON, FileFormat.TEXT])
def test_what_is_no_text_is_refused_by_name(tmp_path: Path, name: str, content: bytes, reason: str, format: FileFormat) -> None:
    """Otherwise its bytes are rows, or a thousand rejected lines, and nobody learns what the file is."""
    (tmp_path / name).write_bytes(content)
    address, reading, file = FolderAddress.parse("landing", str(tmp_path)), Reading(format), ReadFile(name, name, 0, len(content))
    staging = Staging(address, reading, tmp_path / "staging")
    try:
        found = staging.take([file])[name]
        assert isinstance(found, SourceError) and reason in str(found) and name in str(found)
    finally:
        staging.close()
    if format is FileFormat.CSV and "zip" not in name and "." not in name.removesuffix(".csv"):
        here = LocalRows(LocalFiles(address, reading, [file], [], {}, tmp_path, 32))
        assert reason in here.refused[name]


def test_text_is_taken_for_no_archive(tmp_path: Path) -> None:
    """Otherwise a good file is refused, as a word in it is one that archives have."""
    for content in (b"PK,name\n1,x\n", b"Rar!,b\n", b"BZh9\n", b"x" * 257 + b",ustar\n", b"SQLite format 3\n", b"PAR\n1\n", b""):
        assert no_text(content) is None
        (tmp_path / "a.csv").write_bytes(content)
        staging = Staging(FolderAddress.parse("landing", str(tmp_path)), Reading(FileFormat.CSV), tmp_path / "staging")
        assert isinstance(staging.take([ReadFile("a.csv", "a.csv", 0)])["a.csv"], Beginning)
        staging.close()


NAMED = (
    "landing: some files belong to no container, as their endings are none that is read: .xlsx (2, such as a/book.xlsx), none (1, such as "
    "README), .7z (1, such as c.7z), .tar.gz (1, such as d.tar.gz), .zip (1, such as ü.ZIP). If they are data, put them there as CSV, JSON "
    "or Parquet."
)


def test_endings_that_are_not_read_are_named_by_the_catalog_and_by_each_look_at_it(folder: Make) -> None:
    """Otherwise a spreadsheet that somebody puts there is missing without a word. It is no trouble: a README would make each run warn."""
    project = folder()
    for name in ("a/book.xlsx", "book.xlsx", "c.7z", "d.tar.gz", "ü.ZIP", "README", "_SUCCESS", "a.csv"):
        project.put(name, "id\n1\n")
    said: list[str] = []
    outcome = project.component.take_catalog(None, progress=said.append)
    assert NAMED in said and not outcome.troubles and [one.table.name for one in outcome.catalog.entries] == ["a"]
    said.clear()
    project.component.listing(outcome.catalog, said.append)
    assert said == [NAMED]


@pytest.mark.long
def test_a_sync_of_the_datastore_names_endings_that_are_not_read_once(folder: Make) -> None:
    project = folder()
    for name in ("a.csv", "b/b.csv", "book.xlsx"):
        project.put(name, "id\n1\n")
    project.write()
    for _ in range(2):
        _, lines, said = project.cli("sync", "landing", "--json")
        assert {line["status"] for line in lines} <= {"synced", "skipped"}
        assert said.count(".xlsx (1, such as book.xlsx)") == 1, said
