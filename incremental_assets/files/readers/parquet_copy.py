"""Reads Parquet files that Spark does not read, by pyarrow, for copies that it reads: with the nearest exact type, else as text.

All other columns of a copy have the types by which Spark would have read them from the file itself.
"""

import contextlib
import io
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_STORED = frozenset(
    (
        "PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY",
        "DELTA_BYTE_ARRAY", "UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD",
    )
)  # fmt: skip
"""The encodings and compressions that Spark surely reads. Of LZ4 there are several forms, which pyarrow calls by one name."""
BATCH = 8192
"""So many rows of a file are in memory at a time."""


class FinerTimes(Exception):
    """A column has a time that is finer than a microsecond. The message is the reason to refuse its file."""


@dataclass(frozen=True)
class Footer:
    """What the footer of a Parquet file tells.

    ``schema``: as pyarrow reads the file. ``carried``: as its copy is. ``stored_oddly``: Spark does not read its encodings or its
    compression. ``odd_types``: it does not read all its types.
    """

    schema: pa.Schema
    carried: pa.Schema
    stored_oddly: bool
    odd_types: bool

    @property
    def is_odd(self) -> bool:
        """Whether Spark is known not to read the file."""
        return self.stored_oddly or self.odd_types

    def with_bytes(self, names: Collection[str]) -> "Footer":
        """The same, but intervals in columns of these names, in lower case, stay bytes."""
        schema = self.carried
        for at, own in enumerate(self.schema):
            if own.name.lower() in names and pa.types.is_fixed_size_binary(own.type):
                schema = schema.set(at, pa.field(own.name, pa.binary()))
        return replace(self, carried=schema)


def footer_of(stream: IO[bytes]) -> tuple[Any, Footer]:
    """Pyarrow's metadata of a file, and what they tell. Raises pyarrow's errors for a file that it cannot read."""
    with _opened(stream) as file:
        metadata, own = file.metadata, file.schema_arrow
    chunks = (metadata.row_group(group).column(at) for group in range(metadata.num_row_groups) for at in range(metadata.num_columns))
    stored_oddly = any(not {*chunk.encodings, chunk.compression} <= _STORED for chunk in chunks)
    leaves = iter([metadata.schema.column(at) for at in range(metadata.num_columns)])
    carried = [(field, *_carried(field.type, leaves)) for field in own]
    schema = pa.schema([pa.field(field.name, type_, field.nullable) for field, type_, _ in carried])
    return metadata, Footer(own, schema, stored_oddly, any(is_odd for *_, is_odd in carried))


def converted(stream: IO[bytes], carried: pa.Schema, *, cuts_times: bool, rows: int = BATCH) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file with the types of ``Footer.carried``. ``cuts_times``: digits of a time below the microsecond are left out.
    ``rows``: so many of them are in memory at a time.

    Raises FinerTimes for such digits otherwise, and pyarrow's errors for what it cannot read.
    """
    first = 1
    with _opened(stream) as file:
        for batch in file.iter_batches(batch_size=rows):
            columns: list[pa.Array] = []
            for name, column, type_ in zip(batch.schema.names, batch.columns, carried.types, strict=True):
                try:
                    columns.append(_converted(column, type_, cuts_times))
                except _Finer as error:
                    raise FinerTimes(
                        f"its column {name} has a time with more than microseconds, {error}, in one of the rows from {first:,} on. Write "
                        f"finer_times: cut for the container or the datastore, and the digits beyond are left out"
                    ) from None
            yield pa.record_batch(columns, schema=carried)
            first += batch.num_rows


def has_values(type_: pa.DataType) -> bool:
    """Whether a column of this type may have a value: pandas and others write type null where they have seen none."""
    kinds = pa.types
    if kinds.is_struct(type_):
        return any(has_values(type_.field(at).type) for at in range(type_.num_fields))
    if kinds.is_nested(type_):
        return all(has_values(type_.field(at).type) for at in range(type_.num_fields))
    return not kinds.is_null(type_)


@contextlib.contextmanager
def _opened(stream: IO[bytes]) -> Iterator[pq.ParquetFile]:
    buffered = io.BufferedReader(stream)  # pyright: ignore[reportArgumentType]
    try:
        yield pq.ParquetFile(buffered, coerce_int96_timestamp_unit="us")  # Spark, too, cuts nanoseconds off these times
    finally:
        buffered.detach()  # who has opened the stream closes it


def _carried(type_: pa.DataType, leaves: Iterator[Any]) -> tuple[pa.DataType, bool]:
    """The type in a copy, and whether a copy is needed for it. ``leaves``: the columns of the file's own schema, in the same order."""
    kinds = pa.types
    if isinstance(type_, pa.BaseExtensionType) and kinds.is_nested(type_.storage_type):
        return _carried(type_.storage_type, leaves)
    if kinds.is_map(type_):
        (key, odd_key), (item, odd_item) = _carried(type_.key_type, leaves), _carried(type_.item_type, leaves)
        return pa.map_(key, item), odd_key or odd_item
    if kinds.is_struct(type_):
        fields = [(type_.field(at), *_carried(type_.field(at).type, leaves)) for at in range(type_.num_fields)]
        # A field without any type would have another one in the schema by which Spark reads the file.
        kept = [pa.field(field.name, own) for field, own, _ in fields if has_values(field.type)]
        return pa.struct(kept), any(is_odd for *_, is_odd in fields) or 0 < len(kept) < len(fields)
    if kinds.is_nested(type_):
        value, is_odd = _carried(type_.field(0).type, leaves)
        return pa.list_(value), is_odd
    leaf = next(leaves, None)
    return _carried_leaf(type_, "" if leaf is None else leaf.physical_type, "" if leaf is None else str(leaf.converted_type))


