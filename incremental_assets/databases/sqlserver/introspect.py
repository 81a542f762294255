"""Reads SQL Server's catalog: tables and views with their columns, keys and indexes, and the span of an identifier."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

from incremental_assets.core.container import Kind, Origin, SourceColumn, SourceTable
from incremental_assets.core.cursor_type import CursorType, parse_value
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.evidence import ColumnEvidence, ListedContainer, TableEvidence
from incremental_assets.databases.sqlserver.connection import Row, SQLServerAddress, SQLServerConnection, source_errors
from incremental_assets.databases.sqlserver.queries import ROWVERSION, quoted, text_literal
from incremental_assets.databases.sqlserver.transactions import IS_AZURE, SEES_ALL
from incremental_assets.databases.sqlserver.types import NO_KEY, identifier_text

IDENTITY = "IDENTITY"
"""The name of the sequence of a column that has it."""
_SIZED_IN_BYTES, _SIZED_IN_CHARACTERS = ("char", "varchar", "binary", "varbinary"), ("nchar", "nvarchar")
_WITH_FRACTION = ("datetime2", "datetimeoffset", "time")


def tables_query(schema: str) -> str:
    """All tables and views of a schema: name, type, whether it is external, id, rows, bytes, comment."""
    return (
        "select o.name, rtrim(o.type), coalesce(t.is_external, 0), o.object_id,"
        " (select sum(p.rows) from sys.partitions as p where p.object_id = o.object_id and p.index_id in (0, 1)),"
        " (select sum(a.total_pages) * 8192 from sys.partitions as p join sys.allocation_units as a on a.container_id = p.partition_id"
        " where p.object_id = o.object_id),"
        " cast(e.value as nvarchar(4000))"
        " from sys.objects as o left join sys.tables as t on t.object_id = o.object_id"
        " left join sys.extended_properties as e on e.major_id = o.object_id and e.minor_id = 0 and e.class = 1"
        " and e.name = 'MS_Description'"
        f" where o.type in ('U', 'V') and o.is_ms_shipped = 0 and schema_name(o.schema_id) = {text_literal(schema)} order by o.name"
    )


def columns_query(schema: str, names: Sequence[str] = ()) -> str:
    """The columns of all tables and views of a schema, or of the named ones. The type is that below a type of the user's own."""
    return (
        "select o.name, c.name, case when own.is_assembly_type = 1 and own.is_user_defined = 1 then 'assembly type'"
        " else coalesce(base.name, own.name) end, c.max_length, c.precision, c.scale, c.is_nullable, c.is_identity, d.definition,"
        " cast(i.increment_value as bigint), cast(e.value as nvarchar(4000))"
        " from sys.objects as o join sys.columns as c on c.object_id = o.object_id"
        " join sys.types as own on own.user_type_id = c.user_type_id"
        " left join sys.types as base on base.user_type_id = c.system_type_id"
        " left join sys.default_constraints as d on d.object_id = c.default_object_id"
        " left join sys.identity_columns as i on i.object_id = c.object_id and i.column_id = c.column_id"
        " left join sys.extended_properties as e on e.major_id = c.object_id and e.minor_id = c.column_id and e.class = 1"
        " and e.name = 'MS_Description'"
        f" where {_of_tables(schema, names)} order by o.name, c.column_id"
    )


def indexes_query(schema: str, names: Sequence[str] = ()) -> str:
    """The key columns of the indexes of all tables and views of a schema, or of the named ones; the primary key first."""
    return (
        "select o.name, i.name, i.is_primary_key, i.is_unique, i.has_filter, c.name"
        " from sys.objects as o join sys.indexes as i on i.object_id = o.object_id"
        " join sys.index_columns as k on k.object_id = i.object_id and k.index_id = i.index_id and k.key_ordinal > 0"
        " join sys.columns as c on c.object_id = k.object_id and c.column_id = k.column_id"
        f" where i.type in (1, 2) and i.is_disabled = 0 and i.is_hypothetical = 0 and {_of_tables(schema, names)}"
        " order by o.name, i.is_primary_key desc, i.index_id, k.key_ordinal"
    )


def triggers_query(schema: str) -> str:
    """The triggers of the tables of a schema, with a hash of their text where this user may see it."""
    return (
        "select o.name, r.name, r.is_disabled, convert(varchar(32), hashbytes('MD5', object_definition(r.object_id)), 2)"
        " from sys.objects as o join sys.triggers as r on r.parent_id = o.object_id"
        f" where {_of_tables(schema, ())} order by o.name, r.name"
    )


def schemas_query() -> str:
    """The names of all schemas."""
    return "select name from sys.schemas order by name"


