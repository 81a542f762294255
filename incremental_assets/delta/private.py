"""Folders that only their owner reads: what is in them shows values that may have been deleted elsewhere.

Belongs here: making them so. Does not belong: which folders these are.
"""

import os
import stat
from pathlib import Path
from urllib.parse import urlsplit


def private(folder: Path) -> Path:
    """Made for its owner only, with those above it as usual; where it is there and ours, others lose their rights to it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
        folder.chmod(stat.S_IMODE(found.st_mode) & ~0o077)
    return folder


def keep_private(url: str) -> None:
    """A folder of the lake, where that is local and Spark is our own: a cluster's may be another user, and has to write there too."""
    if urlsplit(url).scheme in ("", "file") and not os.environ.get("SPARK_REMOTE"):
        private(Path(url.removeprefix("file://")))
