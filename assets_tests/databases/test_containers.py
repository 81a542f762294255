"""Each kind of table and view, and each option of a container, is synced and compared with its source.

Belongs here: the options of ``containers:`` and the kinds of tables. Does not belong: types and names (``test_types``), changes of the
YAML (``test_schema_changes``), and wrong values (``test_bad_input``).
"""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from assets_tests.harness import Project
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.plan import Mode
from incremental_assets.runs.partitioning import dagster_partitions

MakeProject = Callable[..., Project]
BY_MONTH = {"partition_by": "month"}


@pytest.mark.long
def test_rows_below_the_start_and_rows_dated_far_away_are_where_they_belong(project: MakeProject) -> None:
    """A refresh must not bring rows below ``@start``; rows dated in the future or long ago must arrive and must not keep later rows out."""
    made = project(
        incremental=["public.s:day:date@2024-10-10", "public.n:id:integer@100", "public.w:at:timestamp"],
        containers={"s": BY_MONTH, "n": {"partition_by": 100}, "w": BY_MONTH},
    )
    made.execute("""create table s (id int, day date);
        insert into s values (1, '2024-10-09'), (2, '2024-10-10'), (3, '2024-11-20'), (4, null);
        create table n (id int); insert into n select generate_series(90, 330, 10);
        create table w (id int, at timestamptz); insert into w values (1, '2024-10-10'), (2, '2024-11-20')""")
    first = made.sync()
    assert first["s"]["partitions"] == ["2024-10-01", "2024-11-01"]
    assert first["n"]["partitions"] == ["100", "200", "300"]
    later = "day >= '2024-10-10' or day is null"
    made.assert_equal("s", where=later)
    made.assert_equal("n", where="id >= 100")
    # Rows of the far future and the far past, and an older row that only a refresh of its window, or of the first window, can find.
    made.execute("""insert into s values (5, '2024-11-20'), (6, current_date + 400), (7, '9999-12-31'), (8, '2024-10-01');
        insert into n values (331), (50);
        insert into w values (3, '2024-11-20'), (4, now() + interval '400 days'), (5, '1815-06-18'), (6, '12345-01-01')""")
    lines = made.sync()
    row = made.source.execute("select current_date").fetchone()
    assert row is not None
    assert lines["s"]["watermark"]["new"] == str(row[0])  # not beyond today, as rows of tomorrow must not lie below the watermark
    assert lines["w"]["watermark"]["new"][:10] == str(row[0])
    made.assert_equal("s", where=later)
    made.assert_equal("n", where="id >= 100")
    made.assert_equal("w", where="id <> 5")
    partitions = dagster_partitions(made.definition("w").container)
    first_key = partitions.get_first_partition_key() if partitions else None  # its window has no lower bound
    assert first_key is not None and made.one("w", keys=(first_key, first_key))["rows_inserted"] == 1
    made.assert_equal("w")
    made.execute("insert into s values (9, current_date); insert into w values (7, now())")
    assert made.one("s")["rows_inserted"] == made.one("w")["rows_inserted"] == 1
    made.one("s", mode=Mode.REFRESH)
    made.assert_equal("s", where=later)
    made.one("n", reset=True)
    made.assert_equal("n", where="id >= 100")
    made.assert_equal("w")


