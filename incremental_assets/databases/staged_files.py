"""Writes the rows of a snapshot into Parquet files, in this process and by one reader: into the table's folder, or for Spark."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from incremental_assets.core.window import Window
from incremental_assets.delta.parquet_files import FilesWriter
from incremental_assets.delta.store import folder_at
from incremental_assets.delta.write_batch import FilesTarget, WrittenFile

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

Batches = Callable[[Sequence[Window], bool], Iterator[pa.Table]]
"""Reads the rows of some windows and, if asked for, those without identifier."""


class StagedFrames:
    """The folders of files that Spark reads, until ``close``.

    They are on this machine, so that a Spark server elsewhere does not see them; INCREMENTAL_ASSETS_STAGING names a folder that both share.
    """

    def __init__(self) -> None:
        self._folders: list[str] = []

    def write(self, schema: pa.Schema, batches: Iterable[pa.Table]) -> str:
        """Writes rows into files of a new folder, and returns the folder."""
        folder = tempfile.mkdtemp(prefix="incremental-assets-", dir=os.environ.get("INCREMENTAL_ASSETS_STAGING") or None)
        self._folders.append(folder)
        plain = _plain(schema)
        writer = FilesWriter(folder, plain, (), 0)
        for batch in batches:
            writer.add(batch.rename_columns(plain.names))
        writer.close()
        return folder

    def frame(self, spark: "SparkSession", schema: pa.Schema, folder: str) -> "DataFrame":
        """The DataFrame that reads the rows of a folder."""
        from pyspark.sql.pandas.types import from_arrow_schema

        wanted = from_arrow_schema(_plain(schema), prefer_timestamp_ntz=True)
        frame = spark.read.schema(wanted).parquet(folder) if os.listdir(folder) else spark.createDataFrame([], wanted)
        return frame.toDF(*schema.names)

    def close(self) -> None:
        while self._folders:
            shutil.rmtree(self._folders.pop(), ignore_errors=True)


def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema with plain names: Parquet files for Spark cannot have all names that a table has."""
    return pa.schema([pa.field(f"c{i}", field.type) for i, field in enumerate(schema)])


@dataclass(frozen=True)
class FilesByOneReader:
    """The ``RowsInFiles`` of some windows of a container. It is used inside the snapshot.

    ``batches`` reads rows.
    """

    batches: Batches
    windows: Sequence[Window]
    include_nulls: bool

    def reason_against(self, spark: "SparkSession | None", folder: str) -> str | None:
        return None

    def write(self, spark: "SparkSession | None", target: FilesTarget, report: Callable[[int], None]) -> Sequence[WrittenFile]:
        writer: FilesWriter | None = None
        try:
            for batch in self.batches(self.windows, self.include_nulls):
                rows = batch.rename_columns(list(target.names))
                writer = writer or FilesWriter(folder_at(target.folder).new_files(), rows.schema, target.sort, target.indexed)
                writer.add(rows)
                report(rows.num_rows)
            if writer is None:
                return []
            writer.close()
        except BaseException:
            if writer is not None:
                writer.discard()
            raise
        return [WrittenFile(*file) for file in writer.files]
