"""The types of Parquet columns that are read in this process: those of which it is sure that Spark reads the same values."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from incremental_assets.core.nested_types import NESTED, Type, parse
from incremental_assets.core.schema import Column, widens
from incremental_assets.core.spark_types import type_text
from incremental_assets.files.readers.local import PLAIN_NAME
from incremental_assets.files.readers.local_values import Unsure, arrow_type
from incremental_assets.files.readers.parquet_copy import Footer, has_values

_KINDS = {
    pa.bool_(): "boolean", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint", pa.uint8(): "smallint", pa.uint16(): "int",
    pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)", pa.float32(): "float", pa.float64(): "double", pa.string(): "string",
    pa.binary(): "binary", pa.date32(): "date", pa.date64(): "date", pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", "UTC"): "timestamp",
}  # fmt: skip
_LOGICAL = frozenset(("NONE", "STRING", "INT", "DECIMAL", "DATE", "TIMESTAMP", "NULL", "UNKNOWN", "TIME", "UUID", "FLOAT16"))
"""Parquet's own types of which Spark and pyarrow make the same, or of which pyarrow makes what Spark then reads (``parquet_copy``)."""
_INTEGERS = ("smallint", "int", "bigint")
_EXACT = {"float": 2**24, "double": 2**53}
"""Up to this number, floats are whole numbers that have no other text than their digits."""


def parquet_type(type_: str) -> pa.DataType | None:
    """The Arrow type of a Spark type; None if its values are not read here."""

    def of(one: Type) -> pa.DataType | None:
        parts = [(name, of(part)) for name, part in one.parts]
        own = [part for _, part in parts if part is not None]
        if len(own) < len(parts):
            return None
        match one.kind:
            case "struct":
                return pa.struct([pa.field(name, part) for (name, _), part in zip(parts, own, strict=True)])
            case "array":
                return pa.list_(own[0])
            case "map":
                return pa.map_(*own)
            case "float":
                return pa.float32()
            case "binary":
                return pa.binary()
            case kind:
                return arrow_type(kind)

    return of(parse(type_))


def columns_of(metadata: Any, footer: Footer) -> tuple[Column, ...]:
    """The columns that have values, with the types that they have for Spark. Raises Unsure where these are not known here."""
    leaves = [metadata.schema.column(at) for at in range(metadata.num_columns)]
    for leaf in leaves:
        logical = leaf.logical_type
        # Of a time of an older writer, pyarrow says that it has no time zone, and Spark that it has one.
        if logical.type not in _LOGICAL or "is_from_converted_type=true" in str(logical) or leaf.converted_type == "INTERVAL":
            raise Unsure
    paths = [path for field in footer.schema for path in _paths(field.name, field.type)]
    # There are several ways to store lists, of some of which Spark makes others than pyarrow does.
    if paths != [leaf.path.replace(".list.item", ".list.element") for leaf in leaves]:
        raise Unsure
    kept = [field for own, field in zip(footer.schema, footer.carried, strict=True) if has_values(own.type)]
    if not kept:
        raise Unsure
    return tuple(Column(field.name, "smallint" if field.type == pa.int8() else type_text(_kind(field.type))) for field in kept)


def _paths(path: str, type_: pa.DataType) -> Iterator[str]:
    """Yields the usual paths of the values of a column."""
    kinds = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    if kinds.is_map(type_):
        yield from _paths(f"{path}.key_value.key", type_.key_type)
        yield from _paths(f"{path}.key_value.value", type_.item_type)
    elif kinds.is_struct(type_):
        for at in range(type_.num_fields):
            name = type_.field(at).name
            if "." in name or not PLAIN_NAME.fullmatch(name):
                raise Unsure
            yield from _paths(f"{path}.{name}", type_.field(at).type)
    elif kinds.is_nested(type_):
        yield from _paths(f"{path}.list.element", type_.field(0).type)
    else:
        yield path


def _kind(type_: pa.DataType) -> Any:
    """A type of ``Footer.carried`` in Spark's JSON. Raises Unsure where it is not known here."""
    kinds = pa.types
    if kinds.is_struct(type_):
        fields = [type_.field(at) for at in range(type_.num_fields)]
        return {"type": "struct", "fields": [{"name": field.name, "type": _kind(field.type)} for field in fields]}
    if kinds.is_map(type_):
        return {"type": "map", "keyType": _kind(type_.key_type), "valueType": _kind(type_.item_type)}
    if kinds.is_list(type_):
        return {"type": "array", "elementType": _kind(type_.value_type)}
    found = f"decimal({type_.precision},{type_.scale})" if kinds.is_decimal(type_) else _KINDS.get(type_)
    if found is None:
        raise Unsure
    return found


def values(array: pa.Array, found: str, type_: str, stored: pa.DataType) -> pa.Array:
    """The values of a column of a file as those of the table's type. Raises Unsure where Spark has to decide about them."""
    if found == type_ or (not found.startswith(NESTED) and widens(found, type_)):
        return array if array.type == stored else array.cast(stored)
    if type_ == "string" and found in (*_INTEGERS, "boolean"):
        return array.cast(stored)
    if found in _EXACT and (type_ in _INTEGERS or type_.startswith("decimal")):
        whole = array.cast(pa.int64())  # raises ArrowInvalid for a fraction
        bounds = pc.min_max(whole)  # pyright: ignore[reportAttributeAccessIssue]
        if whole.null_count == len(whole) or max(-bounds["min"].as_py(), bounds["max"].as_py()) <= _EXACT[found]:
            return whole.cast(stored)
    raise Unsure
