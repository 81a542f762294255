"""What becomes of SQL Server's values and answers, without a server: the parts that are pure.

Belongs here: bounds, rows as the driver gives them, open transactions, the catalog's rows, addresses. Does not belong: the text of
statements (``test_sqlserver_statements``), and what a server does with them (``test_sqlserver_sync``).
"""

import random
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from assets_tests import hostile
from assets_tests.databases.sqlserver.known import SENT, TYPES, column, component, container, followed, table_of, whole
from incremental_assets.catalog.detect import propose
from incremental_assets.core.container import Kind
from incremental_assets.core.cursor_type import CursorType, parse_value
from incremental_assets.core.errors import ConfigurationError, SourceError
from incremental_assets.core.evidence import ColumnEvidence, TableEvidence
from incremental_assets.core.watermark import OpenTransactions, advance
from incremental_assets.core.window import Window
from incremental_assets.databases.plan_warnings import not_told, server_warnings
from incremental_assets.databases.source import Highest, Server
from incremental_assets.databases.sqlserver.connection import SQLServerAddress
from incremental_assets.databases.sqlserver.introspect import column_of, key_of, read_listing, tables_query, type_text
from incremental_assets.databases.sqlserver.keys import key_literal, of_lake, of_source
from incremental_assets.databases.sqlserver.queries import (
    literal,
    next_datetime,
    quoted,
    rowversion_literal,
    rowversion_number,
    scope_predicate,
    text_literal,
)
from incremental_assets.databases.sqlserver.reader import estimated_rows, step_of
from incremental_assets.databases.sqlserver.rows import table_of as rows_of
from incremental_assets.databases.sqlserver.session import weaker_promise
from incremental_assets.databases.sqlserver.transactions import look_of
from incremental_assets.databases.sqlserver.types import carried_columns


def test_a_row_of_every_type_is_what_the_lake_has() -> None:
    """A value that is rounded or shifted on the way from the driver would be wrong in the lake, silently."""
    one = whole()
    carried = carried_columns(one)
    rows = [(1, *(SENT[kind][0] for kind in TYPES)), (2, *(None for _ in TYPES))]
    found = rows_of(one, carried, rows, cuts_times=False).to_pylist()
    assert list(found[0].values())[1:] == [SENT[kind][1] for kind in TYPES]
    assert set(list(found[1].values())[1:]) == {None}


def test_a_time_that_is_finer_than_a_microsecond_is_refused_with_its_row_or_cut() -> None:
    """Cut without a word, the lake would not have what the source has."""
    one = container(table_of("t", [column("id", "int"), column("at", "datetime2")], ["id"]))
    rows = [(1, "2024-01-01 00:00:00.1234560"), (7, "2024-01-01 00:00:00.1234567")]
    with pytest.raises(ConfigurationError) as refused:
        rows_of(one, carried_columns(one), rows, cuts_times=False)
    for part in ("shop/t", "'at'", "id = 7", "finer_times: cut", "text_columns: [at]"):
        assert part in str(refused.value)
    cut = rows_of(one, carried_columns(one), rows, cuts_times=True).to_pylist()
    assert {row["at"] for row in cut} == {datetime(2024, 1, 1, 0, 0, 0, 123456)}
    as_text = replace(one, options=replace(one.options, text_columns=("at",)))
    kept = rows_of(as_text, carried_columns(as_text), rows, cuts_times=False).to_pylist()
    assert kept[1]["at"] == "2024-01-01 00:00:00.1234567"


def test_a_value_that_its_type_does_not_have_fails_by_name() -> None:
    """An answer that is not understood must not become some other value."""
    one = container(table_of("t", [column("id", "int"), column("n", "numeric")], ["id"]))
    with pytest.raises(SourceError, match=r"shop/t: column 'n'.*numeric\(9,0\)"):
        rows_of(one, carried_columns(one), [(1, "12.5")], cuts_times=False)


@pytest.mark.parametrize("value", [0, 1, 255, 256, 2001, 2**32, 2**63 - 1])
def test_a_rowversion_is_its_eight_bytes_and_back(value: int) -> None:
    """The bytes are compared from the highest on: in any other order the watermark would pass rows."""
    text = rowversion_literal(value)
    assert len(text) == 18 and rowversion_number(bytes.fromhex(text[2:])) == value
    assert rowversion_literal(value) < rowversion_literal(value + 1) if value < 2**63 - 1 else True
    assert literal("rowversion", CursorType.INTEGER, value) == text


def test_a_bound_below_all_rowversions_has_no_literal() -> None:
    """A lag may reach below 0, which no eight bytes are."""
    assert literal("rowversion", CursorType.INTEGER, -1) is None
    one = followed("rv")
    assert scope_predicate(one, [Window(-5, None)], False) == "(([rv] is not null))"
    assert scope_predicate(one, [Window(None, -5)], False) == "(1 = 0)"


