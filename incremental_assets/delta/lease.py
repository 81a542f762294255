"""Keeps several hosts from writing one container of a lake at the same time, by a lease that is stored in the lake.

Each lease is a tiny Delta table, and its newest version says who holds it, in an action ``metaData`` that is written anew each time. So
one object is read to know it, and one is put to change it. A version of a Delta table can be created only once (by a hard link on a file
system, by a conditional put on an object store), so if two hosts try to create the same version, one of them is refused. The holder renews
the lease by a new version every few seconds. The clocks of hosts are never compared: a host takes a lease over if it has itself seen no new
version for longer than the lease is valid. delta-rs removes the table's old versions after an hour.
"""

import contextlib
import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from incremental_assets.core.errors import ConcurrentWriteError, ConfigurationError, ContainerBusy, LakeError
from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.log import actions_of, commit_info, put_version
from incremental_assets.delta.seen import note, seen
from incremental_assets.delta.store import folder_at, last_put, refuses_to_replace, version_file
from incremental_assets.delta.table import LakeTable, opened_or_made

FOLDER = "_leases"
"""The folder in the lake that has the tables of the leases."""
SECONDS = 60.0
"""How long a lease is valid without being renewed, unless the environment variable says otherwise."""
SECONDS_VARIABLE = "INCREMENTAL_ASSETS_LEASE_SECONDS"
SWITCH_VARIABLE = "INCREMENTAL_ASSETS_LEASE"
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # what is monotonic stands still on Linux while the machine is suspended
_SCHEMA = pa.schema([("lease", pa.string())])  # the table never has rows: the lease is in its description
_TRIES = 20
"""How often the newest version is looked for, where it is made or removed in the same moment."""
_CHECKPOINT_INTERVAL = 20
"""After so many versions there is a checkpoint, and the old ones are removed."""
_PROPERTIES = {
    "delta.checkpointInterval": str(_CHECKPOINT_INTERVAL), "delta.logRetentionDuration": "interval 1 hours",
    "delta.enableExpiredLogCleanup": "true",
}  # fmt: skip


@dataclass(frozen=True)
class Holder:
    """The holder of a lease.

    ``home``: identifies the DAGSTER_HOME on one host since its last boot; all processes with the same value share the locks of the
    operating system. ``since``: when the holder asked for the lease (ISO 8601, UTC). ``seconds``: how long the lease is valid without being
    renewed. ``token``: a random value that differs each time a lease is taken.
    """

    home: str
    host: str
    pid: int
    run_id: str
    since: str
    seconds: float
    token: str

    def __str__(self) -> str:
        return f"run {self.run_id} on host {self.host} (pid {self.pid}, since {self.since})"


@dataclass(frozen=True)
class _State:
    """The contents of one version of a lease's table.

    ``holder`` is None if the lease is free. ``renewed``: how many times the holder has renewed it. ``proved``: whether it was tested that
    the store refuses to replace an object that is put as a new one.
    """

    holder: Holder | None = None
    renewed: int = 0
    proved: bool = False

    @classmethod
    def of(cls, description: str) -> "_State":
        """The contents of a version, which are JSON in the table's description. Raises ValueError, KeyError or TypeError for any other."""
        data = json.loads(description)
        holder = data["holder"]
        return cls(None if holder is None else Holder(**holder), int(data["renewed"]), bool(data["proved"]))


@dataclass(frozen=True)
class _Version:
    """A version of a lease's table. ``metadata``: the content of its action ``metaData``. ``state``: what that says."""

    number: int
    metadata: Mapping[str, Any]
    state: _State


def _now() -> float:
    """Seconds that pass also while this machine is suspended: the other hosts do not wait for it."""
    return time.clock_gettime(_CLOCK)


class _Passed(Exception):
    """There is a newer version than the one that was read."""


def leases_are_on() -> bool:
    """Whether leases are used (the environment variable says ``on`` or is not set). Raises ConfigurationError for another value than on
    or off."""
    word = os.environ.get(SWITCH_VARIABLE, "on").lower()
    if word not in ("on", "off"):
        raise ConfigurationError(f"{SWITCH_VARIABLE} is {word!r}; it takes on, or off where only this host writes to the lake.")
    return word == "on"


