"""Reads MySQL's catalog: tables and views with their columns, keys and indexes, and the span of an identifier."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from incremental_assets.core.container import Kind, Origin, SourceColumn, SourceTable
from incremental_assets.core.cursor_type import CursorType, parse_value
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.evidence import ON_UPDATE, ColumnEvidence, ListedContainer, TableEvidence
from incremental_assets.databases.mysql.connection import MySQLAddress, MySQLConnection, Row, source_errors
from incremental_assets.databases.mysql.privileges import missing_privileges
from incremental_assets.databases.mysql.queries import is_zero_date, quoted, whole_predicate

_KINDS = {"BASE TABLE": Kind.TABLE, "SYSTEM VERSIONED": Kind.TABLE, "VIEW": Kind.VIEW}
_TABLES = """
select table_name, table_type, table_rows, data_length + index_length, unix_timestamp(update_time), table_comment
from information_schema.tables where table_schema = %s
"""
_COLUMNS = """
select table_name, column_name, column_type, data_type, is_nullable, column_default, extra, column_comment
from information_schema.columns where table_schema = %s {named} order by table_name, ordinal_position
"""
_INDEXES = """
select table_name, index_name, non_unique, seq_in_index, column_name, sub_part
from information_schema.statistics where table_schema = %s {named}
order by table_name, index_name = 'PRIMARY' desc, index_name, seq_in_index
"""
_TRIGGERS = """
select event_object_table, trigger_name, action_timing, event_manipulation, md5(action_statement)
from information_schema.triggers where event_object_schema = %s order by event_object_table, trigger_name
"""
AUTO_INCREMENT = "AUTO_INCREMENT"
"""The name of the sequence of a column that has it."""
_ON_UPDATE = re.compile(r"on update current_timestamp", re.IGNORECASE)


class MySQLCatalog:
    """The queries of the catalog operation for one database, over one connection. All methods raise SourceError if a query fails.

    ``troubles``: messages by table, for tables that could not be inspected. ``missing_privileges``: see ``catalog.state.Catalog``.
    """

    def __init__(self, connection: MySQLConnection, datastore: str, schema: str, address: MySQLAddress) -> None:
        self._connection, self._datastore, self._schema, self._address = connection, datastore, schema, address
        self.troubles: dict[str, str] = {}
        self.missing_privileges: tuple[str, ...] = ()

    def listing(self) -> Mapping[str, ListedContainer]:
        """All tables and views of the database by name. Raises ConfigurationError if there is no such database."""
        with source_errors(self._datastore, self._address):
            found = read_listing(self._connection, self._schema)
            view = next((name for name, one in found.items() if one.kind is Kind.VIEW), None)
            self.missing_privileges = missing_privileges(self._connection, self._schema, view)
            if not found and not self._connection.rows("select 1 from information_schema.schemata where schema_name = %s", [self._schema]):
                names = [str(row[0]) for row in self._connection.rows("select schema_name from information_schema.schemata")]
                raise ConfigurationError(
                    f"{self._datastore}: there is no database {self._schema!r} that this user may see; there are {', '.join(names)}."
                )
        return found

    def tables(self, names: Sequence[str]) -> Sequence[SourceTable]:
        """Those of the named tables and views that exist; sizes and spans are left out."""
        with source_errors(self._datastore, self._address):
            return read_tables(self._connection, self._schema, names)

    def evidence(self, names: Sequence[str]) -> Mapping[str, TableEvidence]:
        """The evidence by table: what ``ON UPDATE CURRENT_TIMESTAMP`` and AUTO_INCREMENT say. MySQL has no statistics of columns."""
        with source_errors(self._datastore, self._address):
            return read_evidence(self._connection, self._schema, names)

    def last_drawn(self, table: str, column: SourceColumn) -> int | None:
        """Always None: AUTO_INCREMENT cannot be set back below the rows that are there."""
        return None

    def span(self, table: str, columns: Sequence[str], cursor_type: CursorType) -> tuple[int, int] | None:
        """The lowest and the highest value of the columns, as values of the cursor type; None if there is none."""
        with source_errors(f"{self._datastore}/{table}", self._address):
            ends: list[list[int]] = [[], []]
            for column in columns:
                name = quoted(column)
                # Zero dates lie below all others, and are no value of a cursor type.
                dated = f" where {name} >= '0001-01-01'" if cursor_type.is_time else ""
                for end, aggregate in enumerate(("min", "max")):
                    query = f"select {aggregate}({name}) from {quoted(self._schema)}.{quoted(table)}{dated}"
                    text = self._connection.rows(query)[0][0]
                    if text is not None and cursor_type.is_time and is_zero_date(text):  # it has a year
                        text = self._connection.rows(f"{query} and {whole_predicate(name)}")[0][0]
                    if text is not None:
                        ends[end].append(parse_value(cursor_type, text))
            return (min(ends[0]), max(ends[1])) if ends[0] else None


def read_listing(connection: MySQLConnection, schema: str) -> dict[str, ListedContainer]:
    """All tables and views of the database by name. Raises PyMySQL's errors."""
    said: dict[str | None, list[Row]] = defaultdict(list)
    for query in (_COLUMNS.format(named=""), _INDEXES.format(named=""), _TRIGGERS):
        for row in connection.rows(query, [schema]):
            said[row[0]].append(row)
    found: dict[str, ListedContainer] = {}
    for name, kind, rows, size, updated, comment in connection.rows(_TABLES, [schema]):
        if kind not in _KINDS or name is None:  # a sequence of MariaDB
            continue
        text = repr((kind, comment, said[name]))
        fingerprint = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
        activity = None if updated is None else int(float(updated))
        found[name] = ListedContainer(_KINDS[kind], fingerprint, _number(rows), _number(size), activity)
    return found


