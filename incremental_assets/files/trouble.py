"""What can be the matter when a file is read that is not in the file: the disk, the network, a link that leads elsewhere.

Belongs here: telling such trouble from a file's own faults, and what to do about it. Does not belong: reading (``listing``, ``staging``).
"""

import errno
import os

_SPACE, _DISK, _MOUNT = "Free space on that disk", "Have the disk looked at", "Mount the disk anew"
_FILES, _MEMORY, _NETWORK = "Allow more open files (ulimit -n)", "Free memory on this machine", "Check the network"
_OF_NUMBERS = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EIO: _DISK,
    errno.ESTALE: _MOUNT,
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.ENOMEM: _MEMORY,
    errno.ETIMEDOUT: _NETWORK,
    errno.EHOSTUNREACH: _NETWORK,
    errno.ENETUNREACH: _NETWORK,
    errno.ENETDOWN: _NETWORK,
}
_OF_CLASSES = (
    "timeout",
    "timedout",
    "connectionerror",
    "connectionreset",
    "endpointconnection",
    "throttl",
    "slowdown",
    "serviceunavailable",
)
"""Parts of the names of drivers' own errors, which need not be OSErrors."""
_OF_TEXTS = {
    "No space left on device": _SPACE,
    "Disk quota exceeded": _SPACE,
    "Input/output error": _DISK,
    "Stale file handle": _MOUNT,
    "Too many open files": _FILES,
    "Connection timed out": _NETWORK,
    "ConnectTimeoutException": _NETWORK,
    "SocketTimeoutException": _NETWORK,
    "Read timed out": _NETWORK,
    "Connection reset": _NETWORK,
    "SlowDown": _NETWORK,
}
"""By what a message of Spark contains."""


def passing_remedy(error: Exception) -> str | None:
    """What to do about trouble of the machine or the network, which no file is to blame for; None for all other trouble."""
    if isinstance(error, OSError) and error.errno in _OF_NUMBERS:
        return _OF_NUMBERS[error.errno]
    names = [kind.__name__.lower() for kind in type(error).__mro__]
    passing = isinstance(error, TimeoutError | ConnectionError) or any(mark in name for name in names for mark in _OF_CLASSES)
    return _NETWORK if passing else None


def passing_remedy_in(text: str) -> str | None:
    """The same by a message of Spark."""
    return next((remedy for mark, remedy in _OF_TEXTS.items() if mark in text), None)


class Leaves(OSError):
    """A link leads out of the folder: who may put a file there must not thereby read all that we may read."""

    def __str__(self) -> str:
        return str(self.args[0])


def inside(root: str, path: str) -> str:
    """The real path of what a path below a local folder leads to. Raises Leaves where that is outside of the folder."""
    home, real = os.path.realpath(root), os.path.realpath(os.path.join(root, path))
    if not real.startswith(f"{home.rstrip('/')}/"):
        raise Leaves(f"is a link that leads out of the folder, to {real}. Put the file itself there, or name the folder that it is in.")
    return real
