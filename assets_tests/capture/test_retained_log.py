"""How much of its log a source keeps for a container is seen before its disk is full, and a lost slot is seen where people look.

Belongs here: the asset check ``retained_log``. Does not belong: what a sync does with the log (``test_capture``).
"""

import time
from collections.abc import Callable

import dagster as dg
import pytest

from assets_tests.capture.test_capture import PARTITIONED, SLOT, TABLE, set_up
from assets_tests.harness import Project, wait_for
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.plan import Mode, Request
from incremental_assets.runs.dagster_internals.one_asset_job import implicit_job
from incremental_assets.runs.launch import config_of
from incremental_assets.runs.partitions import container_key
from incremental_assets.runs.records.metadata import plain

MakeProject = Callable[..., Project]
CHECK = dg.AssetCheckKey(dg.AssetKey(["shop", "orders"]), "retained_log")


@pytest.fixture(params=[PARTITIONED, pytest.param([], marks=pytest.mark.long)], ids=["with partitions", "without"])
def loaded(project: MakeProject, request: pytest.FixtureRequest) -> Project:
    shop = project(incremental=request.param, containers={"orders": {"partition_by": "month"}} if request.param else {}, capture="log")
    shop.execute(TABLE)
    set_up(shop, "orders")
    shop.one("orders")
    return shop


def history(project: Project) -> list[dg.AssetCheckEvaluation]:
    """The evaluations of the check without partition, the newest first.

    Wherever Dagster has planned an evaluation, also of a partition, there must be one: it shows the others as skipped.
    """
    with project.instance() as instance:
        records = instance.event_log_storage.get_asset_check_execution_history(CHECK, limit=50)
    events = [record.event.dagster_event for record in records if record.event is not None and record.event.dagster_event is not None]
    assert [event.event_type for event in events] == [dg.DagsterEventType.ASSET_CHECK_EVALUATION] * len(records), records
    return [event.asset_check_evaluation_data for event in events if event.asset_check_evaluation_data.partition is None]


def test_each_sync_says_how_much_log_the_source_keeps(loaded: Project) -> None:
    (first,) = history(loaded)
    assert first.passed and "bytes of its log" in (first.description or ""), first
    loaded.execute("update orders set note = 'changed' where id = 1")
    time.sleep(1.1)  # so that the first change is clearly older than the second, which is read at once
    loaded.execute("update orders set note = 'changed' where id = 2")
    loaded.one("orders")
    newest, _ = history(loaded)
    values = plain(newest.metadata)
    assert newest.passed and newest.partition is None
    assert values["capture/slot"] == SLOT and 0 < values["capture/retained_bytes"] < values["capture/warning_bytes"] == 1 << 30
    assert 1.1 < values["capture/retained_seconds"] < 120, values
    loaded.one("orders")
    assert len(history(loaded)) == 2, "a sync with nothing to do starts no run"


@pytest.mark.long
def test_the_check_warns_above_the_limit_of_the_yaml(loaded: Project) -> None:
    loaded.configure(capture_warning_bytes=1)
    loaded.execute("update orders set note = 'changed' where id = 1")
    assert loaded.one("orders")["status"] == "synced"
    newest, first = history(loaded)
    assert first.passed and not newest.passed and newest.severity is dg.AssetCheckSeverity.WARN
    assert "capture status" in (newest.description or "")
    loaded.configure(capture_warning_bytes=0)
    with pytest.raises(ConfigurationError, match="at least 1"):
        loaded.catalog()


@pytest.mark.long
def test_a_run_that_finds_nothing_to_do_says_it_too(loaded: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster shows a check that was planned and not evaluated as skipped. It needs no Spark server for that."""
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    definition = loaded.definition("orders")
    with loaded.instance() as instance:
        job = implicit_job(loaded.dagster([definition]), container_key(definition.container))
        ended = job.execute_in_process(instance=instance, run_config=config_of(definition, Request(Mode.INCREMENTAL)))
    assert ended.success
    assert [one.passed for one in history(loaded)] == [True, True]


@pytest.mark.long
def test_a_lost_slot_is_an_error_of_the_check_and_says_what_heals_it(loaded: Project) -> None:
    """The container stays as it is, and nobody would see that it does not follow its source any more."""
    loaded.execute("alter system set max_slot_wal_keep_size = '1MB'")
    loaded.execute("select pg_reload_conf()")
    try:
        status = "select wal_status = 'lost' from pg_replication_slots where slot_name = %s"

        def is_lost() -> bool:
            loaded.execute("create table if not exists noise (n int); insert into noise select generate_series(1, 100)")
            loaded.execute("select pg_switch_wal()")
            loaded.execute("checkpoint")
            row = loaded.source.execute(status.encode(), [SLOT]).fetchone()
            return bool(row and row[0])

        wait_for(is_lost, "the server removes the log that the slot needs", 60)
        line = loaded.one("orders", ok=False)
        assert line["status"] == "failed" and "capture drop shop && incremental-assets capture setup shop" in line["message"], line
        newest, *_ = history(loaded)
        assert not newest.passed and newest.severity is dg.AssetCheckSeverity.ERROR and newest.description == line["message"]
        definition = loaded.definition("orders")
        with loaded.instance() as instance:
            job = implicit_job(loaded.dagster([definition]), container_key(definition.container))
            ended = job.execute_in_process(
                instance=instance, run_config=config_of(definition, Request(Mode.INCREMENTAL)), raise_on_error=False
            )
        assert not ended.success
        newest, before, *_ = history(loaded)
        assert not newest.passed and not before.passed and newest.severity is dg.AssetCheckSeverity.ERROR
    finally:
        loaded.execute("alter system reset max_slot_wal_keep_size")
        loaded.execute("select pg_reload_conf()")
    loaded.execute(f"select pg_drop_replication_slot('{SLOT}')")
    loaded.execute(f"select pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")
    loaded.one("orders")
    assert history(loaded)[0].passed
    loaded.assert_equal("orders")
