"""What a process has seen of a table on an object store is good for the next one, as long as it is the newest version.

Belongs here: when the log is read again. Does not belong: what is read of it (``test_table``).
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from incremental_assets.delta import seen, table
from incremental_assets.delta.store import storage_options
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
