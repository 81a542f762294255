"""Own assets that are overwritten, appended to or merged: which rows the table has afterwards, and what is refused.

Belongs here: the three writes by real runs. Does not belong: what the metadata may say (``core/test_own_write``), and the kinds of
partitions (``test_own_partition_kinds``).
"""

import os
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets_tests.harness import long
from assets_tests.own_lake import OwnLake, own, values
from incremental_assets.core.errors import ConfigurationError, FrameRefused, LakeError
from incremental_assets.dagster.io_manager import DeltaIOManager
from incremental_assets.delta.table import CONTAINER_PROPERTY

DAYS = dg.DailyPartitionsDefinition(start_date="2026-03-01")
MERGED = {"write": "merge", "merge_keys": ["id"]}


@pytest.mark.long
def test_an_append_adds_rows_to_those_of_earlier_runs(own_lake: OwnLake) -> None:
    """Without partitions and with them. A new column is added to the table, and is NULL in older rows."""
    queries = iter([values("id", "1", "2"), values("id", "2"), values("id, note", "3, 'x'")])
    whole = own("whole", lambda _: next(queries), {"write": "append"})
    for _ in range(3):
        own_lake.run(whole)
    assert own_lake.rows("whole") == [(1, None), (2, None), (2, None), (3, "x")]
    metadata = {"write": "append", "partition_expr": "day"}
    by_day = own("by_day", lambda c: values("day", f"date'{c.partition_key}'"), metadata, partitions_def=DAYS)
    for day in ("2026-03-01", "2026-03-02", "2026-03-01"):
        own_lake.run(by_day, key=day)
    assert [str(day)[-2:] for (day,) in own_lake.rows("by_day")] == ["01", "01", "02"]


class FailsAfterItsFirstWrite(DeltaIOManager):
    """Fails once the rows are committed, as a step does that is killed before Dagster has stored its result."""

    failures = 1

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        super().handle_output(context, obj)
        if type(self).failures:
            type(self).failures -= 1
            raise RuntimeError("killed after the commit")


@pytest.mark.parametrize("partitioned", [True, *long(False)])
def test_a_step_that_is_tried_again_does_not_append_twice(own_lake: OwnLake, partitioned: bool) -> None:
    """A step may fail after its commit, and Dagster then executes it again in the same run: the rows would be there twice."""
    more: dict[str, Any] = {"partitions_def": DAYS} if partitioned else {}
    metadata = {"write": "append", "partition_expr": "day"}
    query = values("day, id", "date'2026-03-01', 1", "date'2026-03-01', 2")
    events = own("events", lambda _: query, metadata, retry_policy=dg.RetryPolicy(max_retries=1), **more)
    FailsAfterItsFirstWrite.failures = 1
    key = "2026-03-01" if partitioned else None
    result = own_lake.run(events, key=key, manager=FailsAfterItsFirstWrite)
    assert result.success and FailsAfterItsFirstWrite.failures == 0
    assert own_lake.rows("events", "id") == [(1,), (2,)]
    (event,) = result.asset_materializations_for_node("events")
    assert event.metadata["write/rows_inserted"].value == 0 and event.metadata["dagster/row_count"].value == 2
    own_lake.run(events, key=key)  # another run appends its rows
    assert own_lake.rows("events", "id") == [(1,), (1,), (2,), (2,)]


def events_job() -> dg.JobDefinition:
    """A job of one own asset, as a process loads it that executes a run again. Its lake is that of the environment."""
    lake = OwnLake(Path(os.environ["DAGSTER_HOME"]).parent, Path(os.environ["OWN_SPARK_HOME"]))
    events = own("events", lambda _: "select 1 as id", {"write": "append"})
    resources = dict(lake.resources(FailsAfterItsFirstWrite))
    jobs = [dg.define_asset_job("events_job", [events], executor_def=dg.in_process_executor)]
    return dg.Definitions([events], jobs=jobs, resources=resources).resolve_job_def("events_job")


def test_a_failed_run_that_is_executed_again_does_not_append_twice(own_lake: OwnLake, spark_home: Path, monkeypatch: Any) -> None:
    """*Re-execute from failure* makes a new run, whose id no commit has. A run that has succeeded is executed again in order to append
    again."""
    monkeypatch.setenv("OWN_SPARK_HOME", str(spark_home))
    FailsAfterItsFirstWrite.failures = 2
    job = dg.reconstructable(events_job)
    with own_lake.instance() as instance:
        runs = [dg.execute_job(job, instance=instance)]
        for _ in range(2):
            again = dg.ReexecutionOptions.from_failure(runs[-1].run_id, instance)
            runs.append(dg.execute_job(job, instance=instance, reexecution_options=again))
        assert [run.success for run in runs] == [False, False, True]
        assert own_lake.rows("events") == [(1,)]
        again = dg.ReexecutionOptions(parent_run_id=runs[-1].run_id)
        assert dg.execute_job(job, instance=instance, reexecution_options=again).success
    assert own_lake.rows("events") == [(1,), (1,)]


