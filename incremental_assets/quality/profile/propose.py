"""Rules that the values of a container seem to keep, by its profile alone. Guesses: ``suggest`` asks other rows whether they hold.

Belongs here: from a profile to candidates. Does not belong: asking rows, or writing YAML (``suggest``).
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import pairwise

from incremental_assets.core.rules import (
    Between,
    Change,
    Contains,
    ExpectedValues,
    Length,
    MatchesPattern,
    NotInFuture,
    NotNull,
    RowRule,
    Sign,
    Unique,
    Value,
)
from incremental_assets.quality.predicates import EMAIL, URL
from incremental_assets.quality.profile.column import ColumnProfile, Form, Key, Profile, order_of, rows_of
from incremental_assets.quality.profile.shapes import common_pattern
from incremental_assets.quality.profile.states import FREQUENT, TEXT_LENGTH

RARE = 0.01
"""A share of rows that may be a matter of luck, or a few bad rows."""
LEAST_ROWS = 20
"""From fewer rows nothing is concluded."""
OVER = 14
_LEAST_CHANGES = 4
_MOST_DIGITS = 10**15  # larger numbers are written with an exponent
_MOST_UNIQUE = 4  # each is a set of all values to count


@dataclass(frozen=True)
class Candidate:
    """``alternatives``: of which the first that holds is taken."""

    alternatives: tuple[RowRule | Unique, ...]


def candidates(profile: Profile) -> list[Candidate]:
    """By the profile of the partitions that are fitted, in the order of the columns."""
    if profile.rows < LEAST_ROWS:
        return []
    found: list[Candidate] = []
    for column in profile.columns:
        parts = [columns[column.column] for columns in profile.partitions.values() if column.column in columns]
        for rules in (_not_null(column, parts), _values(column, parts, profile)):
            if rules:
                found.append(Candidate(tuple(rules)))
    unique = [one.column for one in sorted(profile.columns, key=lambda one: one.form is not Form.INTEGER) if _seems_unique(one)]
    return [*found, *(Candidate((Unique(columns=(name,)),)) for name in unique[:_MOST_UNIQUE])]


def rounded_up(share: float) -> float:
    """To one digit that counts."""
    digits = -math.floor(math.log10(share))
    return min(1.0, round(math.ceil(round(share * 10**digits, 6)) / 10**digits, digits))


# ---------------------------------------------------------------- of each column
def _not_null(column: ColumnProfile, parts: Sequence[ColumnProfile]) -> list[RowRule | Unique]:
    """A tolerance is asked of each partition by itself, so it goes by the worst of them."""
    share = max((one.null_share for one in parts if one.null_share is not None), default=None)
    if share is None or share > RARE:
        return []
    return [NotNull(columns=(column.column,), tolerance=rounded_up(2 * share) if share else 0)]


def _values(column: ColumnProfile, parts: Sequence[ColumnProfile], profile: Profile) -> list[RowRule | Unique]:
    if column.values < LEAST_ROWS or column.minimum is None or column.maximum is None:
        return []
    if column.form.is_time:
        order = order_of(column.form)
        past = profile.at is not None and order(column.maximum) <= order(f"{profile.at:%Y-%m-%d %H:%M:%S}")
        return [NotInFuture(column=column.column)] if past else []
    if column.form.is_number:
        return [*_expected(column, int), *_bounds(column, parts)] if column.form is Form.INTEGER else _bounds(column, parts)
    if column.form is Form.TEXT:
        return [*_expected(column, str), *_texts(column)]
    return []


def _expected(column: ColumnProfile, kind: Callable[[str], Value]) -> list[RowRule | Unique]:
    """A few values that each come again and again, and nothing else."""
    counted = sum(one.count for one in column.frequent)
    few = column.frequent_is_exact and len(column.frequent) < FREQUENT and counted == column.values
    if not few or column.values < LEAST_ROWS * len(column.frequent) or any(len(one.value) >= TEXT_LENGTH for one in column.frequent):
        return []
    return [ExpectedValues(column=column.column, values=tuple(sorted(kind(one.value) for one in column.frequent)))]


def _bounds(column: ColumnProfile, parts: Sequence[ColumnProfile]) -> list[RowRule | Unique]:
    low, high = float(column.minimum or 0), float(column.maximum or 0)
    sign = [Sign(rule="positive" if low > 0 else "not_negative", column=column.column)] if low >= 0 else []
    if not math.isfinite(low) or not math.isfinite(high) or _grows(parts):
        return [*sign]
    room = 0.1 * (high - low) or abs(high) or 1
    least = 0 if 0 <= low <= 2 * room else _nice(low - room, ROUND_FLOOR)
    most = 0 if -2 * room <= high <= 0 else _nice(high + room, ROUND_CEILING)
    if not math.isfinite(least) or not math.isfinite(most):  # no number of the type is beyond them
        return [*sign]
    return [Between(column=column.column, min=least, max=most), *sign]


def _grows(parts: Sequence[ColumnProfile]) -> bool:
    """From partition to partition, as keys do: tomorrow's values are above all of today's."""
    middles = [float(one.quantiles[0.5]) for one in parts if 0.5 in one.quantiles]
    return len(middles) > 2 and all(a < b for a, b in pairwise(middles))


def _nice(value: float, rounding: str) -> int | float:
    """To two digits that count."""
    if not math.isfinite(value):
        return value
    exact = Decimal(repr(value))
    if not exact:
        return 0
    found = exact.quantize(Decimal(1).scaleb(exact.adjusted() - 1), rounding=rounding)
    return int(found) if found == found.to_integral_value() and abs(found) < _MOST_DIGITS else float(found)


def _texts(column: ColumnProfile) -> list[RowRule | Unique]:
    seen = [column.minimum or "", column.maximum or "", *(one.value for one in column.frequent), *column.examples]
    lengths = column.lengths
    if lengths is None or any(len(one) >= TEXT_LENGTH for one in seen):
        return []
    name = column.column
    found: list[RowRule | Unique] = []
    if all(re.search(EMAIL, one) for one in seen):
        found.append(Contains(rule="contains_email", column=name))
    elif all(re.search(URL, one) for one in seen):
        found.append(Contains(rule="contains_url", column=name))
    elif (pattern := common_pattern(seen)) is not None:
        found.append(MatchesPattern(column=name, pattern=pattern))
    if lengths.least == lengths.greatest:
        found.append(Length(column=name, min=lengths.least, max=lengths.greatest))
    elif lengths.least > 0:
        found.append(Length(column=name, min=1, max=int(_nice(lengths.greatest * 1.2, ROUND_CEILING))))
    return found


def _seems_unique(column: ColumnProfile) -> bool:
    """As far as the sketch can tell; whether it is, the other rows say."""
    if column.form not in (Form.INTEGER, Form.TEXT, Form.BINARY) or column.values < LEAST_ROWS:
        return False
    return (column.distinct or 0) >= 0.98 * column.values


# ---------------------------------------------------------------- of the numbers of rows
def volumetric(rows: Mapping[Key, int]) -> Change | None:
    """By the rows of each of the partitions that are fitted, oldest first; with half as much room again as they needed."""
    changes = list(changes_of(rows).values())
    if len(changes) < _LEAST_CHANGES:
        return None
    low = math.floor(15 * min(*changes, -0.1)) / 10
    high = math.ceil(15 * max(*changes, 0.1)) / 10
    least, most = low if low > -0.95 else None, high if high <= 10 else None
    return Change(rule="volumetric", over=OVER, min_change=least, max_change=most) if (least, most) != (None, None) else None


def changes_of(rows: Mapping[Key, int], over: int = OVER) -> dict[Key, float]:
    """Of each partition with rows, from the mean of up to so many before it that have some; the first three have too few before them."""
    filled = [(key, count) for key, count in rows.items() if count and key is not None]
    found: dict[Key, float] = {}
    for position in range(3, len(filled)):
        before = [count for _, count in filled[max(0, position - over) : position]]
        found[filled[position][0]] = filled[position][1] / (sum(before) / len(before)) - 1
    return found


def rows_by_partition(profile: Profile) -> dict[Key, int]:
    return {key: rows_of(columns) for key, columns in profile.partitions.items()}
