"""Reads the files of a sync in this process where that is possible, and lets Spark read only the lines that are doubtful."""

import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from incremental_assets.core.errors import ConfigurationError, SourceError, SourceInterrupted
from incremental_assets.core.files import FileFormat
from incremental_assets.core.names import backticked
from incremental_assets.core.schema import Column
from incremental_assets.delta.engine import why_spark_reads_files
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.write_batch import NotHere, StagedFiles, WrittenFile
from incremental_assets.files.attempt import Attempt
from incremental_assets.files.listing import FolderAddress
from incremental_assets.files.readers.local import FEW_BYTES, LocalRows, declared_types, reason_against
from incremental_assets.files.readers.local_files import REJECTED_ROWS, LocalFiles
from incremental_assets.files.readers.local_json import LocalJsonRows, reason_against_json
from incremental_assets.files.readers.local_parquet import LocalParquetRows, parquet_type, reason_against_parquet
from incremental_assets.files.readers.local_values import Unsure, arrow_type
from incremental_assets.files.readers.path_values import are_columns
from incremental_assets.files.readers.read import FILE, MODIFIED, REJECTED_COLUMNS, FileCount, FileRows
from incremental_assets.files.readers.reading import ReadFile, Reading

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

log = logging.getLogger(__name__)

LocalTexts = LocalRows | LocalJsonRows
LocalRead = LocalTexts | LocalParquetRows
_READ_HERE = {
    FileFormat.CSV: (reason_against, arrow_type, LocalRows),
    FileFormat.TSV: (reason_against, arrow_type, LocalRows),
    FileFormat.JSON: (reason_against_json, arrow_type, LocalJsonRows),
    FileFormat.PARQUET: (reason_against_parquet, parquet_type, LocalParquetRows),
}
"""Of each format: why files are not read here, the Arrow type of a Spark type, and their rows."""


class RowsReadHere:
    """The rows of files that were read in this process, with those of the doubtful lines. It is used as ``FileRows`` is.

    ``staged``: the files that have all good rows. ``odd``: what Spark has read of the doubtful lines; None if there were none.
    """

    def __init__(self, session: "Callable[[], SparkSession]", local: LocalRead, staged: StagedFiles, odd: FileRows | None) -> None:
        self._session, self._odd, self.staged = session, odd, staged
        self._schema: pa.Schema = local.schema
        self.columns: tuple[Column, ...] = local.columns
        self.valueless: tuple[str, ...] = local.valueless
        self.held = odd.held if odd is not None else ()
        self.refused: Mapping[str, str] = local.refused
        more = odd.counts if odd is not None else {}
        none = FileCount(0, 0)
        self.counts: Mapping[str, FileCount] = {
            key: FileCount(rows + more.get(key, none).rows, more.get(key, none).rejected) for key, rows in local.rows.items()
        }

    def good(self) -> "DataFrame":
        """Returns the typed rows: ``_file``, ``_file_modified``, then ``columns``."""
        columns = [f"cast({backticked(c.name)} AS {c.type}) AS {backticked(c.name)}" for c in (FILE, MODIFIED, *self.columns)]
        spark = self._session()
        if not self.staged.files:
            return spark.range(0).selectExpr(*(f"cast(NULL AS {c.type}) AS {backticked(c.name)}" for c in (FILE, MODIFIED, *self.columns)))
        paths = [os.path.join(self.staged.folder, file.path) for file in self.staged.files]
        return spark.read.parquet(*paths).selectExpr(*columns)

    @property
    def are_few(self) -> bool:
        """Whether this process may hold the rows."""
        return sum(file.size for file in self.staged.files) <= FEW_BYTES

    def local(self) -> pa.Table:
        """The same rows as a table of this process. Raises NotHere if they are many."""
        if not self.are_few:
            raise NotHere("there are many rows")
        read = [pq.ParquetFile(os.path.join(self.staged.folder, file.path)).read() for file in self.staged.files]
        return pa.concat_tables([self._schema.empty_table(), *(of_file.cast(self._schema) for of_file in read)])

    def local_bad(self) -> pa.Table:
        """The rejected rows as a table of this process: ``_file``, ``_file_modified``, ``line``."""
        none = REJECTED_ROWS.empty_table()
        return none if self._odd is None else self._odd.bad().select(*none.column_names).toArrow().cast(none.schema)

    def close(self) -> None:
        """Frees what Spark keeps of the doubtful lines."""
        if self._odd is not None:
            self._odd.close()

    def bad(self) -> "DataFrame":
        """Returns ``REJECTED_COLUMNS`` of the rejected rows."""
        if self._odd is not None:
            return self._odd.bad()
        return self._session().range(0).selectExpr(*(f"cast(NULL AS {c.type}) AS {backticked(c.name)}" for c in REJECTED_COLUMNS))