@pytest.mark.long
def test_rows_within_the_safety_lag_arrive_for_each_type_of_identifier(project: MakeProject) -> None:
    """Rows that arrive late within the safety lag must arrive, and a sync must not read further back than the lag."""
    made = project(
        incremental=["public.d:day:date", "public.ts:at:timestamp", "public.i:id:integer", "public.u:at:datetime!upsert",
                     "public.o:day:date"],
        containers={"d": {**BY_MONTH, "safety_lag": 90000}, "ts": BY_MONTH, "i": {"partition_by": 100, "safety_lag": 50},
                    "u": {**BY_MONTH, "safety_lag": 7200}, "o": {**BY_MONTH, "safety_lag": 0}},
        safety_lag_seconds=3600,
    )  # fmt: skip
    made.execute("""create table d (id int, day date); insert into d values (1, '2024-11-10'), (2, '2024-11-20');
        create table ts (id int, at timestamptz); insert into ts values (1, '2024-11-20 10:00'), (2, '2024-11-20 12:00');
        create table i (id int); insert into i select generate_series(0, 300, 2);
        create table u (id int primary key, at timestamp); insert into u values (1, '2024-11-20 09:59'), (2, '2024-11-20 12:00');
        create table o (id int, day date); insert into o values (1, '2024-11-20')""")
    made.sync()
    made.execute("""insert into d values (3, '2024-11-18'), (4, '2024-11-17');
        insert into ts values (3, '2024-11-20 11:00'), (4, '2024-11-20 10:59');
        insert into i values (251), (249); insert into u values (3, '2024-11-20 10:00'), (4, '2024-11-20 09:59');
        insert into o values (3, '2024-11-20'), (4, '2024-11-19')""")
    lines = made.sync()
    for name, left_out in (("d", 4), ("ts", 4), ("i", 249), ("u", 4), ("o", 4)):
        assert lines[name]["rows_inserted"] == 1, name
        made.assert_equal(name, where=f"id <> {left_out}")  # the row below the safety lag was not read
    assert {line["status"] for line in made.sync().values()} == {"skipped"}


@pytest.mark.long
def test_integer_partitions_by_width_and_by_batch_lose_no_row(project: MakeProject) -> None:
    """Rows that are added to the newest batch must arrive, a refresh must not touch other partitions, and negative ids have partitions."""
    made = project(
        incremental=["public.w:id:integer", "public.b:batch:integer", "public.n:id:integer", "public.flakes:id:integer"],
        containers={
            "w": {"partition_by": 100},
            "b": {"partition_by": "batch"},
            "n": {"partition_by": 1000},
            "flakes": {"partition_by": 1000},
        },
    )
    made.execute("""create table w (id int); insert into w values (-150), (-1), (0), (99), (100), (250);
        create table b (batch bigint, id int); insert into b values (7, 1), (7, 2), (9, 3);
        create table flakes (id bigint); insert into flakes values (1541815603606036999), (1541815603606037000);
        create table n (id numeric(30,0)); insert into n values (1), (12345678901234567890123456789)""")
    lines = made.sync()
    assert lines["w"]["partitions"] == ["-200", "-100", "0", "100", "200"]
    assert lines["b"]["partitions"] == ["7", "9"]
    assert lines["n"]["watermark"]["new"] == 12345678901234567890123456789
    assert lines["flakes"]["partitions"] == ["1541815603606036000", "1541815603606037000"]  # double precision could not distinguish these
    made.execute("""insert into w values (251), (450); insert into b values (9, 4), (12, 5), (12, 6);
        insert into n values (12345678901234567890123456790)""")
    lines = made.sync()
    assert lines["w"]["partitions"] == ["200", "300", "400"]
    assert (lines["b"]["rows_read"], lines["b"]["partitions"]) == (4, ["9", "12"])
    for name in ("w", "b", "n"):
        made.assert_equal(name)
    made.execute("delete from b where id in (1, 5); update w set id = id where true; delete from w where id in (-1, 0, 99)")
    assert made.one("b", keys=("7", "7"))["rows_deleted"] == 1
    assert made.one("w", keys=("-200", "-100"), allow_empty=True)["rows_deleted"] == 1
    assert made.one("w", keys=("0", "100"), allow_empty=True)["rows_deleted"] == 2
    made.assert_equal("w")
    assert made.one("b", keys=("12", "12"))["rows_deleted"] == 1
    made.assert_equal("b")


