"""Reads some rows of a table to be looked at, in this process: the newest version or an older one, as they are or by a query."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.delta.local_query import described_here
from incremental_assets.delta.table import EXACT_TIMES, LakeTable, double_quoted


@dataclass(frozen=True)
class ShownRows:
    """Some rows of a version of a table. ``more``: whether there are others."""

    version: int
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    more: bool


def shown_rows(label: str, table: LakeTable, name: str, statement: str | None, limit: int, version: int | None) -> ShownRows:
    """The first rows of the table, at most ``limit``, or those of a statement, in which the table is called ``name``.

    ``label``: the container's, for messages. Raises ConfigurationError where there is no such table or version, where the table has what
    only Spark reads, and where the statement has an error, and LakeError if the lake cannot be reached.
    """
    newest = table.opened()
    if newest is None:
        raise ConfigurationError(f"{label} has no table yet. Sync it: incremental-assets sync {label}")
    if version is not None and not 0 <= version <= newest.version():
        raise ConfigurationError(f"{label} has no version {version}; the newest one is {newest.version()}.")
    if described_here(table, version) is None:
        gone = "" if version is None else " that version is not kept any more, or"
        raise ConfigurationError(f"{label}:{gone} the table has features that only Spark reads. Read it by spark.read.format('delta').")
    delta = newest if version is None else table.readable_at(version)
    try:
        engine = QueryBuilder().register(name, delta)
        engine.execute(EXACT_TIMES).read_all()
        answer = pa.RecordBatchReader.from_stream(engine.execute(statement or f"SELECT * FROM {double_quoted(name)}"))
        rows = list(itertools.islice(_rows(answer), limit + 1))
    except Exception as error:  # the engine raises no more specific class
        raise ConfigurationError(f"{label}: {error}") from error
    return ShownRows(delta.version(), tuple(answer.schema.names), rows[:limit], len(rows) > limit)


def _rows(answer: pa.RecordBatchReader) -> Iterator[tuple[Any, ...]]:
    for batch in answer:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
