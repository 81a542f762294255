"""Writes many rows by files into which they are read, in the place of the rows of the table that they replace, in one commit.

All rows are written, also those that have not changed. Of what the table has, only keys and the windows' columns are read.
"""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from obstore.exceptions import BaseError

from incremental_assets.core.grammar import Strategy
from incremental_assets.core.window import Window
from incremental_assets.delta.add_files import Choice, read_into_files
from incremental_assets.delta.commit_files import RemovedFile, discard, discarded_on_error
from incremental_assets.delta.digested_keys import DigestedKeys
from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.guards import already_there
from incremental_assets.delta.local_files import IN_OTHER_FOLDERS, LocalFiles
from incremental_assets.delta.local_rows import LocalComparison, arrow_schema, counted_by, key_texts, read_few, rows_of_lake, unmarked
from incremental_assets.delta.local_write import (
    HAVE_MOVED,
    columns_of,
    commit_rows,
    expect_permitted,
    expect_writable,
    marked_rows,
)
from incremental_assets.delta.merge import still_there
from incremental_assets.delta.moved_rows import is_followed
from incremental_assets.delta.replaced_files import find_replaced
from incremental_assets.delta.replaced_rows import RowsOfEither, RowsOfWindows, axis_values, largest
from incremental_assets.delta.store import folder_at
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.write_batch import NotHere, WriteBatch, WriteResult


def replace_by_files(
    table: LakeTable, head: Head, write_batch: WriteBatch, choice: Choice, log_info: Callable[[str], None], report: Callable[[int], None]
) -> WriteResult:
    """Reads the rows of a batch into files, and puts these in the place of the rows that they replace, in one commit.

    ``log_info`` and ``report`` are used as in ``add_files``. What has changed is counted if few rows of the table are in the windows;
    otherwise, of an upsert, what was inserted and deleted.
    Raises as ``write_here`` does.
    """
    expect_writable(table, head, write_batch)
    windows = _windows(write_batch)
    container, schema = write_batch.container, arrow_schema(head.columns)
    old = rows_of_lake(table, head, write_batch)
    there = LocalFiles.of(table.opened_at(head.version), folder_at(table.address))
    if schema is None or there is None:
        raise NotHere(IN_OTHER_FOLDERS)
    if old is None and write_batch.deleted_at is not None:
        raise NotHere("many rows may have to be marked as deleted")
    engine, is_upsert, key, place = container.engine, container.strategy is Strategy.UPSERT, None, None
    if is_upsert or is_followed(write_batch):
        key = pa.schema([schema.field(name) for name in container.lake_key])
        DigestedKeys.of(key, ())  # which raises NotHere before anything is read
    apart = container.partitioned_on
    wanted = columns_of(apart, schema)
    if not is_upsert:
        place = find_replaced(table, head, engine, schema, windows, wanted)
    files = read_into_files(table, head, write_batch, choice, log_info, report)
    count, written = sum(file.rows for file in files), [RemovedFile(file.path, file.size) for file in files]
    with place_errors(table.url), discarded_on_error(lambda: discard(there.folder, files)):
        compared = None if old is None else _compared(write_batch, schema, old, there, written)
        if compared is not None and compared.is_equal and compared.new.num_rows == count:
            discard(there.folder, files)
            return already_there(table, head, write_batch, count)
        rows, missing = schema.empty_table(), 0
        if key is not None:
            keys, lost = _keys(write_batch, there, schema, key, written, old)
            missing = lost.num_rows
            if place is None:
                replaced = RowsOfEither(keys, DigestedKeys.of(key, [lost])) if missing else keys
                place = find_replaced(table, head, engine, schema, replaced, wanted)
                rows = rows if old is None else marked_rows(old, lost, write_batch.deleted_at)
        assert place is not None
        if missing or (not is_upsert and place.replaced_rows):
            expect_permitted(write_batch)
        of_files = frozenset() if wanted is None else axis_values(apart, container.partitioning, there.values(written, wanted))
        commit_rows(table, head, write_batch, rows, place, files)
    counts: tuple[int | None, int | None, int | None] = None, None, None
    if compared is not None:
        counts = _counts(compared, count, place.replaced_rows, missing, is_by_key=key is not None)
    elif is_upsert:  # how many of the rows whose keys were there have changed is not known
        counts = count - (place.replaced_rows - missing), None, missing
    values = axis_values(apart, container.partitioning, [*place.replaced, rows])
    values = None if values is None or of_files is None else values | of_files
    return WriteResult(count, *counts, head.version + 1, head.version + 1, place.way, choice.by, axis_values=values, message=place.message)


