"""Folders that name columns, as Hive and Spark write them: ``year=2026/month=01/part.parquet``.

Belongs here: what becomes of such names in the catalog and in the lake. Does not belong: other groups of files (``test_model_files``).
"""

import os
from collections.abc import Callable
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assets_tests.harness import Folder, long
from incremental_assets.core.file_groups import group_files
from incremental_assets.core.files import path_columns
from incremental_assets.files.readers import path_values
from incremental_assets.spark.session import open_session

Make = Callable[..., Folder]


def put(project: Folder, name: str, **columns: Any) -> None:
    """Writes a file of the format that its name says, from lists."""
    target = project.put(name, "")
    clock, table = target.stat().st_mtime, pa.table(columns)
    if name.endswith(".parquet"):
        pq.write_table(table, target)
    elif name.endswith(".json"):
        target.write_text("".join(f"{row}\n".replace("'", '"') for row in table.to_pylist()))
    else:
        lines = [",".join(columns), *(",".join(map(str, row.values())) for row in table.to_pylist())]
        target.write_text("\n".join(lines) + "\n")
    os.utime(target, (clock, clock))


@pytest.mark.parametrize("ending", ["parquet", *long("csv", "json")])
def test_names_of_folders_are_columns(folder: Make, ending: str) -> None:
    """Otherwise the year and the month of each row are lost, and each month is a table of its own."""
    project = folder()
    put(project, f"sales/year=2026/shop=a%2Fb/part-0.{ending}", id=[1, 2])
    put(project, f"sales/year=2027/shop=__HIVE_DEFAULT_PARTITION__/other.{ending}", id=[3])
    assert [one.table.name for one in project.catalog()] == ["sales"]
    line = project.one("sales")
    assert line["status"] == "synced", line
    assert sorted(project.rows("sales", "id, year, shop")) == [(1, 2026, "a/b"), (2, 2026, "a/b"), (3, 2027, None)]
    assert sorted(line["partitions"]) == [
        f"sales/year=2026/shop=a%252Fb/part-0.{ending}", f"sales/year=2027/shop=__HIVE_DEFAULT_PARTITION__/other.{ending}",
    ]  # fmt: skip
    put(project, f"sales/year=unknown/shop=c/new.{ending}", id=[4])  # it widens its column
    put(project, f"sales/year=2028/shop=c/day=2028-01-05/new.{ending}", id=[5])
    assert [one.table.name for one in project.catalog()] == ["sales"]
    later = project.one("sales")
    assert later["status"] == "synced", later
    assert sorted(project.rows("sales", "id, year, shop, day")) == [
        (1, "2026", "a/b", None), (2, "2026", "a/b", None), (3, "2027", None, None), (4, "unknown", "c", None),
        (5, "2028", "c", date(2028, 1, 5)),
    ]  # fmt: skip
    found = project.audit("sales")["sales"]
    assert found["status"] == "equal", found


@pytest.mark.long
def test_types_of_such_columns_go_by_the_ladder_or_by_the_yaml(folder: Make) -> None:
    """Otherwise ``01`` becomes 1, or a declared type is ignored."""
    entry = {"glob": "**/*.csv", "columns": {"month": "int"}}
    project = folder(containers={"sales": entry})
    put(project, "at=2026-01-05/month=01/code=007/a.csv", id=[1])
    put(project, "at=2026-01-06/month=2/code=12/a.csv", id=[2])
    put(project, "b.csv", id=[3])
    project.one("sales")
    assert sorted(project.rows("sales", "id, at, month, code")) == [
        (1, date(2026, 1, 5), 1, "007"), (2, date(2026, 1, 6), 2, "12"), (3, None, None, None),
    ]  # fmt: skip
    put(project, "at=2026-01-06/month=x/code=12/c.csv", id=[4])
    line = project.one("sales")
    assert line["status"] == "warning" and "its folders say month=x, which is no int" in line["message"], line