def _carried_leaf(type_: pa.DataType, physical: str, converted: str) -> tuple[pa.DataType, bool]:
    kinds = pa.types
    if physical == "INT96":
        return pa.timestamp("us", "UTC"), False
    if isinstance(type_, pa.UuidType) or converted == "INTERVAL" or kinds.is_time(type_):
        return pa.string(), True
    if isinstance(type_, pa.BaseExtensionType):
        return _carried_leaf(type_.storage_type, physical, converted)
    if kinds.is_dictionary(type_):
        return _carried_leaf(type_.value_type, physical, converted)
    if kinds.is_duration(type_):
        return pa.int64(), False
    if kinds.is_float16(type_):
        return pa.float32(), True
    if kinds.is_decimal(type_):
        is_wide = type_.precision > 38
        return (pa.string() if is_wide else pa.decimal128(type_.precision, type_.scale)), is_wide
    if kinds.is_timestamp(type_):
        return pa.timestamp("us", None if type_.tz is None else "UTC"), type_.unit == "ns"
    if kinds.is_large_string(type_) or kinds.is_string_view(type_):
        return pa.string(), False
    if kinds.is_large_binary(type_) or kinds.is_binary_view(type_) or kinds.is_fixed_size_binary(type_):
        return pa.binary(), False
    return type_, False


class _Finer(Exception):
    """A time is finer than a microsecond. The message is its text."""


def _converted(array: pa.Array, type_: pa.DataType, cuts_times: bool) -> pa.Array:
    """The values as those of the copy's type."""
    kinds, own = pa.types, array.type
    if own == type_:
        return array
    if kinds.is_struct(own):
        kept = [part for at, part in enumerate(array.flatten()) if has_values(own.field(at).type)]
        parts = [_converted(part, type_.field(at).type, cuts_times) for at, part in enumerate(kept)]
        return pa.StructArray.from_arrays(parts, fields=[type_.field(at) for at in range(type_.num_fields)], mask=array.is_null())
    if kinds.is_nested(own) and not kinds.is_map(own):
        lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int32())  # pyright: ignore[reportAttributeAccessIssue]
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])  # pyright: ignore[reportAttributeAccessIssue]
        values = _converted(array.flatten(), type_.value_type, cuts_times)
        return pa.ListArray.from_arrays(offsets, values, type=type_, mask=array.is_null())
    if isinstance(own, pa.UuidType):
        return pa.array([None if one is None else str(uuid.UUID(bytes=one)) for one in array.storage.to_pylist()], type_)
    if isinstance(own, pa.BaseExtensionType):
        return _converted(array.storage, type_, cuts_times)  # pyright: ignore[reportAttributeAccessIssue]
    if kinds.is_fixed_size_binary(own) and kinds.is_string(type_):
        return pa.array([None if one is None else interval_text(one) for one in array.to_pylist()], type_)
    if kinds.is_time(own):
        digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[own.unit]
        numbers = array.cast(pa.int32() if kinds.is_time32(own) else pa.int64()).to_pylist()
        return pa.array([None if one is None else time_text(one, digits) for one in numbers], type_)
    if kinds.is_decimal(own) and kinds.is_string(type_):
        return pa.array([None if one is None else f"{one:f}" for one in array.to_pylist()], type_)
    if kinds.is_timestamp(own) and own.unit == "ns":
        whole = pc.floor_temporal(array, 1, unit="microsecond")  # pyright: ignore[reportAttributeAccessIssue]
        finer = array.filter(pc.not_equal(whole, array))  # pyright: ignore[reportAttributeAccessIssue]
        if len(finer) and not cuts_times:
            raise _Finer(finer.slice(0, 1).cast(pa.string())[0].as_py())
        return whole.cast(type_)
    return array.cast(type_)


def interval_text(value: bytes) -> str:
    """The text of a Parquet interval (months, days, milliseconds), as PostgreSQL writes it."""
    months, days, millis = (int.from_bytes(value[at : at + 4], "little") for at in (0, 4, 8))
    years, months = divmod(months, 12)
    parts = [f"{n} {unit}{'' if n == 1 else 's'}" for n, unit in ((years, "year"), (months, "mon"), (days, "day")) if n]
    if millis or not parts:
        parts.append(time_text(millis, 3))
    return " ".join(parts)


def time_text(value: int, digits: int) -> str:
    """The text of a time, in units of a second's so many decimal digits, as PostgreSQL writes it.

    It may be negative, or longer than a day: fastparquet writes durations as times.
    """
    seconds, rest = divmod(abs(value), 10**digits)
    fraction = f".{rest:0{digits}d}".rstrip("0") if rest else ""
    return f"{'-' if value < 0 else ''}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
