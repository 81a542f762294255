"""A table without deletion vectors that has grown says so, and gets them when the YAML asks for them.

Belongs here: ``deletion_vectors`` of a table that exists. Does not belong: which new tables have them (``test_create``), and how rows are
marked (``test_local_write``).
"""

from collections.abc import Callable

import pyarrow as pa
import pytest

from assets_tests.harness import Project
from incremental_assets.delta import replaced_files


def test_a_table_that_has_grown_says_what_helps_and_it_helps(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync would write gigabytes for ten rows without a word, or the attribute that its message names would change nothing."""
    monkeypatch.setattr(replaced_files, "MUCH_WRITTEN_BYTES", 1)
    made = project(incremental=["public.t:at:timestamp!upsert"])
    made.execute("create table t (id int primary key, at timestamp, note text)")
    made.execute("insert into t select i, timestamp '2024-01-01' + i * interval '1 minute', 'a' from generate_series(1, 1000) i")
    made.one("t")

    def change(at: str) -> dict[str, object]:
        made.execute(f"update t set at = '{at}', note = 'b' where id % 100 = 1")
        return made.one("t")

    before = change("2024-02-01")
    assert "deletion_vectors: true" in str(before["message"]) and before["status"] == "synced"
    made.configure(containers={"t": {"deletion_vectors": True}})
    monkeypatch.setattr(replaced_files, "MOST_WRITTEN_BYTES", -1)
    after = change("2024-02-02")
    delta = made.table("t").opened()
    assert delta is not None and pa.table(delta.deletion_vectors()).num_rows > 0
    assert "deletion_vectors" not in str(after["message"])
    made.assert_equal("t")