@pytest.mark.long
def test_an_upsert_by_two_columns_and_a_composite_key_loses_no_row(project: MakeProject) -> None:
    """A row that was created and never updated must not be missed, and a row that moved to another month must not be doubled."""
    made = project(
        incremental=[{"table": "t", "column": ["created_at", "updated_at"], "type": "timestamp", "strategy": "upsert"}],
        containers={"t": {**BY_MONTH, "exclude_columns": ["secret"], "where": "kind <> 'debug'"}},
    )
    made.execute("""create table t (region text, nr int, created_at timestamptz, updated_at timestamptz, kind text default 'k', note text,
          secret text default 'secret', primary key (region, nr));
        insert into t (region, nr, created_at, updated_at) select r, i, timestamptz '2024-08-15' + i * interval '3 days', null
          from generate_series(1, 20) i, unnest(array['it''s', 'ü', '']) r;
        insert into t values ('n', 1); insert into t values ('debug', 1, '2024-08-20', '2024-09-20', 'debug')""")
    assert made.one("t")["rows_read"] == 61
    kept: dict[str, Any] = {"where": "kind <> 'debug'", "exclude": ["secret"]}
    made.assert_equal("t", **kept)
    made.execute("""update t set note = 'touched', updated_at = '2024-10-20' where nr = 2;
        update t set created_at = '2024-10-21' where region = 'n';
        insert into t values ('new', 1, '2024-10-22', null), ('new', 2, null, '2024-10-22'), ('new', 3, '2024-08-01', '2024-10-22')""")
    line = made.one("t")
    assert (line["rows_inserted"], line["rows_updated"], line["watermark"]["new"]) == (3, 4, "2024-10-22T00:00:00Z")
    made.assert_equal("t", **kept)
    # A refresh of August: rows that were updated since have moved to October, deleted rows are gone, and keys differ by case and spaces.
    made.execute("""delete from t where nr = 4; update t set updated_at = '2024-10-23', note = 'moved' where nr = 5;
        insert into t values ('IT''S', 3, '2024-08-24', null), ('ü ', 3, '2024-08-24', null)""")
    line = made.one("t", keys=("2024-08-01", "2024-08-01"))
    assert (line["rows_inserted"], line["rows_updated"], line["rows_deleted"]) == (2, 3, 3)
    made.assert_equal("t", **kept)
    head = made.table("t").head()
    assert head is not None and "secret" not in {column.name for column in head.columns}


@pytest.mark.long
def test_the_watermark_is_held_back_by_the_transactions_that_hold_back_names(project: MakeProject) -> None:
    """A transaction that may write must hold the watermark back, and with ``hold_back: writers`` one that only reads must not."""
    made = project(
        incremental=["public.all_:id:integer", "public.own:id:integer", "public.parted:id:integer", "public.heirs:id:integer"],
        containers={"own": {"hold_back": "writers"}, "parted": {"hold_back": "writers"},
                    "heirs": {"hold_back": "writers", "inherited": "include"},
                    "all_": {"hold_back_warning_seconds": 0}},
    )  # fmt: skip
    made.execute("""create table all_ (id bigserial primary key); create table own (id bigserial primary key);
        create table parted (id bigserial, k int) partition by list (k); create table part1 partition of parted for values in (1);
        create table heirs (id bigserial); create table heir () inherits (heirs); create table other (id int)""")
    tables = {"all_": "all_", "own": "own", "parted": "parted", "heirs": "heirs"}

    def add(name: str) -> None:
        made.execute(f"insert into {name} {'(k) values (1)' if name == 'parted' else 'default values'}")

    for name in tables:
        add(name)
    made.sync(*tables)
    with psycopg.connect(made.url, application_name="a long report") as reader, psycopg.connect(made.url) as writer:
        reader.execute("select count(*) from all_")
        writer.execute("insert into part1 (k) values (1); insert into heir default values")
        for name in tables:
            add(name)
        lines = made.sync(*tables)
        held = lines["all_"]["watermark"]["held_back_by"]
        assert {h["application"] for h in held} == {"a long report", ""} and lines["all_"]["watermark"]["new"] == 1
        assert lines["all_"]["status"] == "warning" and "application a long report" in lines["all_"]["message"]
        assert lines["own"]["watermark"] == {"previous": 1, "new": 2, "held_back_by": None}
        for name in ("parted", "heirs"):
            assert [h["pid"] for h in lines[name]["watermark"]["held_back_by"]] == [writer.info.backend_pid]
            assert lines[name]["watermark"]["new"] == 1 and len(made.rows(name)) == 2
        writer.execute("prepare transaction 'heirs'")
    with psycopg.connect(made.url, autocommit=True) as connection:
        add("heirs")
        again = made.one("heirs")
        assert again["watermark"]["new"] == 1 and again["watermark"]["held_back_by"][0]["application"] == "prepared transaction heirs"
        connection.execute("commit prepared 'heirs'")
    for name in tables:
        add(name)  # without a new row the table would be skipped, and its watermark would stay
    lines = made.sync(*tables)
    for name in tables:
        made.assert_equal(name)
        assert lines[name]["watermark"]["held_back_by"] is None and lines[name]["watermark"]["new"] >= 2


