"""Views that the source itself cannot read for now: they wait, are said, and come by themselves.

Belongs here: PostgreSQL's. Does not belong: a view without its definer (``test_mysql_sync``).
"""

from collections.abc import Callable

import pytest

from assets_tests.harness import Project
from incremental_assets.core.plan import Mode

MakeProject = Callable[..., Project]


def test_a_materialized_view_without_data_waits_and_then_comes_by_itself(project: MakeProject) -> None:
    """It is made WITH NO DATA and refreshed at night. Until then it must not fail each sync, and then it needs no command."""
    shop = project(incremental=["public.m:at:timestamp"], containers={"m": {"partition_by": "month"}})
    shop.execute(
        """create table t (id int, at timestamptz); insert into t values (1, '2026-01-01Z'), (2, '2026-02-01Z');
        create materialized view m as select * from t with no data; create materialized view n as select * from t with no data;
        create view v as select * from n"""
    )
    lines = shop.sync()
    assert lines["t"]["status"] == "synced"
    for name in ("m", "n", "v"):
        assert lines[name]["status"] == "warning" and lines[name]["message"].startswith("it waits: materialized view"), lines[name]
    shop.execute("refresh materialized view m; refresh materialized view n")
    assert {line["status"] for name, line in shop.sync().items() if name in ("m", "n", "v")} == {"synced"}
    assert len(shop.rows("m")) == len(shop.rows("v")) == 2
    shop.execute("refresh materialized view m with no data")
    line = shop.one("m", stale=True)
    assert line["status"] == "warning" and line["watermark"]["new"] == "2026-02-01T00:00:00Z" and len(shop.rows("m")) == 2, line
    assert shop.one("m", ok=False, mode=Mode.REFRESH)["status"] == "failed"  # who asks for its rows has to know that there are none
    shop.execute("insert into t values (3, '2026-03-01Z'); refresh materialized view m")
    assert shop.one("m", stale=True)["status"] == "synced"
    assert len(shop.rows("m")) == 3


@pytest.mark.long
def test_a_view_that_takes_longer_than_the_time_out_of_the_database_is_synced(project: MakeProject) -> None:
    """The time-out of the database or of the role is meant for the application, and our queries have a limit of their own."""
    shop = project(incremental=["public.v:at:timestamp"], containers={"v": {"partition_by": "month"}})
    shop.execute(
        """create function slow() returns int language plpgsql immutable as $$ begin perform pg_sleep(0.5); return 1; end $$;
        create table t (id int, at timestamptz); insert into t values (1, '2026-01-01Z');
        create view v as select * from t where slow() = 1;
        do $$ begin execute format('alter database %I set statement_timeout = 200', current_database()); end $$"""
    )
    assert shop.one("v")["status"] == "synced"
    assert len(shop.rows("v")) == 1
