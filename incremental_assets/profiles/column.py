"""What a profile says about a column, as plain values, and how exact numbers of several partitions are merged. It works without Spark."""

import datetime
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any

Key = str | None
"""A partition's key; None for the rows without an identifier, and for all rows of a container without partitions."""

_TIME = re.compile(r"([+-]?\d+)-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d+))?)?")


class Form(str, Enum):
    """The kind of values that a column has, which decides what is measured. ``OTHER`` (maps, arrays, structs) only counts rows and NULLs.

    ``DAY`` is a date, ``LOCAL`` a timestamp without a time zone, ``INSTANT`` a timestamp with one.
    """

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
    """Return the form of a Spark type."""
    return _FORMS.get(type_.partition("(")[0].strip().lower(), Form.OTHER)


@dataclass(frozen=True)
class Moments:
    """The count, the mean and ``m2`` of finite numbers; ``m2`` is the sum of their squared distances from the mean."""

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0

    @property
    def deviation(self) -> float | None:
        """The standard deviation of a sample, as SQL's ``stddev``; None for fewer than two numbers."""
        return math.sqrt(self.m2 / (self.count - 1)) if self.count > 1 else None


def merge_moments(parts: Iterable[Moments]) -> Moments:
    """Return the moments of all numbers together.

    It is the update of Chan, Golub and LeVeque (1979, *Updating formulae and a pairwise algorithm for computing sample variances*), for any
    number of parts at once. It does not subtract two large numbers, so a small deviation beside a large mean keeps its digits.
    """
    filled = [part for part in parts if part.count]
    count = sum(part.count for part in filled)
    if not count:
        return Moments()
    mean = math.fsum(part.mean * (part.count / count) for part in filled)
    return Moments(count, mean, math.fsum(part.m2 + part.count * (part.mean - mean) ** 2 for part in filled))


@dataclass(frozen=True)
class Frequent:
    """A frequent value as text (the beginning of a long one), and the number of rows that have it."""

    value: str
    count: int


@dataclass(frozen=True)
class Lengths:
    """Lengths of values, in characters of texts and bytes of binaries: ``count`` values have the sum ``total`` of lengths."""

    count: int
    least: int
    greatest: int
    total: int

    @property
    def mean(self) -> float:
        return self.total / self.count


@dataclass(frozen=True)
class ColumnProfile:
    """The profile of one column over the rows of one or several partitions.

    Figures that have no meaning for the type are None or empty, and so are figures of no values.

    - ``type`` is the Spark type.
    - ``rows`` counts all rows, ``nulls`` those without a value.
    - ``nans`` counts values of ``float`` and ``double`` that are NaN. They count in ``rows``, ``distinct`` and ``frequent``, and in no
      other figure.
    - ``distinct`` is the estimated number of different values.
    - ``minimum`` and ``maximum`` are exact, as text. Times with a zone are in UTC, binaries in hexadecimal; of long texts and binaries it
      is the beginning.
    - ``moments`` are those of the finite numbers.
    - ``quantiles`` maps ranks (0.5 is the median) to estimated values, as text.
    - ``lengths`` are those of texts and binaries.
    - ``frequent`` has the most frequent values, the most frequent one first. If ``frequent_is_exact``, all their counts are exact; else
      each is within ``frequent_error`` rows.
    - ``examples`` are some of the texts, drawn at random.
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
        """The number of rows that have a value."""
        return self.rows - self.nulls

    @property
    def null_share(self) -> float | None:
        """The share of rows that are NULL, from 0 to 1; None if there are no rows."""
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
    """The profile of a container.

    ``columns`` are the profiles over all partitions together. ``partitions`` has the profiles of each partition by column name, in the
    requested order. ``left_out`` has, by column name, the partitions that are not part of ``columns``, because their states have other
    parameters or another type; they have to be profiled again. ``delta_version`` is the newest version of the table that a state was
    computed from, and ``at`` the time when the newest state was computed.
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
        """Return a dictionary for each column with texts and numbers only, for a table in Dagster metadata or for JSON."""
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
    """Return the number of rows of a partition, given its column profiles. Every column has the same number."""
    return max((one.rows for one in columns.values()), default=0)


def merge_columns(parts: "list[ColumnProfile]") -> ColumnProfile:
    """Merge the profiles of several partitions, except for what only sketches can say: ``distinct``, ``quantiles`` and ``frequent``.

    ``parts`` has at least one profile, the newest last. Type and form are those of the newest.
    """
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
    """Return a sort key that orders the texts of values as the values themselves are ordered."""
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
    """Return a date or time as a tuple that sorts correctly.

    It also works for years before 1 and after 9999, which Python's own types do not have.
    """
    found = _TIME.fullmatch(text)
    assert found is not None, text
    micros = int((found[7] or "0").ljust(6, "0")[:6])
    return (*(int(part or 0) for part in found.groups()[:6]), micros)
