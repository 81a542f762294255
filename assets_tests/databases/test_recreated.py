"""A table that is made anew under its name, each night for example: ``when_recreated`` says what its syncs do.

Belongs here: PostgreSQL, which knows such a table by its id. Does not belong: the refusal (``test_source_trouble``), and MariaDB, which
does not know it (``mysql.test_mysql_recreated``).
"""

from collections.abc import Callable
from typing import Any

import pytest

from assets_tests.harness import Project, long
from incremental_assets.core.plan import Mode
from incremental_assets.databases import recreated

MakeProject = Callable[..., Project]
ORDERS = """create table o (id int primary key, day date, v int);
    insert into o select i, date '2026-01-01' + i, i from generate_series(1, 100) i;"""
TAIL = "insert into o values (101, '2026-06-01', 101)"


def loaded(project: MakeProject, incremental: str = "public.o:day:date", **options: Any) -> Project:
    shop = project(incremental=[incremental], containers={"o": {"partition_by": "month"}}, **options)
    shop.execute(ORDERS)
    shop.one("o")
    return shop


@pytest.mark.parametrize("incremental", ["public.o:day:date", *long("public.o:day:date!upsert")])
def test_a_table_that_was_made_anew_with_the_same_rows_is_taken_over(project: MakeProject, incremental: str) -> None:
    """A large table that is built anew each night would be loaded anew, too, or its syncs would fail until somebody loads it."""
    shop = loaded(project, incremental, when_recreated="adopt")
    shop.execute(f"drop table o; {ORDERS} {TAIL}")
    line = shop.one("o")
    assert line["status"] == "synced" and line["rows_read"] < 10, line
    shop.assert_equal("o")
    assert shop.one("o")["status"] == "skipped"
    shop.execute(
        f"drop table o; {ORDERS} {TAIL}; alter table o add w int; alter table o drop v; alter table o add v int; update o set v = id"
    )
    assert shop.one("o")["rows_read"] < 10
    assert shop.one("o")["status"] == "skipped"


def test_rows_that_were_changed_since_do_not_keep_an_upsert_from_being_taken_over(project: MakeProject) -> None:
    """A table that is built anew each night has the changes of the day, too, and would be loaded anew each night for them."""
    shop = loaded(project, "public.o:day:date!upsert", when_recreated="adopt")
    shop.execute(f"drop table o; {ORDERS} {TAIL}; update o set v = -1, day = '2026-06-02' where id = 5")
    line = shop.one("o")
    assert line["status"] == "synced" and line["rows_read"] < 10, line
    shop.assert_equal("o")


@pytest.mark.parametrize(
    "change", ["update o set v = -1 where id = 5", *long("delete from o where id = 5", "insert into o values (-1, '2026-01-05', 1)")]
)
def test_a_table_that_was_made_anew_with_other_rows_is_loaded_anew(project: MakeProject, change: str) -> None:
    """Rows below the watermark would stay those of the table that is gone."""
    shop = loaded(project, when_recreated="adopt")
    shop.execute(f"drop table o; {ORDERS} {TAIL}; {change}")
    line = shop.one("o")
    assert "loads the whole container anew" in line["message"] and "1 row below the watermark differs" in line["message"], line
    shop.assert_equal("o")
    assert shop.one("o")["status"] == "skipped"


def test_a_table_that_was_made_anew_is_loaded_anew_without_a_comparison(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """To compare a large table whose rows are others each night would cost as much as to load it."""
    shop = loaded(project, when_recreated="reload")
    monkeypatch.setattr(recreated, "decided", None)
    shop.execute(f"drop table o; {ORDERS} {TAIL}")
    line = shop.one("o")
    assert "dropped and created anew" in line["message"] and line["rows_read"] == 101, line
    shop.assert_equal("o")


def test_a_container_may_say_it_otherwise_than_its_datastore(project: MakeProject) -> None:
    """One table of a datastore is built anew each night, and the others must not be replaced unnoticed."""
    shop = loaded(project, when_recreated="reload")
    shop.configure(containers={"o": {"when_recreated": "refuse", "partition_by": "month"}})
    shop.execute(f"drop table o; {ORDERS}")
    line = shop.one("o", ok=False)
    assert line["status"] == "failed" and "when_recreated: adopt, or reload" in line["message"], line
    assert shop.one("o", mode=Mode.REFRESH, ok=False)["status"] == "failed"
