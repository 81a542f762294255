"""Changes of the source's columns and of the YAML: the lake follows them, or the sync says why it cannot.

Belongs here: such changes between two syncs. Does not belong: which changes of types are possible (``test_model_schema``).
"""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from assets_tests.harness import Project, long
from incremental_assets.core.plan import Mode
from incremental_assets.delta.scope import LakeScope
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.runs.records.watermarks import history
from incremental_assets.spark.session import open_session

MakeProject = Callable[..., Project]
BY_MONTH = {"partition_by": "month"}


def runs(project: Project, name: str) -> list[str]:
    """The ids of the runs in the container's history of watermarks, oldest first."""
    with project.instance() as instance:
        return [str(line["run_id"]) for line in history(instance, project.definition(name).container)][::-1]


@pytest.mark.parametrize("deletes", ["sweep", *long("soft")])
def test_columns_that_come_and_a_load_anew_need_no_spark(project: MakeProject, monkeypatch: pytest.MonkeyPatch, deletes: str) -> None:
    """A sync of a small table would take half a minute where no server is running. Spark must read the result as delta-rs does."""
    shop = project(incremental=["public.orders:at:timestamp!upsert"], containers={"orders": {"deletes": deletes}})
    shop.execute("create table orders (id int primary key, at timestamptz default clock_timestamp(), v text)")
    shop.execute("insert into orders (id, v) select i, 'v' || i from generate_series(1, 50) i")
    shop.one("orders")
    shop.execute("update orders set v = 'changed', at = clock_timestamp() where id < 20")
    shop.one("orders")
    with monkeypatch.context() as patched:

        def spark(self: LakeScope) -> None:
            raise AssertionError("a Spark session was opened")

        patched.setattr(LakeScope, "spark", property(spark))
        shop.execute("alter table orders add price numeric(20,3), add note text; update orders set price = id, at = clock_timestamp()")
        line = shop.one("orders")
        assert "column price (decimal(20,3)) was added" in line["message"], line
        shop.assert_equal("orders")
        shop.execute("alter table orders drop note; update orders set v = 'again', at = clock_timestamp() where id = 3; ")
        shop.execute("delete from orders where id in (4, 5)")
        shop.one("orders", sweep=True)
        shop.one("orders")
        kept = "_deleted_at is null" if deletes == "soft" else "true"
        assert len(shop.rows("orders", where=kept)) == 48 and shop.rows("orders", "v, note", "id = 3") == [("again", None)]
        shop.execute("alter table orders drop v, alter price type text, add note text; delete from orders where id = 1")
        assert shop.one("orders", reset=True)["rows_read"] == 47
        shop.execute("insert into orders (id, note) values (77, 'after')")
        shop.one("orders")
        shop.assert_equal("orders")
    with open_session(shop.spark_home, name="test") as spark_session:
        found = spark_session.sql(f"select id, price, note from {shop.table('orders').sql_name}").collect()
    assert sorted(map(tuple, found)) == sorted(shop.rows("orders", "id, price, note"))


