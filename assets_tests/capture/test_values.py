"""Values and keys of every type arrive through the log as they do by every other read, and odd names are no hindrance.

Belongs here: the fidelity table of ``databases.test_types``, captured. Does not belong: how types are carried (there).
"""

from collections.abc import Callable

import pytest

from assets_tests.capture.test_capture import set_up
from assets_tests.databases import test_arrays
from assets_tests.databases.test_types import COLUMNS, INFINITE, TYPES, create, insert
from assets_tests.harness import Project, long
from incremental_assets.databases import capture_sync

MakeProject = Callable[..., Project]


def test_values_of_every_type_arrive_unchanged(project: MakeProject) -> None:
    """A change that arrives through the log must not be rounded, shifted, padded or set to NULL."""
    made = project(capture="log")
    made.execute(TYPES)
    create(made, "t")
    insert(made, "t")
    set_up(made, "t")
    made.one("t")
    made.assert_equal("t")
    rows = len(made.rows("t", "id"))
    insert(made, "t", 101, "2024-11-06")
    line = made.one("t")
    assert (line["status"], line["rows_inserted"]) == ("synced", rows), line
    made.assert_equal("t")
    moved = ", ".join(f"{column} = other.{column}" for column in COLUMNS)
    made.execute(f"update t set {moved} from (select *, (id % {rows}) + 1 as next from t where id < 100) other where t.id = other.next")
    assert made.one("t")["rows_updated"] == rows
    made.assert_equal("t")
    head = made.table("t").head()
    assert head is not None and all(column.type == "string" for column in head.columns if column.name in INFINITE)


def test_arrays_arrive_as_arrays(project: MakeProject) -> None:
    """A change that arrives through the log would have a text in the place of an array, or an array of two dimensions as a flat one."""
    made = project(capture="log", containers={"t": test_arrays.LISTS})
    test_arrays.create(made, "t")
    rows = test_arrays.insert(made, "t")
    set_up(made, "t")
    made.one("t")
    test_arrays.assert_same(made, "t")
    moved = ", ".join(f"{column} = other.{column}" for column in test_arrays.ELEMENTS)
    test_arrays.insert(made, "t", 101)
    made.execute(f"update t set {moved} from (select *, (id % {rows}) + 1 as next from t where id < 100) other where t.id = other.next")
    line = made.one("t")
    assert (line["rows_inserted"], line["rows_updated"]) == (rows, rows)
    test_arrays.assert_same(made, "t")
    made.execute("update t set ints = '{{1},{2}}' where id = 1")
    assert "text_columns: [ints]" in made.one("t", ok=False)["message"]


@pytest.mark.long
def test_an_infinite_value_that_comes_later_is_refused_with_the_remedy(project: MakeProject) -> None:
    made = project(capture="log")
    made.execute("create table t (id int primary key, until date); insert into t values (1, '2026-01-01')")
    set_up(made, "t")
    made.one("t")
    made.execute("insert into t values (2, 'infinity')")
    refused = made.one("t", ok=False)
    assert refused["status"] == "failed" and "text_columns: [until]" in refused["message"], refused
    made.configure(containers={"t": {"text_columns": ["until"]}})
    made.one("t")
    made.assert_equal("t")


KEYS = """create table t (b bytea, i timestamptz, l timestamp, d date, c char(4), n numeric(8,3), u uuid, v interval, "a.b `c" text,
  "K" boolean, note text, primary key (b, i, l, d, c, n, u, v, "a.b `c", "K"));
  insert into t select decode('ff0' || i, 'hex'), timestamptz '2024-11-01 00:00:00.000001+02' + i * interval '1 hour',
    timestamp '0044-03-15 12:00 BC', date '12345-01-01' + i, 'ab', i / 8.0, md5(i::text)::uuid, i * interval '1 day 2 hours',
    e'it''s \\\\ " {x} %s' || i, i % 2 = 0, 'n' from generate_series(1, 8) i"""


