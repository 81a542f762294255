"""Containers of SQL Server that no server is needed for, and every statement that the code makes of them.

Belongs here: these containers, and the list of statements. Does not belong: the checks (``test_sqlserver_statements``).
"""

import itertools
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from incremental_assets.core.comparison import Buckets, RowScope
from incremental_assets.core.container import Container, Kind, SourceTable
from incremental_assets.core.cursor_type import MICROS_PER_DAY
from incremental_assets.core.window import Window
from incremental_assets.dagster.components.sqlserver import SQLServerDatastore
from incremental_assets.dagster.components.tables import ContainerEntry, IncrementalEntry
from incremental_assets.databases.definition import TableDefinition
from incremental_assets.databases.sqlserver import connection, hashed_rows, introspect, keys, session, statements, transactions, watch
from incremental_assets.databases.sqlserver.introspect import column_of
from incremental_assets.databases.sqlserver.queries import domain_predicate
from incremental_assets.databases.sqlserver.reader import NO_SHOWPLAN, SHOWPLAN
from incremental_assets.databases.sqlserver.types import carried_columns

URL = "sqlserver://lake:secret@db:1433/shop"
# type in the catalog, length in bytes, precision, scale
TYPES: dict[str, tuple[str, int, int, int]] = {
    "bit": ("bit", 1, 1, 0), "tinyint": ("tinyint", 1, 3, 0), "smallint": ("smallint", 2, 5, 0), "int": ("int", 4, 10, 0),
    "bigint": ("bigint", 8, 19, 0), "decimal": ("decimal", 17, 38, 10), "numeric": ("numeric", 5, 9, 0), "money": ("money", 8, 19, 4),
    "smallmoney": ("smallmoney", 4, 10, 4), "float": ("float", 8, 53, 0), "real": ("real", 4, 24, 0), "date": ("date", 3, 10, 0),
    "time": ("time", 5, 16, 7), "datetime": ("datetime", 8, 23, 3), "smalldatetime": ("smalldatetime", 4, 16, 0),
    "datetime2": ("datetime2", 8, 27, 7), "datetimeoffset": ("datetimeoffset", 10, 34, 7), "char": ("char", 5, 0, 0),
    "varchar": ("varchar", 50, 0, 0), "varchar_wide": ("varchar", 8000, 0, 0), "varchar_max": ("varchar", -1, 0, 0),
    "nchar": ("nchar", 10, 0, 0), "nvarchar": ("nvarchar", 100, 0, 0), "nvarchar_max": ("nvarchar", -1, 0, 0), "text": ("text", 16, 0, 0),
    "ntext": ("ntext", 16, 0, 0), "xml": ("xml", -1, 0, 0), "binary": ("binary", 4, 0, 0), "varbinary_max": ("varbinary", -1, 0, 0),
    "image": ("image", 16, 0, 0), "uniqueidentifier": ("uniqueidentifier", 16, 0, 0), "hierarchyid": ("hierarchyid", 892, 0, 0),
    "rowversion": ("timestamp", 8, 0, 0),
}  # fmt: skip
UTC = timezone.utc
# What python-tds gives for the expression that is sent, and what the lake has.
SENT: dict[str, tuple[Any, Any]] = {
    "bit": (True, True), "tinyint": (255, 255), "smallint": (-32768, -32768), "int": (-(2**31), -(2**31)), "bigint": (-(2**63), -(2**63)),
    "decimal": ("-1234567890123456789012345678.0123456789", Decimal("-1234567890123456789012345678.0123456789")),
    "numeric": ("12", Decimal(12)), "money": ("-922337203685477.5808", Decimal("-922337203685477.5808")),
    "smallmoney": ("0.0001", Decimal("0.0001")), "float": (0.1, 0.1), "real": (0.10000000149011612, 0.10000000149011612),
    "date": ("0001-01-01", date(1, 1, 1)), "time": ("23:59:59.9999999", "23:59:59.9999999"),
    "datetime": ("1753-01-01 00:00:00.0070000", datetime(1753, 1, 1, 0, 0, 0, 7000)),
    "smalldatetime": ("2079-06-06 23:59:00.0000000", datetime(2079, 6, 6, 23, 59)),
    "datetime2": ("9999-12-31 23:59:59.9999990", datetime(9999, 12, 31, 23, 59, 59, 999999)),
    "datetimeoffset": ("2024-02-29 22:30:00.1234560", datetime(2024, 2, 29, 22, 30, 0, 123456, UTC)),
    "char": ("ab   ", "ab   "), "varchar": ("é€", "é€"), "varchar_wide": ("", ""), "varchar_max": ("x" * 9000, "x" * 9000),
    "nchar": ("𝄞", "𝄞"), "nvarchar": ("a'b]\\", "a'b]\\"), "nvarchar_max": ("\u2028", "\u2028"), "text": ("t", "t"), "ntext": ("n", "n"),
    "xml": ("<a/>", "<a/>"), "binary": (b"\0\xff\0\0", b"\0\xff\0\0"), "varbinary_max": (b"", b""), "image": (b"\x01", b"\x01"),
    "uniqueidentifier": ("6F9619FF-8B86-D011-B42D-00C04FC964FF", "6F9619FF-8B86-D011-B42D-00C04FC964FF"), "hierarchyid": ("/1/", "/1/"),
    "rowversion": (2001, 2001),
}  # fmt: skip
# By kind: the type as a table has it, and the literal of the value that is sent as ``SENT`` says.
VALUES: dict[str, tuple[str, str]] = {
    "bit": ("bit", "1"), "tinyint": ("tinyint", "255"), "smallint": ("smallint", "-32768"), "int": ("int", "-2147483648"),
    "bigint": ("bigint", "-9223372036854775808"), "decimal": ("decimal(38,10)", "-1234567890123456789012345678.0123456789"),
    "numeric": ("numeric(9,0)", "12"), "money": ("money", "-922337203685477.5808"), "smallmoney": ("smallmoney", "0.0001"),
    "float": ("float", "cast(0.1 as float)"), "real": ("real", "cast(0.1 as real)"), "date": ("date", "'0001-01-01'"),
    "time": ("time(7)", "'23:59:59.9999999'"), "datetime": ("datetime", "'1753-01-01T00:00:00.007'"),
    "smalldatetime": ("smalldatetime", "'2079-06-06T23:59:00'"), "datetime2": ("datetime2(7)", "'9999-12-31T23:59:59.9999990'"),
    "datetimeoffset": ("datetimeoffset(7)", "'2024-03-01T00:30:00.123456+02:00'"), "char": ("char(5)", "'ab'"),
    "varchar": ("varchar(50)", "N'é€'"), "varchar_wide": ("varchar(8000)", "''"),
    "varchar_max": ("varchar(max)", "replicate(cast('x' as varchar(max)), 9000)"),
    "nchar": ("nchar(2)", "N'𝄞'"), "nvarchar": ("nvarchar(50)", "N'a''b]\\'"), "nvarchar_max": ("nvarchar(max)", "nchar(8232)"),
    "text": ("text", "'t'"), "ntext": ("ntext", "N'n'"), "xml": ("xml", "N'<a/>'"), "binary": ("binary(4)", "0x00ff"),
    "varbinary_max": ("varbinary(max)", "0x"), "image": ("image", "0x01"),
    "uniqueidentifier": ("uniqueidentifier", "'6F9619FF-8B86-D011-B42D-00C04FC964FF'"), "hierarchyid": ("hierarchyid", "'/1/'"),
    "rowversion": ("rowversion", ""),
}  # fmt: skip
# By kind: literals of other values, each of which has another hash.
OTHER_VALUES: dict[str, tuple[str, ...]] = {
    "bit": ("0",), "tinyint": ("0",), "bigint": ("9223372036854775807",), "money": ("922337203685477.5807",),
    "float": ("cast(1.5 as float)", "cast(-0.1 as float)"), "date": ("'9999-12-31'",), "datetime2": ("'0001-01-01T00:00:00'",),
    "char": ("' ab'",), "varchar": ("N'É€'", "N'é€ '", "''"), "nvarchar": ("N'A''b]\\'",), "varbinary_max": ("0x00",),
    "hierarchyid": ("'/1/2/'",),
}  # fmt: skip
IDENTIFIERS = {"id": "integer", "rv": "integer", "at": "timestamp", "old": "timestamp", "zoned": "timestamp", "day": "date"}
_IDENTIFIERS_TYPES = {"id": "bigint", "rv": "rowversion", "at": "datetime2", "old": "datetime", "zoned": "datetimeoffset", "day": "date"}


