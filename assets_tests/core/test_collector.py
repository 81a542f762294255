"""The collector of reference cycles pauses while a project is loaded, and not for ever, and then spares what was loaded."""

import gc
import subprocess
import sys

import pytest

from incremental_assets.core.collector import collector_paused


def test_the_collector_runs_again_afterwards_also_after_an_error() -> None:
    """Otherwise the server of a code location, which runs for weeks, would grow for ever."""
    assert gc.isenabled()
    with pytest.raises(ValueError), collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled(), "the inner block has not begun the pause"
        raise ValueError
    assert gc.isenabled()


def test_a_collector_that_was_switched_off_stays_off() -> None:
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_garbage_that_comes_after_loading_is_still_collected() -> None:
    """Otherwise a run whose assets make objects with cycles, such as data frames, would grow until it is killed."""
    code = """
import gc, weakref
from incremental_assets.core.collector import spare_what_is_loaded

class Node: ...

stays = [[] for _ in range(100_000)]
spare_what_is_loaded()
frozen = gc.get_freeze_count()
later = Node()
later.itself = later
seen = weakref.ref(later)
del later
spare_what_is_loaded()
gone = [[] for _ in range(50_000)]
print(frozen > 100_000, seen() is None, gc.get_freeze_count() <= frozen)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == ["True"] * 3
