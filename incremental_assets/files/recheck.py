"""Compares the files that the tables hold with the manifest, after a sync that broke off, or after a RESTORE of the table."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake.exceptions import DeltaError

from incremental_assets.core.files import FILE, MODIFIED, FileState
from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.local_query import readable_here
from incremental_assets.delta.table import LakeTable, query
from incremental_assets.files.manifest import FileRecord
from incremental_assets.files.plan import FilesPlan
from incremental_assets.files.readers.reading import ReadFile

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredRows:
    """The number of rows of one file in the container's table, and of rejected ones in the table beside it.

    ``modified``: the modification time that the rows carry, in microseconds since 1970 UTC; None: there are neither.
    """

    rows: int = 0
    rejected: int = 0
    modified: int | None = None

    def is_as(self, record: FileRecord) -> bool:
        """Whether the manifest's record agrees with this.

        The time is not compared for a refused file: the record has that of the version that could not be read, the rows that of the
        version before.
        """
        same_time = record.state is FileState.REFUSED or self.modified in (None, record.modified)
        return (self.rows, self.rejected) == (record.rows, record.rejected) and same_time


NO_ROWS = StoredRows()


@dataclass(frozen=True)
class Recheck:
    """The result of the comparison.

    ``held``: the rows of every file in the tables, by key. ``due``: files that differ from their record and are still in the folder; they
    are read again. ``drop``: keys of files that the tables hold and the manifest lacks, and that are gone. ``corrected``: by key, the
    rows of those files that the manifest is to have as the tables have them.
    """

    held: Mapping[str, StoredRows]
    due: tuple[ReadFile, ...]
    drop: tuple[str, ...]
    corrected: Mapping[str, StoredRows]

    def of(self, key: str) -> StoredRows:
        return self.held.get(key, NO_ROWS)


def recheck(spark: "Callable[[], SparkSession]", plan: FilesPlan, table: LakeTable, beside: LakeTable) -> Recheck:
    """Compares the rows of the container's table, and of the rejected rows ``beside`` it, with the manifest. Raises LakeError."""
    with lake_errors(plan.container.label, table.url):
        held, _ = stored_rows(spark, table, beside)
    reading = {file.key for file in plan.due}
    unrecorded = {key: one for key, one in held.items() if key not in plan.known and key not in reading}
    removed = {key for key in unrecorded if _is_removed(plan, key)}
    drop = (*plan.drop, *sorted(removed))
    wrong = [key for key, record in plan.known.items() if not held.get(key, NO_ROWS).is_as(record) and key not in reading]
    corrected = {key: held.get(key, NO_ROWS) for key in wrong if key not in plan.listed.stamps and key not in drop}
    return Recheck(
        held=held,
        due=(*plan.due, *(plan.listed.file(key) for key in wrong if key in plan.listed.stamps)),
        drop=drop,
        corrected={**{key: one for key, one in unrecorded.items() if key not in removed}, **corrected},
    )


def stored_rows(spark: "Callable[[], SparkSession]", table: LakeTable, beside: LakeTable) -> tuple[Mapping[str, StoredRows], int]:
    """Counts the rows of each file in both tables, by key, and the container's rows without ``_file``, which no sync writes.

    ``spark`` returns the session, and is called where this process cannot count. Raises what Spark raises.
    """
    rows = _counted(spark, table)
    rejected = _counted(spark, beside) if beside.head() is not None else {}
    none = (0, None)
    held = {
        key: StoredRows(rows.get(key, none)[0], rejected.get(key, none)[0], rows.get(key, rejected.get(key, none))[1])
        for key in {*rows, *rejected}
        if key is not None
    }
    return held, rows.get(None, none)[0]


def _counted(spark: "Callable[[], SparkSession]", table: LakeTable) -> Mapping[str | None, tuple[int, int | None]]:
    """By key, the number of rows of each file, and their modification time. The key is None for rows without ``_file``."""
    try:
        here = readable_here(table)
        if here is not None:
            found = query(here, f'SELECT {FILE.name}, count(*), max({MODIFIED.name}) FROM "rows" GROUP BY 1')
            keys, numbers, times = found.columns
            times = times.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            return {key: (n, at) for key, n, at in zip(keys.to_pylist(), numbers.to_pylist(), times.to_pylist(), strict=True)}
    except (DeltaError, pa.ArrowException) as error:
        log.debug("%s: Spark counts its rows: %s", table.url, error)
    counted = f"SELECT {FILE.name}, count(*), max(unix_micros({MODIFIED.name})) FROM {table.sql_name} GROUP BY 1"
    return {key: (n, at) for key, n, at in spark().sql(counted).collect()}


def _is_removed(plan: FilesPlan, key: str) -> bool:
    """Whether the rows of a file that the manifest lacks are removed."""
    if key in plan.listed.others:
        return True
    # A listing without any file is not taken as proof that the file is gone: a disk that is not mounted looks the same.
    if key in plan.listed.stamps or plan.listed.may_hide(key) or not (plan.listed.stamps or plan.request.allow_empty):
        return False
    return plan.prunes
