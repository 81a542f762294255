"""Candidates for rules, derived from the profile of a container alone. They are guesses; ``suggest`` evaluates them on other rows."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import pairwise

from incremental_assets.core.rules.keys import Unique
from incremental_assets.core.rules.numbers import Change
from incremental_assets.core.rules.sql import Value
from incremental_assets.core.rules.values import (
    EMAIL,
    URL,
    Between,
    Contains,
    ExpectedValues,
    Length,
    MatchesPattern,
    NotInFuture,
    NotNull,
    RowRule,
    Sign,
)
from incremental_assets.profiles.column import ColumnProfile, Form, Key, Profile, order_of, rows_of
from incremental_assets.profiles.shapes import common_pattern
from incremental_assets.profiles.states import FREQUENT, TEXT_LENGTH

RARE = 0.01
"""A share of failed rows up to which a rule may still be right: they may be a matter of chance, or a few bad rows."""
LEAST_ROWS = 20
"""Fewer rows than this give no candidates."""
OVER = 14
"""How many partitions before it a ``volumetric`` rule compares a partition with."""
_LEAST_CHANGES = 4
"""Fewer changes between partitions than this give no ``volumetric`` rule."""
# Larger numbers are written with an exponent.
_MOST_DIGITS = 10**15
# Evaluating a ``unique`` rule means counting all distinct values, so only a few are proposed.
_MOST_UNIQUE = 4


@dataclass(frozen=True)
class Candidate:
    """Alternative rules for the same purpose; the first that holds is proposed."""

    alternatives: tuple[RowRule | Unique, ...]


def candidates(profile: Profile) -> list[Candidate]:
    """Return candidates from the profile of the fitted partitions, in the order of the columns, ``unique`` rules last."""
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
    """Round a share up to one significant digit, at most 1.0. The share must be positive."""
    digits = -math.floor(math.log10(share))
    return min(1.0, round(math.ceil(round(share * 10**digits, 6)) / 10**digits, digits))


# ---------------------------------------------------------------- of each column
def _not_null(column: ColumnProfile, parts: Sequence[ColumnProfile]) -> list[RowRule | Unique]:
    """Propose ``not_null``, unless more than ``RARE`` of a partition's rows are NULL.

    Tolerances apply to each partition separately, so it is derived from the worst one.
    """
    share = max((one.null_share for one in parts if one.null_share is not None), default=None)
    if share is None or share > RARE:
        return []
    return [NotNull(columns=(column.column,), tolerance=rounded_up(2 * share) if share else 0)]


def _values(column: ColumnProfile, parts: Sequence[ColumnProfile], profile: Profile) -> list[RowRule | Unique]:
    if column.values < LEAST_ROWS or column.minimum is None or column.maximum is None:
        return []
    if column.form.is_time:
        order = order_of(column.form)
        # A date beyond the time of the profile shows that the column may lie in the future.
        past = profile.at is not None and order(column.maximum) <= order(f"{profile.at:%Y-%m-%d %H:%M:%S}")
        return [NotInFuture(column=column.column)] if past else []
    if column.form.is_number:
        return [*_expected(column, int), *_bounds(column, parts)] if column.form is Form.INTEGER else _bounds(column, parts)
    if column.form is Form.TEXT:
        return [*_expected(column, str), *_texts(column)]
    return []


def _expected(column: ColumnProfile, kind: Callable[[str], Value]) -> list[RowRule | Unique]:
    """Propose ``expected_values`` if the column has only a few values, and each of them occurs many times."""
    counted = sum(one.count for one in column.frequent)
    few = column.frequent_is_exact and len(column.frequent) < FREQUENT and counted == column.values
    if not few or column.values < LEAST_ROWS * len(column.frequent) or any(len(one.value) >= TEXT_LENGTH for one in column.frequent):
        return []
    return [ExpectedValues(column=column.column, values=tuple(sorted(kind(one.value) for one in column.frequent)))]


def _bounds(column: ColumnProfile, parts: Sequence[ColumnProfile]) -> list[RowRule | Unique]:
    """Propose ``between`` with some margin beyond the values seen, or the sign alone if the values grow."""
    low, high = float(column.minimum or 0), float(column.maximum or 0)
    sign = [Sign(rule="positive" if low > 0 else "not_negative", column=column.column)] if low >= 0 else []
    if not math.isfinite(low) or not math.isfinite(high) or _grows(parts):
        return [*sign]
    # The margin is a tenth of the range. If all values are on one side of zero, and the nearest lies within twice the margin of zero, the
    # bound is zero.
    margin = 0.1 * (high - low) or abs(high) or 1
    least = 0 if 0 <= low <= 2 * margin else _nice(low - margin, ROUND_FLOOR)
    most = 0 if -2 * margin <= high <= 0 else _nice(high + margin, ROUND_CEILING)
    # The margin leads beyond the largest double.
    if not math.isfinite(least) or not math.isfinite(most):
        return [*sign]
    return [Between(column=column.column, min=least, max=most), *sign]


def _grows(parts: Sequence[ColumnProfile]) -> bool:
    """Whether the medians rise from partition to partition, as those of keys do. Tomorrow's values then lie above all values seen."""
    middles = [float(one.quantiles[0.5]) for one in parts if 0.5 in one.quantiles]
    return len(middles) > 2 and all(a < b for a, b in pairwise(middles))


