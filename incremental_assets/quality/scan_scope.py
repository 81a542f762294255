"""The scan scope: which rows of a table a scan reads, and to which partition each row belongs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from incremental_assets.core.container import Container, Identifier
from incremental_assets.core.cursor_type import CursorType
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.files import FILE, HIVE_NULL, decode_path, encode_path
from incremental_assets.core.folder_column import FolderColumn
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.partitions import Partitions
from incremental_assets.core.rules.rule import Rule, digest
from incremental_assets.core.window import EVERYTHING, Window
from incremental_assets.delta.local_query import is_expressible, step_of, window_condition
from incremental_assets.delta.replaced_rows import integers
from incremental_assets.delta.sql import file_predicate, folder_partition, folder_predicate, partition_of, scope_predicate
from incremental_assets.delta.table import among, double_quoted, sql_text

_ARROW_TYPES: dict[CursorType, tuple[pa.DataType, ...]] = {
    CursorType.DATE: (pa.date32(),),
    CursorType.TIMESTAMP: (pa.timestamp("us", "UTC"),),
    CursorType.TIMESTAMP_NTZ: (pa.timestamp("us"),),
    CursorType.INTEGER: (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
}
"""The types in which delta-rs returns identifiers whose values are read here as integers of the cursor type."""


@dataclass(frozen=True)
class ScanScope:
    """The scan scope of one scan. It always consists of whole partitions, so that shares, sums and uniqueness mean the same in every scan.

    - ``predicate`` is a Spark SQL condition that selects the rows; None selects all rows.
    - ``partition`` is a Spark SQL expression whose value tells the partitions apart; None if the container has no partitions.
    - ``keys`` are the keys of the requested partitions. Each of them gets a verdict, even if it has no rows. None: all partitions that have
      rows.
    - ``with_open_anomalies`` are further partitions in the scope that have open anomalies (or, for a profile, stored states), so that they
      get a verdict even if no rows are left in them. None among them stands for the rows without an identifier.
    - ``windows`` are the ranges of identifier values that the scope covers; for files, of modification times.
    - ``nulls`` says whether the rows without an identifier are in the scope.

    The methods are those of a container without partitions; each way of having partitions is a subclass.
    """

    container: Container
    predicate: str | None
    partition: str | None
    keys: tuple[str, ...] | None
    with_open_anomalies: tuple[str | None, ...] = ()
    windows: tuple[Window, ...] = (EVERYTHING,)
    nulls: bool = False

    @property
    def is_one_partition(self) -> bool:
        """Whether all rows that ``predicate`` selects are certainly of one partition: the only key in ``keys``, or a table without any."""
        return self.partition is None or (self.keys is not None and len(self.keys) == 1 and not self.nulls and not self.with_open_anomalies)

    def key_of(self, value: object) -> str:
        """Return the partition key for a value of the expression ``partition``."""
        return str(value)

    def before(self, key: str, count: int) -> Sequence[str]:
        """Return the keys of up to ``count`` partitions before ``key``, the nearest one last."""
        return ()

    def of_keys(self, keys: Sequence[str]) -> str:
        """Return the predicate that selects the rows of the given partitions."""
        return "false"

    @property
    def local_columns(self) -> tuple[str, ...]:
        """The columns that ``local_keys`` needs."""
        return ()

    def local_condition(self, delta: DeltaTable) -> str | None:
        """Return the condition by which the engine of delta-rs selects the rows of ``predicate``; None if it cannot."""
        return "true" if self.predicate is None else None

    def local_keys(self, rows: pa.Table) -> "tuple[Sequence[str | None], np.ndarray[Any, np.dtype[np.int64]]] | None":
        """Return the keys of the partitions of the rows, and for each row the position of its key; None if Spark has to find them.

        ``rows`` has ``local_columns``, by their names in lower case.
        """
        return [None], np.zeros(rows.num_rows, np.int64)

    def is_over(self, key: str) -> bool:
        """Whether no more rows are expected in a partition."""
        return True

    def question_digest(self, rule: Rule) -> str:
        """Return a digest of the rule's subject, the identifier and the partitioning.

        Numbers with another digest are of another question and must not be compared with this one's.
        """
        partitioning, apart = self.container.partitioning, self.container.partitioned_on
        word = "" if partitioning is None else partitioning.word if apart is None else f"{apart.signature} {partitioning.word}"
        return digest(f"{rule.asks} {self.container.signature} {word}")


@dataclass(frozen=True)
class _ScopeOfPartitions(ScanScope):
    """The scope of a container whose partitions are ranges of the identifier. ``watermark``: see ``scope_of_partitions``."""

    identifier: Identifier = field(kw_only=True)
    partitions: Partitions = field(kw_only=True, repr=False)
    watermark: int | None = field(kw_only=True)

    def key_of(self, value: object) -> str:
        return self.partitions.key_of(int(str(value)))

    def before(self, key: str, count: int) -> Sequence[str]:
        try:
            return self.partitions.keys_before(key, count)
        except ConfigurationError:
            # The key is from another partitioning, or is not known yet. There is nothing to compare with.
            return ()

    def of_keys(self, keys: Sequence[str]) -> str:
        return scope_predicate(self.identifier, self.partitions.windows_of(keys), False)

    @property
    def local_columns(self) -> tuple[str, ...]:
        return tuple(self.identifier.columns)

    def local_condition(self, delta: DeltaTable) -> str | None:
        if self.predicate is None:
            return "true"
        expressible = is_expressible(delta, self.identifier, self.windows)
        return f"({window_condition(self.identifier, self.windows, self.nulls)})" if expressible else None

    def local_keys(self, rows: pa.Table) -> "tuple[Sequence[str | None], np.ndarray[Any, np.dtype[np.int64]]] | None":
        columns = [rows.column(name.lower()) for name in self.identifier.columns]
        if any(column.type not in _ARROW_TYPES[self.identifier.cursor_type] for column in columns):
            return None
        numbers = reduce(pc.max_element_wise, (integers(column) for column in columns))  # pyright: ignore[reportAttributeAccessIssue]
        partitioning = self.container.partitioning
        step = 1 if partitioning is None else step_of(self.identifier, partitioning)
        # Rows of one hour, day or range of integers are of one partition, whose key is found once.
        starts, start_of = np.unique(numbers.drop_null().to_numpy() // step, return_inverse=True)
        of_starts = [self.partitions.key_of(int(start) * step) for start in starts]
        keys: list[str | None] = [*dict.fromkeys(of_starts)]
        places = {key: position for position, key in enumerate(keys)}
        here = pc.is_valid(numbers).to_numpy()  # pyright: ignore[reportAttributeAccessIssue]
        of = np.full(len(here), len(keys), np.int64)
        of[here] = np.array([places[key] for key in of_starts], np.int64)[start_of]
        return keys if here.all() else [*keys, None], of

    def is_over(self, key: str) -> bool:
        try:
            upper = self.partitions.window_of(key).upper
        except ConfigurationError:
            return False
        return upper is not None and self.watermark is not None and upper <= self.watermark


@dataclass(frozen=True)
class _ScopeOfFiles(ScanScope):
    """The scope of a container whose partitions are files. ``known``: the keys of all files, in order of arrival."""

    known: Sequence[str] = field(kw_only=True, repr=False)

    @cached_property
    def _order(self) -> dict[str, int]:
        return {key: position for position, key in enumerate(self.known)}

    def before(self, key: str, count: int) -> Sequence[str]:
        position = self._order.get(key, 0)
        return self.known[max(0, position - count) : position]

    def of_keys(self, keys: Sequence[str]) -> str:
        return file_predicate(keys)

    @property
    def local_columns(self) -> tuple[str, ...]:
        return (FILE.name,)

    def local_condition(self, delta: DeltaTable) -> str | None:
        if self.predicate is None or self.keys is None:
            return super().local_condition(delta)
        on_record = (key for key in self.with_open_anomalies if key is not None)
        return among((FILE.name, (*self.keys, *on_record)))

    def local_keys(self, rows: pa.Table) -> "tuple[Sequence[str | None], np.ndarray[Any, np.dtype[np.int64]]] | None":
        files = rows.column(FILE.name).combine_chunks().dictionary_encode()
        return files.dictionary.to_pylist(), files.indices.to_numpy().astype(np.int64)


@dataclass(frozen=True)
class _ScopeOfFolders(_ScopeOfFiles):
    """The scope of a container whose partitions are the files with the same value of a column of their folders."""

    column: FolderColumn = field(kw_only=True)

    def key_of(self, value: object) -> str:
        return encode_path(str(value))

    def of_keys(self, keys: Sequence[str]) -> str:
        return folder_predicate(self.column, keys)

    @property
    def local_columns(self) -> tuple[str, ...]:
        return (self.column.name,)

    def local_condition(self, delta: DeltaTable) -> str | None:
        if self.predicate is None:
            return "true"
        if self.keys is None:
            return None
        keys = [key for key in (*self.keys, *self.with_open_anomalies) if key is not None]
        texts = ", ".join(sql_text(decode_path(key) or key) for key in keys) or "NULL"
        return f"coalesce(nullif(cast({double_quoted(self.column.name)} AS varchar), ''), {sql_text(HIVE_NULL)}) IN ({texts})"

    def local_keys(self, rows: pa.Table) -> "tuple[Sequence[str | None], np.ndarray[Any, np.dtype[np.int64]]] | None":
        texts = pc.fill_null(pc.cast(rows.column(self.column.name.lower()), pa.string()), HIVE_NULL)
        found = texts.combine_chunks().dictionary_encode()
        of_texts = [encode_path(value or HIVE_NULL) for value in found.dictionary.to_pylist()]
        places = {key: position for position, key in enumerate(dict.fromkeys(of_texts))}  # no value, and an empty one, are one partition
        return [*places], np.array([places[key] for key in of_texts], np.int64)[found.indices.to_numpy()]


def whole_table(container: Container) -> ScanScope:
    """Return the scope of a container without partitions: all rows."""
    return ScanScope(container, None, None, None)


def scope_of_partitions(
    container: Container,
    partitions: Partitions,
    keys: Sequence[str] | None = None,
    since: int | None = None,
    nulls: bool = True,
    watermark: int | None = None,
    noted: Sequence[str | None] = (),
) -> ScanScope:
    """Return the scope of a partitioned table or view.

    ``keys`` are the requested partitions. If it is None, the scope begins with the partition that contains the value ``since`` and has no
    end; if ``since`` is None too, it has no beginning either. ``nulls`` adds the rows without an identifier. ``watermark`` is the watermark
    of the container's table; a partition that ends above it is still being filled. ``noted`` are partitions with something on record, for
    example an open anomaly, whether they have rows or not (None stands for the rows without an identifier); those in the scope go into
    ``ScanScope.with_open_anomalies``.
    """
    identifier, partitioning = container.axis, container.partitioning
    assert identifier is not None and partitioning is not None
    from_since = (EVERYTHING if since is None else partitions.from_value(since),)
    windows = from_since if keys is None else partitions.windows_of(keys)
    everything = windows == (EVERYTHING,) and nulls

    def covers(key: str | None) -> bool:
        if key is None or keys is not None:
            return nulls and key is None
        try:
            lower = partitions.window_of(key).lower
        except ConfigurationError:
            # The key is from a time when the container was partitioned differently. Its window is unknown: only all rows cover it for sure.
            return everything
        return windows[0].lower is None or (lower is not None and lower >= windows[0].lower)

    return _ScopeOfPartitions(
        container=container,
        predicate=None if everything else scope_predicate(identifier, windows, nulls),
        partition=partition_of(identifier, partitioning, partitions),
        keys=None if keys is None else tuple(keys),
        with_open_anomalies=tuple(key for key in noted if covers(key)),
        windows=windows,
        nulls=nulls,
        identifier=identifier,
        partitions=partitions,
        watermark=watermark,
    )


def scope_of_files(
    container: Container,
    known: Sequence[str],
    keys: Sequence[str] | None,
    modified: str | None,
    windows: tuple[Window, ...],
    noted: Sequence[str | None] = (),
) -> ScanScope:
    """Return the scope of a container of files, where each file is a partition, or the files of folders with one value are one.

    ``known`` are the keys of all partitions, in order of arrival. The scope has those in ``keys``; if that is None, the rows for which
    ``modified`` holds, a predicate on the modification time; if that is None too, all rows. ``windows`` are the modification times that
    this covers. ``noted`` is as for ``scope_of_partitions``. Partitions in it that no longer exist are always in the scope, because nothing
    says when they were removed and no later threshold would include them again.
    """
    there = set(known)
    everything = keys is None and modified is None
    on_record = tuple(key for key in noted if key is not None and (everything or key not in there))
    column = container.partitioning.folders if container.partitioning is not None else None

    def predicate(of: Sequence[str]) -> str:
        return file_predicate(of) if column is None else folder_predicate(column, of)

    of_those = f" OR {predicate(on_record)}" if on_record else ""
    chosen = modified if keys is None else predicate(keys)
    where = None if chosen is None else f"{chosen}{of_those}"
    asked = None if keys is None else tuple(keys)
    if column is not None:
        return _ScopeOfFolders(container, where, folder_partition(column), asked, on_record, windows, known=known, column=column)
    return _ScopeOfFiles(container, where, quote(FILE.name), asked, on_record, windows, known=known)
