"""Finds a test file by its name: the pages and the mutants name tests as ``test_sync.py::test_…``, without the folder of the file.

Belongs here: that search. Does not belong: reading the file.
"""

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


@cache
def file_named(name: str) -> Path:
    """The file. Raises LookupError where there is none of that name, or more than one."""
    found = sorted(FOLDER.rglob(name))
    if len(found) != 1:
        raise LookupError(f"{name}: there are {len(found)} files of that name under {FOLDER.name}")
    return found[0]
