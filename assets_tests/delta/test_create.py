"""New tables that are created without Spark are those that Spark creates, and are left to it where they would not be.

Belongs here: version 0 of a table. Does not belong: the rows that follow (``test_local_write``), and whole syncs (``test_sync``).
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assets_tests.delta.test_add_files import batch
from assets_tests.harness import long
from incremental_assets.core.errors import LakeError
from incremental_assets.core.schema import Column
from incremental_assets.delta.create import create_table
from incremental_assets.delta.engine import WRITE_BY
from incremental_assets.delta.guards import newest
from incremental_assets.delta.properties import set_property_without_spark
from incremental_assets.delta.table import LakeTable
from incremental_assets.delta.write_batch import WriteBatch
from incremental_assets.spark.embedded.launch import CONF
from incremental_assets.spark.session import open_session

PLAIN = (
    "boolean", "smallint", "int", "bigint", "float", "double", "binary", "string", "date", "timestamp", "decimal(9,2)", "decimal(38,10)",
    "array<int>", "array<string>", "array<decimal(9,2)>",
)  # fmt: skip
NTZ = "timestamp_ntz"


class SparkIsAsked(Exception):
    """Spark would have to create the table."""


def no_spark() -> Any:
    raise SparkIsAsked


@pytest.fixture(autouse=True)
def _without_remote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)


def new(columns: Sequence[tuple[str, str]] = (("k", "bigint"),), *, comment: str | None = None, **options: Any) -> WriteBatch:
    container = batch().container
    changed = replace(container, comment=comment, options=replace(container.options, **options))
    return batch(container=changed, columns=tuple(Column(*column) for column in columns), base_version=None)


def log_of(table: LakeTable) -> dict[str, Any]:
    """The actions of version 0 by their kind, but for what differs between any two tables."""
    lines = (Path(table.address) / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    actions = {kind: content for line in lines for kind, content in json.loads(line).items() if kind != "commitInfo"}
    assert actions["metaData"].pop("id") and actions["metaData"].pop("createdTime")
    actions["metaData"]["schemaString"] = json.loads(actions["metaData"]["schemaString"])
    for features in ("readerFeatures", "writerFeatures"):
        if features in actions["protocol"]:
            actions["protocol"][features] = sorted(actions["protocol"][features])
    return actions


@pytest.mark.parametrize("vectors", [True, *long(False)])
@pytest.mark.parametrize("types", [PLAIN, *long(((NTZ,),), ((f"array<{NTZ}>",),))], ids=["without ntz", "ntz", "arrays of ntz"])
def test_it_is_the_table_that_spark_creates(tmp_path: Path, spark_home: Path, vectors: bool, types: Sequence[str]) -> None:
    """Readers that Spark's table lets in would be kept out, values would be of other types, or the next sync would not know its table."""
    columns = [(f"c{number}", type_) for number, type_ in enumerate(types)]
    write_batch = new(columns, comment='it\'s "one"\nof two', deletion_vectors=vectors)
    here, by_spark = LakeTable(str(tmp_path), "here"), LakeTable(str(tmp_path), "by_spark")
    create_table(no_spark, here, write_batch)
    with open_session(spark_home, name="create") as spark, pytest.MonkeyPatch.context() as patch:
        patch.setenv(WRITE_BY, "spark")
        create_table(lambda: spark, by_spark, write_batch)
        assert spark.sql(f"SELECT * FROM {here.sql_name}").collect() == []
        described = [
            row for row in spark.sql(f"DESCRIBE EXTENDED {here.sql_name}").collect() if row[0] in dict(columns) or row[0] == "Comment"
        ]
    assert log_of(here) == log_of(by_spark)
    assert [(row[0], row[1]) for row in described if row[0] != "Comment"] == columns
    head = newest(here)
    assert (head.owner, head.columns, head.version) == (write_batch.container.label, write_batch.columns, 0)


