"""Recognizes what is no text although it is to be read as text: archives, spreadsheets, other formats; and opens a zip of one file."""

import zipfile
from typing import IO

from incremental_assets.core.files import is_hidden, shown_path
from incremental_assets.core.shown_text import counted
from incremental_assets.files.beneath import NotRead

_BEGINNINGS = {
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old spreadsheet or document",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!\x1a\x07": "a rar archive",
    b"\x1f\x8b\x08": "a gzip file",
    b"\xfd7zXZ\x00": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstandard file",
    b"SQLite format 3\x00": "a database of SQLite",
    b"PAR1": "a Parquet file",
    b"Obj\x01": "an Avro file",
}
_TAR, _TAR_AT = b"ustar", 257
_NAMED = 3


def no_text(head: bytes) -> str | None:
    """Why a file that begins so, after decompression, cannot be read as text; None if nothing speaks against it."""
    kind = next((kind for beginning, kind in _BEGINNINGS.items() if head.startswith(beginning)), None)
    if kind is None and head[_TAR_AT:].startswith(_TAR):
        kind = "a tar archive"
    return None if kind is None else f"it is {kind}, as its first bytes show, and no text. Put there what is in it, as text or Parquet"


def only_file(stream: IO[bytes]) -> IO[bytes]:
    """Opens the only file within a zip; folders and hidden files, such as macOS adds, do not count. Raises NotRead unless it is one."""
    archive = zipfile.ZipFile(stream)
    names = [one.filename for one in archive.infolist() if not one.is_dir() and not is_hidden(one.filename)]
    if len(names) == 1:
        return archive.open(names[0])
    shown = ": " + ", ".join(map(shown_path, names[:_NAMED])) + (", …" if len(names) > _NAMED else "") if names else ""
    raise NotRead(
        f"is a zip with {counted(len(names), 'file')}{shown}. A zip is read if one file is in it: put the files themselves there."
    )