@pytest.mark.long
def test_columns_are_added_widened_and_dropped(project: MakeProject) -> None:
    """A column that was added must arrive, one that was widened must neither fail nor be cut, and one that was dropped must be NULL in rows
    that changed since."""
    made = project(incremental=["public.appended:day:date", "public.upserted:day:date!upsert"],
                   containers={"appended": BY_MONTH, "upserted": BY_MONTH})  # fmt: skip
    names = ("appended", "upserted", "whole")
    for name in names:
        made.execute(
            f"""create table {name} (id int primary key, day date, small smallint, n int,
               r real, price numeric(10,2), v varchar(5), gone text);
            insert into {name} select i, date '2024-11-01' + i % 3, 1, 2, 0.5, 99999999.99, 'short', 'gone' from generate_series(1, 9) i"""
        )
    assert {line["status"] for line in made.sync().values()} == {"synced"}
    for name in names:
        made.execute(
            f"""alter table {name} add note text, add flag int default 7, alter small type int, alter n type bigint,
              alter r type double precision, alter price type numeric(12,2), alter v type varchar(50), drop gone;
            insert into {name} values (100, '2024-11-03', 2147483647, 9223372036854775807, 0.1, 9999999999.99, 'a longer text', 'new');
            update {name} set note = 'late' where id = 5"""
        )
    lines = made.sync()
    for name, line in lines.items():
        message = line["message"]
        assert line["status"] == ("synced" if name == "whole" else "warning"), message
        assert "column note (string) was added" in message and "no longer in the source, NULL from now on: gone" in message
        assert "column n was widened from int to bigint" in message
        assert "column price was widened from decimal(10,2) to decimal(12,2)" in message
        assert "type widening" in message  # readers that do not know type widening, such as delta-rs, can no longer read the table
        assert "column flag (int) was added" in message
        assert ("refresh needed: older rows of partition 2024-11-01 lack values of flag" in message) == (name != "whole"), message
    with open_session(made.spark_home, name="test") as spark:

        def lake(name: str, query: str) -> list[Any]:
            return [tuple(row) for row in spark.sql(query.format(t=made.table(name).sql_name)).collect()]

        made.assert_equal("whole", spark=spark)
        for name in ("appended", "upserted"):
            # Rows of the watermark's day were read again and have all values; older rows need the refresh.
            assert lake(name, "select distinct flag, gone from {t} where day < '2024-11-03'") == [(None, "gone")]
            assert lake(name, "select distinct flag, gone from {t} where day = '2024-11-03'") == [(7, None)]
            assert lake(name, "select note from {t} where id in (5, 100) order by id") == [("late",), ("new",)]
            made.one(name, mode=Mode.REFRESH)
            made.assert_equal(name, spark=spark)
        made.execute("alter table appended alter n type int using 1; insert into appended values (101, '2024-11-04', 1, 1)")
        narrowed = made.one("appended")  # the lake's column stays wide and holds the values
        assert narrowed["status"] == "synced" and narrowed["rows_inserted"] == 1
        assert lake("appended", "select id, small, n from {t} where day > '2024-11-03'") == [(101, 1, 1)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("alter price type text", "column 'price' is decimal(10,2) in the lake and string in the source"),
        *long(("alter price type numeric(11,4)", "column 'price' is decimal(10,2) in the lake and decimal(11,4) in the source")),
    ],
)
def test_an_incompatible_change_fails_before_anything_is_written(project: MakeProject, change: str, words: str) -> None:
    """Values must not be rounded or set to NULL to fit the old column, and a refused sync must not have changed other columns before."""
    made = project(incremental=["public.t:at:timestamp"], containers={"t": BY_MONTH})
    made.execute("create table t (id int, at timestamp, price numeric(10,2)); insert into t values (1, '2024-11-01 10:00', 1.10)")
    made.one("t")
    before = made.table("t").head()
    made.execute(f"alter table t add new text, {change}; insert into t values (2, '2024-11-02 10:00')")
    refused = made.one("t", ok=False)
    assert refused["status"] == "failed" and words in refused["message"], refused["message"]
    assert "nothing was written" in refused["message"] and "incremental-assets sync shop/t --reset-watermarks" in refused["message"]
    assert made.table("t").head() == before
    earlier = runs(made, "t")
    assert made.one("t", reset=True)["rows_read"] == 2
    made.assert_equal("t")
    assert runs(made, "t")[: len(earlier)] == earlier  # the history stays, in the event log and in the table
    assert len(made.rows("t")) == 2 and made.table("t").commits(100)[-1].version == 0


@pytest.mark.long
def test_a_changed_identifier_strategy_key_or_source_is_refused_until_a_load_anew(project: MakeProject, postgres: EmbeddedPostgres) -> None:
    """After a change of identifier, strategy, key, start or database, the old watermark says nothing, and a sync from it would miss
    rows."""
    made = project(incremental=["public.t:created:date"], containers={"t": BY_MONTH})
    table = """create table t (id int primary key, code int unique not null, created date, updated date, seq int);
        insert into t select i, -i, date '2024-10-01' + i, date '2024-11-01' + i % 7, i from generate_series(1, 20) i"""
    made.execute(table)
    made.one("t")
    other = postgres.create_database("another_shop", drop=True)
    with psycopg.connect(other, autocommit=True) as connection:
        connection.execute(table)
        connection.execute("update t set seq = seq + 1000")
    steps: list[tuple[str, dict[str, Any]]] = [
        ("its identifier was created:date:day and is updated:date:day", {"incremental": ["public.t:updated:date"]}),
        ("its strategy was append and is upsert", {"incremental": ["public.t:updated:date!upsert"]}),
        ("its key was id and is code", {"containers": {"t": {**BY_MONTH, "primary_key": ["code"]}}}),
        ("its start value was None and is 2024-11-03", {"incremental": ["public.t:updated:date@2024-11-03!upsert"]}),
        ("the table was filled from another database", {"url": other}),
        ("its identifier was updated:date:day and is seq:integer:integer", {"incremental": ["public.t:seq:integer"], "containers": {}}),
        ("its identifier was seq:integer:integer and is none", {"incremental": []}),
    ]
    done = runs(made, "t")
    for words, change in steps:
        if "url" in change:
            made.url = change.pop("url")
        made.configure(**change)
        before = made.table("t").head()
        refused = made.one("t", ok=False)
        assert refused["status"] == "failed" and words in refused["message"], refused["message"]
        assert "nothing was written" in refused["message"] and "incremental-assets sync shop/t --reset-watermarks" in refused["message"]
        assert made.table("t").head() == before
        where = "updated >= '2024-11-03'" if "@" in str(made.attributes["incremental"]) else "true"
        healed = made.one("t", reset=True)
        made.assert_equal("t", where=where)
        done.append(healed["run_id"])
        assert runs(made, "t") == done
        again = made.one("t")
        assert again["status"] == "skipped", again["message"]
    with psycopg.connect(made.url, autocommit=True):
        assert sorted(row[0] for row in made.rows("t", "seq"))[0] == 1001  # the other database's rows, and only those


