"""Distinguishes failures of the disk, the machine or the network from faults of a file itself.

The distinction matters as a refused file is not read again until it changes, and a file is not at fault when a disk fails.
"""

import errno

from obstore.exceptions import GenericError

_SPACE, _DISK, _MOUNT = "Free space on that disk", "Have the disk looked at", "Mount the disk anew"
_FILES, _MEMORY, _NETWORK = "Allow more open files (ulimit -n)", "Free memory on this machine", "Check the network"
# The remedy by the error number of an OSError. Others, such as EACCES, are taken for faults of the file.
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
"""Parts of the class names, in lower case, of the drivers' own network errors, which need not be OSErrors."""
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
"""The remedy by a text that the message of Spark contains: over Spark Connect, there is no error number."""


def passing_remedy(error: Exception) -> str | None:
    """Returns what to do about a failure of the disk, the machine or the network; None for all other errors."""
    if isinstance(error, OSError) and error.errno in _OF_NUMBERS:
        return _OF_NUMBERS[error.errno]
    if isinstance(error, GenericError):  # of a store; where the object is at fault, it raises others
        return _NETWORK
    names = [kind.__name__.lower() for kind in type(error).__mro__]
    passing = isinstance(error, TimeoutError | ConnectionError) or any(mark in name for name in names for mark in _OF_CLASSES)
    return _NETWORK if passing else None


def passing_remedy_in(text: str) -> str | None:
    """Returns the same as ``passing_remedy`` for the text of an error from Spark."""
    return next((remedy for mark, remedy in _OF_TEXTS.items() if mark in text), None)
