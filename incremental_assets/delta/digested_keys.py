"""Holds the primary keys of many rows in 128 bits each, and finds the rows of a table that have one of them.

That two of n keys have the same digest has a probability of n² / 2^129: of a billion keys, less than 10^-20. The digests begin with random
numbers of this process, so that nobody can choose keys that have the same one.
"""

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from incremental_assets.delta.replaced_rows import ReplacedRows, has_order, integers
from incremental_assets.delta.write_batch import NotHere

_ENTRIES_A_KEY = 4
"""The table by which most rows are ruled out has at least so many entries for each key, of one byte each."""
_ROWS_AT_ONCE = 1 << 18
"""So many rows are digested at a time: texts become objects on the way, which take many times their memory."""
MOST_KEYS = 50_000_000
"""More keys are not held: sorting them takes up to 40 bytes each."""
_TEXT_SECRETS = secrets.token_hex(8), secrets.token_hex(8)
_STARTS = np.uint64(secrets.randbits(64)), np.uint64(secrets.randbits(64))
_FACTOR = np.uint64(secrets.randbits(64) | 1)


@dataclass(frozen=True)
class DigestedKeys(ReplacedRows):
    """The ``ReplacedRows`` with these primary keys, wherever in the table they are.

    ``low`` and ``high``: the two halves of the digests, in the order of the lower ones, each of which is there once. ``may``: by the first
    bits of a lower half, whether there is such a one. ``bounds``: see ``extent``.
    """

    columns: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray
    may: np.ndarray
    bounds: tuple[Any, Any, bool]

    @classmethod
    def of(cls, key: pa.Schema, parts: Iterable[pa.Table]) -> "DigestedKeys":
        """The keys of some tables with the columns of the key.

        Raises NotHere if a key has NULL or is there twice, or if equal values of a column may differ in their bits.
        """
        if any(pa.types.is_floating(field.type) for field in key):
            raise NotHere("a column of the key is a float")
        low, high, firsts, count = list[np.ndarray](), list[np.ndarray](), list[Any](), 0
        for keys in parts:
            if any(column.null_count for column in keys.columns):
                raise NotHere("a key is NULL, or came twice")
            count += keys.num_rows
            if count > MOST_KEYS:
                raise NotHere(f"there are more than {MOST_KEYS:,} keys")
            halves = _digests(keys)
            low.append(halves[0])
            high.append(halves[1])
            if has_order(key.field(0).type) and keys.num_rows:
                found = pc.min_max(integers(keys.column(0))).as_py()  # pyright: ignore[reportAttributeAccessIssue]
                firsts += [found["min"], found["max"]]
        return cls(tuple(key.names), *_in_order(low, high), (min(firsts, default=None), max(firsts, default=None), not firsts))

    def extent(self) -> tuple[Any, Any, bool]:
        return self.bounds

    def among(self, rows: pa.Table) -> pa.Array:
        among = np.zeros(rows.num_rows, bool)
        if len(self.low):
            low, high = _digests(rows)
            found = np.flatnonzero(self.may[low >> _shift(self.may)])
            found = found[np.argsort(low[found])]  # neighbours are searched for in the same memory, which is many times as fast
            at = np.searchsorted(self.low, low[found])
            at[at == len(self.low)] = 0
            among[found[(self.low[at] == low[found]) & (self.high[at] == high[found])]] = True
        for column in rows.columns:
            if column.null_count:
                among &= column.is_valid().to_numpy()
        return pa.array(among)


def _in_order(low: list[np.ndarray], high: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order = np.argsort(lower := _joined(low))
    lower = lower[order]
    upper = _joined(high)[order]
    # These may also be two keys: among a hundred million, with a probability of one in three thousand.
    if (lower[1:] == lower[:-1]).any():
        raise NotHere("a key is NULL, or came twice")
    may = np.zeros(1 << max(1, (_ENTRIES_A_KEY * len(lower)).bit_length()), bool)
    may[lower >> _shift(may)] = True
    return lower, upper, may


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """The parts as one array. They are gone afterwards, as there may be gigabytes of them."""
    joined = np.concatenate([np.zeros(0, np.uint64), *parts])
    parts.clear()
    return joined


def _shift(may: np.ndarray) -> np.uint64:
    return np.uint64(65 - len(may).bit_length())


def _digests(keys: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """The two halves of the digests of the rows. NULL counts as some value."""
    parts = [_digests_of(keys.slice(start, _ROWS_AT_ONCE)) for start in range(0, keys.num_rows, _ROWS_AT_ONCE)]
    return _joined([low for low, _ in parts]), _joined([high for _, high in parts])


def _digests_of(keys: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    from pandas.util import hash_array  # which takes a quarter of a second

    low, high = (np.full(keys.num_rows, start) for start in _STARTS)
    for column in keys.columns:
        for one, other in _words(column):
            low, high = hash_array(low ^ one), hash_array((high ^ other) * _FACTOR)
    return low, high


def _words(column: pa.ChunkedArray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The values of a column as numbers of 64 bits, one or several of each, for each half of the digest."""
    from pandas.util import hash_array

    type_ = column.type
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        filler = "" if pa.types.is_string(type_) else b""
        values = column.fill_null(filler).to_numpy()
        one, other = (hash_array(values, hash_key=secret, categorize=False) for secret in _TEXT_SECRETS)
        yield one, other
    elif pa.types.is_decimal(type_):
        halves = np.concatenate([np.zeros((0, 2), np.uint64), *(_halves(chunk) for chunk in column.chunks)])
        for half in (halves[:, 0], halves[:, 1]):
            yield half, half
    else:
        values = column.cast(pa.int8()) if pa.types.is_boolean(type_) else column
        numbers = integers(values).fill_null(0).to_numpy().view(np.uint64)
        yield numbers, numbers


def _halves(decimals: pa.Array) -> np.ndarray:
    """The 128 bits of each decimal as two numbers."""
    buffer = decimals.buffers()[1]
    if buffer is None:
        return np.zeros((len(decimals), 2), np.uint64)
    return np.frombuffer(buffer, np.uint64)[2 * decimals.offset : 2 * (decimals.offset + len(decimals))].reshape(-1, 2)
