"""The audit of files reads them once more and finds every difference to the lake, invents none, and repairs what it finds.

Belongs here: containers of files. Does not belong: tables (``test_audit``), and reading files (``test_file_reading``).
"""

import os
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from dagster._core.event_api import PartitionKeyFilter
from deltalake import DeltaTable

from assets_tests.cli.test_json import documented, fields
from assets_tests.harness import Folder
from incremental_assets.dagster.audit_jobs import partitions_in_turn
from incremental_assets.dagster.components.audit import AuditEntry
from incremental_assets.delta.engine import FILES_BY
from incremental_assets.delta.folders import QUALITY_FOLDER
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import LakeTable
from incremental_assets.files import audit as files_audit
from incremental_assets.files import trees
from incremental_assets.files.hashed_rows import text_of
from incremental_assets.runs.partitions import partitions_definition
from incremental_assets.spark.session import open_session

Make = Callable[..., Folder]
A, B, C = "id,amount\n1,10\n2,20\n", "id,amount\n3,30\n4,much\n", "id,amount\n5,50\n"


@pytest.fixture
def sales(folder: Make, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """Three files, a row of one is rejected. They lie as on a network mount, where what has the same time and size counts as the same."""
    monkeypatch.setattr(trees, "identifies_files", lambda _folder: False)
    made = folder(containers={"sales": {"glob": "*.csv", "columns": {"id": "bigint", "amount": "bigint"}}})
    for name, content in {"a.csv": A, "b.csv": B, "c.csv": C}.items():
        made.put(name, content)
    return made


def rewrite(project: Folder, name: str, content: str) -> None:
    """Changes a file so that no sync can see it: its time and size stay."""
    path = project.root / name
    before = path.stat()
    assert len(content.encode()) == before.st_size
    path.write_text(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def sql(project: Folder, *statements: str) -> None:
    """Changes the lake behind the product's back. ``{sales}``: the table; ``{rejected}``: that of the rejected rows."""
    names = {"sales": project.table("sales").sql_name, "rejected": LakeTable(project.lake, "landing", "_rejected", "sales").sql_name}
    with open_session(project.spark_home, name="somebody") as spark:
        for statement in statements:
            spark.sql(statement.format(**names)).collect()


@pytest.mark.long
@pytest.mark.parametrize("read_by", ["", "spark"])
def test_what_no_sync_sees_is_found_in_files_and_repaired(sales: Folder, monkeypatch: pytest.MonkeyPatch, read_by: str) -> None:
    """A file that was changed without another time, or rows that were changed in the lake, would stay wrong for ever."""
    monkeypatch.setenv(FILES_BY, read_by)
    first = sales.audit("sales")["sales"]
    assert (first["status"], first["rows"], first["rejected"], first["partitions_checked"]) == ("equal", 4, 1, 3), first
    assert documented("audit") == {*fields(first)}
    rewrite(sales, "a.csv", A.replace("20", "21"))
    sql(sales, "UPDATE {sales} SET amount = 51 WHERE id = 5", "UPDATE {rejected} SET line = 'x' WHERE true")
    found = sales.audit("sales")["sales"]
    assert (found["status"], found["partitions_different"]) == ("different", ["a.csv", "b.csv", "c.csv"]), found
    assert (found["missing"], found["stale"], found["surplus"], found["rows"]) == (3, 0, 3, 4)
    assert sorted(key[0] for key in found["examples"]["missing"]) == ["a.csv", "b.csv", "c.csv"]
    one = sales.audit("sales", keys=("c.csv", "c.csv"))["sales"]
    assert (one["partitions_checked"], one["partitions_different"]) == (1, ["c.csv"]), one
    repaired = sales.audit("sales", repair=True)["sales"]
    assert repaired["status"] == "repaired", repaired
    assert sorted(sales.rows("sales", "id, amount")) == [(1, 10), (2, 21), (3, 30), (5, 50)]
    rejected = DeltaTable(str(sales.lake_root / "landing" / "_rejected" / "sales")).to_pyarrow_table().to_pylist()
    assert [row["line"] for row in rejected] == ["4,much"]
    assert sales.audit("sales")["sales"]["status"] == "equal"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_audit_of_small_files_needs_no_spark(folder: Make, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    """Otherwise an audit of a few small files waits for a Spark server to start, half a minute for nothing."""
    monkeypatch.setattr(LakeScope, "spark", property(lambda _: pytest.fail("Spark was asked for")))
    monkeypatch.setattr(trees, "identifies_files", lambda _folder: False)
    rows = {"id": [1, 2], "at": [datetime(2026, 1, 1, 2), None], "name": ["a,b", ""], "x": [0.1, -0.0], "d": [Decimal("1.50"), None]}

    def put(name: str, **changed: list[Any]) -> None:
        table, into = pa.table({**rows, **changed}), BytesIO()
        if ending == "csv":
            pc.write_csv(table, into)
        else:
            pq.write_table(table, into, use_dictionary=False, compression="none", write_statistics=False)
        made.put(name, into.getvalue(), at=1_600_000_000)

    made = folder(containers={"sales": {"glob": f"*.{ending}"}})
    for name in ("a", "b", "c"):
        put(f"{name}.{ending}")
    found = made.audit("sales")["sales"]
    assert (found["status"], found["rows"], found["partitions_checked"]) == ("equal", 6, 3), found
    put(f"a.{ending}", x=[0.2, -0.0])
    put(f"b.{ending}", d=[Decimal("1.51"), None])
    found = made.audit("sales")["sales"]
    assert (found["status"], found["partitions_different"]) == ("different", [f"a.{ending}", f"b.{ending}"]), found
    assert (found["missing"], found["stale"], found["surplus"], found["rows"]) == (2, 0, 2, 6), found
    (made.root / f"c.{ending}").unlink()
    found = made.audit("sales", keys=(f"c.{ending}",) * 2)["sales"]
    assert found["status"] == "equal" and "1 file that is gone" in found["message"], found


def test_only_the_files_that_differ_are_read_again(sales: Folder) -> None:
    """To repair one file, all would be loaded."""
    sales.one("sales")
    rewrite(sales, "b.csv", B.replace("30", "31"))
    sales.audit("sales", repair=True)
    record = LakeTable(sales.lake, "landing", "_files", "sales").opened()
    assert record is not None
    runs: dict[str, set[str]] = {}
    for row in record.to_pyarrow_table().to_pylist():
        runs.setdefault(row["file"], set()).add(row["run_id"])
    assert {name: len(ids) for name, ids in runs.items() if name} == {"a.csv": 1, "b.csv": 2, "c.csv": 1}


@pytest.mark.long
def test_rows_of_files_that_are_gone_are_judged_by_the_configuration(sales: Folder) -> None:
    """Rows that are kept on purpose would be reported, or rows of no file would never be."""
    sales.one("sales")
    (sales.root / "b.csv").unlink()
    kept = sales.audit("sales")["sales"]
    assert (kept["status"], kept["rows"], kept["partitions_checked"]) == ("equal", 4, 3) and "1 file that is gone" in kept["message"], kept
    sales.configure(prune_files=True)
    pruned = sales.audit("sales")["sales"]
    assert (pruned["status"], pruned["rows"], pruned["partitions_checked"]) == ("equal", 3, 2), pruned
    sql(sales, "INSERT INTO {sales} (id, amount) VALUES (9, 90)")
    found = sales.audit("sales", repair=True)["sales"]
    assert (found["status"], found["surplus"], found["partitions_different"]) == ("different", 1, [None]), found
    assert "--reset-watermarks" in found["message"]
    sales.one("sales", reset=True)
    assert sales.audit("sales")["sales"]["status"] == "equal"


def test_a_file_that_cannot_be_read_is_not_called_complete(folder: Make) -> None:
    """An audit would prove a lake that lacks the rows of a whole file."""
    made = folder(containers={"sales": {"glob": "*.csv*", "format": "csv"}})
    made.put("a.csv", A)
    made.put("b.csv.gz", b"this is no gzip")
    found = made.audit("sales")["sales"]
    assert (found["status"], found["partitions_different"], found["partitions_checked"]) == ("different", ["b.csv.gz"], 2), found
    assert "1 file cannot be read: " in found["message"] and "b.csv.gz" in found["message"], found["message"]


@pytest.mark.long
def test_files_that_change_while_they_are_compared_wait_for_the_next_sync(sales: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference would be reported because the folder does not stand still."""
    sales.one("sales")
    compare, seen = files_audit.compare, list[int]()

    def meanwhile(*arguments: object) -> object:
        if not seen:
            sales.put("a.csv", A + "7,70\n")
            rewrite(sales, "c.csv", C.replace("50", "51"))
        seen.append(1)
        return compare(*arguments)  # pyright: ignore[reportArgumentType]

    # The files are read before the comparison: so the file that is compared is changed here, and its rows too.
    rewrite(sales, "a.csv", A.replace("20", "22"))
    monkeypatch.setattr(files_audit, "compare", meanwhile)
    found = sales.audit("sales")["sales"]
    assert (found["status"], found["partitions_checked"], len(seen)) == ("equal", 2, 2), found
    assert "1 file waits for the next sync" in found["message"], found["message"]


@pytest.mark.long
def test_a_changed_option_is_found(folder: Make) -> None:
    """The lake would not have what the configuration says, and nobody would know."""
    made = folder(containers={"sales": {"glob": "*.csv", "columns": {"id": "bigint", "v": "string"}}})
    made.put("a.csv", "id,v\n1,x;y\n")
    made.one("sales")
    made.configure(containers={"sales": {"glob": "*.csv", "columns": {"id": "bigint", "v": "string"}, "options": {"header": False}}})
    assert made.audit("sales")["sales"]["status"] == "different"


@pytest.mark.long
def test_more_files_than_a_run_reads_are_synced_and_compared(folder: Make) -> None:
    """The first audit of a large folder would read everything at once, or compare nothing."""
    made = folder(containers={"sales": {"glob": "*.csv"}}, max_files_per_run=2)
    for number in range(5):
        made.put(f"f{number}.csv", f"id\n{number}\n")
    found = made.audit("sales")["sales"]
    assert (found["status"], found["rows"], found["partitions_checked"]) == ("equal", 5, 5), found


@pytest.mark.long
def test_a_column_that_came_later_or_was_widened_is_no_difference(folder: Make) -> None:
    """Old files would differ for ever, once another one has brought a column."""
    made = folder(containers={"parts": {"glob": "*.parquet"}})
    for name, table in {
        "a.parquet": pa.table({"id": pa.array([1], pa.int32()), "d": pa.array([Decimal("1.5")], pa.decimal128(5, 1))}),
        "b.parquet": pa.table({"ID": pa.array([2**40]), "d": pa.array([Decimal("1.25")], pa.decimal128(9, 2)), "more": ["x"]}),
    }.items():
        pq.write_table(table, made.put(name, ""))
        os.utime(made.root / name, (1_600_000_000, 1_600_000_000))
        made.one("parts")
    found = made.audit("parts")["parts"]
    assert (found["status"], found["rows"]) == ("equal", 2), found["message"]


@pytest.mark.long
def test_the_check_and_the_records_are_those_of_tables(sales: Folder) -> None:
    """The UI would not show which file differs, and nobody could prove later what was compared."""
    entry = {"glob": "*.csv", "columns": {"id": "bigint", "amount": "bigint"}, "audit": AuditEntry(partitions="rotating 2")}
    sales.configure(containers={"sales": entry})
    check = dg.AssetCheckKey(dg.AssetKey(["landing", "sales"]), "complete")
    sales.audit("sales")
    rewrite(sales, "b.csv", B.replace("30", "31"))
    sales.audit("sales")
    with sales.instance() as instance:
        storage = instance.event_log_storage
        states = [
            storage.get_asset_check_execution_history(check, limit=1, partition_filter=PartitionKeyFilter(key=key))[0].status.value
            for key in ("a.csv", "b.csv", "c.csv")
        ]
        definition = sales.definition("sales")
        assert partitions_definition(definition) is not None
        turns = [partitions_in_turn(instance, definition, definition.container.options.audit) for _ in range(2)]
    assert states == ["SUCCEEDED", "FAILED", "SUCCEEDED"]
    assert turns == [["a.csv", "b.csv"], ["a.csv", "c.csv"]]
    rows = LakeTable(sales.lake, "landing", QUALITY_FOLDER, "audits").opened()
    assert rows is not None
    found = sorted(rows.to_pyarrow_table().to_pylist(), key=lambda row: row["recorded_at"])
    assert [row["rejected"] for row in found] == [1, 1]
    assert [(row["rows"], row["missing"], row["surplus"], row["partitions_different"]) for row in found] == [
        (4, 0, 0, []),
        (4, 1, 1, ["b.csv"]),
    ]


VALUES = {
    "tinyint": ["1", "2", "-1"],
    "bigint": ["1", "11", "-1"],
    "decimal(10,2)": ["1.00", "1.10", "11.0"],
    "float": ["1.0", "1.1", "0.0", "float('-0.0')", "float('NaN')", "float('Infinity')"],
    "double": ["1.0", "1.1", "0.0", "double('-0.0')", "double('NaN')", "double('-Infinity')"],
    "boolean": ["true", "false"],
    "string": ["''", "'0:'", "','", "'a'", "'ä'", "'a '"],
    "binary": ["x''", "x'00'", "x'30'"],
    "date": ["date'2026-01-01'", "date'1969-12-31'"],
    "timestamp": ["timestamp'2026-01-01 00:00:00.000001'", "timestamp'2026-01-01 00:00:00'"],
    "timestamp_ntz": ["timestamp_ntz'2026-01-01 00:00:00.000001'", "timestamp_ntz'2026-01-01 00:00:00'"],
    "array<string>": ["array()", "array(NULL)", "array('')", "array('', '')", "array('0:,0:')", "array('a', 'b')", "array('b', 'a')"],
    "array<array<int>>": ["array()", "array(NULL)", "array(array())", "array(array(), array())", "array(array(1), array(2))",
                          "array(array(1, 2))"],
    "struct<`a-b`:int,c:string>": ["named_struct('a-b', 1, 'c', 'x')", "named_struct('a-b', NULL, 'c', '1')",
                                   "named_struct('a-b', 1, 'c', NULL)", "named_struct('a-b', NULL, 'c', NULL)"],
    "map<string,double>": ["map()", "map('a', 1.0)", "map('a', NULL)", "map('b', 1.0)", "map('a', double('NaN'))"],
    "array<struct<t:timestamp>>": ["array(named_struct('t', timestamp'2026-01-01 00:00:00.000001'))",
                                   "array(named_struct('t', timestamp'2026-01-01 00:00:00'))"],
}  # fmt: skip


@pytest.mark.long
def test_each_other_value_of_every_type_of_a_file_has_another_text(spark_home: Path, tmp_path: Path) -> None:
    """A row that differs would be taken for an equal one; and a value that is in the lake as in the file for another one."""
    with open_session(spark_home, name="texts") as spark:
        for number, (type_, values) in enumerate(VALUES.items()):
            rows = " UNION ALL ".join(f"SELECT cast({value} AS {type_}) AS v" for value in (*values, "NULL"))
            frame = spark.sql(rows)
            kind = frame.schema.fields[0].dataType
            texts = [row[0] for row in frame.selectExpr(text_of("v", kind)).collect()]
            assert len(set(texts)) == len(values) + 1 and "" in texts, (type_, texts)
            frame.write.format("delta").save(str(tmp_path / f"t{number}"))
            stored = spark.read.format("delta").load(str(tmp_path / f"t{number}")).selectExpr(text_of("v", kind)).collect()
            assert sorted(row[0] for row in stored) == sorted(texts), type_
