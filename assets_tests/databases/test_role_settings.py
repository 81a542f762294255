"""Whatever a role or a database sets, syncs read the same rows with the same values.

Belongs here: each setting of PostgreSQL that a read depends on, at its worst. Does not belong: row security (``test_row_security``), and
the limits that a sync sets itself (``test_guest``).
"""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from assets_tests.databases.test_types import COLUMNS, TYPES, create, insert
from assets_tests.harness import Project, long
from incremental_assets.core.container import RowSecurity
from incremental_assets.databases.plan_warnings import server_warnings
from incremental_assets.databases.postgres.capture.slot_session import slot_session
from incremental_assets.databases.postgres.connection import ask
from incremental_assets.databases.postgres.extract import reader_statements
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.postgres.settings import OF_SESSION, READ, of_session
from incremental_assets.delta.engine import READ_BY
from incremental_assets.demo.compare import compare

MakeProject = Callable[..., Project]
WORST = {
    "timezone": "Asia/Kathmandu",
    "datestyle": "German, DMY",
    "intervalstyle": "sql_standard",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "xmlbinary": "hex",
    "xmloption": "document",
    "quote_all_identifiers": "on",
    "transform_null_equals": "on",
    "array_nulls": "off",
    "gin_fuzzy_search_limit": "1",
    "standard_conforming_strings": "off",
    "row_security": "on",
    "client_encoding": "LATIN1",
    "search_path": "decoys, pg_catalog",
    "idle_session_timeout": "300ms",
    "idle_in_transaction_session_timeout": "2s",
    "statement_timeout": "2s",
    "transaction_timeout": "2s",
    "lock_timeout": "1ms",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
}
# What is no business of a read: how long something takes, in which order rows come, and what is written to the server's log.
HARMLESS = (
    "Query Tuning",
    "Resource Usage",
    "Statistics",
    "Vacuuming",
    "Write-Ahead Log",
    "Developer",
    "Reporting",
    "Error",
    "Replication",
)
LEFT = {
    # They say what the application means.
    "lc_monetary", "lc_numeric", "lc_time", "default_text_search_config", "timezone_abbreviations",
    # Warnings, new tables and users, and the order of rows.
    "client_min_messages", "escape_string_warning", "icu_validation_level", "check_function_bodies", "createrole_self_grant",
    "default_table_access_method", "default_tablespace", "default_toast_compression", "temp_tablespaces", "gin_pending_list_limit",
    "md5_password_warnings", "password_encryption", "scram_iterations", "client_connection_check_interval", "synchronize_seqscans",
    "local_preload_libraries", "ssl_renegotiation_limit", "backslash_quote", "restrict_nonsystem_relation_kind",
    # They are those of one transaction, which says them itself.
    "transaction_deferrable", "transaction_isolation", "transaction_read_only",
    # They are set for each snapshot.
    "tcp_keepalives_count", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_user_timeout",
}  # fmt: skip
DECOYS = """create schema decoys; create table decoys.pg_class (relname text); create table decoys.pg_attribute (attname text);
    create function decoys.count(anyelement) returns bigint language sql as 'select 0::bigint';
    create function decoys.md5(text) returns text language sql as $$select 'x'$$;
    create function decoys.clock_timestamp() returns timestamptz language sql as $$select timestamptz '1999-01-01'$$;
    grant usage on schema decoys to odd; grant select on all tables in schema decoys to odd;"""


def as_odd_role(shop: Project, more: str = "") -> None:
    """Lets the project connect as a role whose settings are the worst ones."""
    if shop.source.execute("select 1 from pg_roles where rolname = 'odd'").rowcount == 0:  # a role belongs to all databases of a server
        shop.execute("create role odd login password 'x' replication")
    shop.execute(f"grant select on all tables in schema public to odd; alter role odd reset all; {DECOYS}{more}")
    for name, value in WORST.items():
        shop.execute(f"alter role odd set {name} = {value if name == 'search_path' else chr(39) + value + chr(39)}")
    shop.url = shop.url.replace(shop.url.split("//")[1].split("@")[0], "odd:x")


def assert_equal(shop: Project, owner: str, name: str) -> None:
    """Compares with what the owner sees. ``owner``: its URL."""
    found = compare(owner, name, shop.table(name).url)
    assert found.equal, found


@pytest.mark.parametrize("read_by", ["", *long("arrow", "jdbc")])
def test_all_rows_arrive_unchanged_with_the_worst_settings(project: MakeProject, monkeypatch: pytest.MonkeyPatch, read_by: str) -> None:
    """Text that is printed otherwise is another value, a condition that is read otherwise selects other rows, and a short time-out ends the
    sync of each larger table."""
    monkeypatch.setenv(READ_BY, read_by)
    shop = project(
        incremental=["public.upserted:at:timestamp!upsert", "public.found:id:integer"],
        containers={
            "upserted": {"deletes": "sweep", "deletes_every": "1 second"},
            "found": {"where": r"words @@ 'a'::tsquery and note ~ '^\S+$'"},
            "slow": {"primary_key": ["id"]},
        },
    )
    shop.execute(TYPES)
    create(shop, "upserted")
    insert(shop, "upserted")
    shop.execute("""create table found (id int primary key, note text,
          words tsvector generated always as (to_tsvector('simple', note)) stored);
        insert into found select n, 'a' from generate_series(1, 2000) n; insert into found values (3000, 'a b'), (3001, 'Ω');
        create index on found using gin (words); set enable_seqscan = off; analyze found;
        create view slow as select 1 as id, pg_sleep(2.5)::text as slept, 'Ω' as greek""")
    owner = shop.url
    as_odd_role(shop)
    shop.execute("alter role odd set enable_seqscan = off")
    if read_by != "jdbc":
        shop.execute("alter role odd reset quote_all_identifiers")  # with it, all is read through JDBC
    lines = shop.sync()
    assert not [line["message"] for line in lines.values() if line["status"] != "synced"]
    assert_equal(shop, owner, "upserted")
    assert len(shop.rows("found")) == 2000 and shop.rows("slow", "greek") == [("Ω",)]
    insert(shop, "upserted", 101, "2024-11-06")
    shop.execute("update upserted set at = '2024-11-07' where id < 3; delete from upserted where id = 4")
    shop.one("upserted", sweep=True)
    assert_equal(shop, owner, "upserted")
    assert shop.audit("upserted", "found")["upserted"]["status"] == "equal"