@pytest.mark.long
def test_each_kind_of_table_and_view_is_synced(project: MakeProject) -> None:
    """Rows of partitions and inheriting tables must be neither left out nor doubled, and a view must not be skipped."""
    names = ["parted", "heirs", "v", "mv", "empty", "nulls"]
    made = project(
        incremental=[f"public.{n}:day:date" for n in names],
        containers={n: BY_MONTH for n in names} | {"heirs": {**BY_MONTH, "inherited": "include"}},
        exclude=["part_*", "base"],
    )
    made.execute("""create table parted (id int, day date) partition by range (day);
        create table part_old partition of parted for values from (minvalue) to ('2024-10-01');
        create table part_new partition of parted for values from ('2024-10-01') to (maxvalue);
        create table part_null partition of parted default;
        create table heirs (id int, day date); create table heir (extra int) inherits (heirs);
        create table base (id int, day date); create view v as select id, day from base where id > 0;
        create materialized view mv as select * from base; create table empty (id int, day date); create table nulls (id int, day date)""")
    fill = """insert into {t} select {n} + i, date '2024-09-25' + {n} / 10 + i % 10 from generate_series(1, 10) i"""
    for name in ("parted", "heirs", "heir", "base"):
        made.execute(fill.format(t=name if name != "heir" else "heir (id, day)", n=0))
    made.execute("insert into nulls values (1, null), (2, null); insert into parted values (0, null); refresh materialized view mv")
    kinds = {d.table.name: d.container.kind.value for d in made.catalog()}
    assert kinds["parted"] == "partitioned table" and kinds["v"] == "view" and kinds["mv"] == "materialized view"
    assert (
        "part_old" not in kinds and "heir" in kinds
    )  # partitions are read through their parent, while an inheriting table is a container as well
    lines = made.sync()
    assert {line["status"] for line in lines.values()} == {"synced"}, lines
    assert "when it was refreshed" in lines["mv"]["message"]
    for name in (*names, "heir"):
        made.assert_equal(name)
    for name in ("parted", "heirs", "heir", "base"):
        made.execute(fill.format(t=name if name != "heir" else "heir (id, day)", n=100))
    made.execute("insert into nulls values (3, null); insert into empty values (1, '2024-10-01'); refresh materialized view mv")
    lines = made.sync()
    assert {line["status"] for line in lines.values()} == {"synced"}, lines
    for name in (*names, "heir"):
        made.assert_equal(name)
    lines = made.sync()
    assert {name for name, line in lines.items() if line["status"] != "skipped"} == {
        "v"
    }  # a view has no fingerprint, so it is always synced
    made.configure(containers={"v": {"hold_back": "writers"}})
    with pytest.raises(ConfigurationError, match="a view has none of its own"):
        made.catalog()