def column(name: str, kind: str, *, nullable: bool = False, identity: bool = False) -> Any:
    """A column as the catalog's row describes it."""
    base, length, precision, scale = TYPES[kind]
    increment = 1 if identity else None
    return column_of(("t", name, base, length, precision, scale, nullable, identity, None, increment, None), is_table=True)


def component(**attributes: Any) -> SQLServerDatastore:
    attributes["incremental"] = [e if isinstance(e, str) else IncrementalEntry(**e) for e in attributes.get("incremental", [])]
    attributes["containers"] = {k: ContainerEntry(**v) for k, v in attributes.get("containers", {}).items()}
    return SQLServerDatastore(**{"name": "shop", "url": URL, **attributes})


def definition(table: SourceTable, **attributes: Any) -> TableDefinition:
    return TableDefinition(component(**attributes).settings(), table, 20_000)


def container(table: SourceTable, **attributes: Any) -> Container:
    return definition(table, **attributes).container


def table_of(name: str, columns: Sequence[Any], key: Sequence[str]) -> SourceTable:
    return SourceTable(name=name, kind=Kind.TABLE, columns=tuple(columns), primary_key=tuple(key))


def followed(by: str, name: str = "orders", renamed: str | None = None, value: str = "value") -> Container:
    """A container that is followed by one of ``IDENTIFIERS``. ``renamed``: another name of that column."""
    chosen = renamed or by
    columns = [column("key", "nvarchar"), column(value, "varchar", nullable=True), column(chosen, _IDENTIFIERS_TYPES[by])]
    entry = {"table": name, "column": [chosen], "type": IDENTIFIERS[by], "strategy": "upsert"}
    return container(table_of(name, columns, ["key"]), incremental=[entry])


