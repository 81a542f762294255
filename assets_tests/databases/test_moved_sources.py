"""``adopt`` where the source is another one than before: a server with another address, a restored dump, ``pg_upgrade``, a table that was
made anew. Tables go on if their rows are the source's, and stay as they are if not.

Belongs here: PostgreSQL. Does not belong: datastores that were renamed (``test_adopt``), and what a sync does about a table that was made
anew by itself (``test_recreated``).
"""

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from assets_tests.harness import Project, Workspace
from incremental_assets.delta.table import Head
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.operations.adopt import adopt_lines

MakeProject = Callable[..., Project]
Records = Mapping[str, Mapping[str, Any]]
TABLES = """
create table appended (id int primary key, day date, note text);
insert into appended select i, date '2026-01-01' + i, 'a' from generate_series(1, 100) i;
create table merged (id int primary key, note text, at timestamptz);
insert into merged select i, 'a', timestamptz '2026-01-01 00:00Z' + i * interval '1 hour' from generate_series(1, 500) i;
create table whole (id int primary key, note text);
insert into whole select i, 'a' from generate_series(1, 50) i;
"""
INCREMENTAL = ["public.appended:day:date", "public.merged:at:timestamp!upsert"]
CONTAINERS = {"appended": {"partition_by": "month"}, "merged": {"partition_by": "month"}}
NAMES = ("appended", "merged", "whole")


def loaded(project: MakeProject, tables: str = TABLES, **attributes: Any) -> Project:
    shop = project(incremental=INCREMENTAL, containers=CONTAINERS, **attributes)
    shop.execute(tables)
    assert {line["status"] for line in shop.sync().values()} == {"synced"}
    return shop


def adopted(shop: Workspace, *names: str) -> Records:
    """What `adopt shop`, or `adopt shop/NAME …`, says, by the container's name."""
    chosen = [one for one in shop.catalog() if not names or one.table.name in names]
    with shop.instance() as instance:
        return {line["container"].partition("/")[2]: line for line in adopt_lines(None, chosen, instance, lambda _: None)}


def statuses(records: Records) -> dict[str, str]:
    return {name: str(record["status"]) for name, record in records.items()}


def heads(shop: Project) -> dict[str, Head | None]:
    return {name: shop.table(name).head() for name in NAMES}


def restored(server: EmbeddedPostgres, url: str, name: str, to: EmbeddedPostgres | None = None) -> str:
    """A dump of the database, restored into a new one of this server or another. Returns its URL."""
    target, binaries = (to or server).create_database(name, drop=True), server.home.binaries
    dump = subprocess.run([binaries / "pg_dump", url], capture_output=True, check=True)
    subprocess.run([binaries / "psql", "--quiet", "-v", "ON_ERROR_STOP=1", target], input=dump.stdout, capture_output=True, check=True)
    return target


