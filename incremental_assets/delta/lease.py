"""One writer a container on one lake, whichever host it is on: a lease, kept in the lake beside the tables.

Belongs here: taking, renewing, giving back a lease. Does not belong: which work needs one (``dagster.locks``).

A lease is the newest version of a tiny Delta table of its own, which is written by delta-rs alone: a version can be made only once (a
hard link on a file system, a conditional put on an object store), so of two hosts that change the same version one is refused. The holder
makes a new version every few seconds. Nobody's clock is compared with another's: a host takes over when it has itself seen no new version
for the whole time that the lease is good for. The table's old versions are removed by delta-rs after an hour.
"""

import contextlib
import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from incremental_assets.core.errors import ConfigurationError, ContainerBusy, LakeError, LakeMoved
from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.table import LakeTable, opened_or_made

FOLDER = "_leases"
SECONDS = 60.0
SECONDS_VARIABLE = "INCREMENTAL_ASSETS_LEASE_SECONDS"
SWITCH_VARIABLE = "INCREMENTAL_ASSETS_LEASE"
_CONTENDERS = 8
_SCHEMA = pa.schema([("lease", pa.string())])
_ONCE = CommitProperties(max_commit_retries=0)
_PROPERTIES = {"delta.checkpointInterval": "20", "delta.logRetentionDuration": "interval 1 hours", "delta.enableExpiredLogCleanup": "true"}


@dataclass(frozen=True)
class Holder:
    """Who has a lease. ``home``: what shares the operating system's locks with it. ``token``: of this one taking; ``seconds``: how long
    a lease is good that is not renewed."""

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
    """What a version of the table says. ``proved``: whether the store was seen to refuse a version that is made twice."""

    holder: Holder | None = None
    renewed: int = 0
    proved: bool = False

    @classmethod
    def of(cls, delta: DeltaTable, url: str) -> "_State":
        try:
            data = json.loads(delta.metadata().description or "")
            holder = data["holder"]
            return cls(None if holder is None else Holder(**holder), int(data["renewed"]), bool(data["proved"]))
        except (ValueError, KeyError, TypeError):
            raise LakeError(f"{url} is not a lease that this version can read; remove the folder while no sync runs.") from None


def leases_are_on() -> bool:
    """Raises ConfigurationError where the variable says neither."""
    word = os.environ.get(SWITCH_VARIABLE, "on").lower()
    if word not in ("on", "off"):
        raise ConfigurationError(f"{SWITCH_VARIABLE} is {word!r}; it takes on, or off where only this host writes to the lake.")
    return word == "on"


def lease_seconds() -> float:
    """Raises ConfigurationError where the variable is no such number."""
    text = os.environ.get(SECONDS_VARIABLE, "")
    with contextlib.suppress(ValueError):
        seconds = float(text) if text else SECONDS
        if 1 <= seconds <= 3600:
            return seconds
    raise ConfigurationError(f"{SECONDS_VARIABLE} is {text!r}; it takes a number of seconds from 1 to 3600.")


def this_holder(home: Path, run_id: str) -> Holder:
    """This process. A home that is shared or copied is another one on another host, or after a restart of it."""
    with contextlib.suppress(FileExistsError), (home / "lease-identity").open("x", encoding="ascii") as file:
        file.write(uuid.uuid4().hex)
    boot = Path("/proc/sys/kernel/random/boot_id")
    parts = ((home / "lease-identity").read_text(encoding="ascii"), platform.node(), boot.read_text().strip() if boot.exists() else "")
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Holder("/".join(parts), platform.node(), os.getpid(), run_id, since, lease_seconds(), uuid.uuid4().hex)


class Lease:
    """One that is held, and renewed by a thread. ``on_lost`` is called from that thread when it is not ours any more."""

    def __init__(self, label: str, table: LakeTable, delta: DeltaTable, me: Holder, good_since: float, on_lost: Callable[[], None]) -> None:
        self._label, self._table, self._delta, self._me, self._on_lost = label, table, delta, me, on_lost
        self._good_since = good_since
        self._renewed = 0
        self._taken_over = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_the_end, name=f"lease of {label}", daemon=True)
        self._thread.start()

    def expect_held(self) -> None:
        """Raises LakeMoved where somebody else may have taken over."""
        if self._taken_over or time.monotonic() - self._good_since >= self._me.seconds:
            raise LakeMoved(
                f"{self._label}: the lease {self._table.url} could not be renewed for {self._me.seconds:g} seconds, and another host may "
                f"have taken over; nothing was written. Sync again."
            )

    def give_back(self) -> None:
        """Others then need not wait until it ends by itself."""
        self._end.set()
        self._thread.join()
        with contextlib.suppress(LakeError, LakeMoved), place_errors(self._table.url):
            self._change(_State(None, self._renewed, proved=True))

    def _renew_until_the_end(self) -> None:
        while not self._end.wait(self._me.seconds / 4):
            began = time.monotonic()
            try:
                with place_errors(self._table.url):
                    self._change(_State(self._me, self._renewed + 1, proved=True))
                self._renewed, self._good_since = self._renewed + 1, began
            except LakeMoved:
                self._taken_over = True
            except LakeError:
                if time.monotonic() - self._good_since < self._me.seconds:
                    continue  # the store may answer again in time
            if self._taken_over or time.monotonic() - self._good_since >= self._me.seconds:
                self._on_lost()
                return

    def _change(self, state: _State) -> None:
        """Raises LakeMoved where it is somebody else's by now, DeltaError where the store cannot be written."""
        try:
            _write(self._delta, state)
        except CommitFailedError:  # somebody has taken over, or the answer to an earlier attempt of ours was lost
            self._delta = _opened(self._table)
            holder = _State.of(self._delta, self._table.url).holder
            if holder is None or holder.token != self._me.token:
                raise LakeMoved(f"{self._label}: the lease is held by {holder or 'nobody'} now") from None
            _write(self._delta, state)


