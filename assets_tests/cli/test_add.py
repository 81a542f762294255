"""``add``, ``remove`` and ``init --url``: the file that they write, what stays where they fail, and that no name in a source writes YAML.

Belongs here: the commands as a user types them. Does not belong: what is proposed for a table (``catalog/test_detect.py``).
"""

import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
import typer
import yaml
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql
from typer.testing import CliRunner

from assets_tests.harness import forget_modules
from incremental_assets.catalog import definition
from incremental_assets.cli import app
from incremental_assets.core.errors import ConfigurationError, SyncError
from incremental_assets.core.yaml_text import comment_text, flow
from incremental_assets.operations.new_datastore import NewDatastore
from incremental_assets.runs.loading import load_datastores

Run = Callable[..., str]
EVIL = "x\n  - injected: 1"
TEMPLATE = "{{ env.HOME }}"
TABLES = f"""
create table customer (id int primary key, updated_at timestamptz not null default now(), opened_on date not null, pad text);
alter table customer alter pad set storage external;
create function touch() returns trigger language plpgsql as $$ begin new.updated_at := now(); return new; end $$;
create trigger touch before update on customer for each row execute function touch();
insert into customer select g, now(), '2024-01-01'::date + g % 500, repeat('x', 9000) from generate_series(1, 2500) g;
create table events (id bigint generated always as identity primary key, at timestamptz not null default now(), payload text);
alter table events alter payload set storage external;
insert into events (payload) select repeat('x', 9000) from generate_series(1, 2500);
create table plans (id int primary key, updated_at timestamptz not null default now());
create trigger touch before update on plans for each row execute function touch();
insert into plans values (1);
create table orders (id int primary key, modified timestamptz);
create view recent as select * from customer where updated_at > now() - interval '1 day';
create materialized view kept as select * from orders;
create table "{EVIL}" (id bigint generated always as identity primary key, "a""b" int);
create view "{EVIL}*" as select 1 as x;
create table "{TEMPLATE}" (id bigint generated always as identity primary key, a int);
create view "v {TEMPLATE}" as select 1 as x;
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a command in a project of its own, and returns what it printed. An error is raised."""
    for variable in ("INCREMENTAL_ASSETS_PROJECT", "INCREMENTAL_ASSETS_LAKE", "DAGSTER_HOME"):
        monkeypatch.setenv(variable, "")  # so that what the commands set is undone
        monkeypatch.delenv(variable)
    monkeypatch.setenv("COLUMNS", "200")  # in narrower tables, texts are broken into several lines
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    forget_modules()

    def command(*words: str, answer: str | None = None) -> str:
        done = CliRunner().invoke(app, list(words), input=answer, catch_exceptions=True, standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        return done.output

    yield command
    forget_modules()


@pytest.fixture
def shop(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLES.encode())
        connection.execute("select pg_stat_force_next_flush()")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("analyze")
    return database


def attributes(file: Path) -> dict[str, Any]:
    return yaml.safe_load(file.read_text(encoding="utf-8"))["attributes"]


def test_a_project_with_a_url_has_a_datastore_that_loads(run: Run, shop: str, tmp_path: Path) -> None:
    """The first five minutes of a new user: one command, and what it has written is right, complete, and says why."""
    output = run("init", "lake", "--url", shop, "--name", "shop")
    file = tmp_path / "lake" / "defs" / "shop" / "defs.yaml"
    text, found = file.read_text(encoding="utf-8"), attributes(file)
    by_event = {"column": "opened_on", "every": "month"}
    customer = {"table": "public.customer", "column": "updated_at", "type": "timestamp", "strategy": "upsert", "partition_by": by_event}
    assert found["incremental"] == [customer], "partitioned by what its rows are about"
    assert "the trigger touch sets it at each change" in text, "each identifier has its reason"
    said = " ".join(text.replace("#", " ").split())
    assert '# - "public.orders:modified:timestamp!upsert"' in text, "what nothing guarantees is not used unasked"
    assert (
        '# - "public.events:id:integer"' in text
        and "no row was updated or deleted so far, while 2,500 came; but in 0 days, and 14 would prove it" in said
    ), "append only on proof"
    assert '# - "public.plans:updated_at:timestamp!upsert"' in text and "plans: small (0.0 MB): as well synced whole" in said
    assert "injected" not in found and found["catalog"] == {"schedule": "7 * * * *"}
    [store] = load_datastores(tmp_path / "lake")
    strategies = {definition.table.name: definition.container.strategy.value for definition in store.definitions}
    assert strategies == {
        "customer": "upsert",
        **dict.fromkeys(("events", "orders", "plans", "kept", EVIL, TEMPLATE, f"v {TEMPLATE}"), "snapshot"),
    }, "a view would be read whole each time, and is not synced"
    assert "shop/customer" in output and "upsert by updated_at, month" in output, output
    assert "shop: 8 containers" in output and len(output.splitlines()) < 22, "a line a table; all reasons are in the file"


def test_a_table_that_has_become_large_is_named_by_catalog_and_status(
    run: Run, shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks at a comment in the YAML again, and the table of twelve rows has a million, read whole each quarter of an hour."""
    run("init", "lake", "--url", shop, "--name", "shop")
    project = ("--project", str(tmp_path / "lake"))
    entry = '"public.plans:updated_at:timestamp!upsert"'
    assert entry not in run("catalog", *project) + run("status", *project)
    monkeypatch.setattr(definition, "WHOLE_BYTES", 1)
    for command in ("catalog", "status"):
        assert f"this reads only what is new: {entry}" in run(command, *project), command


def test_what_the_role_lacks_is_said_once_with_statements_that_give_it(run: Run, shop: str, tmp_path: Path) -> None:
    """A user would copy a statement that does not work, would not know what it is good for, or would read it in each message for ever."""
    role = "it's lake"
    url = shop.replace(shop.split("//")[1].split("@")[0], f"{quote(role)}:x")
    with psycopg.connect(shop, autocommit=True) as connection:
        for statement in (
            "drop role if exists {}", "create role {} login password 'x'", "grant usage on schema public to {}",
            "grant select on customer, events, orders, plans to {}",
        ):  # fmt: skip
            connection.execute(sql.SQL(statement).format(sql.Identifier(role)))
        try:
            project = ("--project", str(tmp_path / "lake"))
            said = run("init", "lake", "--url", url, "--name", "shop")
            block = [line.strip() for line in said.splitlines() if line.strip().startswith("GRANT ")]
            assert [line.split(" TO ")[0] for line in block] == [
                "GRANT SELECT ON ALL TABLES IN SCHEMA public", "GRANT pg_read_all_stats", "GRANT SELECT ON ALL SEQUENCES IN SCHEMA public",
            ]  # fmt: skip
            assert all("  -- without it, " in line for line in block)
            for line in block:
                connection.execute(line.encode())
            assert "GRANT" not in run("catalog", *project)
        finally:
            connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(role)))


def test_what_nobody_asks_a_lake_for_is_excluded(run: Run, shop: str, tmp_path: Path) -> None:
    """Each look at the tables would show what migration tools keep, and what a user has left out with his own words."""
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute("create table schema_migrations (version text primary key); create table tmp_old (id int primary key)")
    run("init", "lake")
    run("add", shop, "--name", "shop", "--only", "[a-z]*", "--exclude", "tmp_*", "--exclude", "kept", "--project", str(tmp_path / "lake"))
    found = attributes(tmp_path / "lake" / "defs" / "shop" / "defs.yaml")
    assert found["only"] == ["[a-z]*"] and found["exclude"][:3] == ["tmp_*", "kept", "schema_migrations"]
    [store] = load_datastores(tmp_path / "lake")
    synced = {definition.table.name for definition in store.definitions}
    assert synced == {"customer", "events", "orders", "plans", EVIL, f"v {TEMPLATE}"}, "a template is no pattern that could leave it out"


def test_the_password_is_only_in_a_file_of_the_owner(run: Run, shop: str, tmp_path: Path) -> None:
    """The YAML goes into version control, and a password in it to everybody."""
    run("init", "lake", "--url", shop, "--name", "shop")
    env = tmp_path / "lake" / ".env"
    password = shop.split(":")[2].split("@")[0]
    with_it = {path for path in (tmp_path / "lake").rglob("*") if path.is_file() and password in path.read_text(errors="replace")}
    assert with_it == {env} and stat.S_IMODE(env.stat().st_mode) == 0o600
    assert ".env" in (tmp_path / "lake" / ".gitignore").read_text().splitlines()


def test_a_url_in_the_environment_is_written_nowhere(run: Run, shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("init", "lake")
    monkeypatch.setenv("MY_SHOP", shop)
    run("add", "MY_SHOP", "--project", "lake", "--name", "shop")
    assert attributes(tmp_path / "lake" / "defs" / "shop" / "defs.yaml")["url"] == "{{ env.MY_SHOP }}"
    assert not (tmp_path / "lake" / ".env").exists()


@pytest.mark.parametrize("name", ["shop", None])
def test_a_source_that_cannot_be_reached_leaves_the_project_as_it_was(run: Run, tmp_path: Path, name: str | None) -> None:
    """A half-added datastore would break every later command of the project."""
    run("init", "lake")
    (tmp_path / "lake" / ".env").write_text("OTHER=1\n")
    before = sorted(path.name for path in (tmp_path / "lake" / "defs").iterdir() if path.name[0] not in "._")
    with pytest.raises(SyncError, match="cannot connect"):
        run("add", "postgresql://a:b@127.0.0.1:1/shop", "--project", "lake", *(["--name", name] if name else []))
    assert sorted(path.name for path in (tmp_path / "lake" / "defs").iterdir() if path.name[0] not in "._") == before
    assert (tmp_path / "lake" / ".env").read_text() == "OTHER=1\n"


def test_a_project_whose_first_datastore_could_not_be_added_says_how_to_go_on(run: Run) -> None:
    """A mistyped password is the first mistake of most users, and the same command does not work twice."""
    words = ["init", "my lake", "--url", "postgresql://a:b@127.0.0.1:1/shop", "--name", "shop"]
    done = CliRunner().invoke(app, words, standalone_mode=False)
    assert "cannot connect" in str(done.exception) and "cd 'my lake' && incremental-assets add URL --name shop" in done.output, done.output
    with pytest.raises(ConfigurationError, match="incremental-assets add URL"):
        run(*words)


@pytest.mark.parametrize(
    ("url", "name", "message"),
    [
        ("nonsense", None, "neither a URL nor an environment variable"),
        ("ftp://host/file", None, "no URL of a database"),
        ("postgresql://host/shop", "../shop", "cannot be called"),
        ("postgresql://host/", None, "cannot be called"),
        ("postgresql://a:${HOME}@host/shop", None, "characters that a URL writes as %XX"),
        ("postgresql://a:'b'@host/shop", None, "characters that a URL writes as %XX"),
    ],
)
def test_what_cannot_be_added_is_refused_before_anything_is_written(
    run: Run, tmp_path: Path, url: str, name: str | None, message: str
) -> None:
    run("init", "lake")
    with pytest.raises(ConfigurationError, match=message):
        run("add", url, "--project", "lake", *(["--name", name] if name else []))
    assert not (tmp_path / "lake" / ".env").exists()


def _added(run: Run, shop: str, schema: str, *tables: sql.SQL) -> str:
    """What `add` says of a new schema with these tables."""
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
        for table in tables:
            connection.execute(table)
    run("init", "lake")
    return run("add", shop, "--project", "lake", "--name", "shop", "--schema", schema)


def test_a_schema_without_tables_is_named_as_the_reason_that_nothing_is_synced(run: Run, shop: str) -> None:
    """A user whose tables are in another schema would go on to a sync that does nothing, and says nothing."""
    said = _added(run, shop, "bare")
    assert "no table was found" in said and "--schema NAME" in said, said


def test_a_column_for_which_only_spark_reads_the_table_is_named_before_that_is_made(run: Run, shop: str) -> None:
    """A first sync of minutes would make a table in which pandas finds no values, and the next one would be one to remember."""
    said = _added(run, shop, "named", sql.SQL('create table named.t (id int primary key, "first name" text, plain text)'))
    assert "shop/t: names of columns have a blank, or one of ,;{}()= (first name)" in said and "exclude_columns" in said, said
    assert "names of columns" not in run("catalog", "--project", "lake"), "it is said once"


def test_a_datastore_is_not_added_twice(run: Run, shop: str, tmp_path: Path) -> None:
    """The second one would overwrite what somebody has written into the first."""
    run("init", "lake", "--url", shop, "--name", "shop")
    file = tmp_path / "lake" / "defs" / "shop" / "defs.yaml"
    file.write_text(file.read_text() + "  timezone: Europe/Berlin\n")
    with pytest.raises(ConfigurationError, match="already there"):
        run("add", shop, "--project", "lake", "--name", "shop")
    file.parent.rename(file.parent.with_name("moved"))
    with pytest.raises(ConfigurationError, match="is called 'shop' already"):
        run("add", shop, "--project", "lake", "--name", "shop")
    assert attributes(tmp_path / "lake" / "defs" / "moved" / "defs.yaml")["timezone"] == "Europe/Berlin"


def test_a_removed_datastore_is_gone_with_its_url(run: Run, shop: str, tmp_path: Path) -> None:
    run("init", "lake", "--url", shop, "--name", "shop")
    (tmp_path / "lake" / ".env").open("a").write("OTHER='1'\n")
    with pytest.raises(typer.Abort):
        run("remove", "shop", "--project", "lake", answer="n\n")
    assert (tmp_path / "lake" / "defs" / "shop" / "defs.yaml").exists(), "it asks first"
    run("remove", "shop", "--project", "lake", answer="y\n")
    assert load_datastores(tmp_path / "lake") == []
    assert (tmp_path / "lake" / ".env").read_text() == "OTHER='1'\n"


def test_a_file_with_two_datastores_is_left_to_people(run: Run, shop: str, tmp_path: Path) -> None:
    run("init", "lake", "--url", shop, "--name", "shop")
    file = tmp_path / "lake" / "defs" / "shop" / "defs.yaml"
    text = file.read_text()
    file.write_text(text + "---\n" + text.replace("name: shop", "name: second"))
    with pytest.raises(ConfigurationError, match="several components"):
        run("remove", "shop", "--yes", "--project", "lake")
    assert file.exists()


def test_the_name_is_that_of_the_database() -> None:
    assert NewDatastore.of("postgresql://h/Shop%20one?sslmode=require", None, None, {}).name == "shop_one"


@given(st.text(min_size=1))
def test_any_text_is_one_line_of_yaml_that_means_it(text: str) -> None:
    """A table can be called anything, also like an entry of this file."""
    assert len(flow(text).splitlines()) == 1 and yaml.safe_load(flow(text)) == text
    assert yaml.safe_load(f"# {comment_text(text)}\nname: 1") == {"name": 1}
