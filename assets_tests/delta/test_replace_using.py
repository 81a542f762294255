"""Upserts by Delta's replaceUsing in the place of a MERGE: the same rows, the same numbers, and a MERGE wherever that is not certain.

Belongs here: which of the two ways is taken, and what the first could double or lose. Does not belong: what upserts do in general
(``test_sync``, ``test_refresh``, the random histories).
"""

import datetime
import decimal
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from assets_tests.harness import Project
from incremental_assets.delta import replace_using
from incremental_assets.delta.engine import WRITE_BY
from incremental_assets.delta.table import LakeTable
from incremental_assets.spark.session import open_session

MakeProject = Callable[..., Project]
NOTES = """create table notes (id int, "part" text, at timestamptz, note text, primary key (id, "part"));
insert into notes select i, 'p' || i % 3, timestamptz '2026-01-01' + i * interval '1 minute', 'n' || i from generate_series(1, 300) i"""


@pytest.fixture(autouse=True)
def _by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few rows would be written without Spark."""
    monkeypatch.setenv(WRITE_BY, "spark")


def upserted(project: MakeProject, create: str = NOTES) -> Project:
    made = project(incremental=["public.notes:at:timestamp!upsert"])
    made.execute(create)
    made.one("notes")
    return made


def ways(project: Project) -> list[str]:
    """How each commit of rows after the first wrote them, the newest first: ``MERGE`` or ``replaceUsing``."""
    table = project.table("notes").opened()
    assert table is not None
    commits = [one for one in table.history() if one["operation"] in ("WRITE", "MERGE")]
    return ["replaceUsing" if "replaceUsingCols" in str(one["operationParameters"]) else one["operation"] for one in commits][:-1]


def test_changed_and_new_rows_are_replaced_and_counted(project: MakeProject) -> None:
    """Rows would be there twice, or the number of updates would be that of all rows read."""
    shop = upserted(project)
    shop.execute("update notes set note = 'changed', at = now() where id % 10 = 0")
    shop.execute("insert into notes select i, 'p', now(), 'new' from generate_series(301, 305) i")
    line = shop.one("notes")
    assert ways(shop) == ["replaceUsing"]
    assert (line["rows_inserted"], line["rows_updated"], line["rows_deleted"]) == (5, 30, 0), line
    shop.assert_equal("notes")
    table = shop.table("notes").opened()
    assert table is not None
    (commit,) = [one for one in table.history() if "replaceUsingCols" in str(one["operationParameters"])]
    assert json.loads(commit["userMetadata"])["run_id"] == line["run_id"], "the commit says which run has written it"


def test_a_deletion_is_written_by_a_merge(project: MakeProject) -> None:
    """``replaceUsing`` deletes nothing: the deleted row would stay."""
    shop = upserted(project)
    shop.execute("update notes set at = now() where id > 290")
    shop.one("notes")
    shop.execute("delete from notes where id = 300; update notes set note = 'changed' where id = 299")
    line = shop.one("notes")
    assert ways(shop)[0] == "MERGE" and line["rows_deleted"] == 1, line
    shop.assert_equal("notes")


@pytest.mark.long
@pytest.mark.parametrize(
    "create",
    [
        NOTES.replace('"part"', '"a,b"'),
        pytest.param(NOTES.replace('"part"', '"a`b"'), marks=pytest.mark.long),
        pytest.param(NOTES.replace("id int", "id float8"), marks=pytest.mark.long),
    ],
)
def test_other_keys_are_merged(project: MakeProject, create: str) -> None:
    """A comma cuts the name of a column in two, a backtick ends Spark's parser, and a float has two zeros."""
    shop = upserted(project, create)
    shop.execute("update notes set note = 'changed', at = now() where id <= 10")
    line = shop.one("notes")
    assert ways(shop) == ["MERGE"] and line["rows_updated"] == 10, line
    shop.assert_equal("notes")


@pytest.mark.long
def test_a_server_that_does_not_know_the_option_is_not_given_it(
    project: MakeProject, monkeypatch: pytest.MonkeyPatch, spark_home: Path
) -> None:
    """It would overwrite the whole table."""
    monkeypatch.setattr(replace_using, "_SETTING", "spark.databricks.delta.replaceUsing.of.an.older.version")
    shop = upserted(project)
    shop.execute("update notes set note = 'changed', at = now() where id <= 10")
    shop.one("notes")
    assert ways(shop) == ["MERGE"]
    shop.assert_equal("notes")


def test_keys_that_rows_have_twice_or_not_at_all_are_told(spark_home: Path) -> None:
    """A view may call a key what is none; each such row would come into the table once more with every sync."""
    from incremental_assets.delta.merge import _extent

    with open_session(spark_home, name="test") as spark:
        for values, unique in [("(1, 'a'), (1, 'b')", True), ("(1, 'a'), (1, 'a')", False), ("(1, 'a'), (1, NULL)", False)]:
            assert _extent(spark.sql(f"select * from values {values} t(id, name)"), ("id", "name"), "int")[1] is unique


@pytest.mark.parametrize(
    ("type_", "keys", "near", "all_over"),
    [
        (pa.int64(), list(range(-50, 50)), ("48", "60"), ("-60", "60")),
        (pa.string(), [f"k{i:03}" for i in range(100)], ("k098", "z"), ("k", "z")),
        (pa.date32(), [datetime.date(1969, 12, 1) + datetime.timedelta(days=i) for i in range(100)], ("68", "99"), ("-31", "99")),
        (pa.timestamp("us", "UTC"), [datetime.datetime(1970, 1, 1, 0, i, tzinfo=datetime.timezone.utc) for i in range(60)],
         (str(59 * 60_000_000), str(60 * 60_000_000)), ("0", str(60 * 60_000_000))),
        (pa.decimal128(20, 2), [decimal.Decimal(i) / 4 for i in range(100)], ("24.25", "24.75"), ("0.00", "24.75")),
    ],
)  # fmt: skip
def test_a_merge_is_bounded_where_it_leaves_out_most_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type_: pa.DataType, keys: list[Any], near: tuple[str, str], all_over: tuple[str, str]
) -> None:
    """One changed row of yesterday would make an upsert read the keys of ten years."""
    monkeypatch.setattr(replace_using, "WORTH_SKIPPING", 0)
    table, part = LakeTable(str(tmp_path), "t"), len(keys) // 5
    for start in range(0, len(keys), part):
        write_deltalake(table.address, pa.table({"k": pa.array(keys[start : start + part], type_)}), mode="append")
    assert replace_using.skips_files(table, "k", *near)
    assert not replace_using.skips_files(table, "k", *all_over)
    assert not replace_using.skips_files(table, "another", *near)
    monkeypatch.setattr(replace_using, "WORTH_SKIPPING", 1 << 20)
    assert not replace_using.skips_files(table, "k", *near), "it is a small table"
