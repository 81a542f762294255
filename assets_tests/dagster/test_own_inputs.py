"""What own assets get of the tables that they depend on: mapped partitions, chosen columns, and the kind of rows that they ask for.

Belongs here: loading, and the kinds of rows that are written. Does not belong: which rows a key means (``test_own_partition_kinds``).
"""

import subprocess
import sys
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import dagster as dg
import pandas
import pyarrow as pa
import pyspark.sql
import pytest

from assets_tests.own_lake import OwnLake, own, values
from incremental_assets.core.errors import ConfigurationError, FrameRefused

DAYS = dg.DailyPartitionsDefinition(start_date="2026-03-01")
WEEKS = dg.WeeklyPartitionsDefinition(start_date="2026-03-01")
BY_SHOP = dg.MultiPartitionsDefinition({"shop": dg.StaticPartitionsDefinition(["a", "b"]), "day": DAYS})
LOADED = dg.AssetIn(input_manager_key="delta")
EXACT = {
    "n": [1, None, 2**53 + 1],
    "amount": [Decimal("1.10"), None, Decimal("-3.00")],
    "name": ["ä", None, ""],
    "day": [date(2026, 3, 1), None, date(9999, 12, 31)],
    "at": [datetime(2026, 3, 1, 10, 0, 0, 1), None, datetime(1600, 1, 1)],
    "instant": [datetime(2026, 3, 1, 10, tzinfo=timezone.utc), None, datetime(3000, 1, 1, tzinfo=timezone.utc)],
    "flag": [True, None, False],
    "raw": [b"\x00", None, b""],
}
SCHEMA = pa.schema(
    [("n", pa.int64()), ("amount", pa.decimal128(10, 2)), ("name", pa.string()), ("day", pa.date32()), ("at", pa.timestamp("us")),
     ("instant", pa.timestamp("us", "UTC")), ("flag", pa.bool_()), ("raw", pa.binary())]
)  # fmt: skip


def by_week(own_lake: OwnLake, annotation: Any, **more: Any) -> list[Any]:
    """Seven days of rows are written; an asset by weeks, whose input has the annotation, gets those of its week. Returns what it got."""
    rows = [f"date'2026-03-{day:02d}', {day}, 'x'" for day in (1, 7, 8)]
    daily = own("daily", lambda _: values("day, n, other", *rows), {"partition_expr": "day"}, partitions_def=DAYS,
                backfill_policy=dg.BackfillPolicy.single_run())  # fmt: skip
    seen: list[Any] = []

    def weekly(daily: Any) -> None:
        seen.append(daily)

    weekly.__annotations__["daily"] = annotation
    made = dg.asset(partitions_def=WEEKS, ins={"daily": dg.AssetIn(input_manager_key="delta", **more)})(weekly)
    own_lake.run(daily, keys=("2026-03-01", "2026-03-08"))
    with own_lake.instance() as instance:
        job = dg.Definitions([daily, made], resources=dict(own_lake.resources())).resolve_implicit_global_asset_job_def()
        job.execute_in_process(instance=instance, asset_selection=[made.key], partition_key="2026-03-01")
    return seen


def test_an_input_has_the_mapped_partitions_and_the_chosen_columns(own_lake: OwnLake) -> None:
    """A week gets its seven days and not the whole table; of a wide table only what is needed is read."""
    (table,) = by_week(own_lake, pa.Table, metadata={"columns": ["n"]})
    assert table.column_names == ["n"] and sorted(table.column("n").to_pylist()) == [1, 7]


@pytest.mark.long
@pytest.mark.parametrize(
    ("annotation", "numbers"),
    [
        (pandas.DataFrame, lambda rows: list(rows["n"])),
        (pa.Table, lambda rows: rows.column("n").to_pylist()),
        pytest.param(pa.RecordBatchReader, lambda rows: rows.read_all().column("n").to_pylist(), marks=pytest.mark.long),
    ],
)
def test_an_input_is_of_the_kind_that_its_annotation_names(own_lake: OwnLake, annotation: Any, numbers: Any) -> None:
    (rows,) = by_week(own_lake, annotation)
    assert isinstance(rows, annotation) and sorted(numbers(rows)) == [1, 7]


@pytest.mark.long
@pytest.mark.parametrize("annotation", [Any, pyspark.sql.DataFrame])
def test_an_input_without_an_annotation_is_a_spark_dataframe(own_lake: OwnLake, annotation: Any) -> None:
    (rows,) = by_week(own_lake, annotation)
    assert isinstance(rows, pyspark.sql.DataFrame)


