"""Columns of files that are called ``_metadata``, as Spark calls a column of its own in each table.

Belongs here: that they are refused before a table has one. Does not belong: such columns of databases (``databases/test_names``).
"""

import os
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from assets_tests.harness import Folder, long
from incremental_assets.delta.engine import FILES_BY
from incremental_assets.files.readers import reading

Make = Callable[..., Folder]


@pytest.mark.parametrize("ending", ["csv", *long("json", "parquet")])
@pytest.mark.parametrize("by", ["here", *long("spark")])
def test_a_column_that_spark_has_in_each_table_is_refused(folder: Make, ending: str, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the table is loaded with it, and no file of it can be changed or removed afterwards."""
    monkeypatch.setenv(FILES_BY, by)
    project = folder(containers={"s": {"glob": f"*.{ending}"}})
    good, bad = project.put(f"good.{ending}", ""), project.put(f"bad.{ending}", "")

    def write(number: int) -> None:
        if ending == "parquet":
            pq.write_table(pa.table({"id": [number]}), good)
            pq.write_table(pa.table({"id": [2], "_Metadata": ["x"]}), bad)
            for path in (good, bad):
                os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))
        elif ending == "json":
            project.put(good.name, f'{{"id": {number}}}\n')
            project.put(bad.name, '{"id": 2, "_Metadata": {"x": 1}}\n')
        else:
            project.put(good.name, f"id\n{number}\n")
            project.put(bad.name, "id,_Metadata\n2,x\n")

    write(1)
    line = project.one("s")
    assert line["status"] == "warning" and line["rows_read"] == 1, line
    rejected = DeltaTable(str(project.lake_root / "landing" / "_rejected" / "s")).to_pyarrow_table() if ending == "json" else None
    said = line["message"] if rejected is None else str(rejected["reason"].to_pylist())
    assert "_metadata" in said and "rename it" in said, said
    write(3)
    assert project.one("s")["status"] == "warning"
    assert project.rows("s", "id") == [(3,)]


@pytest.mark.long
def test_a_table_that_has_the_column_already_goes_on(folder: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an upgrade refuses each new file of a container whose files are only ever added."""
    project = folder(containers={"s": {"glob": "*.csv"}})
    project.put("a.csv", "id,_metadata\n1,x\n")
    with monkeypatch.context() as patched:
        patched.setattr(reading, "RESERVED", frozenset[str]())
        project.one("s")
    project.put("b.csv", "id,_metadata\n2,y\n")
    assert project.one("s")["status"] == "synced"
    assert sorted(project.rows("s", "id, _metadata")) == [(1, "x"), (2, "y")]
