"""Values of the types of H2 and Derby in the lake: each arrives as it is, or is refused with the name of its column, or left out with its
row.

Belongs here: values. Does not belong: which rows are read (``test_jdbc_sync``).
"""

import struct
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from assets_tests.databases.jdbc.project import POSTGRES, JdbcProject
from assets_tests.harness import long
from incremental_assets.core.errors import ConfigurationError

FLOAT = struct.unpack("f", struct.pack("f", 0.1))[0]
BOTH: dict[str, list[tuple[str, Any]]] = {
    "smallint": [("-32768", -32768)],
    "bigint": [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)],
    "decimal(31,10)": [("-123456789012345678901.0123456789", Decimal("-123456789012345678901.0123456789"))],
    "real": [("0.1", FLOAT)],
    "double": [("0.1", 0.1), ("1.7976931348623157E308", 1.7976931348623157e308)],
    "boolean": [("true", True), ("false", False)],
    "date": [("'0001-01-01'", date(1, 1, 1)), ("'9999-12-31'", date(9999, 12, 31))],
    "timestamp": [("'1000-01-01 00:00:00.000001'", datetime(1000, 1, 1, 0, 0, 0, 1)),
                  ("'2024-03-31 02:30:00'", datetime(2024, 3, 31, 2, 30)),  # an hour that many zones do not have
                  ("'9999-12-31 23:59:59.999999'", datetime(9999, 12, 31, 23, 59, 59, 999999))],
    "time": [("'12:34:56'", "12:34:56")],
    "char(5)": [("'ab'", "ab   ")],
    "varchar(50)": [("'ü😀  '", "ü😀  "), ("''", ""), ("'a\\b''c\"'", "a\\b'c\"")],
    "clob": [("'long'", "long")],
}  # fmt: skip
OWN: dict[str, dict[str, list[tuple[str, Any]]]] = {
    "h2": {
        # Derby's own driver prints this day, which Java's calendar lacks, as another one.
        "date": [("'0001-01-01'", date(1, 1, 1)), ("'1582-10-10'", date(1582, 10, 10)), ("'9999-12-31'", date(9999, 12, 31))],
        "tinyint": [("-128", -128)],
        "decimal(37,20)": [("12345678901234567.12345678901234567890", Decimal("12345678901234567.12345678901234567890"))],
        "timestamp(6) with time zone": [("'2024-07-01 12:00:00.5+05:30'", datetime(2024, 7, 1, 6, 30, 0, 500000, timezone.utc)),
                                        ("'2024-07-01 12:00:00-08'", datetime(2024, 7, 1, 20, 0, tzinfo=timezone.utc))],
        "varbinary(10)": [("x'00ff27'", b"\x00\xff'")],
    },
    "derby": {
        "varchar(10) for bit data": [("x'00ff27'", b"\x00\xff'")],
        "blob": [("cast(x'00ff' as blob)", b"\x00\xff")],
    },
}  # fmt: skip


@pytest.mark.long
def test_values_of_every_type_arrive_unchanged(shop: Callable[..., JdbcProject]) -> None:
    """A value that is rounded, or shifted by a calendar or a time zone, would be wrong in the lake, silently."""
    project = shop(incremental=["THINGS:ID:integer"])
    values = {**BOTH, **OWN[project.server.kind.name]}
    project.execute(f"create table things (id int primary key, {', '.join(f'c{i} {type_}' for i, type_ in enumerate(values))})")
    most = max(map(len, values.values()))
    for n in range(most + 1):  # the last row has NULL everywhere
        given = [listed[n][0] if n < len(listed) else "null" for listed in values.values()]
        project.execute(f"insert into things values ({n}, {', '.join(given)})")
    assert project.one("THINGS")["rows_read"] == most + 1
    rows = {row[0]: row[1:] for row in project.rows("THINGS")}
    for i, (type_, listed) in enumerate(values.items()):
        expected = [value for _, value in listed] + [None] * (most + 1 - len(listed))
        assert [rows[n][i] for n in range(most + 1)] == expected, type_
    assert project.one("THINGS")["status"] == "skipped", "the fingerprint of the same rows must not change"
    assert project.audit("THINGS")["THINGS"]["status"] == "equal"


@pytest.mark.long
def test_a_time_finer_than_a_microsecond_is_refused_by_name_or_carried_as_text(shop: Callable[..., JdbcProject]) -> None:
    """Cut without a word, it would be another value in the lake."""
    project = shop()
    fine = "timestamp(9)" if project.server.kind.name == "h2" else "timestamp"
    project.execute(f"create table fine (id int, seen {fine})", "insert into fine values (1, '2024-01-01 00:00:00.123456789')")
    line = project.one("FINE", ok=False)
    assert line["status"] == "failed"
    for part in ("'SEEN'", "00:00:00.123456789", "shop/FINE"):
        assert part in line["message"], line["message"]
    project.configure(containers={"FINE": {"text_columns": ["SEEN"]}})
    project.one("FINE")
    assert project.rows("FINE") == [(1, "2024-01-01 00:00:00.123456789")]


