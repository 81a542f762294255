"""Which rows a sync reads and replaces: the predicates of source and lake are compared with their windows, and fingerprints with changes.

Belongs here: SQL made from windows, run by a real PostgreSQL and a real Spark. Does not belong: which windows a sync chooses
(``test_watermark_rule``), and names in SQL text (``test_hostile_text``).
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from assets_tests.harness import Project
from incremental_assets.core.window import EVERYTHING, Window
from incremental_assets.databases.postgres import queries as in_source
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.delta import sql as in_lake
from incremental_assets.spark.session import open_session

MakeProject = Callable[..., Project]
DAY = 86_400 * 10**6
VALUES = [4, 5, 6, 9, 10, 11, None]
SCOPES = [(Window(5, 10),), (Window(None, 5),), (Window(10, None),), (Window(None, 5), Window(9, 10)), (EVERYTHING,), ()]
# Entry of the YAML, the columns' type, how a value is written, and how many steps of the cursor type one of ``VALUES`` is.
AXES = {
    "integers": ("public.t:a:integer", "bigint", "{}", 1),
    "dates": ("public.t:a:date", "date", "date '1970-01-01' + {}", 1),
    "instants": ("public.t:a:timestamp", "timestamptz", "timestamptz '1970-01-01 00:00:00Z' + {} * interval '1 day'", DAY),
    "times without zone": ("public.t:a:datetime", "timestamp", "timestamp '1970-01-01' + {} * interval '1 day'", DAY),
    "the later of two": (
        {"table": "t", "column": ["a", "b"], "type": "timestamp", "strategy": "upsert"},
        "timestamptz",
        "timestamptz '1970-01-01 00:00:00Z' + {} * interval '1 day'",
        DAY,
    ),
}
OF_SPARK = {"bigint": "bigint", "date": "date", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}


@pytest.mark.parametrize("cursor_type", AXES)
def test_source_and_lake_select_the_same_rows(project: MakeProject, spark_home: Path, cursor_type: str) -> None:
    """A row that only one of the two predicates selects would be lost or doubled by the sync that replaces the window."""
    entry, type_, literal, step = AXES[cursor_type]
    shop = project(incremental=[entry])
    shop.execute(f"create table t (id int primary key, a {type_}, b {type_})")
    rows: list[tuple[int | None, ...]] = list(
        itertools.product(VALUES, VALUES) if cursor_type == "the later of two" else ((v,) for v in VALUES)
    )
    for number, (a, *b) in enumerate(rows):
        written = ["null" if v is None else literal.format(v) for v in (a, *(b or [None]))]
        shop.execute(f"insert into t values ({number}, {', '.join(written)})")
    container = shop.definition("t").container
    identifier = container.identifier
    assert identifier is not None
    with open_session(spark_home, name="predicates") as spark:
        listed = shop.source.execute("select id, a::text, b::text from t").fetchall()
        spark.sql("set time zone 'UTC'")
        cast = ", ".join(f"({i}, cast({_text(a)} as {OF_SPARK[type_]}), cast({_text(b)} as {OF_SPARK[type_]}))" for i, a, b in listed)
        spark.sql(f"select * from values {cast} as t(id, a, b)").createOrReplaceTempView("rows")
        for scope, nulls in itertools.product(SCOPES, (False, True)):
            windows = [Window(*(None if bound is None else bound * step for bound in (w.lower, w.upper))) for w in scope]
            expected = {n for n, row in enumerate(rows) if _selected(row, scope, nulls)}
            predicate = in_source.scope_predicate(container, windows, nulls)
            query = sql.SQL("select id from t where {}").format(predicate)
            assert {id_ for (id_,) in shop.source.execute(query).fetchall()} == expected, predicate.as_string(None)
            predicate_of_the_lake = in_lake.scope_predicate(identifier, windows, nulls)
            assert {id_ for (id_,) in spark.sql(f"select id from rows where {predicate_of_the_lake}").collect()} == expected, (
                predicate_of_the_lake
            )


def _text(value: str | None) -> str:
    return "null" if value is None else f"'{value}'"


def _selected(row: tuple[int | None, ...], scope: tuple[Window, ...], nulls: bool) -> bool:
    values = [value for value in row if value is not None]
    return any(window.contains(max(values)) for window in scope) if values else nulls


def test_the_fingerprint_changes_with_rows_columns_and_settings(project: MakeProject) -> None:
    """A change that leaves the fingerprint as it was would be skipped by every later sync."""
    shop = project(incremental=["public.t:day:date"])
    shop.execute("create table t (id int, day date, note text); insert into t values (1, '2026-01-01', 'a'), (2, '2026-01-02', 'b')")

    def fingerprint(**options: Any) -> str | None:
        shop.configure(containers={"t": options})
        definition = shop.definition("t")
        with PostgresReader(definition.settings.address, definition.container, timezone="UTC") as reader:
            return reader.fingerprint([Window(None, None)], True)

    seen = [fingerprint()]
    assert fingerprint() == seen[0] is not None
    for change in (
        "update t set note = 'c' where id = 1",  # changes neither the count nor the maximum
        "delete from t where id = 2; insert into t values (2, '2026-01-02', 'b')",
        "insert into t values (3, null, 'c')",
        "alter table t add column more int",
        "alter table t alter note type varchar(9)",
        "alter table t alter id set not null",
    ):
        shop.execute(change)
        seen.append(fingerprint())
    seen += [fingerprint(where="id < 9"), fingerprint(exclude_columns=["note"]), fingerprint(text_columns=["id"])]
    assert len(set(seen)) == len(seen)
