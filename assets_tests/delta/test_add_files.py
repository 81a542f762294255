"""The commit of files that were written past Spark: it is made once, on the version that the plan saw, or not at all.

Belongs here: the commit, and the tables that it must not be made to, without Spark. Does not belong: what needs Spark or a database
(``test_arrow_path``).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable

from assets_tests.core.test_model_container import resolved
from incremental_assets.core.errors import ConcurrentWriteError, LakeError
from incremental_assets.core.schema import Column
from incremental_assets.core.watermark import TableState
from incremental_assets.core.window import EVERYTHING, Window
from incremental_assets.databases.stored_state import fresh_state
from incremental_assets.delta import add_files, commit_files
from incremental_assets.delta.guards import newest
from incremental_assets.delta.parquet_files import FilesWriter
from incremental_assets.delta.store import folder_at
from incremental_assets.delta.table import LakeTable
from incremental_assets.delta.write_batch import BatchRows, FilesTarget, InWindows, NotHere, RowsInFiles, WriteBatch, WrittenFile

SCHEMA = pa.schema([("k", pa.int64())])
FIELD: dict[str, Any] = {"name": "k", "type": "long", "nullable": True, "metadata": {}}


class HeldRows(BatchRows):
    """The rows of a batch whose snapshot is held. These tests write files themselves, so nothing is read."""

    def frame(self, spark: Any) -> Any:
        raise AssertionError("the rows are read into files")

    def local(self) -> pa.Table:
        raise NotHere("the rows are read into files")

    def still_there(self) -> None:
        pass

    def emptied(self) -> tuple[Window, ...]:
        return ()


@dataclass(frozen=True)
class ReadIntoFiles(RowsInFiles):
    """Rows that are read into files, by two readers."""

    rows: pa.Table

    def reason_against(self, spark: Any, folder: str) -> str | None:
        return None

    def write(self, spark: Any, target: FilesTarget, report: Callable[[int], None]) -> Sequence[WrittenFile]:
        rows, half = self.rows.rename_columns(list(target.names)), self.rows.num_rows // 2
        written: list[WrittenFile] = []
        for part in (rows.slice(0, half), rows.slice(half)):
            writer = FilesWriter(folder_at(target.folder).new_files(), rows.schema, target.sort, target.indexed)
            writer.add(part)
            writer.close()
            written += [WrittenFile(*file) for file in writer.files]
        report(rows.num_rows)
        return written


def batch(**changes: Any) -> WriteBatch:
    container = resolved()
    state: TableState = fresh_state(container, "1/2")
    made = WriteBatch(
        container=container, replaces=InWindows(container.identifier, (EVERYTHING,)), columns=(Column("k", "bigint"),), base_version=0,
        state=state, expected=1_000_000, allow_empty=False, commit_metadata={"run_id": "r"}, rows=HeldRows(),
    )  # fmt: skip
    return replace(made, **changes)


def of_windows(write_batch: WriteBatch, *windows: Window, nulls: bool = False, **changes: Any) -> WriteBatch:
    """The batch with other windows of its container's identifier."""
    changed = replace(write_batch, **changes)
    return replace(changed, replaces=InWindows(changed.container.identifier, windows, nulls))


def written(table: LakeTable, *keys: int) -> list[WrittenFile]:
    writer = FilesWriter(table.address, SCHEMA, ("k",), 32)
    writer.add(pa.table({"k": pa.array(keys, pa.int64())}))
    writer.close()
    return [WrittenFile(*file) for file in writer.files]


def made(folder: Path, *, features: tuple[str, ...] = (), field: dict[str, Any] | None = None, **metadata: Any) -> LakeTable:
    """A table without rows whose log is written as other programs would write it."""
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if features:
        readers = [name for name in features if name in ("columnMapping", "deletionVectors", "timestampNtz", "typeWidening")]
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers, "writerFeatures": list(features)}
    schema = json.dumps({"type": "struct", "fields": [field or FIELD]})
    described = {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema, "partitionColumns": [],
                 "configuration": {}, **metadata}  # fmt: skip
    log = folder / "t" / "_delta_log"
    log.mkdir(parents=True)
    lines = [{"protocol": protocol}, {"metaData": described}]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, lines)))
    return LakeTable(str(folder), "t")


def keys(table: LakeTable) -> list[int]:
    delta = table.opened()
    assert delta is not None
    return sorted(delta.to_pyarrow_table()["k"].to_pylist())


def test_all_files_are_one_commit_that_tells_its_story(tmp_path: Path) -> None:
    """A reader would see half of a load, or the sync would take its own commit for somebody else's."""
    table = made(tmp_path)
    head = newest(table)
    files = [*written(table, 1, 2), *written(table, 3)]
    add_files._expect_there(table, files)
    commit_files.commit_files(table, head, batch(), files)
    assert keys(table) == [1, 2, 3]
    (commit,) = table.data_commits_since(head.version)
    assert (commit.version, commit.commit_metadata) == (1, {"run_id": "r"})
    after = newest(table)
    assert (after.table_id, after.properties, after.columns) == (head.table_id, head.properties, head.columns)


