"""Containers that are read whole at intervals: ``every: 6 hours``.

Belongs here: when they are read, and what the YAML may say. Does not belong: that ``add`` proposes it (``cli/test_add.py``).
"""

import time
from collections.abc import Callable

import pytest

from assets_tests.harness import Project
from incremental_assets.core.duration import in_units, seconds_of
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.plan import Mode
from incremental_assets.databases import plan
from incremental_assets.runs.due import NotDue, launch_if_due

MakeProject = Callable[..., Project]


def test_a_view_is_read_once_in_its_interval(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each tick of a schedule reads the whole view, as nobody can see whether it has changed."""
    shop = project(containers={"v": {"every": "6 hours"}, "mv": {"every": "6 hours"}})
    shop.execute("""create table t (id int primary key); insert into t values (1); create view v as select * from t;
        create materialized view mv as select * from t; create view each_time as select * from t""")
    assert {line["status"] for line in shop.sync().values()} == {"synced"}
    shop.execute("insert into t values (2)")
    lines = shop.sync()
    assert lines["v"]["status"] == "skipped" and "it is read whole every 6 hours, the last time was 20" in lines["v"]["message"], lines["v"]
    assert (lines["each_time"]["status"], lines["t"]["status"]) == ("synced", "synced")
    with shop.instance() as instance:
        assert isinstance(launch_if_due(instance, shop.definition("v")), NotDue)
    assert shop.one("v", mode=Mode.REFRESH)["status"] == "synced"
    shop.assert_equal("v")
    shop.execute("insert into t values (3)")
    assert shop.audit("v")["v"]["status"] == "equal"
    shop.execute("insert into t values (4)")
    assert shop.one("v")["status"] == "skipped"
    real = time.time_ns
    with monkeypatch.context() as patched:
        patched.setattr(plan.time, "time_ns", lambda: real() + 6 * 3600 * 10**9)
        assert shop.one("v")["status"] == "synced"
    shop.assert_equal("v")


def test_what_is_not_read_whole_has_no_interval(project: MakeProject) -> None:
    """Otherwise somebody believes that it is read less often."""
    shop = project(incremental=["public.t:id:integer"], containers={"t": {"every": "6 hours"}})
    shop.execute("create table t (id int primary key)")
    with pytest.raises(ConfigurationError, match="shop/t: every is for what is read whole each time"):
        shop.catalog()
    shop.configure(incremental=[], containers={"t": {"every": "often"}})
    with pytest.raises(ConfigurationError, match="shop/t: every 'often': write a number and a unit"):
        shop.catalog()


@pytest.mark.parametrize("text", ["90 minutes", "1 hour", "36 hours", "2 days", "1 second", "3 weeks"])
def test_durations_are_shown_as_they_are_written(text: str) -> None:
    assert in_units(seconds_of("every", text)) == text