def upgrade(old: EmbeddedPostgres, new: EmbeddedPostgres) -> None:
    """Moves the databases of a server into another one by pg_upgrade. Both must have been started once, and are stopped."""
    account, binaries = new.home.account, new.home.binaries
    folder = new.home.data.parent / "upgrade"
    folder.mkdir()
    for one in (old, new):
        (one.home.data / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
    account.owns(folder)
    done = subprocess.run(
        [binaries / "pg_upgrade", "-b", binaries, "-B", binaries, "-d", old.home.data, "-D", new.home.data, "-U", "postgres", "-s", folder],
        cwd=folder,
        user=account.uid if account.is_other else None,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def moved(shop: Project, url: str) -> None:
    """The datastore has this URL from now on."""
    shop.source.close()
    shop.url, shop.source = url, psycopg.connect(url, autocommit=True)


def assert_goes_on(shop: Project) -> None:
    """New and changed rows arrive by syncs that read little."""
    shop.execute("""insert into appended values (101, '2026-06-01', 'new'); insert into whole values (51, 'new');
        update merged set note = 'changed', at = '2026-06-01 00:00Z' where id in (3, 400)""")
    lines = shop.sync()
    assert {line["status"] for line in lines.values()} == {"synced"}, lines
    assert lines["appended"]["rows_read"] < 10 and lines["merged"]["rows_read"] < 10, lines
    for name in NAMES:
        shop.assert_equal(name)
    assert {line["status"] for line in shop.sync().values()} == {"skipped"}


def test_another_address_of_the_same_database_needs_nothing(project: MakeProject) -> None:
    """A host that gets another name must cost nothing, and the command must say that there was nothing to prove."""
    shop = loaded(project)
    before = heads(shop)
    assert "@127.0.0.1:" in shop.url
    moved(shop, shop.url.replace("@127.0.0.1:", "@localhost:"))
    assert {line["status"] for line in shop.sync().values()} == {"skipped"}
    assert statuses(adopted(shop)) == dict.fromkeys(NAMES, "there")
    assert heads(shop) == before


def test_a_restored_dump_goes_on_at_its_watermark(project: MakeProject, postgres: EmbeddedPostgres) -> None:
    """After a dump and restore, or a move to another server, all tables would have to be loaded anew."""
    shop = loaded(project)
    moved(shop, restored(postgres, shop.url, "restored"))
    # The application is at work on the new database before anybody adopts the tables.
    shop.execute("""insert into appended values (0, '2026-05-20', 'early'); update merged set note = 'b', at = '2026-05-20 00:00Z'
        where id = 7""")
    refused = shop.sync()
    assert {line["status"] for line in refused.values()} == {"failed"}
    for name in NAMES:
        assert f"incremental-assets adopt shop/{name}" in refused[name]["message"]
    records = adopted(shop)
    assert statuses(records) == dict.fromkeys(NAMES, "adopted"), records
    assert "another database" in records["appended"]["message"] and "rows were compared, and are equal" in records["appended"]["message"]
    assert_goes_on(shop)
    assert statuses(adopted(shop)) == dict.fromkeys(NAMES, "there")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("update {0} set note = 'other' where id = 5", "stale 5"),
        ("delete from {0} where id = 5", "surplus 5"),
        ("insert into {0} (select (jsonb_populate_record(t, '{{\"id\": -1}}')).* from {0} t where id = 5)", "missing -1"),
    ],
)
def test_a_database_with_other_rows_is_named_and_nothing_is_changed(
    project: MakeProject, postgres: EmbeddedPostgres, change: str, said: str
) -> None:
    """A backup that is too old, or the wrong database, would go on below the watermark with rows that nobody has."""
    shop = loaded(project)
    before = heads(shop)
    moved(shop, restored(postgres, shop.url, "others"))
    for name in NAMES:
        shop.execute(change.format(name))
    records = adopted(shop)
    for name in NAMES:
        assert records[name]["status"] == "different", records
        assert f"1 {said.partition(' ')[0]} ({said})" in records[name]["message"], records[name]
        assert f"sync shop/{name} --reset-watermarks" in records[name]["message"]
    assert heads(shop) == before
    assert {line["status"] for line in shop.sync().values()} == {"failed"}


def test_an_empty_database_is_not_taken_for_the_source(project: MakeProject) -> None:
    """Where no row lies below what the next sync reads, nothing would be proved, and the next sync would take the few rows away."""
    shop = project(incremental=["public.t:id:integer"], containers={"t": {"safety_lag": 1000}})
    shop.execute("create table t (id int primary key); insert into t select generate_series(1, 20)")
    shop.one("t")
    shop.execute("drop table t; create table t (id int primary key)")
    record = adopted(shop, "t")["t"]
    assert record["status"] == "different" and "20 surplus" in record["message"], record
    shop.execute("insert into t select generate_series(1, 20)")
    assert statuses(adopted(shop, "t")) == {"t": "adopted"}
    shop.execute("insert into t values (21)")
    shop.one("t")
    shop.assert_equal("t")


