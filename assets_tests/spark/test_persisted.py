"""Persisted rows: they are read once, however many other DataFrames the session has.

Belongs here: ``spark.persisted``. Does not belong: what the lake does with such rows.
"""

import ast
from pathlib import Path

import psycopg

import incremental_assets
from incremental_assets.databases.postgres.connection import PostgresAddress
from incremental_assets.spark.persisted import PersistedRows
from incremental_assets.spark.session import open_session

PLANS_OF_A_SESSION = 16
"""The default of ``spark.connect.session.planCache.maxSize``."""


def test_persisted_rows_are_not_read_again_after_many_other_reads(database: str, spark_home: Path) -> None:
    """A load by key ranges reads each range in a snapshot that is gone later. With many ranges it failed after hours of reading."""
    with psycopg.connect(database, autocommit=True) as source, open_session(spark_home, name="test") as spark:
        source.execute("create sequence reads")
        reader = spark.read.format("jdbc").options(**PostgresAddress.parse("shop", database).jdbc_options())
        held = PersistedRows(spark, reader.option("query", "select nextval('reads') as n").load())
        first = held.frame.collect()
        for number in range(3 * PLANS_OF_A_SESSION):
            assert reader.option("query", f"select {number} as n").load().columns == ["n"]
        assert held.frame.collect() == first
        held.release()
        assert not spark.catalog.listTables(), "the view of the rows is dropped"


def test_every_dataframe_is_persisted_in_that_way() -> None:
    """``DataFrame.persist`` alone holds the rows in every small test, and not beside many other DataFrames."""
    modules = sorted(Path(incremental_assets.__file__).parent.rglob("*.py"))
    calls = [
        f"{path.name}:{node.lineno}"
        for path in modules
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("persist", "cacheTable")
    ]
    assert calls and all(call.startswith("persisted.py:") for call in calls), calls
