"""The maintenance of a table: how large its files become.

Belongs here: OPTIMIZE and VACUUM of one table. Does not belong: the job, and what the next sync makes of it (``dagster/test_dagster``).
"""

from collections.abc import Callable

import pytest

from assets_tests.harness import Project
from incremental_assets.delta import maintenance
from incremental_assets.delta.maintenance import maintain
from incremental_assets.spark.session import open_session

ROWS = """insert into notes select 2000 * {n} + i, date '2026-01-01' + {n},
  md5(i || 'a{n}') || md5(i || 'b{n}') || md5(i || 'c{n}') || md5(i || 'd{n}') from generate_series(1, 2000) i"""


@pytest.mark.long
def test_files_are_joined_up_to_the_size_of_a_file_of_a_load(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a gigabyte, which are Delta's own measure, would be written anew for each change of a few rows."""
    shop = project(incremental=["public.notes:day:date"], containers={"notes": {"partition_by": "month"}})
    shop.execute("create table notes (id int primary key, day date, note text)")
    for n in range(4):
        shop.execute(ROWS.format(n=n))
        shop.one("notes")
    table, container = shop.table("notes"), shop.definition("notes").container
    monkeypatch.setattr(maintenance, "FILE_BYTES", 400_000)
    with open_session(shop.spark_home, name="test") as spark:
        kept = maintain(lambda: spark, table, container)
        assert kept is not None and kept.files_before >= 4 and 2 <= kept.files_after < kept.files_before, kept
        again = maintain(lambda: spark, table, container)
        assert again is not None and again.files_after == kept.files_after, "files of the right size are written anew each night"
    assert len(shop.rows("notes")) == 8000
    assert shop.one("notes")["status"] == "skipped"
