"""Whatever a MariaDB server sets for all its sessions, syncs read the same rows.

Belongs here: each setting of MariaDB that a read depends on, at its worst. Does not belong: settings that change values
(``test_mysql_types``).
"""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from assets_tests.databases.mysql.project import MySQLProject
from incremental_assets.databases.mysql.settings import of_session

MakeProject = Callable[..., MySQLProject]
WORST = {
    "sql_select_limit": "100",
    "autocommit": "0",
    "max_join_size": "1",
    "sql_auto_is_null": "1",
    "completion_type": "'CHAIN'",
    "group_concat_max_len": "4",
    "max_sort_length": "64",
    "system_versioning_asof": "'2000-01-01 00:00:00'",
    "tx_read_only": "1",
    "tx_isolation": "'READ-UNCOMMITTED'",
    "lock_wait_timeout": "1",
    "wait_timeout": "1",
    "idle_transaction_timeout": "1",
    "idle_readonly_transaction_timeout": "1",
    "net_read_timeout": "1",
    "net_write_timeout": "1",
    "max_statement_time": "0.5",
    "time_zone": "'+05:00'",
    "sql_mode": "'ANSI_QUOTES,PAD_CHAR_TO_FULL_LENGTH'",
}


@contextlib.contextmanager
def server_sets(shop: MySQLProject, settings: dict[str, str]) -> Iterator[None]:
    """Lets the sessions that begin in the block have these settings. Those of this project's own session stay."""
    before = {name: shop.ask(f"select @@global.{name}")[0][0] for name in settings}
    try:
        shop.execute(*(f"set global {name} = {value}" for name, value in settings.items()))
        yield
    finally:
        for name, value in before.items():
            text = "default" if name == "system_versioning_asof" else repr(value) if isinstance(value, str) else value
            shop.execute(f"set global {name} = {text}")


@pytest.mark.parametrize("setting", ["all", *(pytest.param(name, marks=pytest.mark.long) for name in WORST)])
def test_all_rows_arrive_with_the_worst_settings(shop: MakeProject, setting: str) -> None:
    """With a limit of 100 rows, 100 of 2,000 were loaded; a sweep, under the same limit, agreed."""
    project = shop(incremental=["things:id:integer!upsert"], containers={"things": {"deletes": "sweep", "deletes_every": "1 second"}})
    project.execute(
        "create table things (id int auto_increment primary key, value varchar(200), at timestamp null) with system versioning",
        "insert into things (value, at) select concat(repeat('x', 100), seq), '2024-07-01 12:00:00' from seq_1_to_2000",
        "create view slow as select count(*) as id, sum(sleep(if(id = 1, 0.8, 0))) as slept from things",
    )
    with server_sets(project, WORST if setting == "all" else {setting: WORST[setting]}):
        assert project.one("things")["rows_read"] == 2000 and len(project.rows("things")) == 2000
        project.execute("delete from things where id > 1990")
        line = project.one("things", sweep=True)
        assert line["sweep"]["gone"] > 0 and len(project.rows("things")) == 1990, line
        project.one("slow")
        assert project.rows("slow", "id") == [(1990,)]
        assert project.audit("things")["things"]["status"] == "equal"


def test_each_session_has_the_settings_of_the_list(shop: MakeProject) -> None:
    """A setting that is forgotten is the server's again."""
    project = shop()
    project.execute("create table t (id int primary key)")
    address = project.definition("t").settings.address
    with server_sets(project, WORST):
        connection = address.connect(77)
        wanted = of_session(connection.is_mariadb, connection.version, 77)
        found = {name: connection.rows(f"select @@session.{name}")[0][0] for name in wanted}
        connection.close()
    for name, value in wanted.items():
        text = found[name] or ""
        assert text.lower() == value.strip("'").lower() or float(text) == float(value), name
