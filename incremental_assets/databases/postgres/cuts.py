"""Divides the rows of one read into parts, so that parallel readers each take some and every row is in exactly one part."""

from collections.abc import Sequence

from psycopg import sql

from incremental_assets.core.container import Kind
from incremental_assets.core.window import merge
from incremental_assets.databases.postgres.queries import identifier_expression, literal, null_predicate, scope_predicate
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.source import WindowRead

FIRST_WITH_TID_RANGES = 140000
"""The first version of PostgreSQL that reads only the pages of a range of ``ctid``. Before it, each range reads the whole table."""
PAGES_A_READER = 4096
"""A table read by pages gets one more reader for each so many pages (32 MB with PostgreSQL's default page size of 8 kB)."""
ROWS_A_READER = 400_000
"""Every other read gets one more reader for each so many rows, as the planner estimates them."""
BYTES_A_FILE = 512 << 20
"""A table that is read into files by pages has one part for each so many bytes in PostgreSQL, which become a file of about 100 MB."""


def divided(scope: sql.Composable, cuts: Sequence[sql.Composable]) -> list[sql.Composable]:
    """The conditions of the parts of one read: the scope itself if there are no cuts."""
    return [sql.SQL("({}) and ({})").format(scope, condition) for condition in cuts] or [scope]


def reader_cuts(reader: PostgresReader, read: WindowRead) -> list[sql.Composable]:
    """Conditions that divide a read into parts, so that each row is in exactly one part. The result is empty for one reader.

    A whole ordinary table is divided by ``ctid``, which needs no index. A container without identifier is divided by its primary key, and
    everything else by the identifier, or by ``ctid`` where that is less work.
    """
    return _cuts(reader, read)[0]


