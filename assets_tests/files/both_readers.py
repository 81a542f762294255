"""Reads the same files by both readers, in this process and by Spark alone, and compares all that comes of it.

Belongs here: this comparison. Does not belong: the files that are compared (``test_local_read``, ``test_file_reading``).
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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


def facts(rows: FileRows | RowsReadHere) -> dict[str, Any]:
    """All that is known of rows that were read, in a form that can be compared."""
    return {
        "columns": rows.columns,
        "refused": dict(rows.refused),
        "counts": dict(rows.counts),
        "good": Counter(json.dumps(row.asDict(), default=repr) for row in rows.good().collect()),
        "bad": Counter(json.dumps(row.asDict(), default=repr) for row in rows.bad().collect()),
    }
