"""Leases of two hosts on one lake: at most one host has the lease of a container, and it is taken over only when it is not renewed.

Belongs here: leases, with two DAGSTER_HOMEs in place of two hosts. Does not belong: whole syncs of two hosts (``test_two_hosts``).
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assets_tests.harness import wait_for
from incremental_assets.core.errors import ConcurrentWriteError, ConfigurationError, ContainerBusy
from incremental_assets.delta import lease as leases
from incremental_assets.delta.lease import Holder, Lease, held, this_holder
from incremental_assets.delta.store import version_file
from incremental_assets.delta.table import LakeTable

PATH = ("shop", "orders")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INCREMENTAL_ASSETS_LEASE_SECONDS", "2")


@pytest.fixture
def host(tmp_path: Path) -> Callable[[str], Holder]:
    def of(name: str) -> Holder:
        home = tmp_path / name
        home.mkdir(exist_ok=True)
        return this_holder(home, f"run-{name}")

    return of


@contextmanager
def taken(tmp_path: Path, me: Holder, wait: float = 0, said: list[str] | None = None, lost: list[bool] | None = None) -> Iterator[Lease]:
    log = (lambda _: None) if said is None else said.append
    on_lost = (lambda: None) if lost is None else (lambda: lost.append(True))
    with held("shop/orders", str(tmp_path / "lake"), PATH, me, time.monotonic() + wait, log, on_lost) as lease:
        yield lease


def freeze(lease: Lease) -> None:
    """Stops the renewal and the release of the lease, as where a process is stopped or cut off from the store."""
    lease._end.set()
    lease._thread.join()


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="Linux alone has a clock that stands still while a machine is suspended")
def test_a_machine_that_was_suspended_does_not_count_as_the_holder(
    tmp_path: Path, host: Callable[[str], Holder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another host has long taken over, and what is monotonic stood still meanwhile: the sync would go on to read, write and fail late."""
    with taken(tmp_path, host("one")) as lease:
        freeze(lease)
        lease.expect_held()
        clock, monotonic = time.clock_gettime, time.monotonic()
        with monkeypatch.context() as suspended, pytest.raises(ConcurrentWriteError):
            suspended.setattr(time, "monotonic", lambda: monotonic)
            suspended.setattr(time, "clock_gettime", lambda number: clock(number) + (3600 if number == time.CLOCK_BOOTTIME else 0))
            lease.expect_held()