def _nice(value: float, rounding: str) -> int | float:
    """Round to two significant digits."""
    if not math.isfinite(value):
        return value
    exact = Decimal(repr(value))
    if not exact:
        return 0
    found = exact.quantize(Decimal(1).scaleb(exact.adjusted() - 1), rounding=rounding)
    return int(found) if found == found.to_integral_value() and abs(found) < _MOST_DIGITS else float(found)


def _texts(column: ColumnProfile) -> list[RowRule | Unique]:
    """Propose rules about the content and the length of texts.

    They are derived from the texts that the profile has: the least, the greatest, frequent ones and examples. Nothing is proposed if one of
    these was cut at ``TEXT_LENGTH``.
    """
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
    """Whether the column may be unique, as far as the sketch can tell. The held-out rows decide.

    The limit of 98 % allows for the error of the sketch (``states.Parameters``).
    """
    if column.form not in (Form.INTEGER, Form.TEXT, Form.BINARY) or column.values < LEAST_ROWS:
        return False
    return (column.distinct or 0) >= 0.98 * column.values


# ---------------------------------------------------------------- of the numbers of rows
def volumetric(rows: Mapping[Key, int]) -> Change | None:
    """Return a rule about the number of rows, derived from the rows of each fitted partition, oldest first; None if there are too few.

    The bounds are one and a half times the changes that occurred.
    """
    changes = list(changes_of(rows).values())
    if len(changes) < _LEAST_CHANGES:
        return None
    low = math.floor(15 * min(*changes, -0.1)) / 10
    high = math.ceil(15 * max(*changes, 0.1)) / 10
    least, most = low if low > -0.95 else None, high if high <= 10 else None
    return Change(rule="volumetric", over=OVER, min_change=least, max_change=most) if (least, most) != (None, None) else None


def changes_of(rows: Mapping[Key, int], over: int = OVER) -> dict[Key, float]:
    """Return for each partition with rows its relative change from the mean of up to ``over`` earlier partitions with rows.

    The first three have too few partitions before them, and are left out.
    """
    filled = [(key, count) for key, count in rows.items() if count and key is not None]
    found: dict[Key, float] = {}
    for position in range(3, len(filled)):
        before = [count for _, count in filled[max(0, position - over) : position]]
        found[filled[position][0]] = filled[position][1] / (sum(before) / len(before)) - 1
    return found


def rows_by_partition(profile: Profile) -> dict[Key, int]:
    """Return the number of rows of each partition, in the profile's order."""
    return {key: rows_of(columns) for key, columns in profile.partitions.items()}
