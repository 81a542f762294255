"""Reads the rows with given keys from a snapshot, and the keys themselves as the lake has them.

The keys are texts, as PostgreSQL's log has them, and PostgreSQL itself makes values of them again. All values then go through the same
expressions as those of every other read.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from incremental_assets.core.container import Container
from incremental_assets.core.errors import SourceError
from incremental_assets.databases.change_log import Key
from incremental_assets.databases.postgres.arrow_columns import read_of_queries, reason_against_arrow, sent_columns
from incremental_assets.databases.postgres.arrow_rows import read_query
from incremental_assets.databases.postgres.arrow_task import UnexpectedValue
from incremental_assets.databases.postgres.extract import select_of, synced_at_all
from incremental_assets.databases.postgres.infinite import explained
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.postgres.types import Carried
from incremental_assets.delta.replaced_rows import RowsOfKeys

_KEYS = "incremental_assets_keys"
_NO_LIMIT = 1 << 62


def rows_and_keys(
    reader: PostgresReader, carried: Sequence[Carried], keys: Sequence[Key], most_bytes: int
) -> tuple[pa.Table, pa.Table] | None:
    """The rows with these keys, with the columns and types of the lake, and the keys by which the lake tells rows apart, each once. None if
    the rows are more than ``most_bytes``.

    PostgreSQL may take two texts for the same key that the lake does not (jsonb, some collations). Then both are among the keys: the one
    that the row had, which the log has, too, and the one that it has now.

    It must be called inside ``reader.snapshot()``. Raises SourceError, and ConfigurationError for values that the lake's types cannot hold.
    """
    by_name = {one.column.name: one for one in carried}
    key = list(reader.container.lake_key)
    of_key = [by_name[name] for name in key]
    # Both are asked for at once: PostgreSQL makes the keys while the rows are looked up.
    given = _given(reader.container, keys)
    with ThreadPoolExecutor(1, "keys") as thread:
        asked = thread.submit(_read, reader, of_key, _keys(of_key, _given(reader.container, keys, each_once=False)), _NO_LIMIT)
        rows = _read(reader, carried, _rows(reader.container, carried, given), most_bytes)
        found = asked.result()
    assert found is not None
    if rows is None:
        return None
    found, of_rows = found.rename_columns(key), rows.select(key)
    other = of_rows.filter(pc.invert(RowsOfKeys(found).among(of_rows)))  # pyright: ignore[reportAttributeAccessIssue]
    return rows, pa.concat_tables([found, other])


def _rows(container: Container, carried: Sequence[Carried], given: sql.Composable) -> sql.Composable:
    listed = sql.SQL(", ").join(sql.Identifier(name) for name in container.primary_key)
    scope = sql.SQL("({}) in (select {} from {}) and {}").format(listed, listed, given, synced_at_all(container))
    return select_of(container, sent_columns(carried), scope)


def _keys(of_key: Sequence[Carried], given: sql.Composable) -> sql.Composable:
    selected = [sql.SQL("{} as {}").format(one.select, sql.Identifier(f"c{i}")) for i, one in enumerate(sent_columns(of_key))]
    return sql.SQL("select distinct {} from {}").format(sql.SQL(", ").join(selected), given)


def keys_of_part(reader: PostgresReader, part: int) -> Iterator[Key]:
    """The keys of all rows of a partition, as texts. ``part``: its OID. It must be called inside ``reader.snapshot()``."""
    found = reader.rows(
        "select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = %(part)s::oid",
        {"part": part},
    )
    texts = [sql.SQL("concat({})").format(sql.Identifier(name)) for name in reader.container.primary_key]
    for schema, name in found:  # none, if it is gone again
        yield from reader.stream(sql.SQL("select {} from {}").format(sql.SQL(", ").join(texts), sql.Identifier(schema, name)))


def _given(container: Container, keys: Sequence[Key], *, each_once: bool = True) -> sql.Composable:
    """The keys as a table whose columns have the names and types of the container's key.

    ``each_once``: what PostgreSQL takes for the same is in it once, and in order: so that keys are looked up in an index in its own order,
    which is twice as fast.
    """
    types = {column.name: column.type for column in container.columns}
    names = [sql.Identifier(f"k{i}") for i in range(len(container.primary_key))]
    typed = [
        sql.SQL("{}::{} as {}").format(name, sql.SQL(types[column]), sql.Identifier(column))  # pyright: ignore[reportArgumentType]
        for name, column in zip(names, container.primary_key, strict=True)
    ]
    arrays = [sql.SQL("{}::text[]").format(sql.Literal([key[i] for key in keys])) for i in range(len(names))]
    ordered = sql.SQL(" order by {}").format(sql.SQL(", ").join(sql.Literal(i + 1) for i in range(len(names))))
    return sql.SQL("(select {} {} from unnest({}) as given({}){}) as {}").format(
        sql.SQL("distinct") if each_once else sql.SQL(""),
        sql.SQL(", ").join(typed),
        sql.SQL(", ").join(arrays),
        sql.SQL(", ").join(names),
        ordered if each_once else sql.SQL(""),
        sql.Identifier(_KEYS),
    )


def _read(reader: PostgresReader, carried: Sequence[Carried], query: sql.Composable, most_bytes: int) -> pa.Table | None:
    container = reader.container
    reason = reason_against_arrow(reader, carried)
    if reason is not None:
        raise SourceError(f"{container.label}: capture: log cannot read its rows: {reason}.")
    try:
        return read_query(reader, read_of_queries(reader, carried, [query]), most_bytes)
    except (UnexpectedValue, SourceError) as error:
        failed = error if isinstance(error, SourceError) else SourceError(f"{container.label}: a row cannot be read: {error}")
        domain = [container.identifier.domain] if container.identifier else []
        raise explained(failed, reader, container, carried, domain, True) from error