def test_a_merge_updates_rows_of_the_same_key_and_adds_the_others(own_lake: OwnLake) -> None:
    """Columns that the rows do not have keep their values, and new columns are added."""
    queries = iter([values("id, name, total", "1, 'a', 10", "2, 'b', 20"), values("id, total, extra", "2, 25, true", "3, 30, false")])
    sums = own("sums", lambda _: next(queries), MERGED)
    own_lake.run(sums)
    result = own_lake.run(sums)
    assert own_lake.rows("sums") == [(1, "a", 10, None), (2, "b", 25, True), (3, None, 30, False)]
    (event,) = result.asset_materializations_for_node("sums")
    assert {name: value.value for name, value in event.metadata.items() if name.startswith("write/rows")} == {
        "write/rows_inserted": 1,
        "write/rows_updated": 1,
        "write/rows_deleted": 0,
    }


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (values("id, total, extra", "2, 1, 1", "null, 2, 1", "null, 3, 1"), r"sums: the merge key 'id' is NULL in 2 of the rows"),
        (values("id, total, extra", "2, 1, 1", "2, 2, 1", "3, 3, 1"), r"sums: 1 of the merge keys occur .*such as id = 2 \(2 rows\)"),
        (values("id, total, extra", "'2', 1, 1"), r"column 'id' is string in the rows .*, and int in its table"),
        *(
            pytest.param(*one, marks=pytest.mark.long)
            for one in (
                (values("id, total, extra", "2, 'many', 1"), r"column 'total' is string .*\. Cast it to int, or give it another name"),
                (values("id, total, extra", "2, 1, null"), r"column 'extra' is NULL in every row and has no type"),
                ("select 2 as id, 1 as total, 2 as TOTAL", "two columns called 'total'"),
            )
        ),
    ],
)
def test_a_merge_that_is_refused_leaves_the_table_as_it_was(own_lake: OwnLake, second: str, said: str) -> None:
    """Not even a new column of the refused rows may be added: readers would see a column that nobody has written."""
    queries = iter([values("id, total", "1, 10", "2, 20"), second])
    sums = own("sums", lambda _: next(queries), MERGED)
    own_lake.run(sums)
    before = own_lake.state("sums"), own_lake.rows("sums")
    with pytest.raises(FrameRefused, match=said):
        own_lake.run(sums)
    assert (own_lake.state("sums"), own_lake.rows("sums")) == before


@pytest.mark.parametrize("first", [True, False], ids=["no table yet", "a table"])
def test_a_key_that_occurs_twice_or_is_null_is_refused_by_the_first_merge_too(own_lake: OwnLake, first: bool) -> None:
    """The first write of a table makes no MERGE, and would otherwise be the one that doubles keys."""
    rows = values("id, day", "1, cast(null as int)") if first else values("id, day", "1, 2", "1, 2")
    sums = own("sums", lambda _: rows, {"write": "merge", "merge_keys": ["id", "day"]})
    with pytest.raises(FrameRefused, match="'day' is NULL in 1" if first else "such as id = 1, day = 2"):
        own_lake.run(sums)
    assert not own_lake.lake.joinpath("sums", "_delta_log").exists()


@pytest.mark.parametrize(
    ("write", "stray"),
    [
        ("overwrite", "date'2026-03-03'"),
        ("merge", "null"),
        *long(("overwrite", "null"), ("append", "date'2026-03-03'"), ("append", "null"), ("merge", "date'2026-03-03'")),
    ],
)
def test_rows_of_other_partitions_are_refused(own_lake: OwnLake, write: str, stray: str) -> None:
    """They would change partitions that the run is not about, or belong to none."""
    queries = iter([values("id, day", "1, date'2026-03-01'"), values("id, day, extra", "2, date'2026-03-01', 1", f"3, {stray}, 1")])
    keys = {"merge_keys": ["id"]} if write == "merge" else {}
    events = own("events", lambda _: next(queries), {"write": write, "partition_expr": "day", **keys}, partitions_def=DAYS)
    own_lake.run(events, key="2026-03-01")
    before = own_lake.state("events"), own_lake.rows("events")
    example = "NULL" if stray == "null" else "2026-03-03"
    with pytest.raises(FrameRefused, match=rf"events: 1 of the 2 rows .*partitions \(2026-03-01\), such as one with day = {example}"):
        own_lake.run(events, key="2026-03-01")
    assert (own_lake.state("events"), own_lake.rows("events")) == before


