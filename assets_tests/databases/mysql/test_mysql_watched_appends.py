"""Whether append says that rows of MariaDB were updated or deleted which it does not read again, or else once that nobody tells of them.

Belongs here: the counters of a real MariaDB. Does not belong: their arithmetic (``databases/test_watched_appends``).
"""

import re
from collections.abc import Callable

from assets_tests.databases.mysql.project import MySQLProject
from assets_tests.databases.servers.sql import PLAIN_USER

Shop = Callable[..., MySQLProject]
UNTOLD = "rows that are updated or deleted below what append reads again are found by an audit alone: "


def filled(shop: Shop) -> MySQLProject:
    """A table whose last ten rows are read again with each sync."""
    made = shop(incremental=["t:id:integer"], containers={"t": {"safety_lag": 10, "partition_by": 50}})
    made.execute("create table t (id int primary key, value varchar(20))", "insert into t select seq, 'old' from seq_1_to_100")
    return made


def missed(project: MySQLProject) -> int:
    """How many rows the next sync says it has not met. It fails unless it warns where there are any, and only there."""
    line = project.one("t")
    found = re.search(r"up to (\d+) rows? of the source (?:was|were) updated or deleted below", line["message"])
    assert (line["status"] == "warning") == bool(found), line
    return 0 if found is None else int(found[1])


def test_changes_that_append_does_not_read_are_said_until_the_rows_are_mended(counting: Shop) -> None:
    """A renamed team would be *nothing to do* for ever, and its old name in the lake, without a word."""
    project = filled(counting)
    first = project.one("t")
    assert (first["status"], UNTOLD in first["message"]) == ("synced", False) and missed(project) == 0
    project.execute("update t set value = 'new' where id <= 3", "delete from t where id = 8")
    assert [missed(project), missed(project)] == [4, 4], "the server counts rows, and not statements"
    project.execute("update t set value = 'corrected' where id > 95", "insert into t values (101, 'old')")
    assert missed(project) == 4, "what the sync has read is not missed, and what it has not read is not forgotten"
    assert project.audit("t", repair=True)["t"]["status"] == "repaired" and project.audit("t")["t"]["status"] == "equal"
    assert missed(project) == 0
    project.assert_equal("t")


def test_counters_that_begin_anew_say_nothing_of_before_and_all_of_after(counting: Shop) -> None:
    """A restart of the server would otherwise hide as many changes as were counted before it, or invent some."""
    project = filled(counting)
    project.execute("update t set value = 'old' where id <= 50")
    project.one("t")
    project.execute("truncate table performance_schema.table_io_waits_summary_by_table", "update t set value = 'newer' where id = 9")
    assert missed(project) == 1
    project.source.close()
    project.server.stop()
    project.server.start()
    project.source = project.session()
    assert missed(project) == 0
    project.execute("update t set value = 'new' where id <= 60")
    assert missed(project) == 60, "more than were counted before the restart, of which nothing is taken off"


def test_a_user_who_may_not_read_the_counters_is_told_so_once(counting: Shop) -> None:
    """Said with each sync it would drown what matters, and not at all, nobody would know that nothing is watched."""
    project = filled(counting)
    project.execute(*project.sql.plain_user(project.database, "secret"))
    project.url = project.url_of(PLAIN_USER, "secret")
    first = project.one("t")
    assert f"{UNTOLD}this user may not read performance_schema." in first["message"] and first["status"] == "synced"
    project.execute("update t set value = 'new' where id <= 3", "insert into t values (101, 'old')")
    assert UNTOLD not in project.one("t")["message"] and UNTOLD not in project.one("t")["message"]
    project.execute(f"grant select on performance_schema.* to {PLAIN_USER}@'%'", "insert into t values (102, 'old')")
    project.one("t")
    project.execute("update t set value = 'newer' where id <= 3")
    assert missed(project) == 3, "from the next sync on that reads rows"


def test_a_server_that_does_not_count_is_said_once(shop: Shop) -> None:
    """MariaDB does not by default, and whoever chose append would believe that it is watched."""
    project = filled(shop)
    first = project.one("t")
    assert UNTOLD + "the server counts them only with performance_schema = ON" in first["message"] and first["status"] == "synced"
    project.execute("update t set value = 'new' where id <= 3", "insert into t values (101, 'old')")
    assert UNTOLD not in project.one("t")["message"] and missed(project) == 0
