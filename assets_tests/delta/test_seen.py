"""What a process has seen of a table on an object store is good for the next one, as long as it is the newest version.

Belongs here: when the log is read again, and copies of it. Does not belong: what is read of it (``test_table``).
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from incremental_assets.delta import seen, store, table
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


def test_a_copy_of_a_log_says_what_the_log_does(s3: Any, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are replaced by what it says: a file that it lacks would stay in the table beside the rows that replace its own."""
    monkeypatch.setattr(seen, "_folders", [tmp_path / "seen"])
    for name in ("_SHARED", "_COPIES"):
        monkeypatch.setattr(table, name, {})
    one, rows = LakeTable(f"s3://{bucket}/lake/t"), pa.table({"id": [1]})

    def by_another(**how: Any) -> None:
        write_deltalake(one.address, rows, mode="append", storage_options=storage_options(), **how)

    def expect_the_same(copied: DeltaTable | None) -> None:
        log = DeltaTable(one.address, storage_options=storage_options())
        assert copied is not None
        assert (copied.version(), copied.metadata().configuration) == (log.version(), log.metadata().configuration)
        actions = [pa.table(each.get_add_actions(flatten=True)).sort_by("path").to_pylist() for each in (copied, log)]
        assert actions[0] == actions[1]
        head = one.head()
        assert head is not None and head.version == log.version()

    by_another(configuration={"delta.enableDeletionVectors": "true"})
    for _ in range(2):
        expect_the_same(one.log_opened())
        by_another()
    now = one.log_opened()
    expect_the_same(now)
    assert now is not None and set_property_without_spark(one, now.version(), "own.property", "1")
    now = one.follow()
    expect_the_same(now)
    one.make_checkpoint(now)
    for one_file in s3.list_objects_v2(Bucket=bucket, Prefix="lake/t/_delta_log/")["Contents"]:
        if one_file["Key"].endswith(".json") and not one_file["Key"].endswith(version_file(now.version())):
            s3.delete_object(Bucket=bucket, Key=one_file["Key"])
    by_another()
    for module, name in ((table, "_SHARED"), (table, "_COPIES"), (seen, "_SEEN"), (store, "_PUT")):
        monkeypatch.setattr(module, name, {})
    expect_the_same(one.log_opened())
    assert list(table._COPIES.values()) != [None]
    kept = [file for file in (tmp_path / "seen").rglob("*") if file.is_file() and file.suffix != ".json"]
    assert len(kept) >= 2
    for file in kept:  # as they may be after a loss of power
        file.write_bytes(file.read_bytes()[:-40] if len(file.name) % 2 else b"")
    for module, name in ((table, "_SHARED"), (table, "_COPIES"), (seen, "_SEEN"), (store, "_PUT")):
        monkeypatch.setattr(module, name, {})
    expect_the_same(one.log_opened())
    assert list(table._COPIES.values()) != [None]

    add = next(action for action in actions_of(folder_at(one.address), now.version() + 1) if "add" in action)
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 1, "sizeInBytes": 36, "cardinality": 1}
    gone = {"path": add["add"]["path"], "deletionTimestamp": 1, "dataChange": True}
    actions = [commit_info("WRITE", {}), {"remove": gone}, {"add": {**add["add"], "deletionVector": vector}}]
    assert put_version(folder_at(one.address), DeltaTable(one.address, storage_options=storage_options()).version() + 1, actions)
    expect_the_same(one.log_opened())
    assert list(table._COPIES.values()) == [None]
