"""The collector of reference cycles pauses while a project is loaded, and not for ever."""

import gc

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
