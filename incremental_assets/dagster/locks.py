"""One writer a container, whoever starts it: the daemon's runs, the command line, several of them, on this host or on another.

Belongs here: the locks, their wait and their message. Does not belong: Dagster's pools, which guard the daemon's queue only. There are two:
one is the operating system's, which a killed process gives back, and keeps out whoever has the same DAGSTER_HOME; the other is a lease in
the lake (``delta.lease``), which keeps out the others.
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
from incremental_assets.dagster.project import dagster_home
from incremental_assets.delta.lease import Lease, held, leases_are_on, this_holder

WAIT_SECONDS = 600.0
WAIT_VARIABLE = "INCREMENTAL_ASSETS_LOCK_SECONDS"


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
    """Holds the container. Waits up to ten minutes (or ``wait`` seconds) for whoever has it; raises ContainerBusy, naming them, after that.

    The run that had it before and could not give it back is marked as failed. Yields its lease, None where leases are switched off;
    ``on_lost`` is called, by another thread, where another host may have taken it over.
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
    """One scan (or profile) by itself of a container at a time. Syncs and their checks do not ask for it: a scan reads one version of the
    table, and may take hours."""
    suffix, doing = (".profile", "profiled") if profile else (".scan", "scanned")
    with _held(home, container.key_path, container.label, suffix, doing, run_id, log, instance):
        yield


@contextlib.contextmanager
def record_lock(home: Path, container: Container, run_id: str, log: Callable[[str], None], instance: dg.DagsterInstance) -> Iterator[None]:
    """Holds the container's records of quality while what a scan found is compared with them and written: for moments."""
    with _held(home, container.key_path, container.label, ".record", "recorded", run_id, log, instance):
        yield


@contextlib.contextmanager
def table_lock(path: tuple[str, ...], label: str, run_id: str, instance: dg.DagsterInstance, log: Callable[[str], None]) -> Iterator[None]:
    """Holds the table of a user's own asset while the IO manager writes to it, as ``container_lock`` a container's."""
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
    path, holder_path = _paths(home, key_path, suffix)
    lock = FileLock(path)
    deadline = _deadline(wait)
    said = False
    while True:
        try:
            lock.acquire(timeout=0 if not said else 1)
            break
        except Timeout:
            if time.monotonic() >= deadline:
                skipped = "skipped: " if doing == "synced" else ""
                raise ContainerBusy(f"{label}: {skipped}it is being {doing} by {_holder(holder_path)}.") from None
            if not said:
                log(f"{label}: waits for {_holder(holder_path)}")
                said = True
    try:
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
    return time.monotonic() + (float(os.environ.get(WAIT_VARIABLE, WAIT_SECONDS)) if wait is None else wait)


def holder_of(home: Path, container: Container, instance: dg.DagsterInstance) -> str | None:
    """Who holds the container right now, in words; None when nobody does: one that was killed is marked as failed."""
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
    """A run whose process was killed stays "started" for ever otherwise: nobody else notices."""
    run = instance.get_run_by_id(run_id)
    if run is not None and not run.is_finished:
        instance.report_run_failed(run, "Its process ended without a word (killed?). The next one heals what it left.")


def _paths(home: Path, key_path: tuple[str, ...], suffix: str = "") -> tuple[Path, Path]:
    folder = home / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock, holder = (folder / file_name(key_path, suffix + ending) for ending in (".lock", ".holder.json"))
    return lock, holder


def _run_of(path: Path) -> str | None:
    try:
        return str(json.loads(path.read_text())["run_id"])
    except (OSError, ValueError, KeyError):
        return None


def _holder(path: Path) -> str:
    try:
        data = json.loads(path.read_text())
        return f"run {data['run_id']} (pid {data['pid']}, since {data['since']})"
    except (OSError, ValueError, KeyError):
        return "another process"
