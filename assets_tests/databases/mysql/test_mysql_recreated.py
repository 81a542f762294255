"""Another table that is renamed into place, on MariaDB: nothing proves that it is another one, so that the rows below the watermark do.

Belongs here: the doubt, and what becomes of it. Does not belong: PostgreSQL, which knows a table by its id (``test_recreated``).
"""

import pytest

from assets_tests.databases.servers.parameters import Shop
from assets_tests.databases.test_moved_sources import adopted

ROWS = "insert into {t} select seq, date'2026-01-01' + interval seq day, seq from seq_1_to_50"
TABLE = "create table {t} (id int primary key, day date not null, value int)"


def swap(rows: str = ROWS) -> list[str]:
    """The statements of a nightly build: a new table takes the place of the old one."""
    return [TABLE.format(t="o2"), rows.format(t="o2"), "drop table if exists o_old", "rename table o to o_old, o2 to o"]


@pytest.mark.parametrize(("when", "status"), [("refuse", "failed"), pytest.param("adopt", "synced", marks=pytest.mark.long)])
def test_a_table_that_took_the_place_of_another_one_is_noticed(shop: Shop, when: str, status: str) -> None:
    """The rows below the watermark would stay those of the old table, and every sync would say that all is well."""
    project = shop(incremental=["o:id:integer"], when_recreated=when, exclude=["o_old"])
    project.execute(TABLE.format(t="o"), ROWS.format(t="o"))
    project.one("o")
    project.execute(*swap(), "insert into o values (51, '2026-06-01', 51)")
    line = project.one("o")
    assert line["status"] == "synced" and line["rows_read"] < 5, "the same rows are no other table"
    project.execute(*swap(ROWS.replace("day, seq from", "day, -seq from")))
    project.execute("insert into o values (51, '2026-06-01', -51), (52, '2026-06-01', -52)")
    line = project.one("o", ok=False)
    assert line["status"] == status and "50 rows below the watermark differ" in line["message"], line
    if status == "failed":
        assert "--reset-watermarks" in line["message"] and "when_recreated" in line["message"]
        project.one("o", reset=True)
    project.assert_equal("o", "id, day, value")
    assert project.one("o")["status"] == "skipped"


@pytest.mark.long
def test_a_database_that_was_restored_under_another_name_goes_on(shop: Shop) -> None:
    """Otherwise a move to another server costs a load of everything, and a database with other rows may be taken for the same one."""
    project = shop(incremental=["o:id:integer"])
    project.execute(TABLE.format(t="o"), ROWS.format(t="o"))
    project.one("o")
    old, new = project.database, f"{project.database}_restored"
    project.execute(
        f"create database {new}", f"create table {new}.o like {old}.o", f"insert into {new}.o select * from {old}.o where id <> 5"
    )
    project.url = project.url.replace(f"/{old}", f"/{new}")
    record = adopted(project)["o"]
    assert record["status"] == "different" and "1 surplus (surplus 5)" in record["message"], record
    project.execute(f"insert into {new}.o select * from {old}.o where id = 5", f"insert into {new}.o values (51, '2026-06-01', 51)")
    assert adopted(project)["o"]["status"] == "adopted"
    line = project.one("o")
    assert line["status"] == "synced" and line["rows_read"] < 5, line
    assert project.one("o")["status"] == "skipped"


@pytest.mark.long
def test_statements_that_leave_the_rows_as_they_are_raise_no_alarm(shop: Shop) -> None:
    """OPTIMIZE and ALTER give a table another id and time, and its deleted rows are no sign of another table."""
    project = shop(incremental=["o:id:integer"])
    project.execute(TABLE.format(t="o"), ROWS.format(t="o"))
    project.one("o")
    for statement in ("optimize table o", "alter table o add more int", "alter table o modify value bigint", "delete from o where id = 5"):
        with project.session() as session, session.cursor() as cursor:
            cursor.execute(statement)
        line = project.one("o")
        assert line["status"] in ("synced", "skipped"), line
        assert line.get("rows_read", 0) < 5


@pytest.mark.long
def test_columns_that_swap_their_names_are_noticed(shop: Shop) -> None:
    """MariaDB has no numbers of columns: rows below the watermark would keep the other column's values."""
    project = shop(incremental=["o:id:integer"], when_recreated="adopt")
    project.execute("create table o (id int primary key, net int, gross int)", "insert into o select seq, 1, 2 from seq_1_to_50")
    project.one("o")
    project.execute("alter table o rename column net to gross, rename column gross to net", "insert into o values (51, 3, 4)")
    assert "rows below the watermark differ" in project.one("o")["message"]
    project.assert_equal("o", "id, net, gross")
