"""Reads the catalog of a database through JDBC: its tables with their columns, and the span of an identifier.

Spark does not ask a driver for keys, indexes and views. So the YAML names keys (``primary_key``) and views (``views``).
"""

import contextlib
import hashlib
from collections.abc import Mapping, Sequence

from incremental_assets.core.container import Kind, SourceColumn, SourceTable
from incremental_assets.core.cursor_type import CursorType, parse_value
from incremental_assets.core.errors import ConfigurationError, SourceError, SourceUnreachable
from incremental_assets.core.evidence import ListedContainer, TableEvidence
from incremental_assets.core.names import backticked
from incremental_assets.core.spark_types import UnknownType, type_text
from incremental_assets.databases.jdbc.queries import FALSE, calendar_predicate, quoted, relation
from incremental_assets.databases.jdbc.session import JdbcSession
from incremental_assets.databases.jdbc.types import UNKNOWN, base_of, spark_type

_CATALOG = "incremental_assets_source"


class JdbcCatalog:
    """The queries of the catalog operation for one schema. All methods raise SourceError if a query fails.

    ``views``: those that the YAML names. ``troubles``: messages by table, for tables that could not be inspected.
    """

    def __init__(self, session: JdbcSession, schema: str, views: Sequence[str]) -> None:
        self._session, self._schema, self._views = session, schema, views
        self.troubles: dict[str, str] = {}
        self.missing_privileges: tuple[str, ...] = ()
        self._known: dict[str, tuple[SourceColumn, ...]] = {}

    def listing(self) -> Mapping[str, ListedContainer]:
        """All tables of the schema, and the named views, by name. Raises ConfigurationError if there is no such schema."""
        names = table_names(self._session, self._schema)
        found: dict[str, ListedContainer] = {}
        for name, kind in [*((name, Kind.TABLE) for name in names), *((name, Kind.VIEW) for name in self._views if name not in names)]:
            try:
                columns = read_columns(self._session, self._schema, name)
            except SourceUnreachable:
                raise
            except SourceError as error:
                self.troubles[name] = str(error)
                continue
            self._known[name] = columns
            said = hashlib.md5(repr((kind, columns)).encode(), usedforsecurity=False).hexdigest()
            found[name] = ListedContainer(kind, said)
        return found

    def tables(self, names: Sequence[str]) -> Sequence[SourceTable]:
        """Those of the named tables and views that were listed."""
        kinds = {name: Kind.VIEW if name in self._views else Kind.TABLE for name in names}
        return [SourceTable(name=name, kind=kinds[name], columns=self._known[name]) for name in names if name in self._known]

    def evidence(self, names: Sequence[str]) -> Mapping[str, TableEvidence]:
        """None: nothing is known of statistics, triggers and indexes."""
        return {name: TableEvidence() for name in names}

    def last_drawn(self, table: str, column: SourceColumn) -> int | None:
        """Always None: JDBC does not tell it."""
        return None

    def span(self, table: str, columns: Sequence[str], cursor_type: CursorType) -> tuple[int, int] | None:
        """The lowest and the highest value of the columns, as values of the cursor type; None if there is none."""
        ends: list[int] = []
        for column in columns:
            name = quoted(column)
            query = f'select min({name}) as "c0", max({name}) as "c1" from {relation(self._schema, table)}'
            if cursor_type.is_time:
                query += f" where {calendar_predicate(cursor_type, name)}"
            ends += [value_of(cursor_type, text, column) for text in self._session.texts(query, 2)[0] if text is not None]
        return (min(ends), max(ends)) if ends else None


def value_of(cursor_type: CursorType, text: str, column: str) -> int:
    """The value of an identifier's text. Raises SourceError for one that is finer than a microsecond."""
    whole, dot, rest = text.partition(".")
    if dot and cursor_type.is_time:
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        if len(digits) > 6:
            if digits[6:].strip("0"):
                raise SourceError(
                    f"column {column!r} has the time {text}, which is finer than a microsecond; an identifier cannot be. Cut it in the "
                    f"source, or choose another identifier."
                )
            text = f"{whole}.{digits[:6]}{rest[len(digits) :]}"
    if dot and not cursor_type.is_time and not rest.strip("0"):
        text = whole
    try:
        return parse_value(cursor_type, text)
    except ConfigurationError as error:
        raise SourceError(f"column {column!r}: {error}") from error


def table_names(session: JdbcSession, schema: str) -> list[str]:
    """The tables of a schema. Raises ConfigurationError if there is no such schema."""
    with session.errors():
        spark = session.spark
        for name, value in session.address.spark_options().items():
            spark.conf.set(f"spark.sql.catalog.{_CATALOG}.{name}", value)
        spark.conf.set(f"spark.sql.catalog.{_CATALOG}", "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog")
        schemas = [row[0] for row in spark.sql(f"SHOW NAMESPACES IN {_CATALOG}").collect()]
        if schema not in schemas:
            raise ConfigurationError(
                f"{session.label}: there is no schema {schema!r} that this user may see; there are {', '.join(schemas)}."
            )
        return [row["tableName"] for row in spark.sql(f"SHOW TABLES IN {_CATALOG}.{backticked(schema)}").collect()]


def read_columns(session: JdbcSession, schema: str, table: str) -> tuple[SourceColumn, ...]:
    """The columns of a table or view. Raises SourceError.

    Where Spark does not know the type of a column, it does not say which one; the columns are then looked at one by one.
    """
    try:
        return _columns(session, f"select * from {relation(schema, table)} where {FALSE}")
    except SourceUnreachable:
        raise
    except SourceError as error:
        names = _names(session, schema, table)
        if not names:
            raise
        found: list[SourceColumn] = []
        for name in names:
            try:
                found += _columns(session, f"select {quoted(name)} from {relation(schema, table)} where {FALSE}")
            except SourceError as refused:
                text = str(refused)
                kind = text.partition("name: ")[2].partition(",")[0] if "UNRECOGNIZED_SQL_TYPE" in text else "a type that cannot be read"
                found.append(SourceColumn(name, f"{UNKNOWN} ({kind})", UNKNOWN))
        if all(column.type.startswith(UNKNOWN) for column in found):
            raise error
        return tuple(found)


def _columns(session: JdbcSession, query: str) -> tuple[SourceColumn, ...]:
    with session.errors():
        fields = session.frame(session.spark, query).schema.fields
    found: list[SourceColumn] = []
    for field in fields:
        try:
            # Spark takes a time of day for a date and time, and marks it so.
            type_ = "time" if field.metadata.get("logical_time_type") else spark_type(type_text(field.dataType.jsonValue()))
        except UnknownType:
            name = field.dataType.typeName()
            type_ = "time" if name.startswith("time") else f"{UNKNOWN} ({name})"
        found.append(SourceColumn(field.name, type_, base_of(type_), not field.nullable))
    return tuple(found)


def _names(session: JdbcSession, schema: str, table: str) -> list[str]:
    """The columns of a table by the standard's catalog, in their order; empty if the database has none."""
    query = 'select table_schema as "c0", table_name as "c1", column_name as "c2", ordinal_position as "c3" from information_schema.columns'
    with contextlib.suppress(SourceError):
        rows = [row for row in session.texts(query, 4) if row[:2] == (schema, table)]
        return [str(row[2]) for row in sorted(rows, key=lambda row: int(row[3] or 0))]
    return []