def whole(names: Sequence[str] | None = None) -> Container:
    """A container without identifier, with a column of every type."""
    chosen = names or list(TYPES)
    columns = [column("id", "int"), *(column(name, kind, nullable=True) for name, kind in zip(chosen, TYPES, strict=False))]
    return container(table_of("things", columns, ["id"]))


def windows_of(one: Container) -> tuple[Window, ...]:
    """Windows with and without bounds, on the container's axis."""
    if one.identifier is None:
        return ()
    unit = MICROS_PER_DAY + 1 if one.identifier.cursor_type.value in ("local", "instant") else 1
    return (Window(19_000 * unit, 19_031 * unit), Window(20_000 * unit, None))


def statements_of(one: Container, key: Sequence[str] = ("ann'a",)) -> Iterator[tuple[str, str]]:
    """Every statement about the rows of one container, with the name of the function that makes it."""
    carried, windows = carried_columns(one), windows_of(one)
    scope = statements.scope_predicate(one, windows, True)
    yield "select_of", statements.select_of(one, carried, scope)
    yield "fingerprint_query", statements.fingerprint_query(one, carried, windows, True)
    yield "count_query", statements.count_query(one, windows, True)
    yield "any_query", statements.any_query(one, windows, False)
    yield "estimated_query", statements.estimated_query(one, windows, False)
    yield "object_query", statements.object_query(one)
    yield "last_drawn_query", statements.last_drawn_query(one)
    yield "duplicate_query", statements.duplicate_query(one, carried, windows, True)
    yield "filled_query", statements.filled_query(one, [column.name for column in one.columns], windows)
    yield "first_read", session.first_read(one)
    for condition in keys.keys_predicates(one, carried, [key, key]):
        yield "existing_query", keys.existing_query(one, carried, condition)
        yield "select_of (keys)", statements.select_of(one, carried, f"{condition} and {domain_predicate(one)}")
    hashed = hashed_rows.HashStatements(one, carried, [one.column for one in carried])
    whole = RowScope(windows, True) if windows else RowScope()
    yield "by_partition", hashed.by_partition(whole)
    yield "by_bucket", hashed.by_bucket(whole, 16)
    for statement in hashed.of_buckets(whole, Buckets(16, (3, 1))):
        yield "of_buckets", statement
    if one.identifier is not None:
        yield "highest_query", statements.highest_query(one, next(c for c in one.columns if c.name in one.identifier.columns))
        yield "lowest_query", statements.lowest_query(one)
        yield "nulls_query", statements.nulls_query(one)
        if not one.identifier.cursor_type.is_time:
            yield "starts_query", statements.starts_query(one, windows, 1000)


def statements_of_the_server(schema: str = "dbo", name: str = "orders") -> Iterator[tuple[str, str]]:
    """Every statement that is not about one container's rows."""
    yield "tables_query", introspect.tables_query(schema)
    yield "columns_query", introspect.columns_query(schema)
    yield "columns_query (named)", introspect.columns_query(schema, [name, "b"])
    yield "indexes_query", introspect.indexes_query(schema)
    yield "indexes_query (named)", introspect.indexes_query(schema, [name])
    yield "triggers_query", introspect.triggers_query(schema)
    yield "privileges_query", introspect.privileges_query(schema)
    yield "schemas_query", introspect.schemas_query()
    yield "span_query", introspect.span_query(schema, name, name, "{0}")
    yield "permission_query", transactions.permission_query()
    yield "requests_query", transactions.requests_query()
    yield "transactions_query", transactions.transactions_query()
    yield "who_query", transactions.who_query()
    yield "waiting_query", watch.waiting_query(55, 30)
    yield "server_query", session.server_query()
    yield "UTF8_QUERY", hashed_rows.UTF8_QUERY
    yield "LIMIT", statements.LIMIT
    yield "CLOCK", statements.CLOCK
    plain = [
        *connection.SETTINGS,
        SHOWPLAN,
        NO_SHOWPLAN,
        connection.SNAPSHOT_STATE,
        connection.SNAPSHOT_ISOLATION,
        session.BEGIN,
        session.ROLLBACK,
    ]
    yield from zip(itertools.repeat("a setting"), plain, strict=False)