def test_no_files_are_a_commit_too(tmp_path: Path) -> None:
    """A load of a table that has become empty would fail, or leave no version that its state could name."""
    table = made(tmp_path)
    commit_files.commit_files(table, newest(table), batch(), [])
    assert newest(table).version == 1 and keys(table) == []


def test_a_table_that_refuses_the_commit_is_not_said_to_have_moved(tmp_path: Path) -> None:
    """The user would be told to sync again, and again, because of a writer that does not exist."""
    table = made(tmp_path, configuration={"delta.appendOnly": "true"})
    (file,) = written(table, 1)
    commit_files.commit_files(table, newest(table), batch(), [file])
    with pytest.raises(LakeError, match="append-only"):
        commit_files.commit_files(table, newest(table), batch(), [], [commit_files.RemovedFile(file.path, file.size).removed(0)])
    assert keys(table) == [1]


@pytest.mark.parametrize("meanwhile", ["rows", "a property"])
def test_a_commit_on_another_version_is_refused(tmp_path: Path, meanwhile: str) -> None:
    """delta-rs commits an append on top of whatever was committed meanwhile: the rows of two syncs would both be there."""
    table = made(tmp_path)
    head = newest(table)
    files = written(table, 1)
    if meanwhile == "rows":
        commit_files.commit_files(table, head, batch(), written(table, 1))
    else:
        DeltaTable(table.address).alter.set_table_properties(
            {"x.y": "1"}, raise_if_not_exists=False, commit_properties=CommitProperties(max_commit_retries=0)
        )
    before = keys(table)
    with pytest.raises(ConcurrentWriteError):
        commit_files.commit_files(table, head, batch(), files)
    assert keys(table) == before


def test_a_file_that_is_not_there_is_not_committed(tmp_path: Path) -> None:
    """Executors of a cluster with disks of their own would leave a table that nobody can read."""
    table = made(tmp_path)
    files = written(table, 1)
    with pytest.raises(LakeError, match="share the folder"):
        add_files._expect_there(table, [replace(files[0], size=files[0].size + 1)])
    (tmp_path / "t" / files[0].path).unlink()
    with pytest.raises(LakeError, match="Nothing was committed"):
        add_files._expect_there(table, files)


MAPPED = {**FIELD, "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "k"}}


@pytest.mark.parametrize(
    ("words", "features", "field", "metadata"),
    [
        ("columnMapping", ("columnMapping",), MAPPED, {"configuration": {"delta.columnMapping.mode": "name"}}),
        ("clustering", ("clustering", "domainMetadata"), None, {}),
        ("typeWidening", ("typeWidening",), None, {}),
        ("inCommitTimestamp", ("inCommitTimestamp",), None, {}),
        ("checkConstraints", ("checkConstraints",), None, {}),
        ("constraints", (), None, {"configuration": {"delta.constraints.positive": "k > 0"}}),
        ("constraints of its own", (), {**FIELD, "nullable": False}, {}),
        ("constraints of its own", (), {**FIELD, "metadata": {"delta.invariants": "{}"}}, {}),
        ("partitions", (), None, {"partitionColumns": ["k"]}),
    ],
)
def test_tables_that_files_cannot_be_added_to_rightly(
    tmp_path: Path, words: str, features: tuple[str, ...], field: dict[str, Any] | None, metadata: dict[str, Any]
) -> None:
    """Of a table with column mapping, every value would read as NULL; others would have rows that their constraints forbid."""
    table = made(tmp_path, features=features, field=field, **metadata)
    assert words in str(commit_files.reason_against(table, newest(table), batch(columns=newest(table).columns)))


def test_our_own_tables_are_added_to(tmp_path: Path) -> None:
    """Otherwise the test above would pass where nothing at all is permitted."""
    table = made(tmp_path / "a", features=("deletionVectors", "timestampNtz", "appendOnly", "invariants"))
    assert commit_files.reason_against(table, newest(table), batch(columns=newest(table).columns)) is None
    table = made(tmp_path / "b", field={**FIELD, "metadata": {"comment": "a key"}})
    assert commit_files.reason_against(table, newest(table), batch(columns=newest(table).columns)) is None


def test_other_columns_than_those_of_the_table(tmp_path: Path) -> None:
    """The files have the columns of the source: a column that is wider in the lake would be read wrongly, or not at all."""
    made_table = made(tmp_path)
    head = newest(made_table)
    assert commit_files.reason_against(made_table, head, batch()) is None
    for columns in [(Column("k", "int"),), (Column("K", "bigint"),), (Column("k", "bigint"), Column("l", "int"))]:
        assert commit_files.reason_against(made_table, head, batch(columns=columns)) is not None