@pytest.mark.long
@pytest.mark.parametrize("ending", ["parquet", *long("csv", "json")])
def test_a_column_of_the_file_is_equal_to_that_of_the_path_or_the_file_is_refused(folder: Make, ending: str) -> None:
    """Otherwise one of two values is lost, and nobody knows which one was right."""
    project = folder(containers={"sales": {"glob": f"**/*.{ending}"}})
    put(project, f"year=2026/a.{ending}", id=[1], year=[2026])
    put(project, f"year=2026/b.{ending}", id=[2], year=[2025])
    put(project, f"year=2026/c.{ending}", id=[3])
    line = project.one("sales")
    assert line["status"] == "warning" and f"b.{ending}: its rows have other values of year" in line["message"], line
    assert sorted(project.rows("sales", "id, year")) == [(1, 2026), (3, 2026)]
    put(project, f"year=2026/b.{ending}", id=[2], year=[2026])
    assert project.one("sales")["rows_read"] == 1
    assert sorted(project.rows("sales", "id, year")) == [(1, 2026), (2, 2026), (3, 2026)]


@pytest.mark.long
def test_a_table_that_was_loaded_without_such_columns_stays_without(folder: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an upgrade adds columns that are NULL in all older rows, though their folders say more."""
    project = folder(containers={"sales": {"glob": "**/*.csv"}})
    put(project, "year=2026/a.csv", id=[1])
    with monkeypatch.context() as patched:
        patched.setattr(path_values, "path_columns", lambda _path: {})
        project.one("sales")
    put(project, "year=2027/a.csv", id=[2])
    line = project.one("sales")
    assert "year of the folders' names are no columns of the table" in line["message"], line
    assert sorted(project.rows("sales", "id, _file")) == [(1, "year=2026/a.csv"), (2, "year=2027/a.csv")]
    project.one("sales", reset=True)
    assert sorted(project.rows("sales", "id, year")) == [(1, 2026), (2, 2027)]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_what_spark_writes_by_partitions_comes_back(folder: Make, kind: str) -> None:
    """Otherwise rows of another job of Spark's arrive without the columns by which it has partitioned them."""
    project = folder(containers={"out": {"glob": f"out/**/*.{kind}", "columns": {"id": "bigint", "d": "date"}}})
    rows = [(1, date(2026, 1, 1), "x y"), (2, date(2026, 1, 1), "a=b/c%é"), (3, None, None)]
    with open_session(project.spark_home, name="writes by partitions") as spark:
        frame = spark.createDataFrame(rows, "id bigint, d date, name string").selectExpr("id", "cast(id AS string) AS text", "d", "name")
        frame.write.format(kind).option("header", "true").partitionBy("d", "name").save(str(project.root / "out"))
    for path in (project.root / "out").rglob(f"*.{kind}"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    line = project.one("out")
    assert line["status"] == "synced", line
    assert sorted(project.rows("out", "id, d, name")) == rows


def test_folders_are_grouped_by_the_columns_that_they_name() -> None:
    """Otherwise each month is a container, and a datastore of an earlier version gets other containers than it had."""
    paths = ["s/year=2026/month=01/a.csv", "s/year=2026/month=02/b_1.csv", "s/year=2026/x.csv", "other/a.csv", "k=1/part-0.csv"]
    found = {group.name: (group.pattern, len(group.files)) for group in group_files(paths)}
    assert found == {
        "s": ("s/year=*/**/*.csv", 3), "other_a": ("other/a.csv", 1), "k": ("k=*/**/*.csv", 1),
    }  # fmt: skip
    again = {group.name: group.pattern for group in group_files(paths, {pattern: name for name, (pattern, _) in found.items()})}
    assert again == {name: pattern for name, (pattern, _) in found.items()}
    before = {"s/year=2026/month=01/a.csv": "s_year_2026_month_01_a"}
    kept = {group.name: group.pattern for group in group_files(paths, before)}
    assert kept["s_year_2026_month_01_a"] == "s/year=2026/month=01/a.csv" and kept["k"] == "k=*/**/*.csv"
    assert "s/year=*/**/*.csv" not in kept.values()


def test_columns_of_a_path_are_decoded() -> None:
    assert path_columns("a/Year=2026/x%3Dy=a%20b/n=__HIVE_DEFAULT_PARTITION__/k=v.csv") == {"Year": "2026", "x=y": "a b", "n": None}
    with pytest.raises(ValueError, match="two values of Year"):
        path_columns("Year=1/year=2/a.csv")
    with pytest.raises(ValueError, match="no UTF-8"):
        path_columns("x=%FF/a.csv")