def privileges_query(schema: str) -> str:
    """The statements that give this user what it lacks (``catalog.state.Catalog``). Which of them shows transactions is of the version."""
    user = "quotename(user_name())"
    own = f"quotename({text_literal(schema)})"
    state = (
        f"case when {IS_AZURE} then concat('GRANT VIEW DATABASE STATE TO ', {user})"
        " when convert(int, serverproperty('ProductMajorVersion')) >= 16"
        " then concat('USE master; GRANT VIEW SERVER PERFORMANCE STATE TO ', quotename(suser_sname()))"
        " else concat('USE master; GRANT VIEW SERVER STATE TO ', quotename(suser_sname())) end"
    )
    lacking = [
        (f"concat('GRANT VIEW DEFINITION ON SCHEMA::', {own}, ' TO ', {user})", "defaults of columns and changes of triggers are not seen",
         f"has_perms_by_name({own}, 'SCHEMA', 'VIEW DEFINITION') = 1"),
        (f"concat('GRANT SHOWPLAN TO ', {user})", "how many rows are read is estimated by those of the whole table",
         "has_perms_by_name(db_name(), 'DATABASE', 'SHOWPLAN') = 1"),
        (state, "whose transaction is open is not seen: the safety lag alone finds late rows, but for a rowversion",
         SEES_ALL),
    ]  # fmt: skip
    rows = [
        f"({number}, concat({statement}, ';  -- without it, {without}'), case when {has} then 1 else 0 end)"
        for number, (statement, without, has) in enumerate(lacking, start=1)
    ]
    return f"select m.statement from (values {', '.join(rows)}) as m (number, statement, has) where m.has = 0 order by m.number"


def span_query(schema: str, table: str, column: str, text: str) -> str:
    """The lowest and the highest value of a column. ``text``: SQL for the text of an aggregate ``{0}``."""
    name = quoted(column)
    low, high = text.replace("{0}", f"min({name})"), text.replace("{0}", f"max({name})")
    return f"select {low}, {high} from {quoted(schema)}.{quoted(table)}"


def _of_tables(schema: str, names: Sequence[str]) -> str:
    condition = f"o.type in ('U', 'V') and o.is_ms_shipped = 0 and schema_name(o.schema_id) = {text_literal(schema)}"
    return f"{condition} and o.name in ({', '.join(map(text_literal, names))})" if names else condition


class SQLServerCatalog:
    """The queries of the catalog operation for one schema, over one connection. All methods raise SourceError if a query fails.

    ``troubles``: messages by table, for tables that could not be inspected. ``missing_privileges``: see ``catalog.state.Catalog``.
    """

    def __init__(self, connection: SQLServerConnection, datastore: str, schema: str, address: SQLServerAddress) -> None:
        self._connection, self._datastore, self._schema, self._address = connection, datastore, schema, address
        self.troubles: dict[str, str] = {}
        self.missing_privileges: tuple[str, ...] = ()

    def listing(self) -> Mapping[str, ListedContainer]:
        """All tables and views of the schema by name. Raises ConfigurationError if there is no such schema."""
        with source_errors(self._datastore, self._address):
            found = read_listing(self._connection, self._schema)
            self.missing_privileges = tuple(str(row[0]) for row in self._connection.rows(privileges_query(self._schema)))
            schemas = [] if found else [str(row[0]) for row in self._connection.rows(schemas_query())]
        if not found and self._schema not in schemas:
            raise ConfigurationError(
                f"{self._datastore}: the database has no schema {self._schema!r} that this user may see; there are {', '.join(schemas)}."
            )
        return found

    def tables(self, names: Sequence[str]) -> Sequence[SourceTable]:
        """Those of the named tables and views that exist; sizes and spans are left out."""
        with source_errors(self._datastore, self._address):
            return read_tables(self._connection, self._schema, names)

    def evidence(self, names: Sequence[str]) -> Mapping[str, TableEvidence]:
        """The evidence by table: what IDENTITY and rowversion say, and unique indexes."""
        with source_errors(self._datastore, self._address):
            return read_evidence(self._connection, self._schema, names)

    def last_drawn(self, table: str, column: SourceColumn) -> int | None:
        """Always None: that an identity was set back is seen by the sync that finds its watermark above it."""
        return None

    def span(self, table: str, columns: Sequence[str], cursor_type: CursorType) -> tuple[int, int] | None:
        """The lowest and the highest value of the columns, as values of the cursor type; None if there is none."""
        with source_errors(f"{self._datastore}/{table}", self._address):
            types = {column.name: column for one in read_tables(self._connection, self._schema, [table]) for column in one.columns}
            ends: list[int] = []
            for name in columns:
                column = types[name]
                text = identifier_text(column.base, column.type, "{0}")
                for value in self._connection.rows(span_query(self._schema, table, name, text))[0]:
                    if value is not None:
                        ends.append(parse_value(cursor_type, str(value)))
            return (min(ends), max(ends)) if ends else None


