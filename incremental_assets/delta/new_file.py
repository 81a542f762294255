"""Writes a file that nobody may see half written, and that must not replace one of another writer."""

import os
import uuid
from collections.abc import Iterable


def write_new_file(path: str, parts: Iterable[bytes]) -> None:
    """Writes the parts as a new file, which is on the disk before it has its name.

    The file gets its name when it is complete, and only if no other file has it: a hard link is made in one step, and never replaces.
    Raises FileExistsError where there is a file already, and other kinds of OSError without space, permission or hard links.
    """
    unfinished = os.path.join(os.path.dirname(path), f".{uuid.uuid4()}.tmp")
    try:
        with open(unfinished, "xb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(unfinished, path)
        except FileExistsError:
            if not os.path.samefile(unfinished, path):  # else a server of files has made the link, and its answer was lost
                raise
    finally:
        if os.path.exists(unfinished):
            os.remove(unfinished)
