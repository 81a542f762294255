"""The comparison of a table in MariaDB with its lake, row by row: what ``compare`` is for PostgreSQL.

Belongs here: MariaDB's rows as the lines of ``canonical_text``. Does not belong: finding the differences (``compare``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from incremental_assets.core.names import backticked
from incremental_assets.demo.canonical_text import ESCAPES, NULL
from incremental_assets.demo.compare import CompareError, Comparison, compare_rows, open_lake

_ZONES = {"timestamp": "+00", "datetime": ""}
"""What follows a time in its text, by the names of the types."""


def compare_mariadb(connection: Any, table: str, lake: Path | str) -> Comparison:
    """Compare a table of the connection's database with the Delta table in ``lake``, each at one moment.

    ``connection``: of PyMySQL, without converters (``conv={}``). The types are those of the demo: integers, decimals, texts, dates and
    times. Raises CompareError if there is no such table on one of the sides, or if it has another type.
    """
    lake_rows = open_lake(lake)
    with connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00', max_statement_time = 0")
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        cursor.execute(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = database() AND table_name = %s "
            "ORDER BY ordinal_position",
            [table],
        )
        types = dict(cursor.fetchall())
    if not types:
        raise CompareError(f"The source has no table or view {table}. Check the name and its case.")
    for column, kind in types.items():
        if kind in ("float", "double", "bit", "binary", "varbinary", "blob", "tinyblob", "mediumblob", "longblob"):
            raise CompareError(f"{table}.{column} is of the type {kind}, which is not compared here.")
    return compare_rows(table, types, lambda columns: _Rows(connection, table, columns), lake_rows)


@dataclass(frozen=True)
class _Rows:
    """The ``SourceRows`` of a table, in the connection's snapshot."""

    connection: Any
    container: str
    columns: Sequence[tuple[str, str]]

    def __iter__(self) -> Iterator[bytes]:
        from pymysql.cursors import SSCursor

        chosen = ", ".join(backticked(name) for name, _ in self.columns)
        with self.connection.cursor(SSCursor) as cursor:
            cursor.execute(f"SELECT {chosen} FROM {backticked(self.container)}")
            for row in cursor:
                texts = (_text(value, _ZONES.get(kind)) for value, (_, kind) in zip(row, self.columns, strict=True))
                yield "\t".join(texts).encode()


def _text(value: str | bytes | None, zone: str | None) -> str:
    """A value as ``canonical_text`` prints it. ``zone``: what follows a time; None for values that are no times."""
    if value is None:
        return NULL
    text = value.decode() if isinstance(value, bytes) else value
    if zone is not None:
        return (text.rstrip("0").rstrip(".") if "." in text else text) + zone
    for character, escape in ESCAPES:
        text = text.replace(character, escape)
    return text