def test_an_overwrite_replaces_the_partitions_of_the_run_and_adds_columns(own_lake: OwnLake) -> None:
    """The rows of other partitions stay, with NULL in the new column."""
    queries = iter([values("id, day", "1, date'2026-03-01'"), values("id, day", "2, date'2026-03-02'"),
                    values("extra, day", "'x', date'2026-03-01'")])  # fmt: skip
    events = own("events", lambda _: next(queries), {"partition_expr": "day"}, partitions_def=DAYS)
    for day in ("2026-03-01", "2026-03-02", "2026-03-01"):
        own_lake.run(events, key=day)
    assert own_lake.rows("events", "id, extra") == [(2, None), (None, "x")]


@pytest.mark.long
def test_a_merge_within_partitions_moves_a_row_whose_key_another_partition_has(own_lake: OwnLake) -> None:
    """Otherwise a key would be in the table twice, once in each partition."""
    events = own(
        "events", lambda c: values("id, day", f"1, date'{c.partition_key}'"), {**MERGED, "partition_expr": "day"}, partitions_def=DAYS
    )
    own_lake.run(events, key="2026-03-01")
    own_lake.run(events, key="2026-03-02")
    assert [(id_, str(day)) for id_, day in own_lake.rows("events")] == [(1, "2026-03-02")]


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"write": "upsert"}, "'upsert', which is unknown"),
        ({"write": "merge"}, "merge_keys names no column"),
        ({"write": "merge", "merge_keys": ["idd"]}, r"merge_keys names 'idd', and there is no such column\. Nearest: id"),
        ({"partition_expr": "dayy"}, r"partition_expr names 'dayy', and there is no such column\. Nearest: day"),
    ],
)
def test_metadata_that_does_not_fit_is_refused_before_anything_is_written(own_lake: OwnLake, metadata: Any, said: str) -> None:
    """The message says what to write, and there is no table that the wrong write has made."""
    parts = {"partitions_def": DAYS} if "partition_expr" in metadata else {}
    sums = own("sums", lambda _: values("id, day", "1, date'2026-03-01'"), metadata, **parts)
    with pytest.raises(ConfigurationError, match=said):
        own_lake.run(sums, key="2026-03-01" if parts else None)
    assert not own_lake.lake.joinpath("sums").exists()


@pytest.mark.long
def test_a_run_may_be_written_otherwise_than_the_asset_is(own_lake: OwnLake) -> None:
    """To load a table anew that is appended to otherwise, nobody wants to change the code."""
    modes = iter([None, "overwrite", None])

    @dg.asset(io_manager_key="delta", required_resource_keys={"lake"}, metadata={"write": "append"})
    def made(context: dg.AssetExecutionContext) -> Any:
        mode = next(modes)
        if mode:
            context.add_output_metadata({"write": mode})
        return context.resources.lake.assets_spark.sql("select 1 as id")

    counts = [len(own_lake.rows("made")) for _ in range(3) if own_lake.run(made).success]
    assert counts == [1, 1, 2]


@pytest.mark.long
def test_the_table_of_a_container_is_left_alone(own_lake: OwnLake) -> None:
    """An own asset whose key is that of a container in another project would replace the container's rows."""
    made = own("made", lambda _: "select 1 as id", {})
    own_lake.run(made)
    own_lake.table("made").alter.set_table_properties({CONTAINER_PROPERTY: "shop/orders"}, raise_if_not_exists=False)
    with pytest.raises(LakeError, match=r"made: .* holds the table of shop/orders; give the asset another key"):
        own_lake.run(made)
    assert own_lake.rows("made") == [(1,)]


@pytest.mark.long
def test_names_and_types_that_delta_knows_only_with_a_feature_are_added(own_lake: OwnLake) -> None:
    """A name with a blank needs column mapping, and a time without zone a feature of the table that new tables alone get by themselves."""
    for write in ("append", "merge", "overwrite"):
        more = values("id, day, at, `a b`", "2, date'2026-03-01', timestamp_ntz'2026-03-01 10:00:00', 7")
        queries = iter([values("id, day", "1, date'2026-03-01'"), more])
        keys = {"merge_keys": ["id"]} if write == "merge" else {}
        events = own(f"by_{write}", lambda _, q=queries: next(q), {"write": write, "partition_expr": "day", **keys}, partitions_def=DAYS)
        own_lake.run(events, key="2026-03-01")
        own_lake.run(events, key="2026-03-01")
        assert own_lake.state(f"by_{write}")[1] == ["id", "day", "at", "a b"]