@pytest.mark.long
def test_a_large_first_load_goes_window_by_window(project: MakeProject) -> None:
    """A large first load must not hold one transaction open for hours, and must go on where it failed."""
    made = project(incremental=["public.v:day:date", "public.i:id:integer!upsert"], containers={"v": BY_MONTH, "i": {"partition_by": 1000}},
                   load_rows=1000)  # fmt: skip
    made.execute("""create table base (id int primary key, day date);
        insert into base select i, date '2024-06-03' + i / 40 from generate_series(1, 6000) i;
        create index on base (day); analyze base; create view v as select id, day, 1 / (id - 5000) as x from base;
        create table i (id int primary key, note text); insert into i select i, 'n' from generate_series(1, 6000) i; analyze i""")
    failed = made.one("v", ok=False)
    assert failed["status"] == "failed" and "division by zero" in failed["message"]
    arrived = len(made.rows("v"))
    assert 1000 < arrived < 5000  # the windows that were committed stay, with the watermark at their end
    made.execute("update base set id = 7000 where id = 5000; insert into base values (0, null)")
    healed = made.one("v")
    assert healed["watermark"]["previous"] is not None and healed["rows_read"] < 6001 - arrived + 100
    made.assert_equal("v")
    line = made.one("i")
    assert line["rows_read"] == line["rows_inserted"] == 6000 and line["watermark"]["new"] == 6000
    made.assert_equal("i")
    commits = [c for c in made.table("i").commits(50) if c.operation in ("WRITE", "MERGE")]
    assert len(commits) >= 4
    assert made.one("i")["status"] == "skipped"


def test_an_identity_that_counts_down_is_refused_before_its_first_load(project: MakeProject) -> None:
    """Each new row would come below the watermark, and the second sync, and all after it, would fail without a way out."""
    made = project(incremental=["public.t:id:integer"])
    made.execute("create table t (id int generated always as identity (increment -1), x int); insert into t (x) values (1), (2)")
    for reset in (False, True):
        line = made.one("t", ok=False, reset=reset)
        assert line["status"] == "failed" and "public.t_id_seq, which counts down" in line["message"], line["message"]
        assert "leave it out of incremental" in line["message"]
    assert "which counts down" in "; ".join(made.definition("t").proposal.reasons) and made.definition("t").entry is None
    made.configure(incremental=[])
    made.one("t")
    made.assert_equal("t")


def test_a_sequence_that_was_set_back_below_its_rows_is_named_with_what_helps(project: MakeProject) -> None:
    """Rows that it numbers come below the watermark, where they were skipped without a word as long as none reached the watermark."""
    made = project(incremental=["public.t:id:integer"])
    made.execute("create table t (id serial, x int); insert into t (x) select generate_series(1, 50)")
    made.one("t")
    made.execute("alter sequence t_id_seq restart; insert into t (x) values (0)")
    line = made.one("t", ok=False)
    assert "its sequence is at 1, while rows reach 50" in line["message"] and "was set back" in line["message"], line["message"]
    assert "leave it out of incremental" in line["message"] and "sync shop/t --reset-watermarks" in line["message"]
    made.execute("select setval('t_id_seq', 50)")
    made.one("t", reset=True)
    made.execute("insert into t (x) values (51)")
    assert made.one("t")["rows_inserted"] == 1
    made.assert_equal("t")


@pytest.mark.long
def test_a_table_whose_identifier_has_fallen_back_is_refused_or_reported(project: MakeProject) -> None:
    """All rows of a table that was truncated and filled again lie below the watermark, so no sync would read them."""
    made = project(incremental=["public.s:id:integer", "public.m:id:integer", "public.d:day:date"], containers={"d": BY_MONTH})
    made.execute("""create table s (id bigserial primary key); insert into s select from generate_series(1, 50);
        create table m (id int); insert into m select generate_series(1, 50);
        create table d (id int, day date); insert into d values (1, '2024-10-01'), (2, '2024-11-01')""")
    made.sync()
    made.execute("""truncate s restart identity; insert into s select from generate_series(1, 10); delete from m where id > 40;
        delete from d where id = 2; insert into d values (3, '2024-10-15')""")
    lines = made.sync()
    for name in ("s", "m"):
        assert lines[name]["status"] == "failed" and "fallen back" in lines[name]["message"], lines[name]["message"]
        assert f"incremental-assets sync shop/{name} --reset-watermarks" in lines[name]["message"] and len(made.rows(name)) == 50
    assert lines["d"]["status"] == "warning" and "fallen back" in lines["d"]["message"]
    assert made.sync("d")["d"]["status"] in ("skipped", "warning")
    for name in ("s", "m"):
        made.one(name, reset=True)
        made.assert_equal(name)
    made.one("d", mode=Mode.REFRESH)
    made.assert_equal("d")
