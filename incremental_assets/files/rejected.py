"""Keeps rows that do not fit the columns of their container, the rejected rows, in a Delta table beside it: with file, line and reason."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.folders import REJECTED_FOLDER
from incremental_assets.delta.sql import file_predicate
from incremental_assets.delta.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql.dataframe import DataFrame


def rejected_table(lake: str, key_path: tuple[str, str]) -> LakeTable:
    """The table of a container's rejected rows; it exists only once a row was rejected. ``key_path``: the container's."""
    return LakeTable(lake, key_path[0], REJECTED_FOLDER, key_path[1])


def replace_rejected(label: str, table: LakeTable, frame: "DataFrame", keys: Sequence[str] | None) -> None:
    """Replaces the rejected rows of the files with these keys (None: of all files) by the rows of the frame. Raises LakeError.

    ``label``: the container's name in error messages.
    """
    writer = frame.write.format("delta").mode("overwrite")
    if keys is not None and table.head() is not None:
        writer = writer.option("replaceWhere", file_predicate(keys))
    with lake_errors(label, table.url):
        writer.save(table.url)