@pytest.mark.parametrize(("by", "partition", "partitions"), [("at", "2026-02-01", 2), ("id", "0", 3)])
def test_the_first_identifier_of_a_table_that_was_synced_whole_needs_no_flag(
    project: MakeProject, by: str, partition: str, partitions: int
) -> None:
    """Whoever lets a proposed identifier follow on a first sync would read that lake and source no longer fit together. What was deleted
    before must be gone, and the asset, which had no partitions, must have those of all its rows."""
    made = project()
    made.execute("create table t (id int primary key, at timestamptz not null, v text)")
    made.execute("insert into t select i, timestamptz '2026-01-31' + i * interval '1 day', 'v' from generate_series(1, 9) i")
    assert made.one("t")["strategy"] == "snapshot"
    made.execute("delete from t where id = 2; update t set v = 'new' where id = 3; insert into t values (10, '2026-03-01', 'v')")
    entry = {"table": "public.t", "column": "at", "type": "timestamp", "strategy": "upsert"}
    entry |= {"partition_by": {"column": "id", "every": 4}} if by == "id" else {}
    made.configure(incremental=[entry], containers={} if by == "id" else {"t": BY_MONTH})
    if by == "at":  # by numbers there are no partitions yet of which a refresh could be asked
        before = made.table("t").head()
        refused = made.one("t", ok=False, keys=(partition, partition))
        assert (refused["status"], "the next sync loads all of it" in refused["message"]) == ("failed", True), refused["message"]
        assert made.table("t").head() == before
    synced = made.one("t")
    assert "it was synced whole until now, and its identifier at is new" in synced["message"], synced["message"]
    assert (synced["status"], synced["rows_read"], synced["watermark"]["new"]) == ("synced", 9, "2026-03-01T00:00:00Z"), synced
    assert len(synced["partitions"]) == partitions, synced
    made.assert_equal("t")
    assert made.one("t")["status"] == "skipped"
    assert made.one("t", keys=(partition, partition))["status"] == "synced"


def test_a_source_that_lost_its_rows_does_not_empty_the_lake_by_a_first_identifier(project: MakeProject) -> None:
    """A table that was emptied by accident must not take the lake's rows with it because the YAML was changed at the same time."""
    made = project()
    made.execute("create table t (id int primary key); insert into t values (1), (2)")
    made.one("t")
    made.execute("delete from t")
    made.configure(incremental=["public.t:id:integer!upsert"])
    refused = made.one("t", ok=False)
    assert (refused["status"], "--allow-empty" in refused["message"]) == ("failed", True), refused["message"]
    assert sorted(made.rows("t")) == [(1,), (2,)]
    assert made.one("t", allow_empty=True)["status"] == "synced" and made.rows("t") == []


@pytest.mark.long
def test_a_time_without_time_zone_is_added_to_a_table_that_had_none(project: MakeProject) -> None:
    """Delta switches this feature on by itself for new tables only; the container could not be synced any more."""
    made = project(incremental=["public.added:id:integer", "public.widened:id:integer"])
    made.execute("create table added (id int primary key); create table widened (id int primary key, at date)")
    made.execute("insert into added values (1); insert into widened values (1, '2026-01-01')")
    made.sync()
    made.execute("alter table added add column at timestamp; alter table widened alter at type timestamp")
    made.execute("insert into added values (2, '2026-02-01 01:02:03'); insert into widened values (2, '2026-02-01 01:02:03')")
    for name in ("added", "widened"):
        made.one(name)
        head = made.table(name).head()
        assert head is not None and head.columns[1].type == "timestamp_ntz"
    made.assert_equal("added")
