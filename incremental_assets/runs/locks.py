"""Locks that allow one writer for each container, whoever starts the run: the daemon or the command line, on this host or on another.

A container has two locks. One is a file lock of the operating system. It excludes processes with the same DAGSTER_HOME, and the system
releases it when its process is killed. The other is a lease in the lake (``delta.lease``), which excludes processes with another
DAGSTER_HOME.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
from filelock import FileLock, Timeout

from incremental_assets.core.container import Container
from incremental_assets.core.errors import ContainerBusy
from incremental_assets.core.names import file_name
from incremental_assets.delta.lease import Lease, held, leases_are_on, this_holder
from incremental_assets.project.folders import dagster_home

WAIT_SECONDS = 600.0
"""How long a run waits for a lock where the environment says nothing."""
WAIT_VARIABLE = "INCREMENTAL_ASSETS_LOCK_SECONDS"
"""The environment variable that overrides ``WAIT_SECONDS``."""


@contextlib.contextmanager
def container_lock(
    home: Path,
    container: Container,
    run_id: str,
    log: Callable[[str], None],
    instance: dg.DagsterInstance,
    wait: float | None = None,
    *,
    lake: str,
    on_lost: Callable[[], None] = lambda: None,
) -> Iterator[Lease | None]:
    """Holds the container for a sync or its maintenance.

    ``wait``: how many seconds to wait for another holder; None means ``$INCREMENTAL_ASSETS_LOCK_SECONDS``, or ten minutes. After that
    ContainerBusy is raised, which names the holder. The one deadline is for both locks together.

    A previous run that held the lock and could not release it is marked as failed. Yields the lease on the lake, or None where leases are
    switched off. ``on_lost`` is called by another thread as soon as another host may have taken the lease over.
    """
    deadline = _deadline(wait)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_held(home, container.key_path, container.label, "", "synced", run_id, log, instance, wait))
        if not leases_are_on():
            yield None
            return
        me = this_holder(home, run_id)
        yield stack.enter_context(held(container.label, lake, container.key_path, me, deadline, log, on_lost))


@contextlib.contextmanager
def scan_lock(
    home: Path, container: Container, run_id: str, log: Callable[[str], None], instance: dg.DagsterInstance, *, profile: bool = False
) -> Iterator[None]:
    """Holds the container for a scan job, or with ``profile`` for a profile job: one of each kind runs at a time.

    Syncs and the checks in a sync's run do not take this lock: a scan reads one version of the table, and may take hours.
    """
    suffix, doing = (".profile", "profiled") if profile else (".scan", "scanned")
    with _held(home, container.key_path, container.label, suffix, doing, run_id, log, instance):
        yield


@contextlib.contextmanager
def record_lock(home: Path, container: Container, run_id: str, log: Callable[[str], None], instance: dg.DagsterInstance) -> Iterator[None]:
    """Holds the quality records of the container while the results of a scan are compared with them and written, which takes moments."""
    with _held(home, container.key_path, container.label, ".record", "recorded", run_id, log, instance):
        yield


@contextlib.contextmanager
def table_lock(path: tuple[str, ...], label: str, run_id: str, instance: dg.DagsterInstance, log: Callable[[str], None]) -> Iterator[None]:
    """Holds the table of a user's own asset while the IO manager writes it. Unlike ``container_lock``, it takes no lease on the lake.

    ``path``: the encoded parts of the asset key.
    """
    with _held(dagster_home(), path, label, "", "written", run_id, log, instance):
        yield


@contextlib.contextmanager
def _held(
    home: Path,
    key_path: tuple[str, ...],
    label: str,
    suffix: str,
    doing: str,
    run_id: str,
    log: Callable[[str], None],
    instance: dg.DagsterInstance,
    wait: float | None = None,
) -> Iterator[None]:
    """Holds one file lock.

    ``suffix`` distinguishes the locks of one container, and ``doing`` is the participle in the message of ContainerBusy. A file beside the
    lock names the run that holds it. A holder that was killed leaves this file behind.
    """
    path, holder_path = _paths(home, key_path, suffix)
    lock = FileLock(path)
    deadline = _deadline(wait)
    is_logged = False
    while True:
        try:
            # The first attempt does not wait, so that a message is logged before the waiting begins.
            lock.acquire(timeout=0 if not is_logged else 1)
            break
        except Timeout:
            if time.monotonic() >= deadline:
                skipped = "skipped: " if doing == "synced" else ""
                raise ContainerBusy(f"{label}: {skipped}it is being {doing} by {_holder(holder_path)}.") from None
            if not is_logged:
                log(f"{label}: waits for {_holder(holder_path)}")
                is_logged = True
    try:
        # A run that releases the lock in an orderly way removes this file first. A file that is still there belongs to a killed run.
        before = _run_of(holder_path)
        if before is not None:
            _report_killed(instance, before)
        holder_path.write_text(
            json.dumps({"run_id": run_id, "pid": os.getpid(), "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
        )
        yield
    finally:
        holder_path.unlink(missing_ok=True)
        lock.release()


def _deadline(wait: float | None) -> float:
    """The end of the wait, as a value of ``time.monotonic``. ``wait``: seconds; None means the configured time."""
    return time.monotonic() + (float(os.environ.get(WAIT_VARIABLE, WAIT_SECONDS)) if wait is None else wait)


def holder_of(home: Path, container: Container, instance: dg.DagsterInstance) -> str | None:
    """Describes the run or process that holds the container's file lock at this moment; None where none does.

    A run that was killed while it held the lock is marked as failed on this occasion.
    """
    path, holder_path = _paths(home, container.key_path)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return _holder(holder_path)
    try:
        before = _run_of(holder_path)
        if before is not None:
            _report_killed(instance, before)
            holder_path.unlink(missing_ok=True)
    finally:
        lock.release()
    return None


def _report_killed(instance: dg.DagsterInstance, run_id: str) -> None:
    """Marks the run as failed where Dagster still takes it for unfinished.

    Dagster does not supervise a process that it did not start. If such a run was killed, it would stay "started", and in its pool, for
    ever.
    """
    run = instance.get_run_by_id(run_id)
    if run is not None and not run.is_finished:
        instance.report_run_failed(
            run, "Its process ended without a result; perhaps it was killed. The next run completes what it has begun."
        )


def _paths(home: Path, key_path: tuple[str, ...], suffix: str = "") -> tuple[Path, Path]:
    """The paths of the lock file and of the file that names its holder."""
    folder = home / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock, holder = (folder / file_name(key_path, suffix + ending) for ending in (".lock", ".holder.json"))
    return lock, holder


def _run_of(path: Path) -> str | None:
    """The id of the run that the holder file names; None where there is no readable file."""
    try:
        return str(json.loads(path.read_text())["run_id"])
    except (OSError, ValueError, KeyError):
        return None


def _holder(path: Path) -> str:
    """The holder in words, for messages."""
    try:
        data = json.loads(path.read_text())
        return f"run {data['run_id']} (pid {data['pid']}, since {data['since']})"
    except (OSError, ValueError, KeyError):
        return "another process"
