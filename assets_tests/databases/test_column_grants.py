"""A role that may read some columns of a table and not the table: it syncs these columns, from one state of the source as always.

Belongs here: what such a role gets, and which message. Does not belong: rows that policies hide (``test_row_security``).
"""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from assets_tests.harness import Project, long, wait_for
from incremental_assets.databases.postgres import session
from incremental_assets.delta.engine import READ_BY

MakeProject = Callable[..., Project]
TABLES = {
    "table": "create table c (id int primary key, at timestamptz, v text, ssn text);",
    "partitioned": "create table c (id int, at timestamptz, v text, ssn text, primary key (id, at)) partition by range (at);"
    "create table c1 partition of c default;",
    "view": "create table t (id int primary key, at timestamptz, v text, ssn text); create view c as select * from t;",
}
ROWS = "insert into {} select i, timestamptz '2026-01-01Z' + i * interval '1 day', 'v', 'secret' from generate_series(1, 80) i;"
GRANTED = "id, at, v"


def _granted(project: MakeProject, kind: str = "table", **container: Any) -> Project:
    options = {"partition_by": "month", "primary_key": ["id"], "exclude_columns": ["ssn"], **container}
    shop = project(incremental=["public.c:at:timestamp!upsert"], containers={"c": options})
    shop.execute(TABLES[kind] + ROWS.format("t" if kind == "view" else "c"))
    if shop.source.execute("select 1 from pg_roles where rolname = 'of_columns'").rowcount == 0:
        shop.execute("create role of_columns login password 'x'")
    shop.execute(f"grant select ({GRANTED}) on c to of_columns")
    shop.url = shop.url.replace(shop.url.split("//")[1].split("@")[0], "of_columns:x")
    return shop


def _assert_equal(shop: Project) -> None:
    """Asserts that the lake has the columns that are granted, as the owner of the source sees them."""
    of_source = shop.source.execute(f"select {GRANTED} from c order by id".encode()).fetchall()
    assert sorted(shop.rows("c", GRANTED)) == of_source


@pytest.mark.parametrize("kind", ["table", *long("partitioned", "view")])
def test_the_granted_columns_are_synced_without_a_privilege_on_the_table(project: MakeProject, kind: str) -> None:
    """Administrators grant columns where others must not be copied. To ask them for the whole table would be to ask for these, too."""
    shop = _granted(project, kind)
    assert shop.one("c")["status"] == "synced"
    _assert_equal(shop)
    to = "t" if kind == "view" else "c"
    shop.execute(f"update {to} set v = 'w', at = '2026-04-01Z' where id = 3; insert into {to} values (100, '2026-04-02Z', 'n', 'secret')")
    assert shop.one("c")["status"] == "synced"
    _assert_equal(shop)
    assert shop.one("c")["status"] == "synced"  # what PostgreSQL knows of each row is not granted, so that nothing is skipped
    assert shop.audit("c")["c"]["status"] == "equal"


@pytest.mark.long
@pytest.mark.parametrize("read_by", ["jdbc", "arrow"])
def test_the_granted_columns_are_read_by_several_readers(project: MakeProject, monkeypatch: pytest.MonkeyPatch, read_by: str) -> None:
    """Ranges of pages are not granted either, and each reader has to join the same snapshot."""
    monkeypatch.setenv(READ_BY, read_by)
    shop = _granted(project, readers=3)
    shop.one("c")
    _assert_equal(shop)


@pytest.mark.long
def test_a_column_that_is_not_granted_is_named(project: MakeProject) -> None:
    """PostgreSQL names the table alone, and a grant of it would be the wrong remedy."""
    shop = _granted(project, exclude_columns=[])
    line = shop.one("c", ok=False)
    assert line["status"] == "failed" and "may not read ssn" in line["message"], line
    assert "{c: {exclude_columns: [ssn]}}" in line["message"]
    assert 'GRANT SELECT ("ssn") ON "public"."c" TO "of_columns";' in line["message"]


@pytest.mark.parametrize("synced", [True, *long(False)])
def test_an_identifier_that_is_not_granted_any_more_is_named(project: MakeProject, synced: bool) -> None:
    """Whoever follows the message must not grant the whole table, and cannot leave out the column that the container is followed by."""
    shop = _granted(project)
    if synced:
        shop.one("c")
    else:
        shop.catalog()
    shop.execute("revoke select (at) on c from of_columns")
    line = shop.one("c", ok=False, stale=True)
    assert line["status"] == "failed" and "may not read at. Let it read them: " in line["message"], line
    assert 'GRANT SELECT ("at") ON "public"."c" TO "of_columns";' in line["message"] and "exclude" not in line["message"]


@pytest.mark.long
def test_a_privilege_that_is_narrowed_to_columns_is_noticed(project: MakeProject) -> None:
    """The next sync would fail for what it had stored to compare with."""
    shop = _granted(project)
    shop.execute("grant select on c to of_columns")
    shop.one("c")
    assert shop.one("c")["status"] == "skipped"
    shop.execute(f"revoke select on c from of_columns; grant select ({GRANTED}) on c to of_columns")
    assert shop.one("c")["status"] == "synced"
    _assert_equal(shop)


def test_a_table_that_is_filled_anew_just_before_the_snapshot_is_read_as_it_is_then(
    project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TRUNCATE that is committed after the snapshot was taken, and before the table is locked, makes a read see no rows, without an
    error. As the role may not lock the table by LOCK TABLE, a query has to do it, and the snapshot must come after that."""
    shop = _granted(project)
    shop.one("c")
    begin = session.begin_with_columns

    def begun(*arguments: Any) -> None:
        monkeypatch.undo()
        shop.execute("begin; truncate c; insert into c values (200, '2026-05-01Z', 'new', 'secret')")
        waits = "select count(*) from pg_locks where not granted and relation = 'c'::regclass"

        def commit() -> None:
            wait_for(lambda: (shop.source.execute(waits).fetchone() or (0,))[0], "the sync waits for the table")
            shop.execute("commit")

        filled_anew = threading.Thread(target=commit)
        filled_anew.start()
        begin(*arguments)
        filled_anew.join()

    monkeypatch.setattr(session, "begin_with_columns", begun)
    shop.one("c")
    assert shop.rows("c", "id", "id > 79") == [(200,)]
