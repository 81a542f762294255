"""Hashes of rows in this process: the canonical texts of values, the hash of a row, and the checksums of groups of rows."""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from incremental_assets.core.comparison import Checksum

_HALF = 30
"""A sum of hashes does not fit into 64 bits, so it is made of two halves of so many bits."""


def hashes_of(columns: Sequence[pa.ChunkedArray]) -> np.ndarray:
    """The first 60 bits of the MD5 of each row's canonical text. There is at least one column."""
    texts = [canonical_texts(column) for column in columns]
    joined = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, ",")  # pyright: ignore[reportAttributeAccessIssue]
    digests = b"".join(hashlib.md5(text, usedforsecurity=False).digest() for text in joined.cast(pa.binary()).to_pylist())
    return (np.frombuffer(digests, ">u8")[::2] >> np.uint64(4)).astype(np.int64)


def checksums_of(hashes: np.ndarray, groups: np.ndarray) -> dict[int, Checksum]:
    """The checksums of groups of rows. ``groups``: the number of each row's group."""
    if not len(hashes):
        return {}
    order = np.argsort(groups, kind="stable")
    in_order, hashes = groups[order], hashes[order]
    starts = np.flatnonzero(np.r_[True, in_order[1:] != in_order[:-1]])
    rows = np.diff(np.r_[starts, len(in_order)])
    high, low = (np.add.reduceat(half, starts) for half in (hashes >> _HALF, hashes & ((1 << _HALF) - 1)))
    sums = zip(in_order[starts].tolist(), rows.tolist(), high.tolist(), low.tolist(), strict=True)
    return {group: Checksum(n, (one << _HALF) + other) for group, n, one, other in sums}


def in_buckets(buckets: np.ndarray, chosen: Sequence[int]) -> np.ndarray:
    """The positions of the rows whose bucket is among the chosen ones, in the order of the buckets."""
    positions = np.flatnonzero(np.isin(buckets, np.array(chosen, np.int64)))
    return positions[np.argsort(buckets[positions], kind="stable")]


def plain_texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The texts of a column's values (``hashed_rows.plain_text``)."""
    if pa.types.is_binary(values.type):
        return pa.chunked_array([[None if value is None else value.hex() for value in values.to_pylist()]], pa.string())
    if pa.types.is_decimal(values.type):
        return pa.chunked_array([[None if value is None else format(value, "f") for value in values.to_pylist()]], pa.string())
    if pa.types.is_floating(values.type):
        return pa.chunked_array([[None if value is None else _digits(value) for value in values.to_pylist()]], pa.string())
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return values.cast(pa.string())


def canonical_texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The parts of the rows' texts that one column has (``hashed_rows.canonical_text``)."""
    if pa.types.is_list(values.type):
        return pa.chunked_array([_list_texts(chunk) for chunk in values.chunks], pa.string())
    texts = plain_texts(values)
    if pa.types.is_string(values.type):
        length = pc.binary_length(values).cast(pa.string())  # pyright: ignore[reportAttributeAccessIssue]
        texts = pc.binary_join_element_wise(length, texts, ":")  # pyright: ignore[reportAttributeAccessIssue]
    elif pa.types.is_binary(values.type):
        texts = pc.binary_join_element_wise("x", texts, "")  # pyright: ignore[reportAttributeAccessIssue]
    return pc.fill_null(texts, "")  # pyright: ignore[reportAttributeAccessIssue]


def _list_texts(lists: pa.Array) -> pa.Array:
    """The same of arrays."""
    sizes = pc.list_value_length(lists)  # pyright: ignore[reportAttributeAccessIssue]
    each = canonical_texts(pa.chunked_array([lists.flatten()]))
    ends = np.cumsum([0, *pc.fill_null(sizes, 0).to_pylist()])  # pyright: ignore[reportAttributeAccessIssue]
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(ends, pa.int32()), each.combine_chunks()), ",")  # pyright: ignore[reportAttributeAccessIssue]
    texts = pc.binary_join_element_wise(sizes.cast(pa.string()), "[", joined, "]", "")  # pyright: ignore[reportAttributeAccessIssue]
    return pc.fill_null(texts, "")  # pyright: ignore[reportAttributeAccessIssue]


def _digits(value: float) -> str:
    """All digits of a floating-point number, in base 16, as Java's ``%a`` writes them."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    digits, _, exponent = value.hex().partition("p")
    digits = digits.rstrip("0") if "." in digits else digits
    return f"{digits}0p{int(exponent)}" if digits.endswith(".") else f"{digits}p{int(exponent)}"
