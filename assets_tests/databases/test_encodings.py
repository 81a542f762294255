"""Databases whose encoding is not UTF-8: names and texts arrive as they are, and bytes that are no text are refused with their row.

Belongs here: the encodings of databases. Does not belong: texts that are hard in every encoding (``test_hostile_text``).
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from assets_tests.harness import Project, long
from incremental_assets.delta.engine import READ_BY
from incremental_assets.demo.postgres import EmbeddedPostgres

_numbers = itertools.count()
MakeProject = Callable[..., Project]


@pytest.fixture(params=["", *long("arrow", "jdbc")], ids=lambda by: by or "here", autouse=True)
def read_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(READ_BY, request.param)


@pytest.fixture
def encoded(postgres: EmbeddedPostgres, tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeProject]:
    """Makes a project over a new database of an encoding: ``encoded("LATIN1", incremental=[…])``."""
    for name in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    made: list[Project] = []

    def make(encoding: str, **attributes: Any) -> Project:
        name = f"encoded_{encoding.lower()}_{next(_numbers)}"
        with psycopg.connect(postgres.url(), autocommit=True) as admin:
            locale = "lc_collate 'C' lc_ctype 'C' locale_provider libc template template0"
            admin.execute(f"create database {name} encoding '{encoding}' {locale}".encode())
        made.append(Project(tmp_path / name, postgres.url(name), spark_home, **attributes))
        made[-1].source.execute("set client_encoding to 'UTF8'")
        return made[-1]

    yield make
    for one in made:
        one.source.close()


@pytest.mark.parametrize(
    ("encoding", "table", "column"),
    [("LATIN1", "Ünïcödé §", "größe"), ("SQL_ASCII", "日本 §", "größe"), *long(("EUC_JP", "日本 語", "語"))],
)
def test_names_and_texts_of_other_encodings_arrive(encoded: MakeProject, encoding: str, table: str, column: str) -> None:
    """Decoded by another encoding than they were sent in, they are other texts, or end the sync."""
    shop = encoded(encoding, incremental=[{"table": table, "column": column, "type": "integer", "strategy": "upsert"}])
    shop.execute(f'create table "{table}" ("{column}" int primary key, v text); insert into "{table}" values (1, \'{table}\'), (2, null)')
    shop.one(table)
    assert sorted(shop.rows(table)) == [(1, table), (2, None)]
    shop.execute(f"insert into \"{table}\" values (3, '{column}')")
    assert shop.one(table)["rows_read"] == 2 and shop.audit(table)[table]["status"] == "equal"


@pytest.mark.parametrize("name", ["v", *long("größe")])
def test_bytes_that_are_no_text_are_refused_with_column_and_key(encoded: MakeProject, name: str) -> None:
    """The server names neither of them, so that nobody would find what to correct among many rows."""
    shop = encoded("SQL_ASCII", incremental=["public.t:id:integer!upsert"])
    shop.execute(f'create table t (id int primary key, fine text, "{name}" varchar(20)); create table ok (id int)')
    shop.execute("insert into t select n, 'é', 'größe' from generate_series(1, 20) n")
    shop.execute(f"""update t set "{name}" = 'caf' || E'\\xe9' where id = 7""")
    lines = shop.sync()
    for part in (f"column '{name}'", "id = 7", f"binary_columns: [{name}]", f"exclude_columns: [{name}]", "nothing was written"):
        assert part in lines["t"]["message"], lines["t"]["message"]
    assert lines["t"]["status"] == "failed" and lines["ok"]["status"] == "synced"
    shop.configure(containers={"t": {"binary_columns": [name]}})
    assert shop.one("t", reset=True)["rows_read"] == 20, "what the message says helps"
    assert sorted(shop.rows("t"))[5:7] == [(6, "é", "größe".encode()), (7, "é", b"caf\xe9")]
    shop.execute(f"""update t set "{name}" = E'\\xff\\x5c' where id = 20""")
    assert shop.one("t")["rows_read"] == 1 and (20, "é", b"\xff\\") in shop.rows("t")
    assert shop.audit("t")["t"]["status"] == "equal"


@pytest.mark.long
def test_text_that_the_lake_has_already_becomes_bytes_by_a_reset(encoded: MakeProject) -> None:
    """Otherwise the option that the message names is refused for ever, or older rows are lost with it."""
    shop = encoded("SQL_ASCII", incremental=["public.t:id:integer!upsert"])
    shop.execute("create table t (id int primary key, v text); insert into t values (1, 'größe')")
    shop.one("t")
    shop.execute("insert into t values (2, E'\\xe9')")
    refused = shop.one("t", ok=False)
    assert refused["status"] == "failed" and "--reset-watermarks" in refused["message"], refused
    shop.configure(containers={"t": {"binary_columns": ["v"]}})
    assert "--reset-watermarks" in shop.one("t", ok=False)["message"]
    shop.one("t", reset=True)
    assert sorted(shop.rows("t")) == [(1, "größe".encode()), (2, b"\xe9")]


@pytest.mark.long
def test_bytes_in_a_key_are_refused_with_another_remedy(encoded: MakeProject) -> None:
    """Otherwise the message names an option that is refused for a key."""
    shop = encoded("SQL_ASCII", incremental=[{"table": "t", "column": "at", "type": "integer", "strategy": "upsert"}])
    shop.execute("create table t (id text primary key, at int not null); insert into t values (E'caf\\xe9', 1)")
    said = shop.one("t", ok=False)["message"]
    assert "column 'id'" in said and "binary_columns" not in said and "'hex'" in said, said