@pytest.mark.long
@pytest.mark.parametrize("identity", ["default", "full"])
def test_rows_are_found_by_keys_of_any_type(project: MakeProject, identity: str) -> None:
    made = project(capture="log")
    made.execute(KEYS)
    made.execute(f"alter table t replica identity {identity}")
    set_up(made, "t")
    made.one("t")
    made.assert_equal("t")
    made.execute("update t set note = 'changed' where n = 0.125; delete from t where n = 0.25; update t set n = 7.5 where n = 0.375")
    line = made.one("t")
    assert (line["rows_inserted"], line["rows_updated"], line["rows_deleted"]) == (1, 1, 2), line
    made.assert_equal("t")


@pytest.mark.long
def test_keys_that_only_the_source_takes_for_equal_do_not_double_rows(project: MakeProject) -> None:
    """Numbers without a scale, and floats with two zeros: the source has one row, the lake would have two."""
    made = project(capture="log")
    made.execute("create table t (k numeric primary key, n int); create table f (k double precision primary key, n int)")
    made.execute("insert into t values (1.0, 1), (2, 2); insert into f values ('0', 1), (0.1, 2), ('NaN', 3)")
    set_up(made, "t", "f")
    made.sync()
    made.execute(
        "update t set k = 1.00 where n = 1; update f set k = '-0' where k = 0; update f set n = 9 where k = 'NaN';"
        " delete from f where k = 0.1"
    )
    made.sync()
    for name in ("t", "f"):
        made.assert_equal(name)


@pytest.mark.parametrize("a_commit", [1000, *long(1)])
def test_a_respelled_key_has_one_row_however_the_changes_are_divided(
    project: MakeProject, monkeypatch: pytest.MonkeyPatch, a_commit: int
) -> None:
    """The log has the old spelling and the new one. For jsonb nothing else tells that they are one key to the source."""
    monkeypatch.setattr(capture_sync, "KEYS_A_COMMIT", a_commit)
    made = project(capture="log")
    made.execute("create table n (k numeric primary key, note text); insert into n values (1.50, 'a'), (2.5, 'b'), (3, 'c')")
    made.execute("create table j (k jsonb primary key, note text); insert into j values ('1.50', 'a'), ('[2.5]', 'b'), ('3', 'c')")
    set_up(made, "n", "j")
    made.sync()
    made.execute("update n set k = 1.5 where k = 1.5; update n set k = 2.500, note = 'd' where k = 2.5; delete from n where k = 3")
    made.execute("""update j set k = '1.5' where k = '1.5'; update j set k = '[2.500]', note = 'd' where k = '[2.5]';
        delete from j where k = '3'""")
    assert {line["status"] for line in made.sync().values()} == {"synced"}
    made.execute("insert into n values (3.0, 'e'); insert into j values ('3.0', 'e')")
    made.sync()
    assert sorted(made.rows("n", "k, note")) == [("1.5", "a"), ("2.500", "d"), ("3.0", "e")]
    assert sorted(made.rows("j", "k, note")) == [("1.5", "a"), ("3.0", "e"), ("[2.500]", "d")]


@pytest.mark.long
def test_the_log_of_a_captured_container_leaves_the_row_out_too(project: MakeProject) -> None:
    """With `capture: log` the identifier is there for the partitions alone, and the row of an infinite one belongs to none."""
    shop = project(incremental=["public.t:at:timestamp"], capture="log", containers={"t": {"partition_by": "month"}})
    shop.execute("create table t (id int primary key, at timestamptz); insert into t values (1, '2026-01-01Z'), (2, '2026-02-01Z')")
    set_up(shop, "t")
    shop.one("t")
    shop.execute("update t set at = 'infinity' where id = 2; insert into t values (3, '2026-02-02Z')")
    line = shop.one("t")
    assert line["status"] == "warning" and "1 row of the source is left out" in line["message"], line
    shop.assert_equal("t", where="id <> 2")
