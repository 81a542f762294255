"""The comparison with MariaDB, ``demo.compare_mariadb``, finds every difference, and none where there is none.

The lake is written by delta-rs here, so no Spark is needed.
"""

from collections.abc import Callable
from contextlib import closing
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from assets_tests.databases.mysql.project import MySQLProject
from incremental_assets.demo.compare import CompareError, Comparison
from incremental_assets.demo.compare_mariadb import compare_mariadb

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
MOMENT = datetime(2026, 3, 1, 12, 0, 0, 120, timezone.utc)
ROWS: list[tuple[Any, ...]] = [
    (1, "a\tb\\\n'é", Decimal("1.10"), date(2026, 3, 1), datetime(2026, 3, 1, 10), MOMENT),
    (2, "", Decimal("-0.01"), date(1999, 12, 31), datetime(2026, 3, 1, 10, 0, 0, 500_000), MOMENT),
    (3, None, None, None, None, None),
]


def compared(shop: Callable[..., MySQLProject], lake: Path, in_source: list[tuple[Any, ...]], in_lake: list[tuple[Any, ...]]) -> Comparison:
    project = shop()
    with closing(project.session()) as session, session.cursor() as cursor:
        cursor.execute("set time_zone = '+00:00'")
        cursor.execute(
            "create table t (id bigint primary key, name text, amount decimal(15,2), day date, at datetime(6), moment timestamp(6) null)"
        )
        cursor.executemany("insert into t values (%s, %s, %s, %s, %s, %s)", in_source)
    columns = [pa.array(values, field.type) for values, field in zip(zip(*in_lake, strict=True), SCHEMA, strict=True)]
    write_deltalake(str(lake), pa.table(columns, schema=SCHEMA))
    with closing(project.server.connect(project.database, conv={})) as connection:
        return compare_mariadb(connection, "t", lake)


def test_equal_rows_are_equal_whatever_is_in_them(shop: Callable[..., MySQLProject], tmp_path: Path) -> None:
    found = compared(shop, tmp_path / "lake", ROWS, ROWS)
    assert found.equal and found.in_both == 3, found


@pytest.mark.long
@pytest.mark.parametrize("column", range(1, 6))
def test_a_difference_of_each_type_is_found(shop: Callable[..., MySQLProject], tmp_path: Path, column: int) -> None:
    """The demo ends with this comparison: if it saw no difference, it would prove nothing."""
    others = ("b", Decimal("1.11"), date(2026, 3, 2), datetime(2026, 3, 1, 10, 0, 0, 1), MOMENT.replace(microsecond=121))
    changed = [tuple(others[column - 1] if i == column else value for i, value in enumerate(ROWS[0])), *ROWS[1:]]
    found = compared(shop, tmp_path / "lake", ROWS, changed)
    assert (found.in_both, found.only_in_lake, found.only_in_source) == (2, 1, 1), found
    name = SCHEMA.names[column]
    assert found.examples_in_lake[0][name] != found.examples_in_source[0][name]


@pytest.mark.long
def test_a_missing_and_a_doubled_row_are_found(shop: Callable[..., MySQLProject], tmp_path: Path) -> None:
    found = compared(shop, tmp_path / "lake", ROWS, [ROWS[0], ROWS[1], ROWS[1]])
    assert (found.in_both, found.only_in_lake, found.only_in_source) == (2, 1, 1), found


def test_a_table_that_is_not_there_is_named(shop: Callable[..., MySQLProject], tmp_path: Path) -> None:
    project = shop()
    write_deltalake(str(tmp_path), pa.table({"id": [1]}))
    with closing(project.server.connect(project.database, conv={})) as connection, pytest.raises(CompareError, match="no table or view t"):
        compare_mariadb(connection, "t", tmp_path)