def read_here(
    scope: LakeScope,
    attempt: Attempt,
    address: FolderAddress,
    reading: Reading,
    files: Sequence[ReadFile],
    known: Sequence[Column],
    indexed: int,
    staging: Path,
    as_text: Callable[[], bool] | None = None,
) -> RowsReadHere | None:
    """Reads the files; None if Spark has to read them. Parameters as of ``LocalFiles``; ``staging``: a folder for temporary files;
    ``as_text``: see ``FileRows``. Where a column widens, Spark has to read them.

    Raises SourceInterrupted where the disk, the machine or the network fails.
    """
    types = declared_types(reading)
    reason = _reason_against(reading, files, known, types)
    if reason is None and address.local is None and os.environ.get("SPARK_REMOTE"):
        # Of a local folder, Spark has to see this machine's disk anyway.
        reason = "the Spark server may not see this machine's disk, where the rows would be"
    if reason is None and attempt.are_suspects(files):
        reason = "a file may have ended the Spark server"
    if reason is not None or types is None:
        log.debug("%s: Spark reads the files: %s", address.datastore, reason)
        return None
    folder = staging / "rows"
    folder.mkdir()
    try:
        local: LocalRead = _READ_HERE[reading.format][2](LocalFiles(address, reading, files, known, types, folder, indexed))
        odd: FileRows | None = None
        if not isinstance(local, LocalParquetRows) and local.doubtful:
            odd = _read_doubtful(scope, attempt, local, reading, files, staging, as_text)
        rows = odd.good().toArrow() if odd is not None else None
        staged = StagedFiles(
            str(folder), [WrittenFile(path, size, count, statistics) for path, size, count, statistics in local.close(rows)], indexed
        )
        return RowsReadHere(lambda: scope.spark, local, staged, odd)
    except SourceInterrupted:
        raise
    except (Unsure, SourceError, ConfigurationError, pa.ArrowException) as error:
        log.debug("%s: Spark reads the files: %r", address.datastore, error)
        shutil.rmtree(folder, ignore_errors=True)
        return None
    except OSError as error:  # reading a file raises none of its own
        raise SourceInterrupted(
            f"{address.datastore}: {staging}, where rows are on their way to the lake, cannot be written: {error.strerror or error}. Free "
            f"space there, or name another folder with TMPDIR, then sync again; no file was refused for it."
        ) from error


def _reason_against(reading: Reading, files: Sequence[ReadFile], known: Sequence[Column], types: Mapping[str, str] | None) -> str | None:
    reason = why_spark_reads_files(reading.engine)
    if reason is not None:
        return reason
    if reading.format not in _READ_HERE:
        return "their format is one that only Spark reads"
    if types is None or any(_READ_HERE[reading.format][1](column.type) is None for column in known):
        return "columns have types that only Spark knows"
    if are_columns(files, known, reading.folders):
        return "their folders name columns"
    return _READ_HERE[reading.format][0](reading, files)


def _read_doubtful(
    scope: LakeScope,
    attempt: Attempt,
    local: LocalTexts,
    reading: Reading,
    files: Sequence[ReadFile],
    staging: Path,
    as_text: Callable[[], bool] | None,
) -> FileRows:
    """Lets Spark read the doubtful lines, as files that consist of them. Raises Unsure where it cannot, or where a type changes by them."""
    folder, copies = staging / "lines", staging / "links"
    folder.mkdir()
    own = {file.key: file for file in files}
    odd: dict[str, ReadFile] = {}
    for number, key in enumerate(local.doubtful):
        path = folder / f"{number}.{reading.format.value}"
        path.write_bytes(local.lines_of(key))
        odd[key] = ReadFile(key, path.name, own[key].modified, path.stat().st_size)

    def read(asked: Sequence[ReadFile]) -> FileRows:
        if len(asked) != len(odd):
            raise Unsure  # the server has ended
        address = FolderAddress.parse("", str(folder))
        rows = FileRows(scope.spark, address, local.as_lines, [odd[file.key] for file in asked], local.columns, copies, as_text=as_text)
        scope.stack.callback(rows.close)
        return rows

    _, rows = attempt.read([own[key] for key in odd], read)
    # Where a column of the table is too narrow for one of these lines, all other rows need its new type, too.
    if rows is None or rows.refused or rows.columns != local.columns:
        raise Unsure
    local.expect_same(rows)
    return rows
