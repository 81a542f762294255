"""What a process has seen of a table on an object store is good for the next one, as long as it is the newest version.

Belongs here: when the log is read again, and copies of it. Does not belong: what is read of it (``test_table``).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from incremental_assets.delta import seen, table
from incremental_assets.delta.deletion_vectors import write_vectors
from incremental_assets.delta.log import actions_of, commit_info, put_version
from incremental_assets.delta.properties import set_property_without_spark
from incremental_assets.delta.store import folder_at, storage_options, version_file
from incremental_assets.delta.table import Head, LakeTable

pytestmark = pytest.mark.s3


def test_a_table_that_was_seen_is_not_opened_again_until_it_has_changed(
    s3: Any, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tick of a schedule would read the logs of all tables, thirty requests each; and a tick that trusts what was seen of a table
    which another host has changed, or made anew, would lose rows."""
    monkeypatch.setattr(seen, "_folders", [tmp_path / "seen"])
    address, rows = f"s3://{bucket}/lake/t", pa.table({"id": [1]})

    def head() -> Head:
        """As another command finds it."""
        for name in ("_SHARED", "_COPIES"):
            monkeypatch.setattr(table, name, {})
        monkeypatch.setattr(seen, "_SEEN", {})
        found = LakeTable(address).head()
        assert found is not None
        return found

    DeltaTable.create(address, rows.schema, name="first", storage_options=storage_options())
    first = head()
    with monkeypatch.context() as patch:
        patch.setattr(LakeTable, "log_opened", lambda _: pytest.fail("its log was read"))
        assert head() == first
    (kept,) = (tmp_path / "seen").glob("*.json")
    assert "do-not-tell" not in kept.read_text() and kept.stat().st_mode & 0o077 == 0

    write_deltalake(address, pa.table({"id": [2], "note": ["n"]}), mode="append", schema_mode="merge", storage_options=storage_options())
    assert (head().version, [column.name for column in head().columns]) == (1, ["id", "note"])
    for one in s3.list_objects_v2(Bucket=bucket, Prefix="lake/t/")["Contents"]:
        s3.delete_object(Bucket=bucket, Key=one["Key"])
    assert LakeTable(address).head() is None
    for _ in range(2):
        write_deltalake(address, rows, mode="append", storage_options=storage_options())
    again = head()
    assert again.version == 1 and again.table_id != first.table_id
    for damaged in ("{", "[]", '{"version": 1}'):
        kept.write_text(damaged)
        assert head() == again


def test_a_copy_of_a_log_says_what_the_log_does(
    s3: Any, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_another_process: Callable[[], None]
) -> None:
    """Rows are replaced by what it says: a file that it lacks would stay in the table beside the rows that replace its own."""
    monkeypatch.setattr(seen, "_folders", [tmp_path / "seen"])
    as_another_process()
    one, rows = LakeTable(f"s3://{bucket}/lake/t"), pa.table({"id": [1, 2, 3]})

    def by_another(**how: Any) -> None:
        write_deltalake(one.address, rows, mode="append", storage_options=storage_options(), **how)

    def expect_the_same(copied: DeltaTable | None) -> None:
        log = DeltaTable(one.address, storage_options=storage_options())
        assert copied is not None
        assert (copied.version(), copied.metadata().configuration) == (log.version(), log.metadata().configuration)
        actions = [pa.table(each.get_add_actions(flatten=True)).sort_by("path").to_pylist() for each in (copied, log)]
        assert actions[0] == actions[1]
        assert _vectors(copied) == _vectors(log)
        head = one.head()
        assert head is not None and head.version == log.version()

    def mark(*vectors: Mapping[str, Any]) -> None:
        """Puts a version that gives these deletion vectors to the newest file, one after the other."""
        folder, newest = folder_at(one.address), DeltaTable(one.address, storage_options=storage_options()).version()
        add = next(found["add"] for number in range(newest, -1, -1) for found in actions_of(folder, number) if "add" in found)
        gone = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}
        before = {"deletionVector": add["deletionVector"]} if "deletionVector" in add else {}
        for number, vector in enumerate(vectors, newest + 1):
            actions = [commit_info("WRITE", {}), {"remove": {**gone, **before}}, {"add": {**add, "deletionVector": vector}}]
            assert put_version(folder, number, actions)
            before = {"deletionVector": vector}

    by_another(configuration={"delta.enableDeletionVectors": "true"})
    for _ in range(2):
        expect_the_same(one.log_opened())
        by_another()
    expect_the_same(one.log_opened())
    _, (of_this_process, first, second) = write_vectors(folder_at(one.address), [np.array(rows) for rows in ([0], [1], [1, 2])])
    mark(of_this_process)
    expect_the_same(one.follow())
    mark(first, second)  # two commits: those of another host, which are found by a listing
    expect_the_same(one.log_opened())
    _, (apart,) = write_vectors(folder_at(one.address), [np.array([0, 2])])
    mark(apart)
    as_another_process()
    now = one.log_opened()
    expect_the_same(now)
    assert list(table._COPIES.values()) != [None]
    assert now is not None and set_property_without_spark(one, now.version(), "own.property", "1")
    now = one.follow()
    expect_the_same(now)
    one.make_checkpoint(now)
    for one_file in s3.list_objects_v2(Bucket=bucket, Prefix="lake/t/_delta_log/")["Contents"]:
        if one_file["Key"].endswith(".json") and not one_file["Key"].endswith(version_file(now.version())):
            s3.delete_object(Bucket=bucket, Key=one_file["Key"])
    by_another()
    as_another_process()
    expect_the_same(one.log_opened())
    assert list(table._COPIES.values()) != [None]
    kept = [file for file in (tmp_path / "seen").rglob("*") if file.is_file() and file.suffix != ".json"]
    assert len(kept) >= 2
    for file in kept:  # as they may be after a loss of power
        file.write_bytes(file.read_bytes()[:-40] if len(file.name) % 2 else b"")
    as_another_process()
    expect_the_same(one.log_opened())
    assert list(table._COPIES.values()) != [None]

    mark({"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 1, "sizeInBytes": 36, "cardinality": 1})
    with pytest.raises(DeltaError):  # its file is not there: what is in the table is not known, also not by a copy
        _vectors(one.log_opened())
    assert list(table._COPIES.values()) == [None]


def _vectors(opened: DeltaTable | None) -> list[list[bool]]:
    assert opened is not None
    return pa.table(opened.deletion_vectors()).column("selection_vector").to_pylist()