@contextlib.contextmanager
def held(
    label: str, lake: str, path: tuple[str, ...], me: Holder, deadline: float, log: Callable[[str], None], on_lost: Callable[[], None]
) -> Iterator[Lease]:
    """Holds the lease at ``path``. Waits for another host until ``deadline`` (of ``time.monotonic``), then raises ContainerBusy naming it.

    Raises LakeError where the lake cannot be written, or does not keep two hosts apart.
    """
    table = LakeTable(lake, FOLDER, *path)
    delta, good_since = _taken(label, table, me, deadline, log)
    lease = Lease(label, table, delta, me, good_since, on_lost)
    try:
        yield lease
    finally:
        lease.give_back()


def _taken(label: str, table: LakeTable, me: Holder, deadline: float, log: Callable[[str], None]) -> tuple[DeltaTable, float]:
    seen: tuple[str, int] | None = None
    seen_at = time.monotonic()
    said = False
    with place_errors(table.url):
        while True:
            began = time.monotonic()
            delta = _opened(table)
            state = _State.of(delta, table.url)
            holder = state.holder
            # One from here cannot be at work any more: it had the lock of the operating system, which we have now.
            free = holder is None or holder.home == me.home
            if holder is not None and not free:
                now = (holder.token, state.renewed)
                if now != seen:
                    seen, seen_at = now, began
                free = began - seen_at > holder.seconds * 1.25
            if free:
                try:
                    if not state.proved:
                        _prove(table, delta)
                    mine = replace(state, holder=me, renewed=0, proved=True)
                    _write(delta, mine)
                except CommitFailedError:
                    continue  # somebody else was quicker
                return delta, began
            if began >= deadline:
                raise ContainerBusy(f"{label}: skipped: it is being synced by {holder}.")
            if not said:
                log(f"{label}: waits for {holder}")
                said = True
            assert holder is not None
            time.sleep(min(1.0, holder.seconds / 10))


def _opened(table: LakeTable) -> DeltaTable:
    return opened_or_made(table, _SCHEMA, _PROPERTIES, description=_text(_State()))


def _prove(table: LakeTable, delta: DeltaTable) -> None:
    """Lets some threads make one version at once, and ``delta`` see it. Raises LakeError where the store takes more than one of them: it
    would take the commits of two hosts for one, too.

    At once, as delta-rs looks for newer versions just before it makes one: one after the other would be refused by any store. And by
    writing no rows, as it holds Python's interpreter while it changes a description.
    """
    contenders = [_opened(table) for _ in range(_CONTENDERS)]
    if any(one.version() != delta.version() for one in contenders):
        raise CommitFailedError("somebody else has changed it")
    start = threading.Barrier(_CONTENDERS)

    def made(one: DeltaTable) -> bool:
        start.wait()
        try:
            write_deltalake(one, _SCHEMA.empty_table(), mode="append", commit_properties=_ONCE)
        except CommitFailedError:
            return False
        return True

    with ThreadPoolExecutor(_CONTENDERS) as pool:
        taken = sum(pool.map(made, contenders))
    if taken > 1:
        raise LakeError(
            f"{table.url}: this store lets one host overwrite the commit of another: it ignores If-None-Match. Nothing was written. "
            f"Use another store; or, where only this host writes to the lake, say so: {SWITCH_VARIABLE}=off."
        )
    before = delta.version()
    delta.update_incremental()
    if taken == 0 or delta.version() != before + 1:
        raise CommitFailedError("somebody else has changed it")


def _write(delta: DeltaTable, state: _State) -> None:
    """The version after ``delta``'s. Raises CommitFailedError where there is one already."""
    delta.alter.set_table_description(_text(state), commit_properties=_ONCE)


def _text(state: _State) -> str:
    return json.dumps({"holder": None if state.holder is None else asdict(state.holder), "renewed": state.renewed, "proved": state.proved})