def _compared(
    write_batch: WriteBatch, schema: pa.Schema, old: pa.Table, there: LocalFiles, written: Sequence[RemovedFile]
) -> LocalComparison | None:
    """The table's rows in the windows, ``old``, compared with those of the written files that are not above all of these; None if these are
    many."""
    identifier = write_batch.identifier
    assert identifier is not None
    highest = pc.max(largest(old.select(list(identifier.columns)))).as_py()  # pyright: ignore[reportAttributeAccessIssue]
    upper = () if highest is None else (Window(None, highest + 1 if highest < 2**63 - 1 else None),)
    new = read_few(there, written, schema, RowsOfWindows(identifier, upper, True)) if old.num_rows else schema.empty_table()
    container = write_batch.container
    is_upsert = container.strategy is Strategy.UPSERT
    by = counted_by(write_batch), write_batch.deleted_at
    return None if new is None else LocalComparison(old, new, container.lake_key, is_upsert, *by)


def _keys(
    write_batch: WriteBatch, there: LocalFiles, schema: pa.Schema, key: pa.Schema, written: Sequence[RemovedFile], old: pa.Table | None
) -> tuple[DigestedKeys, pa.Table]:
    """The keys of the written files, and those of the table's rows in the windows that are not among them.

    Raises NotHere if the source still has one of the latter: its row is elsewhere now.
    """
    keys = DigestedKeys.of(key, there.values(written, key))
    if old is None:
        parts = _keys_in_windows(write_batch, there, schema, key)
    else:  # rows that are marked already do not get lost
        parts = iter([(old if write_batch.deleted_at is None else unmarked(old)).select(key.names)])
    lost = pa.concat_tables([part.filter(pc.invert(keys.among(part))) for part in parts])  # pyright: ignore[reportAttributeAccessIssue]
    if still_there(write_batch, key_texts(lost.drop_null()))[0]:
        raise NotHere(HAVE_MOVED)
    return keys, lost


def _keys_in_windows(write_batch: WriteBatch, there: LocalFiles, schema: pa.Schema, key: pa.Schema) -> Iterator[pa.Table]:
    """Yields the keys of the table's rows in the windows. Raises NotHere if they are not read here as Spark reads them."""
    yield key.empty_table()
    windows = _windows(write_batch)
    try:
        for file, found in there.hits(there.searched(windows, write_batch.container.engine), schema, windows).items():
            yield there.rows(file, key, found.among)
    except (pa.ArrowException, OSError, BaseError) as error:
        raise NotHere("a file of the table was not read") from error


def _windows(write_batch: WriteBatch) -> RowsOfWindows:
    if write_batch.identifier is None:
        raise NotHere("the rows of the table are replaced")
    return RowsOfWindows(write_batch.identifier, write_batch.windows, write_batch.include_nulls)


def _counts(compared: LocalComparison, count: int, replaced: int, missing: int, *, is_by_key: bool) -> tuple[int, int, int]:
    """The numbers of (inserted, updated, deleted) rows, of ``count`` ones that were read and ``replaced`` ones that they replace.

    ``missing``: how many of these were not read, if that was looked for by the primary key (``is_by_key``).
    """
    if compared.counts is not None:
        inserted, updated, deleted = compared.counts
        moved = compared.differences.missing.num_rows - missing if is_by_key else 0  # to where nothing was compared
        return inserted + count - compared.new.num_rows - moved, updated + moved, deleted - moved
    unchanged = compared.new.num_rows - compared.differences.changed.num_rows
    updated = replaced - missing - unchanged
    return count - unchanged - updated, updated, missing
