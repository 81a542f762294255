"""Two hosts sync one datastore into one lake at the same time: they have a DAGSTER_HOME each, and so share no lock and no event.

Belongs here: two hosts that both respect leases. Does not belong: hosts whose leases have ended (``test_kill``, ``test_stages``).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from assets_tests.harness import Project, wait_for

MakeProject = Callable[..., Project]
OPTIONS = {"primary_key": ["id"], "partition_by": "month", "readers": 1}
GATED = """
create table rows (id int primary key, day date not null, updated_at timestamptz not null default now());
insert into rows (id, day) select i, date '2026-01-01' + i % 50 from generate_series(1, 100) i;
create function gate(id int) returns text language plpgsql stable as $$
begin perform pg_advisory_lock_shared(7); perform pg_advisory_unlock_shared(7); return id::text; end $$;
create view gated as select id, day, updated_at, gate(id) as passed from rows;
"""


def other_host(project: Project) -> Project:
    """The same datastore and lake from another DAGSTER_HOME."""
    other = Project(project.path.parent / f"{project.path.name}-other", project.url, project.spark_home, **project.attributes)
    other.lake = project.lake
    return other


@contextmanager
def closed_gate(project: Project) -> Iterator[None]:
    """Reads of the view wait until the block is left."""
    with psycopg.connect(project.url, autocommit=True, application_name="gate") as keeper:
        keeper.execute("select pg_advisory_lock(7)")
        yield


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(work()))
    thread.start()
    return thread, done


@pytest.mark.long
def test_a_second_host_skips_and_names_the_host_that_syncs(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise both hosts read the same rows, and then their commits conflict, or one overwrites the other where the object store lets
    it."""
    shop = project(incremental=["public.gated:updated_at:timestamp!upsert"], containers={"gated": OPTIONS}, exclude=["rows"])
    shop.execute(GATED)
    shop.write()
    other = other_host(shop)
    monkeypatch.setenv("INCREMENTAL_ASSETS_LOCK_SECONDS", "0.2")
    with closed_gate(shop):
        thread, done = in_thread(lambda: shop.cli("sync", "--json", check=None))
        waiting = "select 1 from pg_stat_activity where wait_event = 'advisory'"
        wait_for(lambda: shop.source.execute(waiting).fetchone() is not None, "its read stands at the gate")
        line = other.one("gated")
    thread.join()
    code, lines, stderr = done[0]
    assert line["status"] == "skipped", line
    assert f"it is being synced by run {lines[0]['run_id']} on host " in line["message"] and "(pid " in line["message"]
    assert code == 0 and lines[0]["status"] == "synced", stderr
    other.one("gated")
    other.assert_equal("gated")
    other.source.close()


@pytest.mark.long
def test_two_hosts_that_sync_at_once_lose_and_double_no_row(project: MakeProject) -> None:
    shop = project(
        incremental=["public.a:id:integer", "public.u:updated_at:timestamp!upsert"],
        containers={"a": {"partition_by": 100}, "u": {"partition_by": "month"}},
    )
    shop.execute("""create table a (id int generated always as identity primary key, note text);
        create table u (id int primary key, note text, updated_at timestamptz not null default now())""")
    other = other_host(shop)
    for one in (shop, other):
        one.write()
    changes = """insert into a (note) select 'new' from generate_series(1, 50);
        insert into u select i, 'v', clock_timestamp() from generate_series(1, 60) i
        on conflict (id) do update set note = u.note || 'v', updated_at = clock_timestamp()"""
    for _ in range(4):
        shop.execute(changes)
        threads = [in_thread(lambda one=one: one.cli("sync", "--json", check=None, timeout=400)) for one in (shop, other)]
        shop.execute(changes)
        for thread, done in threads:
            thread.join()
            code, lines, stderr = done[0]
            assert code == 0 and {line["status"] for line in lines} <= {"synced", "skipped"}, (lines, stderr)
    for name in ("a", "u"):
        shop.one(name)
        shop.assert_equal(name)
        found = shop.rows(name, "count(*) as n, count(distinct id) as m")
        assert found[0][0] == found[0][1]
    other.source.close()
