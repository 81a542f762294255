"""Reads the same files by both readers, in this process and by Spark alone, and compares all that comes of it.

Belongs here: this comparison. Does not belong: the files that are compared (``test_local_read``, ``test_file_reading``).
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from incremental_assets.core.files import FileFormat, Limits
from incremental_assets.core.schema import Column
from incremental_assets.delta.scope import LakeScope
from incremental_assets.files.attempt import Attempt
from incremental_assets.files.attempts import Attempts
from incremental_assets.files.listing import FolderAddress
from incremental_assets.files.local_read import RowsReadHere, read_here
from incremental_assets.files.readers.read import FileRows
from incremental_assets.files.readers.reading import ReadFile, Reading


def rows_read_here(
    scope: LakeScope, address: FolderAddress, reading: Reading, files: Sequence[ReadFile], known: Sequence[Column], staging: Path
) -> RowsReadHere | None:
    """The rows as this process reads them, with the lines that it leaves to Spark; None if Spark has to read all."""
    staging.mkdir(parents=True)
    attempt = Attempt(scope, Attempts(scope.lake, ("landing", "x")), lambda _: None)
    found = read_here(scope, attempt, address, reading, files, known, 32, staging)
    attempt.done()
    return found


def read_by_both(
    scope: LakeScope,
    place: Path,
    files: Mapping[str, bytes],
    known: Sequence[Column] = (),
    *,
    options: Mapping[str, str] | None = None,
    types: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    format: str = "csv",
) -> RowsReadHere | None:
    """Reads files by both readers, and asserts that the results are equal. Returns that of this process."""
    address = FolderAddress.parse("landing", str(place / "in"))
    (place / "in").mkdir(parents=True)
    asked: list[ReadFile] = []
    for i, (name, data) in enumerate(files.items()):
        (place / "in" / name).write_bytes(data)
        asked.append(ReadFile(name, name, 1_700_000_000_000_000 + i, len(data)))
    reading = Reading(FileFormat(format), options or {}, types or {}, limits or Limits())
    here = rows_read_here(scope, address, reading, asked, known, place / "here")
    if here is not None:
        spark = FileRows(scope.spark, address, reading, asked, known, place / "spark")
        found, expected = facts(here), facts(spark)
        for part in ("good", "bad"):
            differing = (found[part] - expected[part], expected[part] - found[part])
            assert differing == ({}, {}), (part, differing)
        for part in ("columns", "refused", "counts"):
            assert found[part] == expected[part], part
        spark.close()
    return here


def facts(rows: FileRows | RowsReadHere) -> dict[str, Any]:
    """All that is known of rows that were read, in a form that can be compared."""
    return {
        "columns": rows.columns,
        "refused": dict(rows.refused),
        "counts": dict(rows.counts),
        "good": Counter(json.dumps(row.asDict(), default=repr) for row in rows.good().collect()),
        "bad": Counter(json.dumps(row.asDict(), default=repr) for row in rows.bad().collect()),
    }