@pytest.mark.parametrize(
    "columns",
    [
        [("a b", "int")], [("é", "int")], [("a.b", "int")], [("a", "int"), ("A", "int")], [("a", "array<array<int>>")],
        [("a", "struct<`b`:int>")], [("a", "variant")], [],
    ],
    ids=str,
)  # fmt: skip
def test_columns_that_spark_has_rules_for_are_left_to_it(tmp_path: Path, columns: Sequence[tuple[str, str]]) -> None:
    """A table would have columns that Spark cannot read, or that no other column may be named like."""
    with pytest.raises(SparkIsAsked):
        create_table(no_spark, LakeTable(str(tmp_path), "t"), new(columns))
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("option", "size", "rows", "has"),
    [
        (None, 64 << 20, 10**9, False), (None, (64 << 20) + 1, 1, True), (None, None, 300_000, False), (None, None, 300_001, True),
        (True, 1, 1, True), (False, None, 10**9, False),
    ],
)  # fmt: skip
def test_a_table_whose_source_is_small_opens_in_every_program(
    tmp_path: Path, option: bool | None, size: int | None, rows: int, has: bool
) -> None:
    """pandas would refuse every table, or the rows of a large one would be written anew for each that changes."""
    table, write_batch = LakeTable(str(tmp_path), "t"), new(deletion_vectors=option)
    create_table(no_spark, table, replace(write_batch, expected=rows, container=replace(write_batch.container, bytes=size)))
    assert (newest(table).properties["delta.enableDeletionVectors"] == "true") is has
    assert ("deletionVectors" in log_of(table)["protocol"].get("readerFeatures", [])) is has


def test_settings_of_spark_for_new_tables_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables would lack what a user has told Spark to give to each of them; of a server elsewhere, nobody here knows what that is."""
    table = LakeTable(str(tmp_path), "t")
    for name, value in ((CONF, "spark.databricks.delta.properties.defaults.enableChangeDataFeed=true"), ("SPARK_REMOTE", "sc://somewhere")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(SparkIsAsked):
                create_table(no_spark, table, new())
    with pytest.raises(SparkIsAsked):
        create_table(no_spark, table, new(cluster=True))
    assert not (tmp_path / "t").exists()


def test_what_is_there_is_never_touched(tmp_path: Path) -> None:
    """A table in the folder, which this process cannot read, or files of others would become a part of a new one."""
    for number, path in enumerate(("t/part-0.parquet", "t/_delta_log/00000000000000000007.json", "t/a/b")):
        file = tmp_path / str(number) / path
        file.parent.mkdir(parents=True)
        file.write_text("of somebody else")
        with pytest.raises(SparkIsAsked):
            create_table(no_spark, LakeTable(str(tmp_path / str(number)), "t"), new())
        assert not list(tmp_path.rglob(f"{0:020}.json"))


def test_what_a_killed_process_has_left_is_in_nobodys_way(tmp_path: Path) -> None:
    """A container could not be synced any more after a kill right before its table was complete."""
    log = tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    (log / ".5b7.tmp").write_text("{")
    table = LakeTable(str(tmp_path), "t")
    create_table(no_spark, table, new())
    assert newest(table).version == 0
    with pytest.raises(SparkIsAsked):  # which is asked to create it if it does not exist
        create_table(no_spark, table, new())


def test_a_folder_that_cannot_be_written_is_named_by_spark(tmp_path: Path) -> None:
    """The message would be Python's, of a folder that the user has never heard of."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SparkIsAsked):
        create_table(no_spark, LakeTable(str(tmp_path / "file"), "t"), new())


MISREAD = ("a%20b", "a#b", "a?b", "a\\b", "a\tb")
"""Names of folders that delta-rs reads as others, or in which it finds no history."""


@pytest.mark.parametrize("lake", [*MISREAD, "a b", "a%b", "a+b&c=d;e:@!*[x]{y}(z),~^|<>", 'it\'s "ü"', "\U00020bb7"])
def test_a_path_that_delta_rs_misreads_is_refused(tmp_path: Path, lake: str) -> None:
    """Rows would be compared with those of a table elsewhere, or another writer's commit would not be seen."""
    table = LakeTable(str(tmp_path / lake), "t")
    if lake in MISREAD:
        with pytest.raises(LakeError, match="rename the folder"):
            table.head()
    else:
        create_table(no_spark, table, new())
        assert newest(table).version == 0 and set_property_without_spark(table, 0, "a", "b")
        assert [commit.version for commit in table.commits(2)] == [1, 0]
        assert newest(table).properties["a"] == "b"
