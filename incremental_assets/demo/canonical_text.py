"""Rows of a Delta table as PostgreSQL would print them: one line a row, in the text format of ``COPY … TO STDOUT``.

The format is unambiguous: NULL is ``\\N``, and tabs, line ends and backslashes in values are escaped. Floating-point numbers are an
exception: PostgreSQL's text for them is not always the shortest one, so their bits are compared instead. Nothing here asks PostgreSQL, so
that this is an independent check of what was written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute  # its functions are made at run time: type checkers know none of them

NULL = "\\N"
"""The text that stands for NULL."""
TAB = pa.scalar("\t", pa.large_string())
ESCAPES = (("\\", "\\\\"), ("\b", "\\b"), ("\f", "\\f"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\v", "\\v"))
"""Characters and their escapes. The backslash comes first: escaping it later would escape the other escapes again."""
DAY_US = 86_400_000_000
YEAR_1 = -719_162  # days from 1970-01-01 to 0001-01-01
YEAR_10000 = 2_932_897  # days from 1970-01-01 to 10000-01-01


def lines(batch: pa.RecordBatch, columns: Sequence[str]) -> list[bytes]:
    """Return the rows of a batch, with these columns in this order, as the lines that COPY would send, without line ends."""
    if not columns:
        return [b""] * batch.num_rows
    texts = [_column(batch.column(name)) for name in columns]
    if len(texts) == 1:
        joined = texts[0].fill_null(NULL)
    else:
        joined = pc.binary_join_element_wise(*texts, TAB, null_handling="replace", null_replacement=NULL)
    return joined.cast(pa.large_binary()).to_pylist()


def fields(line: bytes) -> list[str | None]:
    """Split a line of COPY into its values, for people to read. None is NULL."""
    found: list[str | None] = []
    for field in line.decode("utf-8", errors="replace").split("\t"):
        if field == NULL:
            found.append(None)
            continue
        # Splitting at escaped backslashes first keeps a backslash that a letter follows from looking like an escape.
        parts = field.split("\\\\")
        for character, escape in ESCAPES[1:]:
            parts = [part.replace(escape, character) for part in parts]
        found.append("\\".join(parts))
    return found


def _column(values: pa.Array) -> pa.Array:
    """Return the values of a column as text. Raises TypeError for a type that no PostgreSQL type becomes in the lake."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _escaped(values.cast(pa.large_string()))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return values.cast(pa.large_string())
    if pa.types.is_decimal(kind):
        # Up to six places Arrow prints all digits; beyond, it may print 0E-10 where PostgreSQL prints 0.0000000000.
        if 0 <= kind.scale <= 6:
            return values.cast(pa.string()).cast(pa.large_string())
        return _each(values, lambda value: format(Decimal(value), "f"))
    if pa.types.is_date(kind):
        return _date(values.cast(pa.date32()))
    if pa.types.is_timestamp(kind):
        return _timestamp(values.cast(pa.timestamp("us")), "" if kind.tz is None else "+00")
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return _float_bits(values, ">f4" if pa.types.is_float32(kind) else ">f8")
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return _each(values, lambda value: "\\\\x" + bytes(value).hex())
    raise TypeError(
        f"The lake holds a column of type {kind}, for which no PostgreSQL type is carried that way: nothing to compare it with."
    )


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())


def _each(values: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    """Convert one value at a time. It is slow, and used for types whose text in Arrow differs from PostgreSQL's."""
    return pa.array([None if value is None else text(value) for value in values.to_pylist()], type=pa.large_string())


def _escaped(values: pa.Array) -> pa.Array:
    """Escape the characters that COPY escapes."""
    for character, escape in ESCAPES:
        if pc.any(pc.match_substring(values, character)).as_py():
            values = pc.replace_substring(values, character, escape)
    return values


def _date(values: pa.Array) -> pa.Array:
    """Return dates as text. ``values`` is of the type date32."""
    days = values.cast(pa.int32())
    if _within(days, YEAR_1, YEAR_10000):
        return values.cast(pa.large_string())
    return _each(days, lambda day: "{}{}".format(*_civil(day)))


def _timestamp(values: pa.Array, zone: str) -> pa.Array:
    """Return timestamps as text, with the suffix ``zone``. ``values`` has microseconds."""
    ticks = values.cast(pa.int64())
    if not _within(ticks, YEAR_1 * DAY_US, YEAR_10000 * DAY_US):
        return _each(ticks, lambda tick: _far_timestamp(tick, zone))
    text = values.cast(pa.string())
    # PostgreSQL prints no trailing zeros of the fraction, and no fraction of zero.
    text = pc.replace_substring_regex(text, r"\.0+$", "")
    text = pc.replace_substring_regex(text, r"(\.[0-9]*[1-9])0+$", r"\1")
    text = text.cast(pa.large_string())
    return pc.binary_join_element_wise(text, _text(zone), _text("")) if zone else text


def _within(values: pa.Array, lower: int, upper: int) -> bool:
    """Whether all values lie in ``[lower, upper)``."""
    ends = pc.min_max(values)
    return ends["min"].as_py() is None or (lower <= ends["min"].as_py() and ends["max"].as_py() < upper)


def _far_timestamp(tick: int, zone: str) -> str:
    """Return a timestamp before year 1 or after 9999 as text. ``tick`` is in microseconds since 1970."""
    day, within = divmod(tick, DAY_US)
    seconds, micros = divmod(within, 1_000_000)
    text, era = _civil(day)
    fraction = f".{micros:06d}".rstrip("0").rstrip(".")
    return f"{text} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}{zone}{era}"


def _civil(day: int) -> tuple[str, str]:
    """Return the date and the era (`` BC`` or nothing) of a day, in days since 1970, in the proleptic Gregorian calendar.

    It is for days before year 1 or after 9999, which Python's own dates cannot hold.
    """
    shifted = day + 719_468
    era, of_era = divmod(shifted, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * of_year + 2) // 153
    number = of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    year = era * 400 + year_of_era + (1 if month <= 2 else 0)
    return (f"{year:04d}-{month:02d}-{number:02d}", "") if year > 0 else (f"{1 - year:04d}-{month:02d}-{number:02d}", " BC")


def _float_bits(values: pa.Array, kind: str) -> pa.Array:
    """Return the bits of each value as 8 or 16 hexadecimal digits, most significant first, with one and the same NaN for all."""
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False).astype(kind)
    numbers[np.isnan(numbers)] = np.nan
    digits, width = numbers.tobytes().hex(), 2 * numbers.itemsize
    known = values.is_valid().to_pylist()
    return pa.array([digits[width * n : width * (n + 1)] if known[n] else None for n in range(len(known))], type=pa.large_string())


def float_of(bits: str) -> str:
    """Return the number that such digits stand for, for people to read."""
    return repr(struct.unpack(">f" if len(bits) == 8 else ">d", bytes.fromhex(bits))[0])