def read_tables(connection: MySQLConnection, schema: str, names: Sequence[str]) -> list[SourceTable]:
    """The columns, keys and indexes of those of the named tables and views that exist. Raises PyMySQL's errors."""
    columns: dict[str, list[SourceColumn]] = defaultdict(list)
    kinds = {str(row[0]): (row[1], row[5]) for row in connection.rows(_TABLES, [schema])}
    for row in _of_tables(connection, _COLUMNS, schema, names):
        table = str(row[0])
        is_table = _KINDS.get(str(kinds.get(table, (None, None))[0])) is Kind.TABLE
        columns[table].append(_column(row, is_table))
    indexes: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in _of_tables(connection, _INDEXES, schema, names):
        indexes[str(row[0])][str(row[1])].append(row)
    found: list[SourceTable] = []
    for name in names:
        kind, comment = kinds.get(name, (None, None))
        if kind not in _KINDS:
            continue
        parts = list(indexes[name].values())
        found.append(
            SourceTable(
                name=name,
                kind=_KINDS[str(kind)],
                columns=tuple(columns[name]),
                primary_key=_key(columns[name], parts),
                indexed=tuple(dict.fromkeys(str(rows[0][4]) for rows in parts if rows[0][4] is not None)),
                comment=(comment or None) if kind != "VIEW" else None,
            )
        )
    return found


def read_evidence(connection: MySQLConnection, schema: str, names: Sequence[str]) -> dict[str, TableEvidence]:
    """The evidence by table. Raises PyMySQL's errors."""
    columns: dict[str, dict[str, ColumnEvidence]] = defaultdict(dict)
    for table, name, _, _, _, _, extra, _ in _of_tables(connection, _COLUMNS, schema, names):
        on_update = ON_UPDATE if _ON_UPDATE.search(extra or "") else None
        columns[str(table)][str(name)] = ColumnEvidence(at_update=on_update, in_turn="auto_increment" in (extra or ""))
    unique: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for table, index, non_unique, _, column, _ in _of_tables(connection, _INDEXES, schema, names):
        if non_unique == "0":
            unique[str(table)][str(index)].append(str(column))
    return {name: TableEvidence(columns[name], tuple(tuple(one) for one in unique[name].values())) for name in names}


def _of_tables(connection: MySQLConnection, query: str, schema: str, names: Sequence[str]) -> list[Row]:
    """The rows of the named tables. To the server's catalog, names that differ in case are equal, and it leaves all but one of them out of
    a list; as bytes they differ. A single name it looks up by itself, which is faster."""
    if not names:
        return []
    column = "table_name" if len(names) == 1 else "cast(table_name as binary)"
    named = f"and {column} in ({', '.join(['%s'] * len(names))})"
    return [row for row in connection.rows(query.format(named=named), [schema, *names]) if row[0] in names]


def _column(row: Row, is_table: bool) -> SourceColumn:
    _, name, type_, base, nullable, default, extra, comment = (value or "" for value in row)
    said = default if row[5] is not None and default != "NULL" else None  # MariaDB writes NULL as a word
    counts = "auto_increment" in extra
    kind = f"{base} unsigned" if "unsigned" in type_ else base
    origin = Origin(in_turn=counts, block=1 if counts else None) if is_table else None
    return SourceColumn(name, type_, kind, nullable == "NO", said, AUTO_INCREMENT if counts and is_table else None, origin, comment)


def _key(columns: Sequence[SourceColumn], indexes: Sequence[Sequence[Row]]) -> tuple[str, ...]:
    """The columns of the primary key, or else of a unique index whose columns are all NOT NULL; empty if there is neither."""
    required = {column.name for column in columns if column.not_null}
    for rows in indexes:
        names = tuple(str(row[4]) for row in rows)
        whole = all(row[4] is not None and row[5] is None for row in rows)
        if rows[0][2] == "0" and whole and set(names) <= required:
            return names
    return ()


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
