"""A key that the source writes otherwise than before, and takes for the same, is the same row in the lake.

Belongs here: keys of types in which equal values may look different, in each way in which rows are written or deleted by key. Does not
belong: keys of other types (``test_sync``, ``test_sweep``), and the same on other servers (``servers.test_server_sync``).
"""

from collections.abc import Callable
from typing import Any

import pytest

from assets_tests.harness import Project, long
from incremental_assets.databases.postgres.dialect import PostgresDialect
from incremental_assets.delta import local_keys
from incremental_assets.delta.engine import WRITE_BY

MakeProject = Callable[..., Project]
ENTRY = "public.t:at:timestamp!upsert"
KEYS = {
    "numeric": ("numeric", "1.50", "1.5", "100"),
    "interval": ("interval", "1 day", "24:00:00", "1 mon"),
    "citext": ("citext", "ab", "AB", "c"),
    "a domain over numeric": ("price", "0.0", "0", "10"),
    "bpchar": ("bpchar", "a", "a  ", "b"),
}
"""A type, two spellings of a value of it, and another value."""
CITEXT = """
create type citext;
create function citextin(cstring) returns citext as 'textin' language internal immutable strict;
create function citextout(citext) returns cstring as 'textout' language internal immutable strict;
create function citextrecv(internal) returns citext as 'textrecv' language internal immutable strict;
create function citextsend(citext) returns bytea as 'textsend' language internal immutable strict;
create type citext (input = citextin, output = citextout, receive = citextrecv, send = citextsend, internallength = variable,
  storage = extended, category = 'S', collatable = true);
create cast (citext as text) without function as implicit; create cast (text as citext) without function as assignment;
create function citext_cmp(citext, citext) returns int as 'select bttextcmp(lower($1::text), lower($2::text))'
  language sql immutable strict;
"""
for name, operator in (("lt", "<"), ("le", "<="), ("eq", "="), ("ge", ">="), ("gt", ">")):
    CITEXT += f"""
create function citext_{name}(citext, citext) returns boolean as 'select citext_cmp($1, $2) {operator} 0' language sql immutable strict;
create operator {operator} (leftarg = citext, rightarg = citext, procedure = citext_{name}{", merges" if name == "eq" else ""});"""
CITEXT += """
create operator class citext_ops default for type citext using btree as operator 1 <, operator 2 <=, operator 3 =, operator 4 >=,
  operator 5 >, function 1 citext_cmp(citext, citext);"""
"""What the extension of this name creates, as far as a key needs it. Its functions are written in C, and the tests' server has none."""


def made(project: MakeProject, kind: str, **container: Any) -> Project:
    """A project whose table ``t`` has two rows, the first of which lies below the watermark."""
    type_, before, _, other = KEYS[kind]
    shop = project(incremental=[ENTRY], containers={"t": {"partition_by": "month", **container}})
    shop.execute(f"""{CITEXT} create domain price as numeric;
        create table t (id {type_} primary key, at timestamptz not null, note text);
        insert into t values ('{before}', '2026-01-01', 'old'), ('{other}', '2026-05-01', 'other')""")
    assert shop.one("t")["rows_inserted"] == 2
    return shop


def notes(shop: Project) -> dict[str, str]:
    """The notes of the rows in the lake by their keys, none of which may be there twice."""
    rows = shop.rows("t", "id, note")
    assert len(rows) == len({key for key, _ in rows}), rows
    return dict(rows)


@pytest.mark.parametrize("kind", ["numeric", *long("interval", "citext", "a domain over numeric", "bpchar")])
def test_a_respelled_key_is_merged_into_its_row(project: MakeProject, kind: str) -> None:
    """By its text it is a new key: the row as it was before would stay beside it, below the watermark, for ever."""
    shop = made(project, kind)
    _, _, after, other = KEYS[kind]
    shop.execute(f"update t set id = '{after}', at = '2026-05-02', note = 'new' where note = 'old'")
    line = shop.one("t")
    assert (line["rows_inserted"], line["rows_updated"]) == (0, 1), line
    assert notes(shop) == {after: "new", other: "other"}
    shop.execute(f"delete from t where id = '{after}'; insert into t values ('{KEYS[kind][1]}', '2026-05-03', 'again')")
    shop.one("t")
    assert notes(shop) == {KEYS[kind][1]: "again", other: "other"}
    assert shop.audit("t")["t"]["status"] == "equal"