def file_cuts(reader: PostgresReader, read: WindowRead) -> tuple[list[sql.Composable], int]:
    """As ``reader_cuts``, for a read into files: the parts, of which there may be more than readers, and the number of readers."""
    cuts, share = _cuts(reader, read)
    readers = max(1, len(cuts))
    # Any other range reads the whole table where it finds no index.
    if share is None or reader.server.version < FIRST_WITH_TID_RANGES:
        return cuts, readers
    parts = max(readers, -(-int(reader.bytes() * share) // BYTES_A_FILE))
    return ctid_cuts(reader.pages(), parts), readers


def _cuts(reader: PostgresReader, read: WindowRead) -> tuple[list[sql.Composable], float | None]:
    """The conditions of ``reader_cuts`` and, if they divide the table's pages, the share of its rows that the read has."""
    container = reader.container
    most = min(container.options.readers or read.most_readers, read.most_readers)
    is_whole = container.identifier is None or any(w.lower is None and w.upper is None for w in read.windows)
    has_pages = container.is_one_table and reader.has_whole_table
    if is_whole and has_pages:
        pages = reader.pages()
        readers = container.options.readers or min(most, pages // PAGES_A_READER + 1)
        return ctid_cuts(pages, min(readers, most)), 1.0
    if most <= 1:
        return [], None
    rows = reader.estimate(read.windows, read.include_nulls)
    readers = min(container.options.readers or rows // ROWS_A_READER + 1, most)
    if container.identifier is None:
        return ordering_cuts(reader, readers), None
    by_identifier = _identifier_cuts(reader, read, readers)
    if readers > 1 and has_pages and reader.server.version >= FIRST_WITH_TID_RANGES:
        by_pages = ctid_cuts(reader.pages(), readers)
        scope = scope_predicate(container, read.windows, read.include_nulls)
        # Where the rows lie in no order of the identifier, or it has no index, each reader of a part of it reads most of the table's pages.
        # Where nothing is known of the lowest identifier, a part of it is not known.
        if not by_identifier or _cost(reader, divided(scope, by_pages)) < _cost(reader, divided(scope, by_identifier)):
            return by_pages, min(1.0, rows / max(1, container.rows or 0))
    return by_identifier, None


def _cost(reader: PostgresReader, parts: Sequence[sql.Composable]) -> float:
    return sum(map(reader.cost, parts))


def ctid_cuts(pages: int, readers: int) -> list[sql.Composable]:
    if readers <= 1:
        return []
    starts = [pages * i // readers for i in range(readers)]
    cuts: list[sql.Composable] = []
    for index, start in enumerate(starts):
        parts = [sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({start},0)"))]
        if index + 1 < readers:  # the last range has no end, because the table may have grown since its size was read
            parts.append(sql.SQL("ctid < {}::tid").format(sql.Literal(f"({starts[index + 1]},0)")))
        cuts.append(sql.SQL(" and ").join(parts))
    return cuts


def ordering_cuts(reader: PostgresReader, readers: int) -> list[sql.Composable]:
    """Conditions that divide a partitioned table by the first column of its primary key. The result is empty for one reader.

    A partitioned table has no single range of ``ctid``, because each of its partitions has its own.
    """
    container = reader.container
    if readers <= 1 or not container.primary_key or container.kind is not Kind.PARTITIONED:
        return []
    return key_cuts(reader, readers)


def key_cuts(reader: PostgresReader, parts: int) -> list[sql.Composable]:
    """At most ``parts`` conditions on the first column of the primary key, with about equally many rows each.

    The first range also has the rows in which the column is NULL. The result is empty if PostgreSQL has no statistics of the column.
    """
    container = reader.container
    name = container.primary_key[0]
    edges = reader.quantiles(name, parts)
    trusted = next(column.type for column in container.columns if column.name == name)  # as PostgreSQL's catalog prints it
    type_ = sql.SQL(trusted)  # pyright: ignore[reportArgumentType]
    limits = [sql.SQL("{}::{}").format(sql.Literal(edge), type_) for edge in edges]
    column = sql.Identifier(name)
    cuts: list[sql.Composable] = []
    for index in range(len(limits) + 1):
        bounds: list[sql.Composable] = []
        if index > 0:
            bounds.append(sql.SQL("{} >= {}").format(column, limits[index - 1]))
        if index < len(limits):
            below = sql.SQL("{} < {}").format(column, limits[index])
            bounds.append(sql.SQL("({} or {} is null)").format(below, column) if index == 0 else below)
        cuts.append(sql.SQL(" and ").join(bounds))
    return cuts if limits else []


def _identifier_cuts(reader: PostgresReader, read: WindowRead, readers: int) -> list[sql.Composable]:
    identifier, highest = reader.container.identifier, read.highest
    assert identifier is not None
    domain = merge(read.windows)
    lower = domain[0].lower if domain and domain[0].lower is not None else None
    upper = domain[-1].upper if domain else None
    if highest is not None and upper is not None:
        highest = min(highest, upper - 1)
    # To find the lowest value, PostgreSQL evaluates a view once more, and reads a table that has no index for it. That is done only if the
    # YAML asks for several readers.
    container = reader.container
    is_cheap = container.kind is Kind.PARTITIONED or (len(identifier.columns) == 1 and identifier.columns[0] in container.indexed)
    if lower is None and readers > 1 and (is_cheap or container.options.readers):
        lower = reader.lowest()
    if readers <= 1 or highest is None or lower is None or highest - lower < readers:
        return []
    expression = identifier_expression(identifier)
    edges = [lower + (highest - lower) * i // readers for i in range(1, readers)]
    cuts: list[sql.Composable] = []
    for index in range(readers):
        parts: list[sql.Composable] = []
        if index > 0:
            parts.append(sql.SQL("{} >= {}").format(expression, literal(identifier.cursor_type, edges[index - 1])))
        if index + 1 < readers:
            parts.append(sql.SQL("{} < {}").format(expression, literal(identifier.cursor_type, edges[index])))
        cuts.append(sql.SQL(" and ").join(parts))
    if read.include_nulls:
        cuts.append(null_predicate(identifier))
    return cuts
