"""Rows that the source has deleted below the watermark leave the lake, or are marked there, without a refresh.

Belongs here: what a sweep does to a container, from the YAML to the rows. Does not belong: histories with kills and others' writes
(``test_property``), and the texts of keys (``test_hashed_rows``).
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from assets_tests.harness import Project, long
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.databases import rows
from incremental_assets.delta import local_hashed_rows, local_keys
from incremental_assets.delta import sweep as delta_sweep
from incremental_assets.delta.engine import WRITE_BY
from incremental_assets.delta.properties import set_property_without_spark
from incremental_assets.delta.table import STATE_PROPERTY
from incremental_assets.operations.audit import AuditOptions, audit_lines
from incremental_assets.operations.dry_run import dry_run_lines
from incremental_assets.runs.due import NotDue, launch_if_due
from incremental_assets.runs.runner import Runner, SyncOptions

ORDERS = """
create table orders (id bigint primary key, updated_at timestamptz not null, note text);
insert into orders select g, '2026-01-01'::timestamptz + g * interval '1 hour', 'note ' || g from generate_series(1, 2000) g;
"""
ENTRY = "public.orders:updated_at:timestamp!upsert"


def made(project: Callable[..., Project], **container: Any) -> Project:
    """A project whose table ``orders`` has 2,000 rows, of four months, and has been synced."""
    shop = project(incremental=[ENTRY], containers={"orders": {"partition_by": "month", **container}})
    shop.execute(ORDERS)
    assert shop.one("orders")["rows_inserted"] == 2000
    return shop


def test_a_row_that_was_deleted_below_the_watermark_leaves_the_lake(project: Callable[..., Project]) -> None:
    shop = made(project, deletes="sweep")
    shop.execute("delete from orders where id in (7, 800, 1999)")
    line = shop.one("orders", sweep=True)
    assert (line["status"], line["rows_deleted"]) == ("synced", 3), line
    assert line["partitions"] == ["2026-01-01", "2026-02-01", "2026-03-01"], "the partitions that lost rows have an event"
    shop.assert_equal("orders")


@pytest.mark.long
def test_sweeps_by_spark_delete_the_same_rows(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WRITE_BY, "spark")
    monkeypatch.setattr(local_keys, "MOST_KEYS", 0)
    shop = made(project, deletes="sweep")
    shop.execute("delete from orders where id in (7, 800, 1999); insert into orders values (2001, '2026-04-01', 'new')")
    line = shop.one("orders", sweep=True)
    assert (line["status"], line["rows_inserted"], line["rows_deleted"]) == ("synced", 1, 3), line
    assert line["partitions"] == ["2026-01-01", "2026-02-01", "2026-03-01", "2026-04-01"]
    shop.assert_equal("orders")


def swept_before(shop: Project, seconds: int) -> None:
    """Lets the last sweep be so many seconds ago."""
    table, container = shop.table("orders"), shop.definition("orders").container
    head = table.head()
    assert head is not None
    state = head.state(container)
    assert state is not None and state.swept_at is not None
    text = replace(state, swept_at=state.swept_at - seconds * 1_000_000).to_json(container.cursor_type)
    assert set_property_without_spark(table, head.version, STATE_PROPERTY, text)


def test_a_sweep_comes_when_it_is_due_and_only_then(project: Callable[..., Project]) -> None:
    shop = made(project, deletes="sweep", deletes_every="6 hours")
    shop.execute("delete from orders where id = 7")
    definition = shop.definition("orders")
    with shop.instance() as instance:
        assert isinstance(launch_if_due(instance, definition), NotDue), "a tick starts no run only to find that no sweep is due"
    swept_before(shop, 5 * 3600)
    shop.home = shop.path / "another_home"  # the table remembers it, and not Dagster's event log
    shop.home.mkdir()
    assert shop.one("orders")["status"] == "skipped"
    swept_before(shop, 3601)
    with shop.instance() as instance:
        launch = launch_if_due(instance, definition)
        assert not isinstance(launch, NotDue) and "looks for deleted rows (the last time was" in launch.plan.reason
        (planned,) = dry_run_lines([definition], SyncOptions(), instance)
    assert planned["sweep"] and planned["action"] == "sync"
    line = shop.one("orders")
    assert (line["status"], line["rows_deleted"], line["partitions"]) == ("synced", 1, ["2026-01-01", "2026-03-01"]), line
    shop.assert_equal("orders")
    assert shop.one("orders")["status"] == "skipped"


def test_a_sweep_that_would_delete_too_much_is_refused_and_the_new_rows_are_there_all_the_same(project: Callable[..., Project]) -> None:
    shop = made(project, deletes="sweep")
    shop.execute("delete from orders where id <= 101; insert into orders values (2001, '2026-04-01', 'new')")
    line = shop.one("orders", sweep=True)
    assert (line["status"], line["rows_inserted"], line["rows_deleted"]) == ("warning", 1, 0), line
    assert "the source does not have 101 of 2,001 keys of the lake, and max_deleted_share permits 100" in line["message"]
    assert "incremental-assets sync shop/orders --sweep --allow-empty" in line["message"]
    assert shop.one("orders")["status"] == "skipped", "it is not tried again before it is due"
    assert shop.one("orders", sweep=True, allow_empty=True)["rows_deleted"] == 101
    shop.assert_equal("orders")
    shop.execute("delete from orders where id <= 195")
    assert shop.one("orders", sweep=True)["rows_deleted"] == 94


def test_an_empty_source_does_not_empty_the_lake(project: Callable[..., Project]) -> None:
    shop = made(project, deletes="sweep")
    shop.execute("delete from orders where id < 2000")
    line = shop.one("orders", sweep=True)
    assert line["status"] == "warning" and shop.rows("orders", "count(*) as n") == [(2000,)]


def test_rows_that_came_below_the_watermark_are_named_and_left_alone(project: Callable[..., Project]) -> None:
    shop = made(project, deletes="sweep")
    shop.execute("insert into orders values (5000, '2026-01-05', 'late'); delete from orders where id = 9")
    line = shop.one("orders", sweep=True)
    assert line["status"] == "warning" and "keys of the source that the sweep did not find in the lake: 1;" in line["message"], line
    assert line["rows_deleted"] == 1


@pytest.mark.parametrize(
    ("container", "change"),
    [
        ({"where": "note <> 'gone'"}, "update orders set note = 'gone' where id in (3, 4)"),
        pytest.param(
            {"on_null": "exclude"},
            "alter table orders alter updated_at drop not null; update orders set updated_at = null where id in (3, 4)",
            marks=pytest.mark.long,
        ),
        pytest.param({}, "update orders set updated_at = '2025-01-01' where id in (3, 4)", marks=pytest.mark.long),
    ],
    ids=["where", "on_null", "start"],
)
def test_rows_that_a_load_would_not_read_any_more_are_deleted_too(
    project: Callable[..., Project], container: dict[str, Any], change: str
) -> None:
    options = {"partition_by": "month", "deletes": "sweep", **container}
    shop = project(incremental=["public.orders:updated_at:timestamp@2026-01-01!upsert"], containers={"orders": options})
    shop.execute(ORDERS + "; insert into orders values (9001, '2025-06-01', 'before the start')")
    shop.one("orders")
    shop.execute(change)
    line = shop.one("orders", sweep=True)
    assert (line["status"], line["rows_deleted"]) == ("synced", 2), line
    swept = shop.rows("orders", "id", "true order by id")
    shop.one("orders", reset=True)
    assert swept == shop.rows("orders", "id", "true order by id") and len(swept) == 1998


# ---------------------------------------------------------------------- deletes: soft
def marks(shop: Project) -> dict[int, bool]:
    return {id_: at is not None for id_, at in shop.rows("orders", "id, _deleted_at", "id < 12 or id >= 1999")}


@pytest.mark.parametrize("by", ["here", pytest.param("spark", marks=pytest.mark.long)])
def test_soft_deletes_mark_the_row_and_keep_it(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    if by == "spark":
        monkeypatch.setenv(WRITE_BY, "spark")
        monkeypatch.setattr(local_keys, "MOST_KEYS", 0)
    shop = made(project, deletes="soft")
    shop.execute("delete from orders where id in (7, 8, 2000)")
    line = shop.one("orders", sweep=True)
    assert (line["status"], line["rows_updated"], line["rows_deleted"]) == ("warning", 0, 3), line  # the newest row is gone
    assert [id_ for id_, marked in marks(shop).items() if marked] == [7, 8, 2000]
    assert shop.rows("orders", "note", "id = 7") == [("note 7",)]
    again = shop.one("orders", sweep=True)
    assert (again["rows_updated"], again["rows_deleted"]) == (0, 0), again

    # A key that returns, with a new value below the watermark and at its end, is unmarked.
    shop.execute("insert into orders values (7, '2026-01-03', 'is back'), (2000, '2026-05-01', 'is back, too')")
    line = shop.one("orders", sweep=True)
    assert (line["rows_updated"], line["rows_deleted"]) == (2, 0), line
    assert "marked rows that the source has again: 1" in line["message"]
    assert [id_ for id_, marked in marks(shop).items() if marked] == [8]
    assert shop.rows("orders", "note", "id in (7, 2000) order by id") == [("is back",), ("is back, too",)]
    assert shop.rows("orders", "count(*) as n") == [(2000,)]


@pytest.mark.parametrize("by", ["here", "files", pytest.param("spark", marks=pytest.mark.long)])
def test_a_sync_and_a_refresh_mark_rows_too(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    if by == "spark":
        monkeypatch.setenv(WRITE_BY, "spark")
    shop = made(project, deletes="soft")
    if by == "files":
        monkeypatch.setattr(rows, "MOST_COMPARED_ROWS", 0)
    shop.execute("update orders set updated_at = '2026-04-01' where id = 1999; update orders set updated_at = '2026-04-01' where id = 2000")
    shop.one("orders")
    shop.execute("delete from orders where id in (7, 1999)")
    assert shop.one("orders")["rows_deleted"] == 1  # in the lag window
    assert shop.one("orders", keys=("2026-01-01", "2026-01-01"))["rows_deleted"] == 1
    again = shop.one("orders", keys=("2026-01-01", "2026-01-01"))
    assert (again["rows_updated"], again["rows_deleted"]) == (0, 0), again
    assert [id_ for id_, marked in marks(shop).items() if marked] == [7, 1999]
    shop.execute("insert into orders values (1999, '2026-04-02', 'is back')")
    line = shop.one("orders")
    assert (line["rows_inserted"], line["rows_updated"]) == (0, 1)
    assert not marks(shop)[1999]


def test_the_marks_stay_behind_columns_that_are_added(project: Callable[..., Project]) -> None:
    """Otherwise each later sync of the container needs Spark."""
    shop = made(project, deletes="soft")
    shop.execute("alter table orders add a int, add b text; update orders set a = 1, b = 'b' where id = 2000")
    line = shop.one("orders")
    assert "column a (int) was added" in line["message"]
    head = shop.table("orders").head()
    assert head is not None and [column.name for column in head.columns] == ["id", "updated_at", "note", "a", "b", "_deleted_at"]
    assert shop.rows("orders", "a, b, _deleted_at", "id = 2000") == [(1, "b", None)]


@pytest.mark.parametrize("hashed_by", ["here", "spark"])
def test_the_audit_takes_marked_rows_for_absent(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch, hashed_by: str) -> None:
    """Otherwise each deleted row is surplus for ever, and one that has returned is not missed."""
    if hashed_by == "spark":
        monkeypatch.setattr(local_hashed_rows, "MOST_ROWS", -1)
    shop = made(project, deletes="soft")
    shop.execute("delete from orders where id in (7, 800)")
    assert audited(shop)["status"] == "different", "before the sweep the lake has rows that the source has not"
    shop.one("orders", sweep=True)
    assert audited(shop)["status"] == "equal"
    shop.execute("insert into orders values (7, '2026-01-01 07:00Z', 'note 7')")
    assert audited(shop)["missing"] == 1, "a row that has returned is missing as long as it is marked"


def audited(shop: Project) -> dict[str, Any]:
    chosen = [shop.definition("orders")]
    with shop.instance() as instance:
        (line,) = audit_lines(Runner(shop.dagster(chosen), instance), chosen, AuditOptions(), instance)
    return line


@pytest.mark.long
def test_a_table_can_change_between_soft_and_sweep(project: Callable[..., Project]) -> None:
    shop = made(project, deletes="sweep")
    shop.configure(containers={"orders": {"partition_by": "month", "deletes": "soft"}})
    shop.execute("delete from orders where id in (7, 8)")
    assert shop.one("orders", sweep=True)["rows_deleted"] == 2
    assert [id_ for id_, marked in marks(shop).items() if marked] == [7, 8]
    shop.configure(containers={"orders": {"partition_by": "month", "deletes": "sweep"}})
    assert shop.one("orders", sweep=True)["rows_deleted"] == 2
    assert shop.rows("orders", "count(*) as n") == [(1998,)]


# ---------------------------------------------------------------------- keys of any type
KEYS = {
    "smallint": ["-32768", "0", "7"],
    "bigint": ["-9223372036854775808", "9223372036854775807", "0"],
    "boolean": ["true", "false"],
    "numeric(30, 10)": ["0", "-0.0000000001", "12345678901234567890.0123456789", "1e-9"],
    "numeric": ["1.0", "-2", "3.1415926535897932384626433832795028841971", "'NaN'"],
    "real": ["0.1", "-0.0", "'NaN'", "'-Infinity'", "1e-45"],
    "double precision": ["0.1", "0.0", "'Infinity'", "4.9e-324", "'NaN'"],
    "text": ["''", "' '", "'it''s'", "'back\\slash'", "E'a\\tb\\nc'", "'a,b'", "'1:a'", "'${x}'", "'ünï 𝄞'", "'NULL'", "'x61'"],
    "varchar(5)": ["'a'", "'a '", "'A'"],
    "char(5)": ["'a'", "'b'"],
    "bytea": [r"'\x'", r"'\x00'", r"'\xff00'", r"'\x0a0d'", "'61'"],
    "uuid": ["'00000000-0000-0000-0000-000000000000'", "'f47ac10b-58cc-4372-a567-0e02b2c3d479'"],
    "date": ["'0001-01-01'", "'1969-12-31'", "'9999-12-31'", "'0044-03-15 BC'"],
    "timestamp": ["'1969-12-31 23:59:59.999999'", "'2024-02-29'", "'0001-01-01'"],
    "timestamptz": ["'2024-03-31 02:30+01'", "'1900-01-01Z'", "'2024-03-31 02:30:00.000001+01'"],
    "interval": ["'1 month'", "'31 days'"],
    "inet": ["'10.0.0.1'", "'10.0.0.1/8'", "'::1'"],
    "jsonb": ["""'{"a": 1}'""", "'null'"],
    "int[]": ["'{}'", "'{1,2}'", "'{{1},{2}}'"],
}


@pytest.mark.long
@pytest.mark.parametrize("by", ["here", pytest.param("spark", marks=pytest.mark.long)])
@pytest.mark.parametrize("deletes", ["sweep", pytest.param("soft", marks=pytest.mark.long)])
def test_keys_of_every_type_are_swept_exactly(
    project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch, by: str, deletes: str
) -> None:
    """A key that is not understood would be left, or another row deleted in its place."""
    if by == "spark":
        monkeypatch.setenv(WRITE_BY, "spark")
        monkeypatch.setattr(local_keys, "MOST_KEYS", 0)
    names = {f"t{i}": (type_, values) for i, (type_, values) in enumerate(KEYS.items())}
    shop = project(
        incremental=[f"public.{name}:at:date!upsert" for name in names],
        containers={name: {"deletes": deletes, "max_deleted_share": 1} for name in names},
    )
    for name, (type_, values) in names.items():
        shop.execute(f"create table {name} (k {type_} not null, n int, at date not null, primary key (k, n))")
        rows = ", ".join(f"({value}, {n}, '2024-01-{1 + n:02}')" for value in values for n in (1, 2))
        shop.execute(f"insert into {name} values {rows}, ({values[0]}, 3, '2025-01-01')")
    assert {line["status"] for line in shop.sync().values()} == {"synced"}
    for name, (type_, values) in names.items():
        gone = " or ".join(f"(k, n) = (cast({value} as {type_}), {1 + i % 2})" for i, value in enumerate(values))
        shop.execute(f"delete from {name} where {gone}")
    lines = shop.sync(sweep=True)
    wrong = [(name, line["message"]) for name, line in lines.items() if line["rows_deleted"] != len(names[name][1])]
    assert not wrong
    for name, (_, values) in names.items():
        if deletes == "sweep":
            shop.assert_equal(name)
        else:
            there = shop.source.execute(f"select n, at from {name} order by n, at".encode()).fetchall()
            assert sorted(shop.rows(name, "n, at", "_deleted_at is null")) == there
            assert shop.rows(name, "count(*) as n", "_deleted_at is not null") == [(len(values),)]


@pytest.mark.parametrize(
    ("type_", "change"),
    [
        ("float8", "update t set k = '-0.0' where k = 0"),
        *long(("numeric", "update t set k = 1.00 where k = 1; delete from t where k = 0")),
    ],
)
def test_a_key_that_is_written_in_another_way_stays_in_the_lake(project: Callable[..., Project], type_: str, change: str) -> None:
    """To PostgreSQL 1 and 1.00 are one key, and 0.0 and -0.0. The lake has the texts, and would lose the row. A row whose identifier is
    as before is not read again, so that its key stays as it was written."""
    shop = project(incremental=["public.t:at:date!upsert"], containers={"t": {"deletes": "sweep", "max_deleted_share": 1}})
    shop.execute(f"create table t (k {type_} primary key, at date not null, note text)")
    shop.execute("insert into t values (0.0, '2024-01-01', 'a'), (1, '2024-01-02', 'b'), (2, '2025-01-01', 'c')")
    shop.one("t")
    shop.execute(change)
    shop.one("t", sweep=True)
    if type_ == "numeric":
        assert sorted(shop.rows("t", "k, note")) == [("1", "b"), ("2", "c")]
    else:  # Spark, which merges the row, makes one zero of both
        assert sorted(shop.rows("t", "k, note")) == [(0.0, "a"), (1.0, "b"), (2.0, "c")]


# ---------------------------------------------------------------------- events, checks, and syncs that are killed
@pytest.mark.long
def test_an_audit_that_confirms_older_rows_keeps_what_its_sweep_has_written(project: Callable[..., Project]) -> None:
    """The sync of the audit writes the state once more, after the sweep. The sweep would then count as not made, and be made again."""
    shop = made(project, deletes="sweep")
    shop.execute("alter table orders add column extra int; update orders set extra = 1 where id = 7")
    shop.execute("insert into orders values (2001, '2026-04-01', 'new')")
    assert "refresh needed: older rows of partition 2026-01-01" in shop.one("orders")["message"]
    shop.execute("delete from orders where id = 7")
    swept_before(shop, 2 * 86400)
    audited = shop.audit("orders")["orders"]
    assert audited["status"] == "equal", audited
    table, container = shop.table("orders"), shop.definition("orders").container
    head = table.head()
    assert head is not None
    state = head.state(container)
    assert state is not None and state.unfilled is None and state.swept_at is not None
    assert state.swept_at > (time.time() - 86400) * 1_000_000
    assert state.data_version is not None and not table.data_commits_since(state.data_version)
    assert shop.one("orders")["status"] == "skipped"


@pytest.mark.long
def test_the_checks_of_partitions_that_lost_rows_are_evaluated(project: Callable[..., Project]) -> None:
    shop = made(project, deletes="sweep", auto_resolve=True, checks=[{"rule": "not_null", "columns": ["note"]}])
    shop.execute("update orders set note = null, updated_at = '2026-01-05' where id = 7")
    shop.one("orders", keys=("2026-01-01", "2026-01-01"))
    assert shop.scan("orders")["orders"]["failed"] == 1
    shop.execute("delete from orders where id = 7; insert into orders values (2001, '2026-05-01', 'new')")
    line = shop.one("orders", sweep=True)
    assert line["partitions"] == ["2026-01-01", "2026-03-01", "2026-04-01", "2026-05-01"] and line["checks"]["failed"] == 0, line
    assert line["checks"]["anomalies"]["resolved"] == 1


@pytest.mark.long
def test_a_rule_can_leave_out_the_rows_that_are_marked(project: Callable[..., Project]) -> None:
    rule = {"rule": "expression", "name": "live", "expression": "id <> 7", "filter": "_deleted_at IS NULL"}
    shop = made(project, deletes="soft", checks=[rule])
    shop.execute("delete from orders where id = 7")
    assert shop.scan("orders")["orders"]["failed"] == 1
    assert shop.one("orders", sweep=True)["checks"]["failed"] == 0


@pytest.mark.parametrize("deletes", ["sweep", pytest.param("soft", marks=pytest.mark.long)])
@pytest.mark.parametrize("at", ["before the rows", "between rows and state"])
def test_a_sweep_that_is_killed_is_made_again(
    project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch, deletes: str, at: str
) -> None:
    shop = made(project, deletes=deletes)
    shop.execute("delete from orders where id in (7, 800); insert into orders values (2001, '2026-04-01', 'new')")

    def die(*_: Any, **__: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as broken:
        broken.setattr(delta_sweep, *(("delete_here", die) if at == "before the rows" else ("set_property", die)))
        assert shop.one("orders", sweep=True, ok=False)["status"] == "failed"
    assert shop.rows("orders", "note", "id = 2001") == [("new",)], "the sync's own rows were committed before"
    swept_before(shop, 86_400)
    line = shop.one("orders")
    assert line["rows_deleted"] == (2 if at == "before the rows" else 0), line
    live = "true" if deletes == "sweep" else "_deleted_at is null"
    assert shop.rows("orders", "count(*) as n", live) == [(1999,)]
    assert shop.one("orders")["status"] == "skipped"


# ---------------------------------------------------------------------- the YAML
@pytest.mark.parametrize(
    ("incremental", "container", "said"),
    [
        (["public.orders:updated_at:timestamp"], {"deletes": "sweep"}, "needs the strategy upsert; this is append"),
        ([], {"deletes": "sweep"}, "needs the strategy upsert; this is snapshot"),
        ([ENTRY], {"deletes_every": "1 hour"}, "belong to deletes: sweep"),
        ([ENTRY], {"deletes": "sweep", "deletes_every": "often"}, "deletes_every 'often': write a number and a unit"),
        ([ENTRY], {"deletes": "sweep", "max_deleted_share": 5}, "it is a number between 0 and 1"),
    ],
)
def test_what_does_not_fit_is_said_when_the_project_is_loaded(
    project: Callable[..., Project], incremental: list[str], container: dict[str, Any], said: str
) -> None:
    shop = project(incremental=incremental, containers={"orders": container})
    shop.execute(ORDERS)
    with pytest.raises(ConfigurationError, match=said):
        shop.catalog()


def test_a_column_of_the_source_that_has_the_name_of_the_marks_is_refused(project: Callable[..., Project]) -> None:
    shop = made(project, deletes="soft")
    shop.execute('alter table orders add "_Deleted_At" timestamptz')
    shop.execute("update orders set note = 'changed' where id = 2000")
    line = shop.one("orders", stale=True, ok=False)
    assert line["status"] == "failed" and "the source has a column of that name" in line["message"]
    with pytest.raises(ConfigurationError, match="the source has a column of that name"):
        shop.catalog()