def lease_seconds() -> float:
    """How long a lease is valid without being renewed, in seconds. Raises ConfigurationError if the environment variable is not a number
    from 1 to 3600."""
    text = os.environ.get(SECONDS_VARIABLE, "")
    with contextlib.suppress(ValueError):
        seconds = float(text) if text else SECONDS
        if 1 <= seconds <= 3600:
            return seconds
    raise ConfigurationError(f"{SECONDS_VARIABLE} is {text!r}; it takes a number of seconds from 1 to 3600.")


def this_holder(home: Path, run_id: str) -> Holder:
    """The holder for this process; ``home`` is the DAGSTER_HOME.

    The identity of a home includes the host's name and its boot id. So a DAGSTER_HOME that is shared with or copied to another host counts
    as another home, as file locks may not work between the two.
    """
    with contextlib.suppress(FileExistsError), (home / "lease-identity").open("x", encoding="ascii") as file:
        file.write(uuid.uuid4().hex)
    boot = Path("/proc/sys/kernel/random/boot_id")
    parts = ((home / "lease-identity").read_text(encoding="ascii"), platform.node(), boot.read_text().strip() if boot.exists() else "")
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Holder("/".join(parts), platform.node(), os.getpid(), run_id, since, lease_seconds(), uuid.uuid4().hex)


class Lease:
    """A lease that this process holds. A thread renews it, and calls ``on_lost`` if the lease is lost.

    ``good_since`` is the time (``_now``) at which the last successful attempt to take or renew the lease began. It is the beginning of the
    attempt and not its end, because other hosts may have seen the new version as early as that.
    """

    def __init__(self, label: str, table: LakeTable, seen: _Version, me: Holder, good_since: float, on_lost: Callable[[], None]) -> None:
        self._label, self._table, self._seen, self._me, self._on_lost = label, table, seen, me, on_lost
        self._good_since = good_since
        self._renewed = 0
        self._taken_over = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_the_end, name=f"lease of {label}", daemon=True)
        self._thread.start()

    def expect_held(self) -> None:
        """Raises ConcurrentWriteError if another host may have taken the lease over."""
        if self._taken_over or _now() - self._good_since >= self._me.seconds:
            raise ConcurrentWriteError(
                f"{self._label}: the lease {self._table.url} could not be renewed for {self._me.seconds:g} seconds, and another host may "
                f"have taken over; nothing was written. Sync again."
            )

    def give_back(self) -> None:
        """Stops renewing the lease and frees it, so that other hosts do not have to wait until it expires. An error is ignored."""
        self._end.set()
        self._thread.join()
        with contextlib.suppress(LakeError, ConcurrentWriteError), place_errors(self._table.url):
            self._change(_State(None, self._renewed, proved=True))

    def _renew_until_the_end(self) -> None:
        while not self._end.wait(self._me.seconds / 4):  # several attempts fit into the time for which the lease is valid
            began = _now()
            try:
                with place_errors(self._table.url):
                    self._change(_State(self._me, self._renewed + 1, proved=True))
                self._renewed, self._good_since = self._renewed + 1, began
            except ConcurrentWriteError:
                self._taken_over = True
            except LakeError:
                if _now() - self._good_since < self._me.seconds:
                    continue  # the lease is still valid, and the store may answer again before it expires
            if self._taken_over or _now() - self._good_since >= self._me.seconds:
                self._on_lost()
                return

    def _change(self, state: _State) -> None:
        """Writes the next version.

        Raises ConcurrentWriteError if another holder has the lease by now, and as ``Folder`` does if the store cannot be written.
        """
        try:
            self._seen = _write(self._table, self._seen, state)
        # Another host has taken over, or we wrote that version ourselves in an earlier attempt that was reported as failed.
        except _Passed:
            self._seen = _newest(self._table)
            holder = self._seen.state.holder
            if holder is None or holder.token != self._me.token:
                raise ConcurrentWriteError(f"{self._label}: the lease is held by {holder or 'nobody'} now") from None
            try:
                self._seen = _write(self._table, self._seen, state)
            except _Passed:
                raise ConcurrentWriteError(f"{self._label}: another host has the lease now") from None


@contextlib.contextmanager
def held(
    label: str, lake: str, path: tuple[str, ...], me: Holder, deadline: float, log: Callable[[str], None], on_lost: Callable[[], None]
) -> Iterator[Lease]:
    """Holds the lease at ``path`` in the lake during the block.

    Waits for a lease of another host until ``deadline`` (by ``time.monotonic``), and then raises ContainerBusy with the holder's name.
    Raises LakeError if the lake cannot be written, or if its store does not keep the commits of two hosts apart. ``on_lost`` is called by
    another thread if the lease is lost during the block.
    """
    table = LakeTable(lake, FOLDER, *path)
    mine, good_since = _taken(label, table, me, deadline, log)
    lease = Lease(label, table, mine, me, good_since, on_lost)
    try:
        yield lease
    finally:
        lease.give_back()


