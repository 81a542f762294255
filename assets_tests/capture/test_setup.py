"""``capture setup|status|drop``: what is missing is made or printed, and what is wrong is said before anything is lost.

Belongs here: the command, and the checks of the source. Does not belong: syncs (``test_capture``).
"""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from assets_tests.capture.test_capture import SLOT, TABLE, set_up
from assets_tests.cli.test_json import documented
from assets_tests.harness import Project
from incremental_assets.core.errors import ConfigurationError, SourceError
from incremental_assets.databases.postgres.capture import setup
from incremental_assets.operations import capture

MakeProject = Callable[..., Project]


@pytest.fixture
def shop(project: MakeProject) -> Project:
    made = project(capture="log")
    made.execute(TABLE)
    return made


def steps(project: Project) -> dict[str, dict[str, Any]]:
    return {step["step"]: step for step in capture.set_up(capture.captured(project.catalog()))}


@pytest.mark.long
def test_the_command_sets_up_shows_and_drops(shop: Project) -> None:
    """Nobody would know the statements by heart, nor how much of its log the server keeps."""
    shop.write()
    _, lines, _ = shop.cli("capture", "setup", "--json", spark=False)
    assert {line["step"]: line["status"] for line in lines if line["step"] in ("publication", "slot")} == {
        "publication": "done",
        "slot": "done",
    }
    assert {*lines[0]} <= documented("capture")
    assert all(line["status"] == "there" for line in shop.cli("capture", "setup", "shop", "--json", spark=False)[1])
    assert shop.cli("sync", "--json")[1][0]["status"] == "synced"
    assert shop.cli("sync", "--json", spark=False)[1][0]["status"] == "skipped"
    shop.execute("update orders set note = 'x' where id < 4")
    slot, orders = shop.cli("capture", "status", "--json", spark=False)[1]
    assert {*slot} == {*orders} <= documented("capture")
    assert (slot["status"], orders["status"], orders["changes_waiting"]) == ("ok", "behind", 3)
    assert orders["lag_bytes"] > 0 and 0 <= orders["lag_seconds"] < 60
    (mark,) = shop.cli("watermarks", "--json", spark=False)[1]
    assert mark["lsn"] == orders["lsn"] and mark["lag_bytes"] > 0
    assert shop.cli("sync", "--json", spark=False)[1][0]["rows_updated"] == 3
    assert shop.cli("capture", "status", "--json", spark=False)[1][1]["status"] == "up to date"
    assert [line["status"] for line in shop.cli("capture", "drop", "shop", "--json", spark=False)[1]] == ["done", "done"]
    code, lines, _ = shop.cli("capture", "status", "--json", check=None)
    assert code == 1 and lines[0]["status"] == "missing" and "capture setup shop" in lines[0]["message"]
    assert shop.cli("capture", "drop", check=2)[0] == 2
    assert shop.cli("capture", "begin", check=2)[0] == 2


def test_a_role_that_may_not_is_told_the_sql(shop: Project) -> None:
    shop.execute("drop role if exists plain; create role plain login password 'plain'; grant select on orders to plain")
    address = shop.url.split("@")[1]
    shop.url = f"postgresql://plain:plain@{address}"
    found = steps(shop)
    assert found["role"]["sql"] == 'ALTER ROLE "plain" REPLICATION'
    assert found["publication"]["status"] == "needed" and found["publication"]["sql"].startswith(f'CREATE PUBLICATION "{SLOT}" FOR TABLE')
    shop.execute(found["publication"]["sql"])
    assert steps(shop)["slot"]["status"] == "needed"
    line = shop.one("orders", ok=False)
    assert line["status"] == "failed" and "capture setup shop" in line["message"], line
    shop.execute("drop owned by plain; drop role plain")


def test_a_table_that_comes_later_is_added(shop: Project) -> None:
    steps(shop)
    shop.execute("create table later (id int primary key)")
    found = steps(shop)
    assert found["publication"]["sql"] == f'ALTER PUBLICATION "{SLOT}" ADD TABLE "public"."later"'
    assert {line["status"] for line in shop.sync().values()} == {"synced"}


def test_the_creation_of_a_slot_names_whom_it_waits_for(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "CREATE_SECONDS", 1)
    with psycopg.connect(shop.url, application_name="a long import") as writer:
        writer.execute("update orders set note = 'x' where id = 1")
        with pytest.raises(SourceError, match=rf"pid {writer.info.backend_pid} \(user postgres, application a long import"):
            steps(shop)
    assert steps(shop)["slot"]["status"] == "done"


WRONG = {
    "alter table orders replica identity nothing": "REPLICA IDENTITY FULL",
    f"alter publication {SLOT} set (publish = 'insert')": "leaves out some kinds of changes",
    f"alter publication {SLOT} set table orders where (id > 5)": "leaves out rows or columns",
    f"alter publication {SLOT} set table orders (id, note)": "leaves out rows or columns",
    f"drop publication {SLOT}": "there is no publication",
}


@pytest.mark.parametrize("statement", WRONG)
def test_what_would_lose_changes_is_refused_before_anything_is_written(shop: Project, statement: str) -> None:
    set_up(shop, "orders")
    shop.one("orders")
    shop.execute(statement)
    line = shop.one("orders", ok=False)
    assert line["status"] == "failed" and WRONG[statement] in line["message"], line


def test_a_container_that_cannot_be_captured_is_refused_where_it_is_named(project: MakeProject) -> None:
    made = project(capture="log", containers={"plain": {}})
    made.execute("create table plain (a int); create view seen as select 1 as a; create table keyed (id int primary key)")
    assert {one.table.name: one.container.is_captured for one in made.catalog()} == {"plain": False, "seen": False, "keyed": True}
    made.configure(containers={"plain": {"capture": "log"}})
    with pytest.raises(ConfigurationError, match="shop/plain: capture: log needs a primary key"):
        made.catalog()
    made.configure(containers={"seen": {"capture": "log"}})
    with pytest.raises(ConfigurationError, match="this is a view"):
        made.catalog()
    made.configure(containers={"keyed": {"deletes": "soft"}})
    with pytest.raises(ConfigurationError, match="capture: log finds deleted rows by itself"):
        made.catalog()
    made.configure(containers={"keyed": {"capture": "none"}})
    assert not any(one.container.is_captured for one in made.catalog())


@pytest.mark.long
def test_capture_by_another_key_than_the_primary_one_needs_its_identity(project: MakeProject) -> None:
    made = project(containers={"t": {"capture": "log", "primary_key": ["code"]}})
    made.execute("create table t (id int primary key, code text not null unique, n int); insert into t values (1, 'a', 1), (2, 'b', 2)")
    set_up(made, "t")
    assert "REPLICA IDENTITY" in made.one("t", ok=False)["message"]
    made.execute("alter table t replica identity using index t_code_key")
    made.one("t")
    made.execute("update t set code = 'c' where id = 1; delete from t where id = 2")
    assert made.one("t")["rows_deleted"] == 2
    made.assert_equal("t")
