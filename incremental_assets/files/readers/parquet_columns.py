"""Tells which columns of a Parquet file Spark cannot read, as pyarrow reads them all.

Belongs here: types and encodings that Spark refuses, each with its remedy. Does not belong: schemas of the table (``columnar``). These are
asked only where Spark has refused a file: its own message names neither file nor column.
"""

from collections.abc import Iterator
from typing import Any

_ENCODINGS = frozenset(
    (
        "PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY",
        "DELTA_BYTE_ARRAY",
    )
)  # fmt: skip
_COMPRESSIONS = frozenset(("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4"))
_SHOWN = 3


def unread_types(schema: Any) -> str | None:
    """Why Spark cannot read a file with this schema of pyarrow: its columns with their types, and what to do. None if nothing is known."""
    return _in_words((f"{field.name}, {field.type}", remedy) for field in schema if (remedy := _remedy(field.type)) is not None)


def unread_storage(metadata: Any) -> str | None:
    """Why Spark cannot read the pages of a file with this metadata of pyarrow, likewise."""
    found: dict[str, str] = {}
    for group in range(metadata.num_row_groups):
        for at in range(metadata.num_columns):
            column = metadata.row_group(group).column(at)
            odd = next((one for one in (*column.encodings, column.compression) if one not in _ENCODINGS | _COMPRESSIONS), None)
            if odd is not None:
                kind = metadata.schema.column(at).physical_type
                found.setdefault(f"{column.path_in_schema}, {kind} stored as {odd}", f"write it without {odd}")
    return _in_words(iter(found.items()))


def _in_words(columns: Iterator[tuple[str, str]]) -> str | None:
    """A sentence of columns, each with its remedy."""
    found = list(columns)
    if not found:
        return None
    shown = ", nor ".join(f"its column {what} ({remedy})" for what, remedy in found[:_SHOWN])
    return f"Spark cannot read {shown}" + (f", nor {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else "")


def _remedy(type_: Any) -> str | None:
    """How else to write a type of pyarrow that Spark cannot read; None for others. A nested type is as the types within it."""
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_nested(type_):
        return next((found for at in range(type_.num_fields) if (found := _remedy(type_.field(at).type)) is not None), None)
    if kinds.is_decimal(type_) and type_.precision > 38:
        return "write it as a decimal of at most 38 digits, or as text"
    if kinds.is_float16(type_):
        return "write it as float"
    if kinds.is_time(type_):
        return "write it as text, or as a whole number"
    if kinds.is_timestamp(type_) and type_.unit == "ns":
        return "write it in microseconds (pyarrow and pandas: coerce_timestamps='us')"
    return None
