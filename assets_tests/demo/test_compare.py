"""The comparison of lake and source, `demo.compare`, finds every difference, and none where there is none.

Tables here are written by delta-rs, so no Spark is needed. That the product's own tables equal their source is tested elsewhere.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from incremental_assets.demo.canonical_text import fields, lines
from incremental_assets.demo.compare import CompareError, Comparison, compare
from incremental_assets.demo.postgres import EmbeddedPostgres

UTC = timezone.utc
Row = tuple[object, ...]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    base = Path(tempfile.mkdtemp(prefix="compare-"))
    base.chmod(0o755)
    with EmbeddedPostgres(base / "postgres") as running:
        yield running
    shutil.rmtree(base)


@pytest.fixture
def url(server: EmbeddedPostgres) -> str:
    return server.create_database("compared", drop=True)


SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.decimal128(15, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("moment", pa.timestamp("us", tz="UTC")),
    ]
)
DDL = "CREATE TABLE t (id bigint, name text, amount numeric(15,2), day date, at timestamp, moment timestamptz)"
ROWS: list[Row] = [
    (
        number,
        None if number % 7 == 0 else f"Grüße\t{number}\\N\n",
        Decimal(number) / 4,
        date(2024, 1, 1) + timedelta(days=number),
        datetime(2024, 1, 1, 12, 0, 0, number),
        datetime(2024, 1, 1, 12, 0, 0, 100 * number, tzinfo=UTC),
    )
    for number in range(1, 200)
]


def compared(url: str, lake: Path, source: list[Row], in_lake: list[Row], ddl: str = DDL, schema: pa.Schema = SCHEMA) -> Comparison:
    """Write these rows to both sides and compare them."""
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(ddl.encode())
        places = ", ".join(["%s"] * len(schema))
        cursor.executemany(f"INSERT INTO t VALUES ({places})".encode(), source)
    columns = [pa.array([row[at] for row in in_lake], type=kind.type) for at, kind in enumerate(schema)]
    write_deltalake(str(lake), pa.table(columns, schema=schema))
    return compare(url, "t", lake)


def test_equal_rows_have_no_difference(url: str, tmp_path: Path) -> None:
    found = compared(url, tmp_path / "t", ROWS, list(reversed(ROWS)))
    assert found.equal
    assert (found.in_both, found.only_in_lake, found.only_in_source) == (199, 0, 0)


def test_two_empty_tables_have_no_difference(url: str, tmp_path: Path) -> None:
    found = compared(url, tmp_path / "t", [], [])
    assert found.equal and found.in_both == 0


def test_a_missing_row_is_found(url: str, tmp_path: Path) -> None:
    found = compared(url, tmp_path / "t", ROWS, ROWS[:50] + ROWS[51:])
    assert not found.equal
    assert (found.in_both, found.only_in_lake, found.only_in_source) == (198, 0, 1)
    assert found.examples_in_lake == []
    assert [example["id"] for example in found.examples_in_source] == ["51"]
    assert found.examples_in_source[0]["name"] == "Grüße\t51\\N\n"


def test_a_doubled_row_is_found(url: str, tmp_path: Path) -> None:
    found = compared(url, tmp_path / "t", ROWS, [*ROWS, ROWS[3], ROWS[3]])
    assert (found.in_both, found.only_in_lake, found.only_in_source) == (199, 2, 0)
    assert [example["id"] for example in found.examples_in_lake] == ["4", "4"]


def test_a_changed_microsecond_is_found(url: str, tmp_path: Path) -> None:
    changed = (*ROWS[9][:4], datetime(2024, 1, 1, 12, 0, 0, 11), ROWS[9][5])
    found = compared(url, tmp_path / "t", ROWS, [*ROWS[:9], changed, *ROWS[10:]])
    assert (found.in_both, found.only_in_lake, found.only_in_source) == (198, 1, 1)
    assert found.examples_in_lake[0]["at"] == "2024-01-01 12:00:00.000011"
    assert found.examples_in_source[0]["at"] == "2024-01-01 12:00:00.00001"


def test_null_differs_from_an_empty_text_and_from_the_text_null(url: str, tmp_path: Path) -> None:
    schema, ddl = pa.schema([("id", pa.int64()), ("name", pa.string())]), "CREATE TABLE t (id bigint, name text)"
    source: list[Row] = [(1, None), (2, ""), (3, "\\N"), (4, None)]
    found = compared(url, tmp_path / "t", source, [(1, ""), (2, None), (3, None), (4, None)], ddl, schema)
    assert (found.in_both, found.only_in_lake, found.only_in_source) == (1, 3, 3)
    assert {example["id"]: example["name"] for example in found.examples_in_source} == {"1": None, "2": "", "3": "\\N"}


def test_at_most_five_examples_are_shown(url: str, tmp_path: Path) -> None:
    found = compared(url, tmp_path / "t", ROWS, ROWS[:10])
    assert found.only_in_source == 189
    assert len(found.examples_in_source) == 5


def test_columns_on_one_side_only_are_found(url: str, tmp_path: Path) -> None:
    assert compared(url, tmp_path / "t", ROWS, ROWS).equal
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE t DROP COLUMN amount")
    dropped = compare(url, "t", tmp_path / "t")
    assert dropped.equal and dropped.columns_only_in_lake == ["amount"]
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE t ADD COLUMN more text")
    added = compare(url, "t", tmp_path / "t")
    assert not added.equal and added.columns_missing_in_lake == ["more"]
    assert compare(url, "t", tmp_path / "t", exclude=["more"]).equal


def test_only_rows_that_the_condition_selects_are_compared(url: str, tmp_path: Path) -> None:
    assert not compared(url, tmp_path / "t", ROWS, ROWS[100:]).equal
    assert compare(url, "t", tmp_path / "t", where="id > 100").equal


def test_rows_that_were_deleted_in_the_lake_are_found(url: str, tmp_path: Path) -> None:
    compared(url, tmp_path / "t", ROWS, ROWS)
    DeltaTable(str(tmp_path / "t")).delete("id = 5")
    found = compare(url, "t", tmp_path / "t")
    assert [example["id"] for example in found.examples_in_source] == ["5"]


def test_values_of_every_type_have_the_text_of_postgres(url: str, tmp_path: Path) -> None:
    """Thousands of values of each type, the same on both sides: the witness has the text that PostgreSQL has for them."""
    random = Random(3)
    doubles = [
        0.0,
        -0.0,
        1e15,
        1e14,
        123456789012345.0,
        1e-4,
        9.9e-5,
        1e300,
        5e-324,
        float("inf"),
        float("-inf"),
        0.1,
        1 / 3,
        -2.5e20,
    ]
    doubles += [random.uniform(-1, 1) * 10.0 ** random.randint(-30, 30) for _ in range(2000)]
    source: list[Row] = []
    for number, double in enumerate(doubles):
        single = pa.array([double if abs(double) < 1e38 or double in (float("inf"), float("-inf")) else 1.5], type=pa.float32())[0].as_py()
        moment = datetime(1, 1, 1) + timedelta(days=random.randint(0, 3_600_000), microseconds=random.choice([0, 1, 10, 120000, 999999]))
        source.append(
            (
                number,
                random.choice([True, False, None]),
                random.randint(-32768, 32767),
                double,
                single,
                Decimal(random.randint(-(10**28), 10**28)).scaleb(-10),
                Decimal(random.randint(0, 20)).scaleb(-20),
                random.randbytes(random.randint(0, 20)),
                "pad",
                moment.date(),
                moment,
                moment.replace(tzinfo=UTC),
            )
        )
    ddl = """CREATE TABLE t (id bigint, b bool, s smallint, d float8, f float4, n numeric(30,10),
             m numeric(38,20), y bytea, c char(7), day date, at timestamp, z timestamptz)"""
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("b", pa.bool_()),
            ("s", pa.int16()),
            ("d", pa.float64()),
            ("f", pa.float32()),
            ("n", pa.decimal128(30, 10)),
            ("m", pa.decimal128(38, 20)),
            ("y", pa.binary()),
            ("c", pa.string()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us")),
            ("z", pa.timestamp("us", tz="UTC")),
        ]
    )
    found = compared(url, tmp_path / "t", source, [(*row[:8], "pad    ", *row[9:]) for row in source], ddl, schema)
    assert found.equal, (found.examples_in_lake, found.examples_in_source)


def test_the_smallest_difference_of_a_floating_point_number_is_found(url: str, tmp_path: Path) -> None:
    schema = pa.schema([("d", pa.float64()), ("f", pa.float32())])
    ddl = "CREATE TABLE t (d float8, f float4)"
    found = compared(url, tmp_path / "t", [(0.1, 0.5), (float("nan"), None)], [(0.1 + 2e-17, 0.5), (float("nan"), None)], ddl, schema)
    assert (found.in_both, found.only_in_lake, found.only_in_source) == (1, 1, 1)
    assert found.examples_in_source == [{"d": "0.1", "f": "0.5"}]
    assert found.examples_in_lake == [{"d": "0.10000000000000002", "f": "0.5"}]


def test_dates_that_python_cannot_hold_are_compared(url: str) -> None:
    texts = ["0044-03-15 BC", "0001-12-31 BC", "0001-01-01", "9999-12-31", "10000-01-01", "200000-02-29", "4713-01-01 BC"]
    with psycopg.connect(url) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for text in texts:
            row = connection.execute(
                "SELECT day - date '1970-01-01', (extract(epoch FROM at) * 1000000)::bigint, at::text "
                "FROM (SELECT x::date AS day, x::timestamp + interval '1.5 seconds' AS at FROM (SELECT %s AS x) AS p) AS q",
                (text,),
            ).fetchone()
            assert row is not None
            days, ticks, printed = row
            batch = pa.record_batch(
                {
                    "day": pa.array([days, None], pa.int32()).cast(pa.date32()),
                    "at": pa.array([ticks, None], pa.int64()).cast(pa.timestamp("us")),
                }
            )
            assert lines(batch, ["day", "at"]) == [f"{text}\t{printed}".encode(), b"\\N\t\\N"]


def test_a_line_is_parsed_into_its_values() -> None:
    values = ["tab\there", "line\nend", "back\\slash\\", "\\N", "", None, "\\t", "\b\f\v\r"]
    batch = pa.record_batch({str(at): pa.array([value], pa.string()) for at, value in enumerate(values)})
    (line,) = lines(batch, [str(at) for at in range(len(values))])
    assert fields(line) == values
    assert line.count(b"\t") == len(values) - 1


def test_tables_that_cannot_be_compared_are_refused_with_a_remedy(url: str, tmp_path: Path) -> None:
    with pytest.raises(CompareError, match="Sync the container first"):
        compare(url, "t", tmp_path / "nowhere")
    write_deltalake(str(tmp_path / "t"), pa.table({"id": [1]}))
    with pytest.raises(CompareError, match=r"no table or view public\.t"):
        compare(url, "t", tmp_path / "t")