def test_a_table_that_was_made_anew_goes_on_where_its_syncs_refuse_it(project: MakeProject) -> None:
    """Somebody restores one table, and its syncs fail until it is loaded anew, though its rows are the same."""
    shop = loaded(project)
    shop.execute("create table again as table appended; drop table appended; alter table again rename to appended")
    shop.execute("alter table appended add primary key (id)")
    assert "incremental-assets adopt shop/appended" in shop.one("appended", ok=False)["message"]
    assert statuses(adopted(shop, "appended")) == {"appended": "adopted"}
    assert_goes_on(shop)


@pytest.mark.long
def test_the_command_says_what_differs_by_its_exit_code(project: MakeProject, postgres: EmbeddedPostgres) -> None:
    """A script that moves a source has to stop where tables are not the source's."""
    shop = loaded(project)
    moved(shop, restored(postgres, shop.url, "by_command"))
    shop.write()
    _, lines, _ = shop.cli("adopt", "shop/appended", "--json", spark=False)
    assert [(line["container"], line["status"]) for line in lines] == [("shop/appended", "adopted")]
    shop.execute("update merged set note = 'other' where id = 5")
    _, lines, _ = shop.cli("adopt", "shop", "--json", spark=False, check=1)
    found = {line["container"]: line["status"] for line in lines}
    assert found == {"shop/appended": "there", "shop/merged": "different", "shop/whole": "adopted"}


@pytest.mark.long
def test_another_server_after_a_restore_goes_on(project: MakeProject, postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    """Another server has another identity and numbers its transactions and its log anew: nothing of the old ones may count."""
    shop = loaded(project)
    with EmbeddedPostgres(tmp_path / "other") as other:
        moved(shop, restored(postgres, shop.url, "shop", other))
        assert statuses(adopted(shop)) == dict.fromkeys(NAMES, "adopted")
        assert_goes_on(shop)
        shop.source.close()


@pytest.mark.long
def test_a_server_after_pg_upgrade_goes_on(tmp_path: Path, spark_home: Path) -> None:
    """pg_upgrade keeps the files and gives the server another identity, so that each major version would cost a load of everything."""
    old, new = EmbeddedPostgres(tmp_path / "old"), EmbeddedPostgres(tmp_path / "new")
    try:
        old.start()
        new.folder.mkdir(mode=0o711)
        shutil.copy(old.folder / "password", new.folder)
        shop = Project(tmp_path / "project", old.create_database("shop"), spark_home, incremental=INCREMENTAL, containers=CONTAINERS)
        shop.execute(TABLES)
        assert {line["status"] for line in shop.sync().values()} == {"synced"}
        shop.source.close()
        new.start()
        new.stop()
        old.stop()
        upgrade(old, new)
        new.start()
        moved(shop, new.url("shop"))
        assert statuses(adopted(shop)) == dict.fromkeys(NAMES, "adopted")
        assert_goes_on(shop)
        shop.source.close()
    finally:
        old.remove()
        new.remove()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("alter table appended rename column note to remark", "note is gone, remark is new"),
        (
            "alter table appended alter column n type numeric(14, 4); update appended set n = 1.0120",
            "n was decimal(12,2) and is decimal(14,4)",
        ),
    ],
    ids=["a column with another name", "a type with more digits"],
)  # fmt: skip
def test_a_table_with_other_columns_is_not_taken_over(project: MakeProject, change: str, said: str) -> None:
    """A comparison sees the columns that both sides have, and of a value what the lake's type holds. Old rows would be NULL or rounded for
    ever, and the command would have called them equal."""
    shop = loaded(project, TABLES + "alter table appended add column n numeric(12, 2); update appended set n = 1.01;")
    before = shop.table("appended").head()
    shop.execute("create table other (like appended including all); insert into other select * from appended; drop table appended;")
    shop.execute(f"alter table other rename to appended; {change}")
    record = adopted(shop, "appended")["appended"]
    assert record["status"] == "different" and said in record["message"], record
    assert shop.table("appended").head() == before
    shop.configure(when_recreated="adopt")
    assert said in shop.one("appended")["message"]
    shop.assert_equal("appended")