def test_the_watermark_of_a_rowversion_stays_below_the_open_transactions() -> None:
    """A row that is committed late has a lower rowversion than those that are visible already."""
    highest = Highest.limited(seen=90, limit=41, settled=None, clock=0, sequence=95)
    assert highest.value == 41 and highest.seen == 90
    look = look_of([], [])
    moved = advance(30, (), highest.value, OpenTransactions(), look.activity, True, highest.withheld)
    assert moved.watermark == 41


def test_a_rowversion_needs_no_lag_and_warns_of_no_permission() -> None:
    """It is exact: what the server says of it needs no permission, and no row below it comes later."""
    one = followed("rv")
    assert one.lag == 0 and "rowversion" in one.lag_reason
    blind = Server("a/b", 16, 0, False, False, shows_activity=False, hides_transactions=True)
    assert any("cannot see which transactions are open" in warning for warning in not_told(followed("id"), blind))


def test_a_database_without_snapshots_warns_and_says_what_to_do() -> None:
    """The user would rely on rows of one moment."""
    server = Server("a/b", 16, 0, False, False, weaker_promise=weaker_promise("sh]op", is_versioned=False))
    [warning] = server_warnings(whole(), server)
    assert "ALTER DATABASE [sh]]op] SET ALLOW_SNAPSHOT_ISOLATION ON;" in warning and "missed or read twice" in warning
    assert "one committed state" in weaker_promise("shop", is_versioned=True)


@pytest.mark.parametrize("millis", range(20))
def test_a_bound_of_a_datetime_selects_what_its_shown_value_says(millis: int) -> None:
    """A datetime of .007 is .0066667 to a finer type: the row at the watermark would not be read again, and its ties would be lost."""
    ticks = [round(tick * 1000 / 300) * 1000 for tick in range(9)]  # what SQL Server shows of each tick, in microseconds
    for micros in (millis * 1000, millis * 1000 + 1, millis * 1000 + 999):
        assert next_datetime(micros) == min(tick for tick in ticks if tick >= micros)


def test_literals_of_times_are_those_of_their_types() -> None:
    """A literal of another type would be compared with another precision, or fail where the type has no such day."""
    at = parse_value(CursorType.TIMESTAMP_NTZ, "2024-03-31 02:30:00.005001")
    assert literal("datetime2", CursorType.TIMESTAMP_NTZ, at) == "cast('2024-03-31T02:30:00.005001' as datetime2(6))"
    assert literal("datetime", CursorType.TIMESTAMP_NTZ, at) == "convert(datetime, '2024-03-31T02:30:00.007', 126)"
    assert literal("datetimeoffset", CursorType.TIMESTAMP, at) == "cast('2024-03-31T02:30:00.005001+00:00' as datetimeoffset(6))"
    assert literal("date", CursorType.DATE, 0) == "cast('1970-01-01' as date)"
    early = parse_value(CursorType.TIMESTAMP_NTZ, "1752-12-31 23:59:59")
    late = parse_value(CursorType.TIMESTAMP_NTZ, "9999-12-31 23:59:59.998")
    assert literal("datetime", CursorType.TIMESTAMP_NTZ, early) is literal("datetime", CursorType.TIMESTAMP_NTZ, late) is None


@pytest.mark.parametrize(("base", "type_", "step"), [("datetime", "datetime", 10_000), ("smalldatetime", "smalldatetime", 60_000_000),
                                                     ("datetime2", "datetime2(7)", 1), ("datetime2", "datetime2(0)", 1_000_000),
                                                     ("datetimeoffset", "datetimeoffset(3)", 1000)])  # fmt: skip
def test_the_watermark_of_a_coarse_time_lies_on_its_steps(base: str, type_: str, step: int) -> None:
    """A time is rounded to its type: a row made after the clock was read may have a value below it."""
    assert step_of(base, type_) == step


