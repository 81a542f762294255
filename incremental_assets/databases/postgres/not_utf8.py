"""Finds the row whose bytes are no UTF-8, in a database that takes any bytes for text (``SQL_ASCII``)."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from psycopg import sql

from incremental_assets.core.container import Container
from incremental_assets.core.errors import SourceError
from incremental_assets.databases.postgres.queries import relation

_MARK = "invalid byte sequence for encoding"
_TEXTS = ("text", "character varying", "character", "citext", "name")


class _Reader(Protocol):
    @property
    def container(self) -> Container: ...
    def stream(self, query: sql.Composable) -> Iterable[Sequence[str]]: ...


def not_utf8(reader: _Reader, said: str) -> SourceError | None:
    """The error for a read that failed because of such bytes; None for other reasons. It must be called inside ``reader.snapshot()``.

    ``said``: the server's message, which names neither column nor row.
    """
    if _MARK not in said:
        return None
    container = reader.container
    for column in container.columns:
        for *key, value in reader.stream(_bytes_query(container, column.name)) if column.base in _TEXTS else ():
            try:
                bytes.fromhex(value).decode()
            except UnicodeDecodeError:
                row = ", ".join(f"{name} = {_shown(text)}" for name, text in zip(container.primary_key, key, strict=True))
                return SourceError(
                    f"{container.label}: column {column.name!r} has bytes that are no UTF-8{f', first in the row {row}' if row else ''}; "
                    f"nothing was written. Correct them in the source{_otherwise(container, column.name)}"
                )
    return None


def _otherwise(container: Container, column: str) -> str:
    """What else helps, as the end of a sentence. A column by which rows are found can be neither left out nor carried as bytes."""
    identifier = container.identifier.columns if container.identifier is not None else ()
    if column in (*container.primary_key, *identifier):
        return ", or read a view that has its bytes in hexadecimal digits: encode(convert_to(<column>, getdatabaseencoding()), 'hex')."
    return (
        f", leave the column out (exclude_columns: [{column}]), or carry it as its bytes: containers: {{{container.name}: "
        f"{{binary_columns: [{column}]}}}} and then: incremental-assets sync {container.label} --reset-watermarks"
    )


def _bytes_query(container: Container, column: str) -> sql.Composable:
    """The key and the bytes of the column, each in hexadecimal digits, of the rows in which it has a byte that is no ASCII."""
    digits = [
        sql.SQL("encode(convert_to({}::text, getdatabaseencoding()), 'hex')").format(sql.Identifier(name))
        for name in (*container.primary_key, column)
    ]
    return sql.SQL("select {} from {} where {} ~ '^(..)*[89a-f]'").format(sql.SQL(", ").join(digits), relation(container), digits[-1])


def _shown(digits: str) -> str:
    return bytes.fromhex(digits).decode(errors="backslashreplace")