@pytest.mark.long
@pytest.mark.parametrize("kind", list(KEYS))
def test_spark_merges_respelled_keys_into_their_rows(project: MakeProject, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv(WRITE_BY, "spark")
    test_a_respelled_key_is_merged_into_its_row(project, kind)


@pytest.mark.parametrize("by_spark", [False, *long(True)])
def test_a_sweep_takes_a_respelled_key_for_the_same(project: MakeProject, monkeypatch: pytest.MonkeyPatch, by_spark: bool) -> None:
    """Otherwise it would delete the row of a key that the source has, or count it as missing."""
    if by_spark:
        monkeypatch.setenv(WRITE_BY, "spark")
        monkeypatch.setattr(local_keys, "MOST_KEYS", 0)
    shop = made(project, "numeric", deletes="sweep", max_deleted_share=1)
    shop.execute("update t set id = 1.500 where id = 1.5; delete from t where id = 100; insert into t values (7, '2026-06-01', 'new')")
    line = shop.one("t", sweep=True)
    assert (line["rows_inserted"], line["rows_deleted"]) == (1, 1) and "audit" not in line["message"], line
    assert notes(shop) == {"1.50": "old", "7": "new"}


@pytest.mark.long
@pytest.mark.parametrize("kind", list(KEYS))
def test_a_row_with_a_respelled_key_comes_back_from_its_mark(project: MakeProject, kind: str) -> None:
    """By its text it is another row than the marked one, which would stay marked beside it."""
    shop = made(project, kind, deletes="soft", max_deleted_share=1)
    _, before, after, other = KEYS[kind]
    shop.execute(f"delete from t where id = '{before}'")
    assert shop.one("t", sweep=True)["rows_deleted"] == 1
    shop.execute(f"insert into t values ('{after}', '2026-01-01', 'back')")
    shop.one("t", sweep=True)
    assert notes(shop) == {after: "back", other: "other"}
    assert shop.rows("t", "id", "_deleted_at is not null") == []


@pytest.mark.parametrize("kind", ["numeric", *long("interval", "citext")])
def test_a_repair_does_not_double_the_row_of_a_respelled_key(project: MakeProject, kind: str) -> None:
    """A change below the watermark, which the audit finds: the row is read again under its new spelling."""
    shop = made(project, kind)
    _, _, after, other = KEYS[kind]
    shop.execute(f"update t set id = '{after}', at = '2026-02-01' where note = 'old'")
    assert shop.audit("t", repair=True, allow_empty=True)["t"]["status"] == "repaired"
    assert notes(shop) == {after: "old", other: "other"}
    assert shop.audit("t")["t"]["status"] == "equal"


@pytest.mark.long
def test_a_row_that_left_the_lag_window_under_another_spelling_is_found(project: MakeProject) -> None:
    """The lake's key is looked up in the source, which has the row below the window by now: it must neither be deleted nor doubled."""
    shop = made(project, "citext", safety_lag=30 * 86400)
    shop.execute("update t set id = 'C', at = '2026-02-01', note = 'moved' where id = 'c'; insert into t values ('d', '2026-05-02', 'new')")
    shop.one("t")
    assert notes(shop) == {"ab": "old", "C": "moved", "d": "new"}


@pytest.mark.parametrize(
    ("before", "after", "more"),
    [
        ("numeric(50,2)", "numeric(50,3)", {}),
        *long(("numeric", "numeric(50,2)", {}), ("numeric(20,2)", "numeric(20,3)", {"text_columns": ["id"]})),
    ],
)
def test_a_key_of_another_scale_is_the_same(project: MakeProject, before: str, after: str, more: dict[str, Any]) -> None:
    """``ALTER COLUMN … TYPE`` writes each key otherwise: each row that changes after that would be doubled."""
    shop = project(incremental=[ENTRY], containers={"t": {"partition_by": "month", **more}})
    shop.execute(f"""create table t (id {before} primary key, at timestamptz not null, note text);
        insert into t values (1.5, '2026-01-01', 'old'), (100, '2026-05-01', 'other'); """)
    shop.one("t")
    shop.execute(f"alter table t alter id type {after}; update t set at = '2026-05-02', note = 'new' where note = 'old'")
    assert shop.one("t")["rows_inserted"] == 0
    assert sorted(notes(shop).values()) == ["new", "other"]
    assert shop.audit("t")["t"]["status"] == "equal"


@pytest.mark.parametrize("column", ["id", *long("note")])
def test_a_column_that_is_padded_to_another_length_loads_anew(project: MakeProject, column: str) -> None:
    """``ALTER COLUMN … TYPE char(10)`` puts spaces behind each value: rows whose key has others would be doubled as they change."""
    shop = project(incremental=[ENTRY], containers={"t": {"partition_by": "month"}})
    shop.execute("""create table t (id char(5) primary key, at timestamptz not null, note char(5));
        insert into t values ('a', '2026-01-01', 'old'), ('b', '2026-05-01', 'other')""")
    shop.one("t")
    shop.execute(f"alter table t alter {column} type char(10); update t set at = '2026-05-02' where id = 'a'")
    line = shop.one("t")
    assert f"its column {column} was character(5) and is character(10)" in line["message"], line
    assert len(shop.rows("t")) == 2
    shop.assert_equal("t")
    assert shop.one("t")["status"] == "skipped"


@pytest.mark.long
def test_a_length_that_changes_after_the_catalog_is_not_mixed(project: MakeProject) -> None:
    """A schedule goes by the stored catalog: its sync must not merge rows by keys of another length."""
    shop = project(incremental=[ENTRY], containers={"t": {"partition_by": "month"}})
    shop.execute("""create table t (id char(5) primary key, at timestamptz not null);
        insert into t values ('a', '2026-01-01'), ('b', '2026-05-01')""")
    shop.one("t")
    shop.execute("alter table t alter id type char(10); update t set at = '2026-05-02' where id = 'a'")
    line = shop.one("t", ok=False, stale=True)
    assert line["status"] == "failed" and "was character(5) and is character(10)" in line["message"], line
    shop.one("t")
    shop.assert_equal("t")


@pytest.mark.long
def test_a_column_with_the_name_of_the_forms_is_refused(project: MakeProject) -> None:
    """Older rows would have forms of keys as its values, and a key that is written otherwise would be doubled."""
    shop = made(project, "numeric")
    shop.execute("alter table t add \"_KEY_id\" text; update t set id = 1.5, at = '2026-05-02' where note = 'old'")
    line = shop.one("t", ok=False)
    assert line["status"] == "failed" and "its column _KEY_id has forms of its key" in line["message"], line
    shop.one("t", reset=True)
    assert notes(shop) == {"1.5": "old", "100": "other"}


@pytest.mark.long
def test_a_key_of_several_columns_has_the_form_of_each(project: MakeProject) -> None:
    shop = project(incremental=[ENTRY], containers={"t": {"partition_by": "month"}})
    shop.execute("""create table t (site int, id numeric, at timestamptz not null, note text, primary key (site, id));
        insert into t values (1, 1, '2026-01-01', 'a'), (2, 1, '2026-01-01', 'b'), (2, 1.5, '2026-05-01', 'c')""")
    shop.one("t")
    shop.execute("update t set id = 1.0, at = '2026-05-02', note = 'd' where site = 2 and id = 1; alter table t add column extra int")
    shop.one("t")
    assert sorted(shop.rows("t", "site, id, note")) == [(1, "1", "a"), (2, "1.0", "d"), (2, "1.5", "c")]
    shop.execute("update t set id = 1.00, at = '2026-05-03', extra = 1 where site = 1")
    assert shop.one("t")["rows_updated"] == 1
    assert sorted(shop.rows("t", "site, id, extra")) == [(1, "1.00", 1), (2, "1.0", None), (2, "1.5", None)]


def test_a_lake_of_before_goes_on_and_says_how_it_learns(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table without the canonical forms must not get them for some rows only: all others would be doubled."""
    with monkeypatch.context() as before:
        before.setattr(PostgresDialect, "canonical", lambda *_: ())
        shop = made(project, "citext")
    shop.execute("update t set at = '2026-05-02', note = 'new' where id = 'ab'")
    line = shop.one("t")
    assert (line["rows_inserted"], line["rows_updated"]) == (0, 1), line
    assert "--reset-watermarks" in line["message"], line
    assert notes(shop) == {"ab": "new", "c": "other"} and shop.audit("t")["t"]["status"] == "equal"
    assert "look different" not in shop.one("t", reset=True)["message"]
    shop.execute("update t set id = 'AB', at = '2026-05-03' where id = 'ab'")
    assert shop.one("t")["rows_updated"] == 1
    assert notes(shop) == {"AB": "new", "c": "other"}


@pytest.mark.parametrize("more", [{}, *long({"deletes": "sweep"})])
def test_a_load_says_which_keys_only_a_sweep_tells_apart(project: MakeProject, more: dict[str, str]) -> None:
    """Where the server has no form that equal values share, nobody would otherwise know why an old row stays."""
    loose = {"j": "jsonb", "a": "numeric[]", "r": "numrange", "f": "float8[]", "c": "pair"}
    exact = {"t": "text", "n": "numeric", "w": "numeric(40,2)[]", "i": "int4range", "s": "tstzrange", "u": "uuid", "d": "float8"}
    shop = project(incremental=[ENTRY], containers={"t": more})
    columns = ", ".join(f"{name} {type_}" for name, type_ in {**loose, **exact}.items())
    shop.execute(f"""create type pair as (n numeric, t text);
        create table t ({columns}, at timestamptz not null, primary key ({", ".join([*loose, *exact])}))""")
    line = shop.one("t")
    said = f"key ({', '.join(loose)}) for equal"
    assert (said in line["message"], "deletes: sweep" in line["message"]) == (not more, not more), line
    assert "for equal" not in shop.one("t")["message"]


@pytest.mark.long
def test_a_sweep_removes_the_row_of_a_key_that_no_form_tells(project: MakeProject) -> None:
    """For jsonb the old row stays beside the new one until then, as the load has said."""
    shop = project(incremental=[ENTRY], containers={"t": {"deletes": "sweep", "max_deleted_share": 1}})
    shop.execute("""create table t (id jsonb primary key, at timestamptz not null, note text);
        insert into t values ('1', '2026-01-01', 'old'), ('2', '2026-05-01', 'other')""")
    shop.one("t")
    shop.execute("update t set id = '1.0', at = '2026-05-02', note = 'new' where id = '1'")
    shop.one("t")
    assert notes(shop) == {"1": "old", "1.0": "new", "2": "other"}
    shop.one("t", sweep=True)
    assert notes(shop) == {"1.0": "new", "2": "other"}
