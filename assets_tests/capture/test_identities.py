"""``capture setup`` and ``capture drop`` beside an application that goes on writing.

Belongs here: that its statements work before, between and after both, and what is left of what others have made. Does not belong: the other
steps and checks (``test_setup``), and syncs (``test_capture``).
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psycopg
import pytest

from assets_tests.capture.test_capture import SLOT
from assets_tests.harness import Project, long, wait_for
from incremental_assets.core.errors import SyncError
from incremental_assets.operations import capture

MakeProject = Callable[..., Project]
KEYED = {"t": {"capture": "log", "primary_key": ["id"]}}
GENERATED = "create table t (id int primary key, n int, twice int generated always as (n * 2) {}); alter table t replica identity full"
TABLES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "deferrable key": ("create table t (id int primary key deferrable, n int)", KEYED),
    "no key": ("create table t (id int not null, n int)", KEYED),
    "identity of an index that is gone": (
        "create table t (id int primary key, n int not null); create unique index u on t (n); "
        "alter table t replica identity using index u; drop index u", KEYED,
    ),
    "a partition without key": (
        "create table t (id int not null, n int) partition by list (n); create table t1 partition of t for values in (1)", KEYED,
    ),
    "unlogged": ("create unlogged table t (id int primary key, n int)", KEYED),
    "nobody said whose rows": ("create table t (id int primary key, n int); create table kid () inherits (t)", KEYED),
    "generated": (GENERATED.format("stored"), KEYED),
}  # fmt: skip


def steps(shop: Project) -> dict[str, dict[str, Any]]:
    return {step["step"]: step for step in capture.set_up(capture.captured(shop.catalog()))}


def dropped(shop: Project) -> dict[str, dict[str, Any]]:
    return {step["step"]: step for step in capture.drop(capture.captured(shop.catalog())[0])}


def writes(shop: Project, table: str = "t") -> None:
    """What the application does all the time."""
    shop.execute(f"insert into {table} (id, n) values (1, 1); update {table} set n = 1 where id = 1; delete from {table} where id = 1")


def published(shop: Project, publication: str = SLOT) -> list[str]:
    query = "select tablename::text from pg_publication_tables where pubname = %s order by 1"
    return [row[0] for row in shop.source.execute(query, [publication])]


@pytest.mark.parametrize("which", ["deferrable key", *long(*(one for one in TABLES if one != "deferrable key"))])
def test_a_table_without_a_working_identity_does_not_enter_the_publication(project: MakeProject, which: str) -> None:
    """PostgreSQL refuses all updates and deletes of a published table whose rows it cannot name in the log."""
    made, containers = TABLES[which]
    shop = project(containers={**containers, "good": {"capture": "log"}})
    shop.execute(f"{made}; create table good (id int primary key, n int)")
    writes(shop)
    found = steps(shop)
    writes(shop)
    assert published(shop) == ["good"], found
    needed = [step for step in found.values() if step["status"] == "needed"]
    assert len(needed) == 1 and "t" in needed[0]["step"], found
    lines = shop.sync()
    assert lines["t"]["status"] == "failed" and lines["good"]["status"] == "synced", lines
    if needed[0]["sql"] is not None:
        shop.execute(needed[0]["sql"])
        assert not [step for step in steps(shop).values() if step["status"] == "needed"]
        writes(shop)
        assert shop.one("t")["status"] == "synced"
    dropped(shop)
    writes(shop)


def test_drop_takes_out_only_what_setup_put_in(project: MakeProject) -> None:
    """A publication and a slot that others have made are read by others."""
    shop = project(capture_slot="theirs", containers={"t": {"capture": "log"}})
    shop.execute("""create table t (id int primary key, n int); create table u (id int primary key); create publication theirs for table u;
        comment on publication theirs is 'of the search index'""")
    found = steps(shop)
    assert (found["publication"]["status"], published(shop, "theirs")) == ("needed", ["u"]), found
    shop.execute(found["publication"]["sql"])
    assert steps(shop)["publication"]["status"] == "there" and shop.one("t")["status"] == "synced"
    gone = dropped(shop)
    assert published(shop, "theirs") == ["t", "u"] and gone["publication"]["status"] == "there"
    assert gone["slot"]["status"] == "needed" and "pg_drop_replication_slot" in gone["slot"]["sql"]
    shop.execute("drop publication theirs")
    assert steps(shop)["slot"]["status"] == "needed", "a slot from before the publication has to go, and may be read by others"
    shop.execute(gone["slot"]["sql"])
    assert {step["status"] for step in steps(shop).values()} == {"there", "done"}
    assert {name: step["status"] for name, step in dropped(shop).items()} == {"publication": "done", "slot": "done"}


def test_what_broke_the_application_can_be_dropped_whatever_the_yaml_says_now(project: MakeProject) -> None:
    """The first remedy of many is to take capture out of the YAML, which alone helps nobody; and somebody may be reading the slot."""
    shop = project(capture="log")
    shop.execute("create table t (id int primary key, n int)")
    steps(shop)
    shop.execute("alter table t drop constraint t_pkey")
    with pytest.raises(psycopg.Error, match="replica identity"):
        writes(shop)
    shop.configure(capture="none")
    with as_walsender(shop):
        with pytest.raises(SyncError, match="is active"):
            list(capture.drop(capture.droppable(shop.catalog())[0]))
        writes(shop)
    assert [step["step"] for step in capture.drop(capture.droppable(shop.catalog())[0])] == ["slot"]
    assert capture.droppable(shop.catalog()) and not shop.source.execute("select from pg_replication_slots").rowcount


@pytest.mark.long
def test_setup_names_published_tables_that_break_and_that_nobody_follows(project: MakeProject) -> None:
    """Earlier versions have added the tables that inherit from a captured one, and the application cannot write to them since."""
    shop = project(containers={"t": {"capture": "log", "inherited": "only"}})
    shop.execute(f"create table t (id int primary key, n int); create table kid () inherits (t); create publication {SLOT} for table t")
    found = steps(shop)
    assert found["replica identity of kid"]["status"] == "needed", found
    shop.execute(found["replica identity of kid"]["sql"])
    writes(shop, "kid")
    assert published(shop) == ["t"] and {step["status"] for step in steps(shop).values()} == {"there"}
    shop.execute("insert into t values (1, 1), (2, 2); insert into kid values (1, 3)")
    shop.one("t")
    shop.execute("update t set n = n + 1; insert into kid values (7, 7); delete from only t where id = 2")
    line = shop.one("t")
    assert shop.rows("t", "id, n") == [(1, 2)] and (line["rows_updated"], line["rows_deleted"]) == (1, 1)


@contextlib.contextmanager
def as_walsender(shop: Project) -> Iterator[None]:
    """Somebody who reads the slot."""
    reader = psycopg.pq.PGconn.connect(f"{shop.url}?replication=database".encode())
    try:
        reader.exec_(f"START_REPLICATION SLOT {SLOT} LOGICAL 0/0 (proto_version '1', publication_names '{SLOT}')".encode())
        query = "select active from pg_replication_slots where slot_name = %s"
        wait_for(lambda: shop.source.execute(query, [SLOT]).fetchone() == (True,), "the slot is read")
        yield
    finally:
        reader.finish()
        wait_for(lambda: shop.source.execute(query, [SLOT]).fetchone() != (True,), "the slot is free")
