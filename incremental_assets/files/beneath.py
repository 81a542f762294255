"""Opens what is below a local folder, and nothing else, even if paths in it are replaced by links meanwhile.

Whoever may write to the folder may replace a file, or a folder above it, by a link at any time. A path that was found to be within the
folder may therefore lead out of it a moment later, and only a descriptor keeps on naming what was opened.
"""

import errno
import os
import stat

NOWHERE = "is a link to what is not there. Put the file itself there, or remove the link."
LINKED_FOLDER = (
    "is a link to a folder, which is not followed. Put the folder itself there; or, if nothing is to be read by this link, give it a name "
    "that begins with _."
)
_AGAIN = 3
"""How often a path is resolved again that changes while it is opened."""
_WALKED = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotRead(OSError):
    """A path in the folder is not read, for a reason that its message says: a link that leads out of the folder, a link to a folder.

    The message begins with the verb, and says what to do. Such links are not followed: otherwise whoever may put a file into the folder
    could read every file that this process may read.
    """

    def __str__(self) -> str:
        return str(self.args[0])


def inside(root: str, path: str) -> str:
    """Returns the real path of a path below a local folder, after symbolic links. Raises NotRead where it is outside of the folder."""
    home, real = os.path.realpath(root), os.path.realpath(os.path.join(root, path))
    if real != home and not real.startswith(f"{home.rstrip('/')}/"):
        raise NotRead(f"is a link that leads out of the folder, to {real}. Put the file itself there, or name the folder that it is in.")
    return real


def opened(root: str, path: str, *, folder: bool = False) -> int:
    """Opens a regular file (or a folder) below a local folder for reading, and returns its descriptor.

    The path's links are resolved first. What they lead to is then opened one folder after the other without following any link, so that
    what replaces a part of the path meanwhile is not followed. Raises NotRead where the path leads out of the folder, or keeps on changing,
    and other kinds of OSError where it cannot be opened.
    """
    for _ in range(_AGAIN):
        real, home = inside(root, path), os.path.realpath(root)
        try:
            return _walked(home, os.path.relpath(real, home), folder=folder)
        except OSError as error:
            is_link = real != os.path.normpath(os.path.join(home, path))
            if error.errno == errno.ENOENT and is_link:
                raise NotRead(NOWHERE) from None
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            if os.path.realpath(os.path.join(root, path)) == real:  # it has not changed: it is what the error says
                raise
    raise NotRead("was replaced by a link, or moved, again and again while it was opened. Find out who does that.")


def _walked(home: str, path: str, *, folder: bool) -> int:
    """Opens a path below a folder without following any link. Raises OSError."""
    *above, last = path.split(os.sep)
    at = os.open(home, _WALKED & ~os.O_NOFOLLOW)
    try:
        for name in above:
            inner = os.open(name, _WALKED, dir_fd=at)
            os.close(at)
            at = inner
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_DIRECTORY if folder else 0)
        try:
            # Without O_NONBLOCK, opening a named pipe waits for somebody to write to it.
            found = os.open(last, flags | os.O_NONBLOCK, dir_fd=at)
        except BlockingIOError:  # another program has a lease on the file, which only an opening that waits ends
            found = os.open(last, flags, dir_fd=at)
    finally:
        os.close(at)
    if not folder and not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise NotRead("is no regular file any more. Put a file there.")
    return found