def test_a_slow_look_at_a_lease_does_not_make_it_older(
    tmp_path: Path, host: Callable[[str], Holder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host whose store answers slowly, or that is suspended meanwhile, would take the lease of one that renews it all the time."""
    looks, real = list[int](), leases._newest

    def slow(table: LakeTable) -> object:
        looks.append(1)
        if len(looks) == 1:
            time.sleep(3)  # longer than the lease is valid
            freeze(lease)  # the last renewal is as good as new
        return real(table)

    with taken(tmp_path, host("one")) as lease, monkeypatch.context() as patch:
        patch.setattr(leases, "_newest", slow)
        with pytest.raises(ContainerBusy), taken(tmp_path, host("two"), wait=4):
            pass
    assert len(looks) > 1


def test_a_second_host_is_refused_and_sees_who_holds_the_lease(tmp_path: Path, host: Callable[[str], Holder]) -> None:
    said: list[str] = []
    first = host("one")
    with taken(tmp_path, first), pytest.raises(ContainerBusy) as busy, taken(tmp_path, host("two"), wait=1, said=said):
        pass
    assert f"it is being synced by run run-one on host {first.host} (pid {os.getpid()}, since " in str(busy.value)
    assert said == [f"shop/orders: waits for {first}"]
    with taken(tmp_path, host("two")):  # it was given back
        pass


@pytest.mark.long
def test_a_lease_that_is_renewed_is_not_taken_over(tmp_path: Path, host: Callable[[str], Holder]) -> None:
    """A sync may take hours, while a lease is valid for seconds without renewal."""
    with taken(tmp_path, host("one")) as lease, pytest.raises(ContainerBusy), taken(tmp_path, host("two"), wait=7):
        pass
    with taken(tmp_path, host("one")) as lease:
        lease.expect_held()


def test_a_lease_that_is_not_renewed_is_taken_over(tmp_path: Path, host: Callable[[str], Holder]) -> None:
    with taken(tmp_path, host("one")) as lease:
        freeze(lease)
        with taken(tmp_path, host("two"), wait=30) as other:
            other.expect_held()
            with pytest.raises(ConcurrentWriteError, match="another host may have taken over; nothing was written"):
                lease.expect_held()


@pytest.mark.long
def test_a_host_does_not_release_the_lease_of_another_one(tmp_path: Path, host: Callable[[str], Holder]) -> None:
    with taken(tmp_path, host("one")) as lease:
        freeze(lease)
        other = taken(tmp_path, host("two"), wait=30)
        other.__enter__()
    with pytest.raises(ContainerBusy), taken(tmp_path, host("three")):
        pass
    other.__exit__(None, None, None)


def test_a_host_that_loses_its_lease_is_notified(tmp_path: Path, host: Callable[[str], Holder], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Spark queries must be ended before they commit."""
    lost: list[bool] = []
    with taken(tmp_path, host("one"), lost=lost) as lease:
        table = LakeTable(str(tmp_path / "lake"), "_leases", *PATH)
        usurper = leases._State(host("two"), 0, proved=True)
        for _ in range(5):  # it may be renewing just then
            try:
                leases._write(table, leases._newest(table), usurper)
                break
            except leases._Passed:
                continue
        wait_for(lambda: lost, "the renewal notices it", 20)
        assert lost == [True]
        with pytest.raises(ConcurrentWriteError):
            lease.expect_held()


def test_a_lease_of_the_same_home_is_taken_over_at_once(tmp_path: Path, host: Callable[[str], Holder]) -> None:
    """The lock of the operating system shows that the process with the lease has ended."""
    with taken(tmp_path, host("one")) as lease:
        freeze(lease)
        with taken(tmp_path, host("one")):
            pass


@pytest.mark.parametrize("removed", [(3,), (0, 1, 2, 4)])
def test_a_lease_is_known_by_its_newest_version_while_old_ones_are_removed(
    tmp_path: Path, host: Callable[[str], Holder], removed: tuple[int, ...]
) -> None:
    """The log is cleaned in any order. The version below a gap often says that the lease is free: two hosts would have it."""
    for _ in range(4):
        with taken(tmp_path, host("one")):
            pass
    for number in removed:
        (tmp_path / "lake" / "_leases" / "shop" / "orders" / version_file(number)).unlink()
    with taken(tmp_path, host("one")), pytest.raises(ContainerBusy), taken(tmp_path, host("two")):
        pass


def test_a_lease_whose_old_versions_cannot_be_removed_is_held(
    tmp_path: Path, host: Callable[[str], Holder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync would fail, and the others wait for a minute, as the version that says who has it is written."""
    with taken(tmp_path, host("one")):  # its table is made
        pass

    def full(_: LakeTable) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(LakeTable, "opened_to_change", full)
    for _ in range(leases._CHECKPOINT_INTERVAL):
        with taken(tmp_path, host("one")) as lease:
            lease.expect_held()
    assert leases._newest(LakeTable(str(tmp_path / "lake"), "_leases", *PATH)).number > leases._CHECKPOINT_INTERVAL


@pytest.mark.long
def test_the_log_of_a_lease_does_not_grow(tmp_path: Path, host: Callable[[str], Holder]) -> None:
    log = tmp_path / "lake" / "_leases" / "shop" / "orders" / "_delta_log"
    counts: list[int] = []
    for _ in range(4):
        for _ in range(25):
            with taken(tmp_path, host("one")):
                pass
        long_ago = time.time() - 7200
        for file in log.iterdir():
            os.utime(file, (long_ago, long_ago))
        counts.append(len(list(log.iterdir())))
    assert max(counts) < 100, counts  # of 200 versions


def test_wrong_values_of_the_lease_variables_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("0", "soon", "1e9"):
        monkeypatch.setenv("INCREMENTAL_ASSETS_LEASE_SECONDS", text)
        with pytest.raises(ConfigurationError, match="from 1 to 3600"):
            leases.lease_seconds()
    monkeypatch.setenv("INCREMENTAL_ASSETS_LEASE", "maybe")
    with pytest.raises(ConfigurationError, match="it takes on, or off"):
        leases.leases_are_on()


def _adds(lake: str, home: str, times: int) -> None:
    counter = Path(lake) / "counter"
    for _ in range(times):
        with held("c", lake, PATH, this_holder(Path(home), "r"), time.monotonic() + 300, lambda _: None, lambda: None):
            value = int(counter.read_text())
            time.sleep(0.002)  # without the lease, another host reads the same value meanwhile
            counter.write_text(str(value + 1))


@pytest.mark.long
def test_hosts_that_take_the_lease_in_turn_lose_no_change(tmp_path: Path) -> None:
    """Reading, adding one and writing back, by two hosts at once: without a lease most of the additions would be lost."""
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / "counter").write_text("0")
    context = multiprocessing.get_context("spawn")
    homes = [tmp_path / f"home-{n}" for n in range(2)]
    for home in homes:
        home.mkdir()
    processes = [context.Process(target=_adds, args=(str(lake), str(home), 5)) for home in homes]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert (lake / "counter").read_text() == "10"
