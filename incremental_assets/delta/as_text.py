"""Rewrites a table whose columns become text, or nested types of wider parts, as Delta does not change their type in place."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from incremental_assets.core.errors import RebuildNeeded
from incremental_assets.core.ladder import TEXT
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.names import literal
from incremental_assets.core.schema import Column
from incremental_assets.delta.guards import expect_unmoved, moved, named, newest
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.write_batch import WriteBatch

if TYPE_CHECKING:
    from pyspark.sql.column import Column as ConnectColumn
    from pyspark.sql.connect.session import SparkSession

REWRITTEN_BYTES = 1 << 30
"""A table whose files have more bytes is not rewritten."""


def may_be_rewritten(table: LakeTable) -> bool:
    """Whether the table is small enough."""
    return table.bytes() <= REWRITTEN_BYTES


def rewrite(spark: "SparkSession", table: LakeTable, head: Head, write_batch: WriteBatch, changes: Sequence[tuple[Column, Column]]) -> Head:
    """Rewrites the table in one commit, for these columns, as they are, and as they will be. Returns what it is then.

    A nested type has its fields already (``evolve_table``), and its values are widened exactly. Raises RebuildNeeded if a value
    could not be had back from its text, and ConcurrentWriteError on a concurrent write. Nothing is written in either case.
    """
    label, old = write_batch.container.label, {before.name: before.type for before, after in changes if after.type == TEXT}
    wider = {after.name: after for _, after in changes if after.type != TEXT}
    frame = spark.read.format("delta").option("versionAsOf", head.version).load(table.url)
    lost = [f"NOT cast({text_of(quote(name), type_)} AS {type_}) <=> {quote(name)}" for name, type_ in old.items()]
    counts = frame.selectExpr("0", *(f"count(CASE WHEN {is_lost} THEN 1 END) AS c{i}" for i, is_lost in enumerate(lost))).collect()[0][1:]
    for (name, type_), count in zip(old.items(), counts, strict=True):
        if count:
            raise RebuildNeeded(
                f"{label}: column {name!r} cannot become text, as {count:,} of its values ({type_}) would not stay the same; nothing was "
                f"written. To read all files again: incremental-assets sync {label} --reset-watermarks"
            )
    columns: list[ConnectColumn] = []
    for column in head.columns:
        name = column.name
        text = _text_of_old(quote(name), old[name]) if name in old else quote(name)
        columns.append(named(column, f"cast({text} AS {wider[name].type})" if name in wider else text))
    options = {"overwriteSchema": "true", "userMetadata": json.dumps(write_batch.commit_metadata)}
    expect_unmoved(label, table, head)
    # The newest version is rewritten, and not that of above: if this process is killed now, Spark may begin after others have written.
    newest_rows = spark.read.format("delta").load(table.url)
    newest_rows.select(*columns).write.format("delta").mode("overwrite").options(**options).save(table.url)
    after = newest(table)
    if after.version != head.version + 1:
        raise moved(label, table, "the table was rewritten, and may lack what that writer has written: audit it")
    return after


def _text_of_old(expression: str, type_: str) -> str:
    """The text of a value; an error if the column has become another one meanwhile."""
    return f"if(typeof({expression}) = {literal(type_)}, {text_of(expression, type_)}, raise_error('another writer has changed its type'))"


def text_of(expression: str, type_: str) -> str:
    """The expression of the usual text of a value: ``12.5`` and not ``12.500``, ``12345678`` and not ``1.2345678E7``."""
    if type_.startswith("decimal"):
        return _plain(expression) if not type_.endswith(",0)") else f"cast({expression} AS string)"
    if type_ in ("float", "double"):
        exact = f"try_cast(cast({expression} AS string) AS decimal(38,18))"
        return f"CASE WHEN cast({exact} AS {type_}) = {expression} THEN {_plain(exact)} ELSE cast({expression} AS string) END"
    if type_ == "timestamp":
        return f"(cast({expression} AS string) || 'Z')"  # the time zone of all sessions is UTC
    return f"cast({expression} AS string)"


def _plain(decimal: str) -> str:
    """The digits of a decimal with a fraction, without the zeros at its end."""
    return f"trim(TRAILING '.' FROM trim(TRAILING '0' FROM cast({decimal} AS string)))"
