"""Where a test file is, by its name alone: pages and faults name tests as ``test_sync.py::test_…``, whichever folder the file is in.

Belongs here: that search. Does not belong: what is in a file.
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
