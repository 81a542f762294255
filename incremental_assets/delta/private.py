"""Creates folders that only their owner can read.

Such folders contain values of rows, which may have been deleted from the source or the lake since.
"""

import os
import stat
from pathlib import Path
from urllib.parse import urlsplit


def private(folder: Path) -> Path:
    """Creates a folder that only its owner can use, and returns it. Missing parent folders are created with the usual permissions.

    If the folder exists and belongs to this user, the permissions of group and others are removed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
        folder.chmod(stat.S_IMODE(found.st_mode) & ~0o077)
    return folder


def keep_private(url: str) -> None:
    """Makes a folder of the lake private, if the lake is local and the embedded Spark server is used.

    A Spark server of a cluster (SPARK_REMOTE) may run as another user, who has to write to the folder, too.
    """
    if urlsplit(url).scheme in ("", "file") and not os.environ.get("SPARK_REMOTE"):
        private(Path(url.removeprefix("file://")))
