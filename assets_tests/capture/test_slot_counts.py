"""One look at the log of a source answers for all containers that are planned together, and is never older than what asks for it.

Belongs here: how often PostgreSQL decodes its log, and that nobody gets an outdated answer. Does not belong: what a sync does with the
changes (``test_capture``). PostgreSQL's own log says how often it has decoded.
"""

import re
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from assets_tests.capture.test_capture import set_up
from assets_tests.harness import Project
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.operations import dry_run
from incremental_assets.operations.capture import captured, status
from incremental_assets.runs.dagster_internals.one_asset_job import implicit_job
from incremental_assets.runs.due import LookedUp, NotDue, launch_if_due
from incremental_assets.runs.partitions import container_key
from incremental_assets.runs.runner import SyncOptions

MakeProject = Callable[..., Project]
NAMES = ["t0", "t1", "t2", "t3", "t4"]


class Decodings:
    """Counts how often the server has decoded the log for a read, from one call to the next."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._log: Path = server.home.data / "server.log"
        self._read = self._log.stat().st_size

    def __call__(self) -> int:
        with self._log.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        self._read += len(text)
        # A slot is also decoded to be advanced, without its messages.
        return re.findall(rb"starting logical decoding.*?(slot_peek|slot_advance)", text, re.DOTALL).count(b"slot_peek")


@pytest.fixture
def five(project: MakeProject) -> Project:
    """Five captured containers, loaded, of which the second one has changed since."""
    shop = project(capture="log")
    for name in NAMES:
        shop.execute(f"create table {name} (id int primary key, n int); insert into {name} select i, i from generate_series(1, 9) i")
    set_up(shop, *NAMES)
    shop.sync()
    # After the load each container has a position of its own: what the others have loaded lies below those of some of them only.
    shop.execute("update t1 set n = -1 where id = 3; delete from t1 where id = 4")
    return shop


def test_a_sync_of_five_containers_decodes_the_log_once_and_once_more_for_the_one_that_has_changed(
    five: Project, postgres: EmbeddedPostgres
) -> None:
    """The source would decode all of its log once for each container, however few have changed."""
    decodings = Decodings(postgres)
    lines = five.sync(stale=True)
    assert {name: line["status"] for name, line in lines.items()} == dict.fromkeys(NAMES, "skipped") | {"t1": "synced"}, lines
    assert decodings() == 2
    five.assert_equal("t1")
    assert {line["status"] for line in five.sync(stale=True).values()} == {"skipped"}
    assert decodings() == 1


@pytest.mark.long
def test_each_sync_sees_what_was_committed_before_it(five: Project) -> None:
    """Whoever commits, and then syncs, would not find the row in the lake."""
    five.sync(stale=True)
    for name in ("t0", "t4", "t0"):
        five.execute(f"update {name} set n = n + 100 where id = 1; insert into {name} values ((select max(id) + 1 from {name}), 0)")
        lines = five.sync(stale=True)
        assert {one for one, line in lines.items() if line["status"] != "skipped"} == {name}, lines
        five.assert_equal(name)


def test_a_tick_decodes_the_log_once(five: Project, postgres: EmbeddedPostgres) -> None:
    """A tick has a minute for all containers of a datastore."""
    definitions = five.catalog()
    with five.instance() as instance:
        decodings = Decodings(postgres)
        known = LookedUp.now(instance, definitions)
        found = {one.table.name: launch_if_due(instance, one, known) for one in definitions}
        assert [name for name, launch in found.items() if not isinstance(launch, NotDue)] == ["t1"], found
        assert decodings() == 1
        looks = {launch.look for launch in found.values() if isinstance(launch, NotDue)}
        assert len(looks) == 1 and None not in looks, "what is committed after the one look is in none of the lake's tables"
        five.execute("delete from t2 where id = 1")
        again = LookedUp.now(instance, definitions)
        assert [one.table.name for one in definitions if not isinstance(launch_if_due(instance, one, again), NotDue)] == ["t1", "t2"]


@pytest.mark.long
def test_status_and_a_dry_run_decode_the_log_once(five: Project, postgres: EmbeddedPostgres) -> None:
    definitions = five.catalog()
    decodings = Decodings(postgres)
    records = {one["container"]: one for one in status(captured(definitions), five.lake)}
    assert decodings() == 1
    assert {name: record["changes_waiting"] for name, record in records.items() if name} == {
        f"shop/{name}": 2 * (name == "t1") for name in NAMES
    }
    assert 0 < records["shop/t1"]["lag_seconds"] < 60 and records["shop/t0"]["lag_seconds"] == 0
    with five.instance() as instance:
        lines = list(dry_run.dry_run_lines(definitions, SyncOptions(), instance))
    assert decodings() == 1
    assert [line["container"] for line in lines if line["action"] != "skip"] == ["shop/t1"]


@pytest.mark.long
def test_a_plan_that_is_made_long_after_the_look_looks_again(five: Project) -> None:
    """In a command that syncs many containers for an hour, the last ones would be as old as its beginning."""
    definitions = five.catalog()
    with five.instance() as instance:
        known = LookedUp.now(instance, definitions)
        assert isinstance(launch_if_due(instance, definitions[0], known), NotDue)
        known.counts._slots["shop"].until = 0.0  # pyright: ignore[reportPrivateUsage]
        five.execute("delete from t2 where id = 1")
        assert not isinstance(launch_if_due(instance, definitions[2], known), NotDue)


def test_a_table_that_another_sync_has_moved_meanwhile_is_looked_at_alone(five: Project) -> None:
    """An answer about another position would make the tick start a run that has nothing to do, or miss what came since."""
    definitions = five.catalog()
    with five.instance() as instance:
        known = LookedUp.now(instance, definitions)
        assert isinstance(launch_if_due(instance, definitions[0], known), NotDue)
        five.sync("t1", stale=True)
        assert isinstance(launch_if_due(instance, definitions[1], known), NotDue)


@pytest.mark.long
def test_a_run_whose_change_another_sync_has_brought_meanwhile_commits_nothing(five: Project) -> None:
    """The run is told of a change that was seen, so that it need not look whether there is one. That must not outlive the change."""
    definitions = five.catalog()
    with five.instance() as instance:
        launch = launch_if_due(instance, definitions[1])
        assert not isinstance(launch, NotDue)
        assert "changed_at" in str(launch.run_config)
        five.sync("t1", stale=True)
        version = five.table("t1").head()
        job = implicit_job(five.dagster([definitions[1]]), container_key(definitions[1].container))
        assert job.execute_in_process(instance=instance, run_config=launch.run_config).success
        assert five.table("t1").head() == version
        five.execute("update t1 set n = -2 where id = 5")
        assert job.execute_in_process(instance=instance, run_config=launch.run_config).success
    five.assert_equal("t1")


@pytest.mark.long
def test_each_kind_of_change_is_told_for_each_of_the_tables_it_concerns(five: Project) -> None:
    """A TRUNCATE of several tables is one message of the log; a transaction may change several tables."""
    five.execute("truncate t2, t3")
    with psycopg.connect(five.url) as one:
        one.execute("insert into t0 values (100, 1)")
        one.execute("insert into t4 select i, i from generate_series(101, 103) i")
    records = {one["container"]: one for one in status(captured(five.catalog()), five.lake)}
    waiting = {name: (records[f"shop/{name}"]["changes_waiting"], bool(records[f"shop/{name}"]["message"])) for name in NAMES}
    assert waiting == {"t0": (1, False), "t1": (2, False), "t2": (1, True), "t3": (1, True), "t4": (3, False)}


@pytest.mark.long
def test_a_container_whose_table_cannot_be_opened_keeps_nobody_else_from_being_synced(five: Project) -> None:
    for path in (five.lake_root / "shop" / "t3" / "_delta_log").glob("*.json"):
        path.write_text("{broken")
    lines = five.sync(stale=True)
    assert {name for name, line in lines.items() if line["status"] == "failed"} == {"t3"}, lines
    assert lines["t1"]["status"] == "synced"
