"""Chooses the rows of a table that a write batch replaces, among the rows of one file: by windows, by keys, by both,
or by the files of which they are.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from incremental_assets.core.container import Identifier, Partitioning
from incremental_assets.core.files import FILE
from incremental_assets.core.window import Window
from incremental_assets.delta.local_query import step_of


class ReplacedRows(Protocol):
    """Chooses the rows of the table that the batch replaces. ``columns``: those by which they are known."""

    columns: tuple[str, ...]

    def extent(self) -> tuple[Any, Any, bool]:
        """The lowest and the highest value that the first column has in these rows, and whether it may be NULL.

        Bounds are integers for days and microseconds. None: there is no bound."""
        ...

    def among(self, rows: pa.Table) -> pa.Array:
        """For each of the given rows, whether it is one of them. The rows have ``columns`` only."""
        ...


class RowsOfWindows:
    """The rows of the windows, as ``delta.sql.scope_predicate`` selects them."""

    def __init__(self, identifier: Identifier, windows: Sequence[Window], include_nulls: bool) -> None:
        self.columns = identifier.columns
        self._windows, self._nulls = windows, include_nulls

    def extent(self) -> tuple[Any, Any, bool]:
        if len(self.columns) > 1:  # the greater one of two columns counts, and either may be far below it
            return None, None, True
        lower, upper = [w.lower for w in self._windows], [w.upper for w in self._windows]
        return (
            None if None in lower else min(lower, default=None),  # pyright: ignore[reportCallIssue, reportArgumentType]
            None if None in upper else max(upper, default=None),  # pyright: ignore[reportCallIssue, reportArgumentType]
            self._nulls,
        )

    def among(self, rows: pa.Table) -> pa.Array:
        values = largest(rows)
        is_null = pc.is_null(values)  # pyright: ignore[reportAttributeAccessIssue]
        inside = pa.chunked_array([pa.array([False] * rows.num_rows, pa.bool_())])
        for window in self._windows:
            here = pc.invert(is_null)  # pyright: ignore[reportAttributeAccessIssue]
            if window.lower is not None:
                here = pc.and_(here, pc.greater_equal(values, window.lower))  # pyright: ignore[reportAttributeAccessIssue]
            if window.upper is not None:
                here = pc.and_(here, pc.less(values, window.upper))  # pyright: ignore[reportAttributeAccessIssue]
            inside = pc.or_(inside, pc.fill_null(here, False))  # pyright: ignore[reportAttributeAccessIssue]
        return _one(pc.or_(inside, is_null) if self._nulls else inside)  # pyright: ignore[reportAttributeAccessIssue]


class RowsOfKeys:
    """The rows with these primary keys, wherever in the table they are."""

    def __init__(self, keys: pa.Table) -> None:
        self.columns = tuple(keys.column_names)
        self._keys = keys
        self._first = _one(keys.column(0).unique())

    def extent(self) -> tuple[Any, Any, bool]:
        first = self._keys.column(0)
        if not has_order(first.type):
            return None, None, True
        found = pc.min_max(integers(first)).as_py()  # pyright: ignore[reportAttributeAccessIssue]
        return found["min"], found["max"], False

    def among(self, rows: pa.Table) -> pa.Array:
        # Most rows of large files are ruled out by the first column alone, which is much faster.
        may = _one(pc.is_in(rows.column(0), value_set=self._first))  # pyright: ignore[reportAttributeAccessIssue]
        names = [f"c{i}" for i in range(rows.num_columns)]
        numbered = rows.rename_columns(names).append_column("row", pa.array(np.arange(rows.num_rows)))
        if rows.num_columns == 1:
            return may
        found = numbered.filter(may).join(self._keys.rename_columns(names), names, join_type="left semi", use_threads=False)
        among = np.zeros(rows.num_rows, bool)
        among[found.column("row").to_numpy()] = True
        return pa.array(among)


class RowsOfEither:
    """The rows of two choices by the same columns."""

    def __init__(self, one: ReplacedRows, other: ReplacedRows) -> None:
        self._one, self._other, self.columns = one, other, one.columns

    def extent(self) -> tuple[Any, Any, bool]:
        (low, high, nulls), (other_low, other_high, other_nulls) = self._one.extent(), self._other.extent()
        lowest = None if low is None or other_low is None else min(low, other_low)
        highest = None if high is None or other_high is None else max(high, other_high)
        return lowest, highest, nulls or other_nulls

    def among(self, rows: pa.Table) -> pa.Array:
        return pc.or_(self._one.among(rows), self._other.among(rows))  # pyright: ignore[reportAttributeAccessIssue]


class RowsOfBoth:
    """The rows that two choices have in common."""

    def __init__(self, one: ReplacedRows, other: ReplacedRows) -> None:
        self._one, self._other = one, other
        self.columns = tuple(dict.fromkeys((*one.columns, *other.columns)))

    def extent(self) -> tuple[Any, Any, bool]:
        return self._one.extent()

    def among(self, rows: pa.Table) -> pa.Array:
        one, other = (each.among(rows.select(list(each.columns))) for each in (self._one, self._other))
        return pc.and_(one, other)  # pyright: ignore[reportAttributeAccessIssue]


def of_files(keys: Sequence[str]) -> RowsOfKeys:
    """The rows of files with these keys, as ``delta.sql.file_predicate`` selects them."""
    return RowsOfKeys(pa.table({FILE.name: pa.array(keys, pa.string())}))


def has_order(type_: pa.DataType) -> bool:
    """Whether statistics of files are compared with values of this type (``local_files``), as ``integers``."""
    return pa.types.is_integer(type_) or pa.types.is_date32(type_) or pa.types.is_timestamp(type_)


def integers(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Integers, and days and microseconds since 1970."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", values.type.tz))
    return values.cast(pa.int64())


def largest(rows: pa.Table) -> pa.ChunkedArray:
    """The greatest value of each row, as an integer; NULL if all of its values are."""
    return reduce(pc.max_element_wise, (integers(column) for column in rows.columns))  # pyright: ignore[reportAttributeAccessIssue]


def axis_values(axis: Identifier | None, partitioning: Partitioning | None, tables: Iterable[pa.Table]) -> frozenset[int] | None:
    """Where the rows of the tables lie on the axis of the partitions, as integers of the cursor type; None without an axis.

    Of values that are in one partition for sure (``step_of``), one is enough. Rows with NULL there have no value.
    """
    if axis is None or partitioning is None:
        return None
    step, found = min(step_of(axis, partitioning), 2**62), set[int]()
    for table in tables:
        values = largest(table.select(list(axis.columns))).drop_null().to_numpy()
        found.update(values[np.unique(values // step, return_index=True)[1]].tolist())
    return frozenset(found)


def _one(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