def _taken(label: str, table: LakeTable, me: Holder, deadline: float, log: Callable[[str], None]) -> tuple[_Version, float]:
    seen: tuple[str, int] | None = None
    seen_at = _now()
    logged = False
    with place_errors(table.url):
        while True:
            began = _now()
            newest = _newest(table)
            state = newest.state
            holder = state.holder
            # A holder with our home cannot be running any more: it had the file lock of the operating system, and we have it now.
            free = holder is None or holder.home == me.home
            if holder is not None and not free:
                now = (holder.token, state.renewed)
                if now != seen:
                    seen, seen_at = now, _now()  # not `began`: the version may have been made while it was looked for
                # The time is measured by this host's clock, from when this process first saw the newest version. A quarter is added as a
                # margin.
                free = began - seen_at > holder.seconds * 1.25
            if free:
                try:
                    if not state.proved:
                        _prove(table)
                    return _write(table, newest, replace(state, holder=me, renewed=0, proved=True)), began
                except _Passed:
                    continue  # another host has created the next version first
            if time.monotonic() >= deadline:
                raise ContainerBusy(f"{label}: skipped: it is being synced by {holder}.")
            if not logged:
                log(f"{label}: waits for {holder}")
                logged = True
            assert holder is not None
            time.sleep(min(1.0, holder.seconds / 10))


def _newest(table: LakeTable) -> _Version:
    """The newest version of the lease's table, which is made where there is none.

    On an object store, one that was put with this DAGSTER_HOME is not read again. Raises LakeError if it is none of a lease, DeltaError,
    and as ``Folder`` does.
    """
    folder = folder_at(table.address)
    known = seen(table.address) or {}
    with contextlib.suppress(ValueError, KeyError, TypeError):
        number, metadata = int(known["version"]), known["metadata"]
        if folder.versions(number) == {number: known["file"]}:
            return _Version(number, metadata, _State.of(metadata["description"]))
    for _ in range(_TRIES):
        numbers = list(folder.versions(0))
        if not numbers:
            opened_or_made(table, _SCHEMA, _PROPERTIES, description=_text(_State()))
            continue
        try:
            # A commit of another program, such as one of maintenance, has no metadata: then that of the version before holds.
            for number in reversed(numbers):
                metadata = next((action["metaData"] for action in actions_of(folder, number) if "metaData" in action), None)
                if metadata is not None:
                    return _Version(numbers[-1], metadata, _State.of(metadata["description"]))
        except FileNotFoundError:
            continue  # it was removed meanwhile, so there are newer ones
        except (ValueError, KeyError, TypeError):
            break
    raise LakeError(f"{table.url} is not a lease that this version can read; remove the folder while no sync runs.")


def _prove(table: LakeTable) -> None:
    """Raises LakeError if the store replaces an object that is put as a new one: it would let a host replace the commit of another."""
    if not refuses_to_replace(table.address, "_proof"):
        raise LakeError(
            f"{table.url}: this store lets one host overwrite the commit of another: it ignores If-None-Match. Nothing was written. "
            f"Use another store; or, where only this host writes to the lake, say so: {SWITCH_VARIABLE}=off."
        )


def _write(table: LakeTable, seen: _Version, state: _State) -> _Version:
    """Creates the version that follows the one that was seen, and returns it. Raises _Passed if that version exists, and as ``Folder``."""
    mine = _Version(seen.number + 1, {**seen.metadata, "description": _text(state)}, state)
    if not put_version(folder_at(table.address), mine.number, [commit_info("SET TABLE COMMENT", {}), {"metaData": mine.metadata}]):
        raise _Passed
    own = last_put(table.address, version_file(mine.number))
    if own is not None:
        note(table.address, {"version": mine.number, "file": own.file, "metadata": mine.metadata})
    if mine.number % _CHECKPOINT_INTERVAL == 0:
        table.tidy_log()
    return mine


def _text(state: _State) -> str:
    return json.dumps({"holder": None if state.holder is None else asdict(state.holder), "renewed": state.renewed, "proved": state.proved})
