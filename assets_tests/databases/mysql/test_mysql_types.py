"""Values of every type of MariaDB in the lake: each arrives as it is, or is refused with what to do.

Belongs here: values. Does not belong: which rows are read (``servers``).
"""

from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import pytest

from assets_tests.databases.mysql.known import UTC, VALUES
from assets_tests.databases.mysql.project import MySQLProject
from assets_tests.harness import long

WAYS = {"in memory": None, "into files": "arrow", "through Spark": "jdbc"}


@pytest.mark.parametrize("way", [one if one == "in memory" else pytest.param(one, marks=pytest.mark.long) for one in WAYS])
def test_values_of_every_type_arrive_unchanged(way: str, shop: Callable[..., MySQLProject], monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is rounded, shifted by a time zone or decoded with another character set would be wrong in the lake, silently."""
    if WAYS[way] is not None:
        monkeypatch.setenv("INCREMENTAL_ASSETS_READ_BY", str(WAYS[way]))
    project = shop(incremental=["things:id:integer"])
    project.execute(f"create table things (id int primary key, {', '.join(f'c{i} {type_}' for i, type_ in enumerate(VALUES))})")
    most = max(map(len, VALUES.values()))
    for n in range(most + 1):  # the last row has NULL everywhere
        values = [listed[n][0] if n < len(listed) else "null" for listed in VALUES.values()]
        project.execute(f"insert into things values ({n}, {', '.join(values)})")
    assert project.one("things")["rows_read"] == most + 1
    rows = {row[0]: row[1:] for row in project.rows("things")}
    for i, (type_, listed) in enumerate(VALUES.items()):
        expected = [value for _, value in listed] + [None] * (most + 1 - len(listed))
        assert [rows[n][i] for n in range(most + 1)] == expected, type_
    if way == "in memory":
        assert project.one("things")["status"] == "skipped", "the fingerprint of the same rows must not change"


def test_a_character_set_of_the_server_or_a_mode_changes_nothing(shop: Callable[..., MySQLProject]) -> None:
    """Settings of the server or of a role must not change what arrives."""
    project = shop()
    project.execute(
        "create table texts (id int primary key, value varchar(20), at timestamp null, pad char(10))",
        "insert into texts values (1, 'ä', '2024-07-01 12:00:00', 'x')",
        "set global time_zone = '+05:00', global sql_mode = 'PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES', global character_set_server = 'latin1'",
    )
    before = project.ask("select unix_timestamp(at) from texts")
    try:
        project.one("texts")
        rows = project.rows("texts")
    finally:
        project.execute("set global time_zone = 'SYSTEM', global sql_mode = default, global character_set_server = 'utf8mb4'")
    assert rows == [(1, "ä", datetime.fromtimestamp(int(before[0][0]), UTC), "x")]


DATES = ("create table days (id int primary key, value date, at datetime)", "set session sql_mode = ''",
         "insert into days values (1, '2024-01-01', null), (7, '0000-00-00', '2024-01-00 00:00:00')")  # fmt: skip


def test_a_zero_date_is_refused_with_its_row(shop: Callable[..., MySQLProject]) -> None:
    """Read as NULL or as some other day without a word, it would be a wrong value in the lake."""
    project = shop()
    project.execute(*DATES)
    line = project.one("days", ok=False)
    assert line["status"] == "failed"
    for part in ("'value'", "'0000-00-00'", "id = 7", "text_columns: [value]", "zero_dates"):
        assert part in line["message"], line["message"]
    assert project.table("days").head() is None or project.rows("days") == []


@pytest.mark.long
@pytest.mark.parametrize("zero_dates", ["refuse", "null"])
@pytest.mark.parametrize("type_", ["date null", "datetime not null", "timestamp not null"])
def test_a_zero_date_in_the_identifier_does_not_keep_the_others_out(shop: Callable[..., MySQLProject], type_: str, zero_dates: str) -> None:
    """One such row would fail its container, or come to the lake with the first sync and leave it with the second."""
    word = "date" if type_.startswith("date ") else "datetime" if type_.startswith("datetime") else "timestamp"
    project = shop(incremental=[f"days:value:{word}"], zero_dates=zero_dates)
    project.execute(f"create table days (id int primary key, value {type_})", "set session sql_mode = ''")
    project.execute("insert into days values (1, '2024-01-01'), (2, '0000-00-00'), (3, '2024-01-02')")
    for _ in range(2):
        line = project.one("days")
        assert line["status"] == "warning" and line["message"].startswith("1 row of the source is left out"), line
        assert sorted(id_ for (id_,) in project.rows("days", "id")) in ([1, 3], [1, 3, 4])
        project.execute("insert ignore into days values (4, '2024-01-03')")
    accepted = line["message"].partition("where: '")[2].partition("'}}")[0].replace("''", "'")
    project.configure(containers={"days": {"where": accepted}})
    assert project.one("days")["status"] in ("synced", "skipped")
    assert sorted(id_ for (id_,) in project.rows("days", "id")) == [1, 3, 4]


@pytest.mark.parametrize("type_", ["date not null", *long("datetime null", "datetime(6) null")])
def test_a_date_without_a_month_or_a_day_in_the_identifier_does_not_keep_the_others_out(
    shop: Callable[..., MySQLProject], type_: str
) -> None:
    """These lie among the other dates, so that no bound leaves them out: one of them would fail its container for ever."""
    word = "date" if type_.startswith("date ") else "datetime"
    project = shop(incremental=[f"days:value:{word}!upsert"], containers={"days": {"partition_by": "month"}})
    project.execute(f"create table days (id int primary key, value {type_}, key (value))", "set session sql_mode = ''")
    values = ["2023-12-31", "2024-00-00", "2024-00-10", "2024-01-00", "2024-12-00", "0000-00-00", "2024-12-01", "2022-00-00"]
    listed = ", ".join(f"({number}, '{value}')" for number, value in enumerate(values))
    project.execute(f"insert into days values {listed}")
    line = project.one("days")
    assert line["status"] == "warning" and line["message"].startswith("6 rows of the source are left out"), line
    assert sorted(id_ for (id_,) in project.rows("days", "id")) == [0, 6]
    project.execute("set session sql_mode = ''", "insert into days values (8, '2024-12-02'), (9, '2025-03-00')")
    line = project.one("days")
    assert line["status"] == "warning" and line["message"].startswith("7 rows"), line
    assert str(line["watermark"]["new"]).startswith("2024-12-02"), "the highest date has no day, and is no watermark"
    assert project.audit("days")["days"]["status"] == "equal"
    accepted = line["message"].partition("where: '")[2].partition("'}}")[0].replace("''", "'")
    project.configure(containers={"days": {"partition_by": "month", "where": accepted}})
    assert project.one("days")["status"] in ("synced", "skipped")
    assert sorted(id_ for (id_,) in project.rows("days", "id")) == [0, 6, 8]


@pytest.mark.long
def test_dates_of_very_many_years_are_looked_through_for_those_without_a_month(shop: Callable[..., MySQLProject]) -> None:
    project = shop(incremental=["days:value:date!upsert"])
    project.execute("create table days (id int primary key, value date)", "set session sql_mode = ''")
    project.execute("insert into days values (1, '0900-01-01'), (2, '1500-00-00'), (3, '2024-01-00'), (4, '2024-01-01')")
    assert project.one("days")["message"].startswith("2 rows of the source are left out")
    assert sorted(id_ for (id_,) in project.rows("days", "id")) == [1, 4]


@pytest.mark.long
def test_zero_dates_are_null_if_the_user_says_so(shop: Callable[..., MySQLProject]) -> None:
    """The message of the refusal names this way out."""
    project = shop(zero_dates="null")
    project.execute(*DATES)
    project.one("days")
    assert sorted(project.rows("days"), key=repr) == [(1, date(2024, 1, 1), None), (7, None, None)]


@pytest.mark.long
def test_zero_dates_are_carried_as_text_if_the_user_says_so(shop: Callable[..., MySQLProject]) -> None:
    """The message of the refusal names this way out, too."""
    project = shop(containers={"days": {"text_columns": ["value", "at"]}})
    project.execute(*DATES)
    project.one("days")
    assert (7, "0000-00-00", "2024-01-00 00:00:00") in project.rows("days")


def test_a_column_that_cannot_be_carried_is_left_out_and_said(shop: Callable[..., MySQLProject], capfd: pytest.CaptureFixture[str]) -> None:
    """One column for places would end the whole datastore, for ever; left out without a word, it would be missed later."""
    project = shop(incremental=["places:id:integer!upsert"])
    project.execute(
        "create table places (id int primary key, at point, note int)",
        "create table only_places (at point)",
        "create table others (id int primary key)",
        "insert into places values (1, point(1, 2), 5)",
        "insert into others values (1)",
    )
    said = "left out, as the lake cannot have it: 'at' is point"
    lines = project.sync()
    assert lines["others"]["status"] == "synced" and lines["places"]["status"] == "synced", lines
    assert project.rows("places") == [(1, 5)] and said in capfd.readouterr().err
    refused = lines["only_places"]
    assert refused["status"] == "failed" and "none of its columns can be carried ('at' is point" in refused["message"]
    project.execute("insert into places values (2, point(1, 2), 6)", "update places set note = 7 where id = 1")
    line = project.one("places")
    assert line["status"] == "synced" and said not in capfd.readouterr().err, "it is said at the first load"
    assert project.audit("places")["places"]["status"] == "equal" and len(project.rows("places")) == 2


@pytest.mark.long
def test_a_column_that_cannot_be_carried_is_named_by_catalog_and_dry_run(shop: Callable[..., MySQLProject]) -> None:
    """Who looks at what would be synced would not see that a column is missing."""
    project = shop()
    project.execute("create table places (id int primary key, at point)", "create table only_places (at point)")
    project.write()
    _, planned, _ = project.cli("sync", "shop", "--dry-run", "--json", check=1)
    by_name = {line["container"]: line for line in planned}
    assert "'at' is point" in by_name["shop/places"]["warnings"][0] and by_name["shop/only_places"]["status"] == "failed"
    _, known, _ = project.cli("catalog", "shop", "--json")
    by_name = {line["container"]: line for line in known}
    assert by_name["shop/places"]["left_out"] == [{"name": "at", "why": "point, which cannot be carried"}]
    assert by_name["shop/places"]["trouble"] is None and "none of its columns" in by_name["shop/only_places"]["trouble"]
    project.configure(incremental=["places:at:integer"])
    project.write()
    _, _, said = project.cli("sync", "shop", check=2)
    assert "shop/places: incremental: column 'at' is point, which cannot be carried." in said


@pytest.mark.long
def test_a_table_without_snapshots_is_refused(shop: Callable[..., MySQLProject]) -> None:
    """MyISAM and the like show each change at once: a read would see some rows before it and some after."""
    project = shop()
    project.execute("create table plain (id int primary key) engine = MyISAM")
    line = project.one("plain", ok=False)
    assert line["status"] == "failed" and "its engine is MyISAM" in line["message"]


@pytest.mark.parametrize(
    "type_",
    [
        "datetime(6)",
        *long("date", "timestamp(6)", "bigint unsigned", "decimal(20,0)", "int"),
    ],
)
def test_source_and_lake_mean_the_same_rows_by_a_partition(type_: str, shop: Callable[..., MySQLProject]) -> None:
    """A refreshed partition replaces rows of the lake by rows of the source: if both mean different ones, some are lost or doubled."""
    is_time = type_.startswith(("date", "time"))
    values = ["'2024-01-31'", "'2024-02-01'", "'2024-02-29'", "'2024-03-01'"] if is_time else ["9", "10", "19", "20"]
    if type_.endswith("(6)"):
        values += ["'2024-01-31 23:59:59.999999'", "'2024-02-29 23:59:59.999999'"]
    kind = "integer" if not is_time else "date" if type_ == "date" else "timestamp"
    by: Any = "month" if is_time else 10
    project = shop(incremental=[f"rows_of:k:{kind}"], containers={"rows_of": {"partition_by": by}})
    project.execute(
        f"create table rows_of (id int primary key auto_increment, k {type_} not null, value int default 0, key (k))",
        *(f"insert into rows_of (k) values ({value})" for value in values),
    )
    project.one("rows_of")
    project.execute("update rows_of set value = 1")
    key = "2024-02-01" if is_time else "10"
    project.one("rows_of", keys=(key, key))
    inside = "k >= '2024-02-01' and k < '2024-03-01'" if is_time else "k >= 10 and k < 20"
    expected = {row[0] for row in project.ask(f"select id from rows_of where {inside}")}
    assert {row[0] for row in project.rows("rows_of", "id", "value = 1")} == expected
    assert len(project.rows("rows_of")) == len(values)
