"""Writes changed rows of an upsert by Delta's ``replaceUsing``: the rows with the same keys are deleted, and all given rows are inserted.

Belongs here: this write, and the rule when it may stand in for a MERGE. Does not belong: which rows have changed (``delta.merge``).

It takes half the time of a MERGE, which joins the rows with the table in both directions. But it takes its columns for keys on trust. NULL
keys, and keys that the given rows have twice, would silently be in the table twice. A Spark server that does not know the option would
overwrite the whole table. See docs/decisions/ways-of-writing.md.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from incremental_assets.core.names import backticked as quote
from incremental_assets.delta.table import LakeTable
from incremental_assets.spark.exceptions import spark_exception

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

_SETTING = "spark.databricks.delta.replaceUsing.dataframe.writer.enabled"
"""A setting that servers have whose Delta Lake knows the option, from version 4.4 on."""
WORTH_SKIPPING = 64 << 20
"""A MERGE takes about twice as long for the same files. It is taken where it reads so many bytes less, and at most half of the table."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Delta takes the option apart at commas, and fails on names that need quoting."""
_EXACT_TYPES = re.compile(r"(smallint|int|bigint|string|date|timestamp|timestamp_ntz|binary|decimal\(.*\))")
"""Types in which Spark takes two keys for equal exactly if PostgreSQL's unique index does. Floats have two zeros."""


def is_usable(spark: "SparkSession", keys: Sequence[str], types: Mapping[str, str]) -> bool:
    """Whether ``replace_using`` can find rows by these columns. The given rows must have no key twice, and no key that is NULL.

    ``types``: the type of each column.
    """
    if not all(_PLAIN_NAME.fullmatch(key) and _EXACT_TYPES.fullmatch(types[key]) for key in keys):
        return False
    try:
        return spark.conf.get(_SETTING) == "true"
    except spark_exception():  # the server does not know the setting
        return False


def skips_files(table: LakeTable, key: str, lowest: str, highest: str) -> bool:
    """Whether a MERGE that is bounded by these values of the key's first column is better, as it reads much less of the table.

    ``replace_using`` reads the keys of all files; the bounded MERGE reads only files that may have keys between the bounds. The values are
    texts (``delta.sql.key_text``).
    """
    delta = table.log_opened()
    files = pa.table(delta.get_add_actions(flatten=True)) if delta is not None else None
    if files is None or {f"min.{key}", f"max.{key}"} - set(files.column_names):
        return False
    sizes, low, high = files.column("size_bytes"), _comparable(files.column(f"min.{key}")), _comparable(files.column(f"max.{key}"))
    above = pc.greater(low, pa.scalar(highest, pa.string()).cast(low.type))  # pyright: ignore[reportAttributeAccessIssue]
    below = pc.less(high, pa.scalar(lowest, pa.string()).cast(high.type))  # pyright: ignore[reportAttributeAccessIssue]
    outside = pc.fill_null(pc.or_kleene(above, below), False)  # pyright: ignore[reportAttributeAccessIssue]
    skipped = sum(sizes.filter(outside).to_pylist())
    return skipped >= WORTH_SKIPPING and 2 * skipped >= sum(sizes.to_pylist())


def _comparable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Bounds of files in the type in which the texts of keys are compared: days and microseconds as integers."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def replace_using(
    table: LakeTable, keys: Sequence[str], columns: Sequence[str], rows: "DataFrame", commit_metadata: Mapping[str, Any]
) -> None:
    """Writes the rows in one commit; none, if there are no rows. ``columns``: all columns of the table, in its order."""
    writer = rows.selectExpr(*map(quote, columns)).write.format("delta").mode("overwrite")
    writer.option("replaceUsing", ",".join(keys)).option("userMetadata", json.dumps(commit_metadata)).save(table.url)


def changes(metrics: Mapping[str, int]) -> tuple[int, int, int]:
    """The numbers of inserted, updated and deleted rows, from the commit's metrics. Delta counts rows that it copied among its output."""
    written = metrics.get("numOutputRows", 0) - metrics.get("numCopiedRows", 0)
    updated = metrics.get("numDeletedRows", 0)
    return written - updated, updated, 0