@pytest.mark.long
@pytest.mark.parametrize(
    ("annotation", "more", "said"),
    [
        (dict, {}, r"The input 'daily' \(daily\) is annotated as dict.* Annotate it as pyspark\.sql\.DataFrame, pandas\.DataFrame"),
        pytest.param(list[int], {}, "Annotate it as", marks=pytest.mark.long),
        pytest.param(pandas.Series, {}, r"annotated as pandas\.core\.series\.Series", marks=pytest.mark.long),
        (Any, {"metadata": {"columns": ["nn"]}}, r"columns names 'nn', and there is no such column\. (Nearest|Known)"),
        pytest.param(Any, {"metadata": {"columns": []}}, r"columns is \[\]\. Name different columns", marks=pytest.mark.long),
    ],
)
def test_an_input_that_is_not_understood_is_refused(own_lake: OwnLake, annotation: Any, more: Any, said: str) -> None:
    """The message says what may be written, before the asset is computed."""
    with pytest.raises(ConfigurationError, match=said):
        by_week(own_lake, annotation, **more)


def returned(own_lake: OwnLake, rows: Any, name: str = "made", **metadata: Any) -> None:
    @dg.asset(name=name, io_manager_key="delta", metadata=metadata)
    def made() -> Any:
        return rows

    own_lake.run(made)


def as_pandas() -> pandas.DataFrame:
    """The exact rows in pandas' own types, as an asset has them that computes in pandas."""
    frame = pandas.DataFrame({name: pandas.Series(column, dtype=object) for name, column in EXACT.items()})
    frame["n"] = frame["n"].astype("Int64")
    return frame


@pytest.mark.parametrize("kind", ["pandas", "arrow", pytest.param("reader", marks=pytest.mark.long)])
def test_values_arrive_exactly(own_lake: OwnLake, kind: str) -> None:
    """Large integers beside NULLs, times beyond pandas' own range, decimals: whatever kind of rows holds them."""
    table = pa.table(EXACT, schema=SCHEMA)
    returned(own_lake, {"pandas": as_pandas, "arrow": lambda: table, "reader": table.to_reader}[kind]())
    wanted = sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)
    assert own_lake.rows("made") == wanted
    seen: list[Any] = []

    @dg.asset(ins={"made": LOADED})
    def read(made: pandas.DataFrame) -> None:
        seen.append(made)

    with own_lake.instance() as instance:
        source = own("made", lambda _: "select 1", {})
        definitions = dg.Definitions([source, read], resources=dict(own_lake.resources()))
        job = definitions.resolve_implicit_global_asset_job_def()
        job.execute_in_process(instance=instance, asset_selection=[read.key])
    assert sorted(int(n) for n in seen[0]["n"].dropna()) == [1, 2**53 + 1]


def test_a_named_index_of_pandas_is_a_column(own_lake: OwnLake) -> None:
    """What was grouped by stands in the index; rows would be there without it."""
    frame = pandas.DataFrame({"shop": ["a", "a", "b"], "n": [1, 2, 3]})
    returned(own_lake, frame.groupby("shop").sum())
    returned(own_lake, frame[frame.n > 1], "filtered")
    assert own_lake.rows("made") == [("a", 3), ("b", 3)]
    assert own_lake.state("filtered")[1] == ["shop", "n"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (lambda: pandas.DataFrame({"x": [1, "a"]}), r"made: the rows .* do not become an Arrow table"),
        (lambda: pandas.DataFrame({"x": [None]}), r"'x' is NULL in every row and has no type"),
        (lambda: pandas.DataFrame({"x": [pandas.Timestamp("2026-03-01 00:00:00.000000001")]}), "would lose data"),
        (lambda: pa.table({"x": pa.array([1], pa.uint64())}), r"Spark does not take the rows .*x uint64"),
    ],
)
def test_values_that_a_table_cannot_hold_exactly_are_refused(own_lake: OwnLake, rows: Any, said: str) -> None:
    """Rounded or as text they would arrive silently."""
    with pytest.raises(FrameRefused, match=said):
        returned(own_lake, rows())


@pytest.mark.parametrize("rows", [None, [1, 2], {"n": 1}, "text"])
def test_an_asset_that_returns_something_else_is_told_what_can_be_written(own_lake: OwnLake, rows: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"made: the asset returned \w+, which .* Return pyspark\.sql\.DataFrame"):
        returned(own_lake, rows)


def test_pandas_is_not_imported_for_assets_that_do_not_use_it() -> None:
    """It takes most of a second of each command."""
    code = "import sys, incremental_assets.dagster.io_manager; print('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
