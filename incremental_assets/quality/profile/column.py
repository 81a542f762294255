"""What a profile says of a column: plain values, and how numbers of several partitions become those of all. Without Spark.

Belongs here: the types between the store, the page and the suggestions; merging what needs no sketch. Does not belong: sketches and where
they are kept (``states``, ``store``).
"""

import datetime
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any

Key = str | None
"""A partition's key. None: the rows of no partition, and all rows of a container without partitions."""

_TIME = re.compile(r"([+-]?\d+)-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d+))?)?")


class Form(str, Enum):
    """What kind of values a column has: it decides what is asked of them. ``OTHER`` (maps, arrays, …): only whether they are NULL."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOATING = "floating"
    TEXT = "text"
    BOOLEAN = "boolean"
    DAY = "day"
    LOCAL = "local"
    INSTANT = "instant"
    BINARY = "binary"
    OTHER = "other"

    @property
    def is_number(self) -> bool:
        return self in (Form.INTEGER, Form.DECIMAL, Form.FLOATING)

    @property
    def is_time(self) -> bool:
        return self in (Form.DAY, Form.LOCAL, Form.INSTANT)


_FORMS = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), Form.INTEGER),
    **dict.fromkeys(("float", "double"), Form.FLOATING),
    **dict.fromkeys(("string", "char", "varchar"), Form.TEXT),
    "decimal": Form.DECIMAL, "boolean": Form.BOOLEAN, "date": Form.DAY, "timestamp": Form.INSTANT, "timestamp_ntz": Form.LOCAL,
    "binary": Form.BINARY,
}  # fmt: skip


def form_of(type_: str) -> Form:
    """Of a type as Spark calls it."""
    return _FORMS.get(type_.partition("(")[0].strip().lower(), Form.OTHER)


@dataclass(frozen=True)
class Moments:
    """``count`` finite numbers, their ``mean``, and ``m2``: the sum of their squared distances from it."""

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0

    @property
    def deviation(self) -> float | None:
        """The standard deviation of a sample, as SQL's ``stddev``; None of fewer than two numbers."""
        return math.sqrt(self.m2 / (self.count - 1)) if self.count > 1 else None


def merge_moments(parts: Iterable[Moments]) -> Moments:
    """Of all numbers together: Chan, Golub and LeVeque's update (1979, *Updating formulae and a pairwise algorithm for computing sample
    variances*), of many parts at once. No two large numbers are subtracted, so that a small deviation beside a large mean survives."""
    filled = [part for part in parts if part.count]
    count = sum(part.count for part in filled)
    if not count:
        return Moments()
    mean = math.fsum(part.mean * (part.count / count) for part in filled)
    return Moments(count, mean, math.fsum(part.m2 + part.count * (part.mean - mean) ** 2 for part in filled))


@dataclass(frozen=True)
class Frequent:
    """A value as text (of long ones the beginning), and how many rows have it."""

    value: str
    count: int


@dataclass(frozen=True)
class Lengths:
    """Characters of the texts, bytes of the binaries: ``count`` values of ``total`` length."""

    count: int
    least: int
    greatest: int
    total: int

    @property
    def mean(self) -> float:
        return self.total / self.count


@dataclass(frozen=True)
class ColumnProfile:
    """Of the rows of one partition, or of several.

    ``type``: Spark's name of it. ``nans``: values that are no number (of ``float`` and ``double``), in no other figure but ``rows``,
    ``distinct`` and ``frequent``. ``distinct``: different values, estimated. ``minimum``, ``maximum``: exact, as text; times with a zone in
    UTC, binaries in hexadecimal, of long texts and binaries the beginning. ``moments``: of the finite numbers. ``quantiles``: a value by
    its rank, 0.5 the median, estimated. ``frequent``: most frequent first; ``frequent_is_exact``: all counts are; else each is within
    ``frequent_error`` rows. ``examples``: some of the texts, drawn by chance.

    None, and empty, where a figure has no meaning for the type, and where there are no values.
    """

    column: str
    type: str
    form: Form
    rows: int
    nulls: int = 0
    nans: int = 0
    distinct: int | None = None
    minimum: str | None = None
    maximum: str | None = None
    moments: Moments | None = None
    quantiles: Mapping[float, str] = field(default_factory=dict[float, str])
    lengths: Lengths | None = None
    frequent: tuple[Frequent, ...] = ()
    frequent_error: int = 0
    examples: tuple[str, ...] = ()

    @property
    def values(self) -> int:
        """Rows that have one."""
        return self.rows - self.nulls

    @property
    def null_share(self) -> float | None:
        return self.nulls / self.rows if self.rows else None

    @property
    def mean(self) -> float | None:
        return self.moments.mean if self.moments else None

    @property
    def deviation(self) -> float | None:
        return self.moments.deviation if self.moments else None

    @property
    def frequent_is_exact(self) -> bool:
        return self.frequent_error == 0