@pytest.mark.long
def test_a_column_that_cannot_be_carried_is_left_out_and_said(shop: Callable[..., JdbcProject], capfd: pytest.CaptureFixture[str]) -> None:
    """One such column would end the whole datastore; left out without a word, it would be missed later; rounded, it would be wrong."""
    project = shop()
    if project.server.kind.name != "h2":
        pytest.skip("Derby has no decimals of more than 31 digits, and no catalog of the standard that would name a column")
    project.execute(
        "create table odd (id int primary key, wide decimal(60,40), said json, many int array, at geometry)",
        f"insert into odd (id, wide, said, many) values (1, 1.{'1' * 40}, json '1', array[1])",
        "create table others (id int primary key)",
        "insert into others values (1)",
    )
    lines = project.sync()
    said = capfd.readouterr().err
    assert project.rows("ODD") == [(1,)] and project.rows("OTHERS") == [(1,)] and lines["ODD"]["status"] == "synced", lines
    for part in ("'WIDE' is a decimal of 38 or more digits", "text_columns: [WIDE] carries it", "'SAID' is unknown (JSON)", "'MANY' is "):
        assert part in said, said
    project.configure(containers={"ODD": {"text_columns": ["WIDE"], "exclude_columns": ["SAID"]}})
    project.one("ODD", reset=True)
    assert project.rows("ODD") == [(1, f"1.{'1' * 40}")]
    project.configure(containers={"ODD": {"text_columns": ["SAID"]}})
    with pytest.raises(ConfigurationError, match=r"shop/ODD: text_columns: column 'SAID' is unknown \(JSON\)"):
        project.catalog()


@pytest.mark.long
@pytest.mark.parametrize("type_", [pytest.param("date", marks=pytest.mark.long), "timestamp", pytest.param("int", marks=pytest.mark.long)])
def test_source_and_lake_mean_the_same_rows_by_a_partition(type_: str, shop: Callable[..., JdbcProject]) -> None:
    """A refreshed partition replaces rows of the lake by rows of the source: if both mean different ones, some are lost or doubled."""
    values = ["9", "10", "19", "20"] if type_ == "int" else ["'2024-01-31'", "'2024-02-01'", "'2024-02-29'", "'2024-03-01'"]
    if type_ == "timestamp":
        values = [f"{value[:-1]} {clock}'" for value in values for clock in ("00:00:00", "23:59:59.999999")]
    kind, by = {"date": ("date", "month"), "timestamp": ("timestamp", "month"), "int": ("integer", 10)}[type_]
    project = shop(incremental=[f"ROWS_OF:K:{kind}"], containers={"ROWS_OF": {"partition_by": by}})
    project.execute(
        f"create table rows_of (id int primary key, k {type_} not null, note int default 0)",
        *(f"insert into rows_of (id, k) values ({n}, {value})" for n, value in enumerate(values)),
    )
    project.one("ROWS_OF")
    project.execute("update rows_of set note = 1")
    key = "10" if type_ == "int" else "2024-02-01"
    project.one("ROWS_OF", keys=(key, key))
    inside = [n for n, value in enumerate(values) if "-02-" in value or value in ("10", "19")]
    assert sorted(row[0] for row in project.rows("ROWS_OF", '"ID"', '"NOTE" = 1')) == inside
    assert len(project.rows("ROWS_OF")) == len(values)


@pytest.mark.long
@pytest.mark.parametrize("server", [POSTGRES], ids=lambda kind: kind.name, indirect=True)
@pytest.mark.parametrize(("type_", "word"), [("timestamp", "datetime"), *long(("date", "date"), ("timestamptz", "timestamp"))])
def test_infinity_in_the_identifier_does_not_keep_the_others_out(shop: Callable[..., JdbcProject], type_: str, word: str) -> None:
    """One such row would fail its container for ever, and all other rows with it."""
    project = shop(incremental=[f"days:at:{word}"], containers={"days": {"partition_by": "month"}})
    project.execute(f"create table days (id int primary key, at {type_})")
    project.execute("insert into days values (1, '2024-01-01'), (2, 'infinity'), (3, '2024-02-01'), (4, '-infinity')")
    line = project.one("days")
    assert line["status"] == "warning" and line["message"].startswith("2 rows of the source are left out"), line
    assert str(line["watermark"]["new"]).startswith("2024-02-01")
    project.execute("insert into days values (5, '2024-02-02'), (6, null)")
    assert project.one("days")["status"] == "warning"
    assert sorted(id_ for (id_,) in project.rows("days", "id")) == [1, 3, 5, 6]
    audited = project.audit("days")["days"]
    assert audited["status"] == "equal" and "2 rows of the source are left out" in audited["message"], audited
    accepted = line["message"].partition("where: '")[2].partition("'}}")[0].replace("''", "'")
    project.configure(containers={"days": {"partition_by": "month", "where": accepted}})
    assert project.one("days")["status"] in ("synced", "skipped")
    assert len(project.rows("days")) == 4
