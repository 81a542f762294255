"""Which folders are on a disk of this machine, by the mounts that Linux lists."""

import os
import re

_MOUNTS = "/proc/self/mountinfo"
_OF_THIS_MACHINE = frozenset(("btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"))
_OCTAL = re.compile(r"\\([0-7]{3})")


def identifies_files(folder: str) -> bool:
    """Whether the inodes of the files in a folder, and the times at which these were changed, stay as they are as long as a file does.

    Servers of network file systems may number the same files anew; there, and on other systems than Linux, it is False.
    """
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as lines:
            mounts = [_mount(line) for line in lines]
    except OSError:
        return False
    path = os.path.realpath(folder)
    above = [(len(point), number, kind) for number, (point, kind) in enumerate(mounts) if _is_at(point, path)]
    return bool(above) and max(above)[2] in _OF_THIS_MACHINE


def _mount(line: str) -> tuple[str, str]:
    """The folder at which something is mounted, and the kind of its file system."""
    fields, _, what = line.partition(" - ")
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields.split(" ")[4]), what.split(" ")[0]


def _is_at(point: str, path: str) -> bool:
    return path == point or path.startswith(f"{point.rstrip('/')}/")