def read_listing(connection: SQLServerConnection, schema: str) -> dict[str, ListedContainer]:
    """All tables and views of the schema by name. Raises the driver's errors."""
    said: dict[str, list[Row]] = defaultdict(list)
    for query in (columns_query(schema), indexes_query(schema), triggers_query(schema)):
        for row in connection.rows(query):
            said[str(row[0])].append(row)
    found: dict[str, ListedContainer] = {}
    for name, type_, is_external, identity, rows, size, comment in connection.rows(tables_query(schema)):
        text = repr((type_, comment, [tuple(row) for row in said[name]]))
        fingerprint = hashlib.md5(text.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()
        found[name] = ListedContainer(
            _kind(type_, is_external),
            fingerprint,
            None if rows is None or int(rows) < 0 else int(rows),
            None if size is None else int(size),
            identity=str(identity) if type_ == "U" else None,
        )
    return found


def read_tables(connection: SQLServerConnection, schema: str, names: Sequence[str]) -> list[SourceTable]:
    """The columns, keys and indexes of those of the named tables and views that exist. Raises the driver's errors."""
    if not names:
        return []
    kinds = {str(row[0]): (_kind(row[1], row[2]), row[6]) for row in connection.rows(tables_query(schema))}
    columns: dict[str, list[SourceColumn]] = defaultdict(list)
    for row in connection.rows(columns_query(schema, names)):
        table = str(row[0])
        columns[table].append(column_of(row, is_table=table in kinds and kinds[table][0] is Kind.TABLE))
    indexes: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in connection.rows(indexes_query(schema, names)):
        indexes[str(row[0])][str(row[1])].append(row)
    return [
        SourceTable(
            name=name,
            kind=kinds[name][0],
            columns=tuple(columns[name]),
            primary_key=key_of(columns[name], list(indexes[name].values())),
            indexed=tuple(dict.fromkeys(str(rows[0][5]) for rows in indexes[name].values())),
            comment=kinds[name][1] or None,
        )
        for name in names
        if name in kinds
    ]


def read_evidence(connection: SQLServerConnection, schema: str, names: Sequence[str]) -> dict[str, TableEvidence]:
    """The evidence by table. Raises the driver's errors."""
    if not names:
        return {}
    columns: dict[str, dict[str, ColumnEvidence]] = defaultdict(dict)
    for row in connection.rows(columns_query(schema, names)):
        columns[str(row[0])][str(row[1])] = ColumnEvidence(in_turn=bool(row[7]) and (row[9] or 0) > 0)
    unique: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for table, index, _, is_unique, has_filter, column in connection.rows(indexes_query(schema, names)):
        if is_unique and not has_filter:
            unique[str(table)][str(index)].append(str(column))
    return {name: TableEvidence(columns[name], tuple(tuple(one) for one in unique[name].values())) for name in names}


def column_of(row: Row, *, is_table: bool) -> SourceColumn:
    """The column that a row of ``columns_query`` describes."""
    _, name, base, length, precision, scale, is_nullable, is_identity, default, increment, comment = row
    # The catalog calls a rowversion "timestamp", which is a time everywhere else.
    base = ROWVERSION if base == "timestamp" else str(base)
    origin = None
    if is_table:
        in_turn = bool(is_identity) and (increment or 0) > 0
        block = int(increment) if is_identity and increment is not None else None
        counts_down = bool(is_identity) and (increment or 0) < 0
        origin = Origin(in_turn=in_turn, block=block, is_rowversion=base == ROWVERSION, counts_down=counts_down)
    sequence = IDENTITY if is_table and is_identity else None
    type_ = type_text(base, length, precision, scale)
    return SourceColumn(str(name), type_, base, not is_nullable, default, sequence, origin, comment or "")


def type_text(base: str, length: int, precision: int, scale: int) -> str:
    """A type as SQL Server writes it. The catalog counts the length in bytes, where -1 is ``max``."""
    if base in _SIZED_IN_BYTES or base in _SIZED_IN_CHARACTERS:
        size = "max" if length < 0 else str(length // 2 if base in _SIZED_IN_CHARACTERS else length)
        return f"{base}({size})"
    if base in ("decimal", "numeric"):
        return f"{base}({int(precision)},{int(scale)})"
    return f"{base}({int(scale)})" if base in _WITH_FRACTION else base


def key_of(columns: Sequence[SourceColumn], indexes: Sequence[Sequence[Row]]) -> tuple[str, ...]:
    """The columns of the primary key, or else of a unique index whose columns are all NOT NULL; empty if rows can be found by neither."""
    required = {column.name for column in columns if column.not_null and column.base not in NO_KEY}
    for rows in indexes:
        names = tuple(str(row[5]) for row in rows)
        if rows[0][3] and not rows[0][4] and set(names) <= required:
            return names
    return ()


def _kind(type_: str, is_external: object) -> Kind:
    if type_ == "V":
        return Kind.VIEW
    return Kind.FOREIGN if is_external else Kind.TABLE