@dataclass(frozen=True)
class Profile:
    """Of a container. ``partitions``: the profile of each, by column, in the order asked for; ``columns``: of all of them together.

    ``left_out``: by column, partitions that are not in ``columns``, as their states were made with other parameters or of another type:
    they have to be profiled again. ``delta_version``: the newest version of the table that a state is of; ``at``: when it was made.
    """

    container: str
    columns: tuple[ColumnProfile, ...]
    partitions: Mapping[Key, Mapping[str, ColumnProfile]] = field(repr=False)
    left_out: Mapping[str, tuple[Key, ...]] = field(default_factory=dict[str, tuple[Key, ...]])
    delta_version: int | None = None
    at: datetime.datetime | None = None

    @property
    def rows(self) -> int:
        return sum(rows_of(columns) for columns in self.partitions.values())

    def column(self, name: str) -> ColumnProfile:
        return next(one for one in self.columns if one.column == name)

    def records(self) -> list[dict[str, Any]]:
        """A line a column, of texts and numbers only: for a table in metadata, or JSON."""
        return [
            {
                "column": one.column,
                "type": one.type,
                "rows": one.rows,
                "nulls": one.nulls,
                "distinct": one.distinct,
                "min": one.minimum,
                "max": one.maximum,
                "mean": one.mean,
                "sd": one.deviation,
                "median": one.quantiles.get(0.5),
                "most_frequent": one.frequent[0].value if one.frequent else None,
            }
            for one in self.columns
        ]


def rows_of(columns: Mapping[str, ColumnProfile]) -> int:
    """Of a partition. Each of its columns knows."""
    return max((one.rows for one in columns.values()), default=0)


def merge_columns(parts: "list[ColumnProfile]") -> ColumnProfile:
    """Of all of them together, but for what only sketches tell: distinct, quantiles, frequent. ``parts``: at least one, the newest last."""
    newest = parts[-1]
    order = order_of(newest.form)
    lows = [one.minimum for one in parts if one.minimum is not None]
    highs = [one.maximum for one in parts if one.maximum is not None]
    lengths = [one.lengths for one in parts if one.lengths is not None]
    moments = [one.moments for one in parts if one.moments is not None]
    return ColumnProfile(
        column=newest.column,
        type=newest.type,
        form=newest.form,
        rows=sum(one.rows for one in parts),
        nulls=sum(one.nulls for one in parts),
        nans=sum(one.nans for one in parts),
        minimum=min(lows, key=order, default=None),
        maximum=max(highs, key=order, default=None),
        moments=merge_moments(moments) if moments else None,
        lengths=Lengths(
            sum(one.count for one in lengths),
            min(one.least for one in lengths),
            max(one.greatest for one in lengths),
            sum(one.total for one in lengths),
        )
        if lengths
        else None,
        examples=tuple(dict.fromkeys(text for one in reversed(parts) for text in one.examples)),
    )


def order_of(form: Form) -> Callable[[str], Any]:
    """How texts of values are compared, as the values themselves are."""
    match form:
        case Form.INTEGER:
            return int
        case Form.DECIMAL:
            return Decimal
        case Form.FLOATING:
            return float
        case Form.DAY | Form.LOCAL | Form.INSTANT:
            return _moment
        case _:
            return lambda text: text.encode("utf-8", "surrogatepass")


def _moment(text: str) -> tuple[int, ...]:
    """Also of years before 1 and after 9999, which Python's own types do not have."""
    found = _TIME.fullmatch(text)
    assert found is not None, text
    micros = int((found[7] or "0").ljust(6, "0")[:6])
    return (*(int(part or 0) for part in found.groups()[:6]), micros)
