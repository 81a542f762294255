"""A property that is set without Spark: the table stays what it was for all its readers, and no other writer's commit is replaced.

Belongs here: ``delta.properties`` by itself, and what Spark reads afterwards. Does not belong: which property is set when (``test_stages``,
``test_late_commits``).
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from assets_tests.delta.test_add_files import made
from assets_tests.harness import long
from incremental_assets.core.schema import Column
from incremental_assets.delta.guards import newest
from incremental_assets.delta.log import write_version
from incremental_assets.delta.properties import is_set_without_spark, set_property, set_property_without_spark
from incremental_assets.delta.table import LakeTable
from incremental_assets.spark.session import open_session

NAME = "incremental_assets.state"
VALUE = """{"a": "ä'\\"\\n", "n": 1}"""


def action(table: LakeTable, version: int, kind: str) -> dict[str, Any] | None:
    """The action of this kind in one commit; None if the commit has none."""
    lines = (Path(table.address) / "_delta_log" / f"{version:020}.json").read_text(encoding="utf-8").splitlines()
    return next((one[kind] for one in map(json.loads, lines) if kind in one), None)


@pytest.mark.long
@pytest.mark.parametrize("vectors", ["true", *long("false")])
@pytest.mark.parametrize("mapping", ["name", *long("none")])
def test_only_the_property_changes(tmp_path: Path, spark_home: Path, vectors: str, mapping: str) -> None:
    """Readers that could read the table would refuse it, or read its columns as NULL."""
    table = LakeTable(str(tmp_path), "t")
    with open_session(spark_home, name="test") as spark:
        spark.sql(
            f"CREATE TABLE {table.sql_name} (id BIGINT COMMENT 'the key', part STRUCT<a: INT, b: TIMESTAMP_NTZ>) USING delta COMMENT 'x' "
            f"TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}', 'delta.columnMapping.mode' = '{mapping}', 'own' = 'kept')"
        )
        spark.sql(f"INSERT INTO {table.sql_name} SELECT id, named_struct('a', 1, 'b', timestamp_ntz'2026-01-01') FROM range(10)")
        assert set_property_without_spark(table, 1, NAME, VALUE)
        first, after = action(table, 0, "metaData"), action(table, 2, "metaData")
        assert first is not None and after is not None and action(table, 2, "protocol") is None
        assert json.loads(after["schemaString"]) == json.loads(first["schemaString"])
        assert after["configuration"].pop(NAME) == VALUE
        assert {k: v for k, v in after.items() if k != "schemaString"} == {k: v for k, v in first.items() if k != "schemaString"}
        shown = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {table.sql_name}").collect()}
        assert shown[NAME] == VALUE and shown["own"] == "kept" and "delta.feature.variantType" not in shown
        spark.sql(f"DELETE FROM {table.sql_name} WHERE id = 3")
        assert spark.sql(f"SELECT sum(id), sum(part.a) FROM {table.sql_name}").collect()[0] == (42, 9)
        assert [one.operation for one in table.commits(2)] == ["DELETE", "SET TBLPROPERTIES"]


def test_characters_from_u20000_on_stay_what_they_are(tmp_path: Path) -> None:
    """The column would get another name with each sync, and all its values would be NULL: delta-rs misreads how JSON escapes them."""
    field = {"name": "\U00020bb7", "type": "string", "nullable": True, "metadata": {"comment": "\U0010ffff"}}
    table = made(tmp_path, field=field, description="\U00020bb7")
    log = Path(table.address) / "_delta_log" / f"{0:020}.json"
    log.write_text("".join(json.dumps(json.loads(line), ensure_ascii=False) + "\n" for line in log.read_text().splitlines()))
    for version in (0, 1):
        assert set_property_without_spark(table, version, NAME, "\U00020bb7")
        after = action(table, version + 1, "metaData")
        assert after is not None and json.loads(after["schemaString"])["fields"] == [field]
        assert (after["description"], after["configuration"][NAME]) == ("\U00020bb7", "\U00020bb7")
        head = newest(table)
        assert head.columns == (Column("\U00020bb7", "string"),) and head.properties[NAME] == "\U00020bb7"


def test_another_writers_version_is_not_replaced(tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of the other commit would be lost."""
    table = LakeTable(str(tmp_path), "t")
    with open_session(spark_home, name="test") as spark:
        spark.sql(f"CREATE TABLE {table.sql_name} (id BIGINT) USING delta")
        before = table.opened()
        spark.sql(f"INSERT INTO {table.sql_name} SELECT id FROM range(10)")
        assert not set_property_without_spark(table, 0, NAME, VALUE), "the version is not the newest one any more"
        # The other writer commits after the table was opened here.
        monkeypatch.setattr(LakeTable, "opened", lambda _: before)
        assert not set_property_without_spark(table, 0, NAME, VALUE)
        monkeypatch.undo()
        assert spark.sql(f"SELECT count(*) FROM {table.sql_name}").collect()[0][0] == 10
        assert not [file for file in (tmp_path / "t" / "_delta_log").iterdir() if file.name.endswith(".tmp")]
        set_property(lambda: spark, table, NAME, VALUE, added_version=0)
        head = table.head()
        assert head is not None and head.properties[NAME] == VALUE, "Spark sets it then"


def test_tables_that_ask_more_of_a_writer_are_left_to_spark(tmp_path: Path, spark_home: Path) -> None:
    """A commit without its time in a table with in-commit timestamps cannot be read any more."""
    with open_session(spark_home, name="test") as spark:
        for name, properties in (("ict", "'delta.enableInCommitTimestamps' = 'true'"), ("wide", "'delta.enableTypeWidening' = 'true'")):
            table = LakeTable(str(tmp_path), name)
            spark.sql(f"CREATE TABLE {table.sql_name} (id BIGINT) USING delta TBLPROPERTIES ({properties})")
            assert not is_set_without_spark(table) and not set_property_without_spark(table, 0, NAME, VALUE)
    assert not is_set_without_spark(LakeTable(str(tmp_path), "none"))


def test_why_delta_rs_does_not_set_it(tmp_path: Path, spark_home: Path) -> None:
    """If this fails, delta-rs may set properties again: it no longer adds a feature that readers must know."""
    table = LakeTable(str(tmp_path), "t")
    with open_session(spark_home, name="test") as spark:
        spark.sql(f"CREATE TABLE {table.sql_name} (id BIGINT) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    DeltaTable(table.address).alter.set_table_properties({NAME: VALUE}, raise_if_not_exists=False)
    protocol = action(table, 1, "protocol")
    assert protocol is not None and "variantType" in protocol["readerFeatures"]


def test_a_commit_whose_link_was_made_is_ours_although_the_server_of_files_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS sends the request again if the answer is lost. Taken for another writer's commit, its files would be removed under the table."""
    table = made(tmp_path)
    link = os.link

    def told_twice(source: str, target: str) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", told_twice)
    assert write_version(table.address, 1, [{"commitInfo": {"operation": "WRITE"}}])
    assert not write_version(table.address, 1, [{"commitInfo": {"operation": "WRITE"}}])