@pytest.mark.parametrize("seed", range(20))
def test_hostile_names_and_values_are_quoted(seed: int) -> None:
    """A name or a value that ends its literal becomes SQL."""
    chance = random.Random(seed)
    [name] = hostile.names(chance, 1)
    [select] = sqlglot.parse(f"select {quoted(name)}", read="tsql")
    assert select is not None and [one.name for one in select.find_all(exp.Identifier)] == [name]
    value = hostile.text(chance)
    digits = text_literal(value).split("0x")[1].split(" ")[0]
    assert bytes.fromhex(digits).decode("utf-16-le") == value and set(text_literal(value)) <= set("0123456789abcdefxhstnvrm() ")


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind not in ("float", "real", "image", "text", "ntext", "xml")])
def test_a_key_in_the_lake_is_the_key_in_the_source(kind: str) -> None:
    """A key that is not found in the source is deleted in the lake."""
    one = container(table_of("t", [column("id", kind)], ["id"]))
    [carried] = carried_columns(one)
    sent = SENT[kind][0]
    if carried.column.type in ("date", "timestamp", "timestamp_ntz"):
        cursor_type = {"date": CursorType.DATE, "timestamp": CursorType.TIMESTAMP}.get(carried.column.type, CursorType.TIMESTAMP_NTZ)
        text = str(parse_value(cursor_type, sent[:26]))
    elif kind == "bit":
        text = "true"
    else:
        text = sent.hex() if isinstance(sent, bytes) else str(sent)
    assert of_lake(carried, text) == of_source(carried, sent)
    assert sqlglot.parse_one(f"select {key_literal(carried, text)}", read="tsql") is not None


def test_sessions_hold_the_watermark_until_their_transaction_or_request_ends() -> None:
    """A session of a pool that is always in some transaction must not hold it for ever, and an idle one in an old one must."""
    before = look_of([(51, 500), (52, 900)], [(52, 7, "2024-01-01T00:00:00.000", 1, None), (None, 9, "2024-01-01T00:00:00.000", 4, "U-1")])
    assert before.noted == {"51/request", "52/7.2024-01-01T00:00:00.000"} and before.activity.prepared == {"U-1"}
    noted = OpenTransactions(prepared=before.activity.prepared, sessions=before.noted, noted_at=1000)
    same = noted.still_open(look_of([(51, 500)], [(52, 7, "2024-01-01T00:00:00.000", 1, None)]).activity)
    assert same.sessions == before.noted and not same.prepared
    newer = noted.still_open(look_of([(51, 2000)], [(52, 8, "2024-01-01T00:00:01.000", 1, None)]).activity)
    assert not newer
    begun = noted.still_open(look_of([], [(51, 8, "2024-01-01T00:00:00.000", 1, None)]).activity)
    assert begun.sessions == {"51/request"}, "whether its request began the transaction cannot be known"


def test_the_estimate_of_a_plan_is_read() -> None:
    """With an estimate of 0, millions of rows would be taken for a few."""
    plan = '<ShowPlanXML><StmtSimple StatementText="select 1" StatementEstRows="1.25e+006"/></ShowPlanXML>'
    assert estimated_rows(plan, 3) == 1_250_000
    assert estimated_rows("", 3) == 3 and estimated_rows("", None) == 0


def test_the_catalog_names_types_as_sql_server_writes_them() -> None:
    """A length in bytes would be twice that of the column, and ``timestamp`` would be taken for a time."""
    assert [type_text(*TYPES[kind]) for kind in ("nvarchar", "varchar", "nvarchar_max", "decimal", "datetime2", "date")] == [
        "nvarchar(50)", "varchar(50)", "nvarchar(max)", "decimal(38,10)", "datetime2(7)", "date",
    ]  # fmt: skip
    found = column("rv", "rowversion")
    assert (found.base, found.type) == ("rowversion", "rowversion") and found.origin.is_rowversion
    assert column("id", "bigint", identity=True).origin.in_turn
    down = column_of(("t", "id", "bigint", 8, 19, 0, False, True, None, -1, None), is_table=True)
    assert down.origin is not None and down.origin.counts_down and not down.origin.in_turn
    hidden = column_of(("t", "id", "bigint", 8, 19, 0, False, True, None, None, None), is_table=True)  # to a role that may not see it
    assert hidden.origin is not None and not hidden.origin.in_turn and hidden.origin.block is None and hidden.sequence is not None


@pytest.mark.parametrize("base", ["geography", "sql_variant", "assembly type", "vector"])
def test_a_column_that_cannot_be_carried_is_left_out_with_its_reason(base: str) -> None:
    """One such column would end the whole datastore; left out without a word, it would be missed later."""
    place = replace(column("at", "int"), base=base, type=base)
    found = container(table_of("t", [column("id", "int"), place], ["id"]))
    assert [one.name for one in found.columns] == ["id"] and found.left_out["at"].startswith(f"{base}, which cannot be carried")
    assert f"'at' is {base}" in found.left_out_note[0] and found.primary_key == ("id",)
    assert container(table_of("t", [column("id", "int"), place], ["id"]), containers={"t": {"exclude_columns": ["at"]}}).columns


@pytest.mark.parametrize(
    ("options", "said"),
    [({"hold_back": "writers"}, "hold_back"), ({"readers": 4}, "readers"), ({"capture": "log"}, "capture")],
)
def test_what_sql_server_cannot_do_is_refused_at_load_time(options: dict[str, Any], said: str) -> None:
    """Accepted and then not done, the user would rely on it."""
    table = table_of("t", [column("id", "int")], ["id"])
    with pytest.raises(ConfigurationError, match=said):
        container(table, incremental=["t:id:integer!upsert"], containers={"t": options})