@pytest.fixture
def reader(project: MakeProject) -> PostgresReader:
    shop = project(incremental=["public.orders:id:integer"])
    shop.execute("create table orders (id int primary key); insert into orders values (1)")
    as_odd_role(shop)
    definition = shop.definition("orders")
    return PostgresReader(definition.settings.address, definition.container, timezone="UTC")


def test_each_transaction_has_the_settings_of_the_list(reader: PostgresReader) -> None:
    """A transaction that forgets one of them reads otherwise than the others: an audit finds differences, a key is not found again."""
    wanted = {**READ, "row_security": "off"}
    shown = "select name, case name when 'DateStyle' then current_setting(name) else setting end from pg_settings"

    def differences(rows: list[tuple[str, str]]) -> dict[str, Any]:
        found = {name.lower(): value for name, value in rows}
        return {name: found[name] for name, value in wanted.items() if found[name] != value}

    with reader:
        plan = ask(reader.live, shown)
        assert dict(plan)["statement_timeout"] == "3600000" and dict(plan)["transaction_timeout"] == "0"
        assert {name: dict(plan)[name] for name in OF_SESSION} == {"idle_session_timeout": "0", "standard_conforming_strings": "on"}
        assert dict(plan)["search_path"] == "pg_catalog, decoys, pg_catalog"
        with reader.snapshot():
            snapshot = reader.rows(shown)
            assert dict(snapshot)["search_path"] == "pg_catalog, decoys, pg_catalog"
            with psycopg.connect(reader.libpq_connection) as other:
                for statement in reader_statements(reader).split(";"):
                    other.execute(statement.encode())
                joined = other.execute(shown.encode()).fetchall()
        with slot_session(reader.address, "none") as other:
            log = other.execute(shown.encode()).fetchall()
    for where, rows in {"plan": plan, "snapshot": snapshot, "reader": joined, "log": log}.items():
        assert not differences(rows), where
        assert not [name for name, value in rows if name == "client_encoding" and value != "UTF8"], where


def test_a_role_that_quotes_all_names_is_read_through_jdbc(reader: PostgresReader) -> None:
    """ADBC would take each column for one of a type that it does not know, and the load of each large table would fail."""
    with reader:
        assert "quote_all_identifiers" in (reader.reason_against_libpq() or "")
        reader.live.execute("set transaction_read_only = off; alter role odd reset quote_all_identifiers")
    with reader:
        assert reader.reason_against_libpq() is None


def test_accepted_row_security_is_on_whatever_the_role_sets(reader: PostgresReader) -> None:
    with reader:
        reader.live.execute("set row_security = off")
        assert ask(reader.live, "show row_security", row_security=RowSecurity.ACCEPT) == [("on",)]


def test_every_setting_of_this_server_is_in_the_list_or_left_out_with_a_reason(database: str) -> None:
    """A new version of PostgreSQL may bring a setting that changes what is read."""
    with psycopg.connect(database) as connection:
        found = connection.execute(
            "select lower(name), category from pg_settings where context in ('user', 'backend', 'superuser-backend')"
        ).fetchall()
    known = {*WORST, *LEFT}
    assert {*READ, *OF_SESSION} <= set(WORST)
    unknown = [name for name, category in found if name not in known and not category.startswith(HARMLESS)]
    assert not unknown


def test_the_worst_settings_cover_all_columns() -> None:
    """The table of values has a column for each setting that changes how values are printed."""
    types = {type_ for type_, _ in COLUMNS.values()}
    assert {"bytea", "interval", "double precision", "real", "date", "timestamptz"} <= {t.split("(")[0] for t in types}


def test_settings_of_a_session_stay_behind_a_pooler_and_are_named(reader: PostgresReader) -> None:
    """The application would get the session with our settings; and without a word, nobody would know why a long wait ends in an error."""
    with reader:
        version = reader.live.info.server_version
        reader.live.execute("set idle_session_timeout = '1h'")
        reader.live.execute(of_session(version, 0).encode())  # a pooler says another process than the server has
        assert reader.server.not_set == ("idle_session_timeout",)
        warnings = server_warnings(reader.container, reader.server)
        assert [one for one in warnings if "ALTER ROLE … RESET idle_session_timeout" in one]
        reader.live.execute(of_session(version, reader.live.info.backend_pid).encode())
        assert reader.rows("show idle_session_timeout") == [("0",)]