def test_a_key_that_cannot_be_found_again_is_refused() -> None:
    """By a rounded literal, its row would not be found, and deleted in the lake."""
    with pytest.raises(ConfigurationError, match=r"the key 'id' is float"):
        container(table_of("t", [column("id", "float")], ["id"]))
    declared = [("t", "pk", True, True, False, "id")]
    assert key_of([column("id", "float")], [declared]) == (), "a table of a snapshot is synced all the same"
    assert key_of([column("id", "int")], [declared]) == ("id",)


def test_two_times_of_different_precision_are_refused_as_one_identifier() -> None:
    """One bound cannot be that of a datetime and of a datetime2."""
    table = table_of("t", [column("id", "int"), column("a", "datetime"), column("b", "datetime2")], ["id"])
    entry = {"table": "t", "column": ["a", "b"], "type": "timestamp", "strategy": "upsert"}
    with pytest.raises(ConfigurationError, match="different types"):
        container(table, incremental=[entry])


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "url is empty"),
        ("postgresql://u:p@h/d", "url is not sqlserver://"),
        ("sqlserver://u:p/w@h:1433/d", "special characters"),
        ("sqlserver://:p@h/d", "the user is missing"),
        ("sqlserver://u:p@h", "the database is missing"),
        ("sqlserver://u:p@h/d?trust=1", "trust"),
        ("sqlserver://u:p@h/d?encrypt=maybe", "encrypt"),
    ],
)
def test_a_wrong_url_is_refused_without_its_password(url: str, said: str) -> None:
    """A typing error must be named before anything is tried."""
    with pytest.raises(ConfigurationError, match=said) as refused:
        component(url=url).settings()
    assert "p/w" not in str(refused.value)


def test_the_server_must_prove_its_name_unless_the_url_says_otherwise() -> None:
    """Without TLS, whoever listens reads the password."""
    made = SQLServerAddress.parse("shop", "sqlserver://u:s3cret@h/d?ca=/ca.pem")
    assert made.encryption() == {"cafile": "/ca.pem", "validate_host": True}
    assert SQLServerAddress.parse("shop", "sqlserver://u:s3cret@h/d?encrypt=no").encryption() == {}
    assert "s3cret" not in repr(made) and "s3cret" not in made.display


def test_nobody_listens_is_said_without_the_password() -> None:
    """The message must say what to do, and logs are read by people who must not know the password."""
    address = SQLServerAddress.parse("shop", "sqlserver://u:s3cret@127.0.0.1:1/d?encrypt=no")
    with pytest.raises(SourceError, match="Check host and port in the datastore's url") as refused:
        address.connect()
    assert "s3cret" not in str(refused.value)


def test_a_view_has_no_relation_and_no_rowversion_origin() -> None:
    """A view may take its rowversion from one of several tables."""
    assert column_of(("v", "rv", "timestamp", 8, 0, 0, False, False, None, None, None), is_table=False).origin is None
    assert followed("rv").kind is Kind.TABLE


def test_the_catalog_proposes_a_rowversion() -> None:
    """It is the best identifier that a table of SQL Server can have, and the user would have to find that out."""
    columns = [column("id", "bigint", identity=True), column("mark", "rowversion")]
    found = propose(table_of("t", columns, ["id"]), TableEvidence({"id": ColumnEvidence(in_turn=True)}))
    assert (found.columns, found.strategy.value, found.trusted) == (("mark",), "upsert", True)
    assert "mark: it is a rowversion: the source itself sets it at each change" in found.reasons
    without_key = propose(table_of("t", columns, []), TableEvidence())
    assert without_key.columns != ("mark",)


def test_the_dry_run_shows_the_statement_of_the_read() -> None:
    """``--dry-run`` is how a user sees what would be read, before the server is asked."""
    one = followed("rv")
    shown = component().settings().dialect.describe_read(one, [Window(2001, None)], False)
    assert shown.startswith("select [key], ") and shown.endswith("from [dbo].[orders] where ((([rv] >= 0x00000000000007d1)))")


@pytest.mark.parametrize(("rows", "shown"), [(-1, None), (0, 0), (None, None)])
def test_an_estimate_that_the_server_does_not_have_is_not_shown(rows: int | None, shown: int | None) -> None:
    """The catalog would show a table of -1 rows, and a load would be planned for it."""

    class Answers:
        def rows(self, query: str) -> list[Any]:
            return [("t", "U", False, 1, rows, 8, None)] if query == tables_query("dbo") else []

    assert read_listing(Answers(), "dbo")["t"].rows == shown  # type: ignore[arg-type]
