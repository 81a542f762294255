"""Rules about one number that is computed from all asserted rows of a partition."""

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from incremental_assets.core.rules.declared import Declared, NotDeclared
from incremental_assets.core.rules.rule import (
    Measured,
    Names,
    Number,
    Outcome,
    PartitionRule,
    Status,
    bounds_in_words,
    code,
    digest,
    expect_bounds,
)
from incremental_assets.core.rules.sql import ScannedTable
from incremental_assets.core.shown_text import counted


@dataclass(frozen=True, kw_only=True)
class AggregateRule(PartitionRule):
    """A rule about an aggregate over the asserted rows of a partition. ``tolerance`` has no meaning for it."""

    aggregates: ClassVar[bool] = True

    @property
    def is_by_partition(self) -> bool:
        return True

    def aggregate(self, table: ScannedTable) -> str:
        """The aggregate in Spark SQL. Raises RuleNotApplicable."""
        raise NotImplementedError

    @property
    def counts_rows(self) -> bool:
        """Whether the aggregate is the number of rows."""
        return False

    @property
    def earlier_partitions(self) -> int:
        """With how many of the partitions before it a partition is compared; 0 for most rules."""
        return 0


@dataclass(frozen=True, kw_only=True)
class Sum(AggregateRule):
    """The sum over the partition lies between the bounds, both included. Without any value the sum is 0."""

    rule: Literal["sum"] = "sum"
    column: str
    min: Number | None = None
    max: Number | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_bounds(self.min, self.max)

    @property
    def expected(self) -> str:
        return f"The sum of {code(self.column)} is {bounds_in_words(self.min, self.max)}"

    def aggregate(self, table: ScannedTable) -> str:
        number = table.number(self.column)
        # PostgreSQL returns numeric for a sum of bigint. Spark returns bigint, which a sum of large ids overflows.
        summed = f"cast({number} AS decimal(20,0))" if table.type_of(self.column) == "bigint" else number
        return f"coalesce(sum({summed}), 0)"

    def outcome(self, measured: Measured) -> Outcome:
        return compared(measured.number, self.min, self.max)


@dataclass(frozen=True, kw_only=True)
class Metric(AggregateRule):
    """An aggregate in Spark SQL over the partition lies between the bounds, both included, or is NULL."""

    rule: Literal["metric"] = "metric"
    expression: str
    min: Number | None = None
    max: Number | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_bounds(self.min, self.max)

    @property
    def subject(self) -> Names:
        return (digest(self.expression),)

    @property
    def expected(self) -> str:
        return f"{code(self.expression)} is {bounds_in_words(self.min, self.max)}"

    def aggregate(self, table: ScannedTable) -> str:
        return self.expression

    def outcome(self, measured: Measured) -> Outcome:
        return compared(measured.number, self.min, self.max)


@dataclass(frozen=True, kw_only=True)
class Change(AggregateRule):
    """The number of rows (``volumetric``) or an aggregate (``metric_change``) changes within bounds from partition to partition.

    It is compared with the mean over the ``over`` partitions before this one; partitions without rows are not part of the mean.
    ``min_change`` and ``max_change`` bound the relative change: -0.5 means half of the mean, 1.0 means twice the mean. The lower bound does
    not apply to a partition that is still being filled.
    """

    rule: Literal["volumetric", "metric_change"]
    expression: str | None = None
    min_change: float | None = None
    max_change: float | None = None
    over: Annotated[int, Field(ge=1, le=1000)] = 14

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_bounds(self.min_change, self.max_change)
        if (self.rule == "metric_change") != (self.expression is not None):
            raise ValueError("metric_change takes an expression, and volumetric none")

    @property
    def subject(self) -> Names:
        return () if self.expression is None else (digest(self.expression),)

    def check(self, declared: Declared) -> None:
        super().check(declared)
        if not declared.has_partitions:
            raise NotDeclared("it compares partitions, and the container has none: it needs an incremental identifier")

    @property
    def is_by_partition(self) -> bool:
        return False  # its own words say so

    @property
    def expected(self) -> str:
        what = "The number of rows" if self.expression is None else code(self.expression)
        low, high = (None if bound is None else f"{100 * bound:+.6g} %" for bound in (self.min_change, self.max_change))
        return (
            f"{what} of a partition differs by {bounds_in_words(low, high)} from the mean of the {counted(self.over, 'partition')} before"
        )

    @property
    def counts_rows(self) -> bool:
        return self.expression is None

    @property
    def earlier_partitions(self) -> int:
        return self.over

    def aggregate(self, table: ScannedTable) -> str:
        return self.expression if self.expression is not None else "count(*)"

    def outcome(self, measured: Measured) -> Outcome:
        now, earlier = plain(measured.number), measured.earlier
        if now is None:
            return Outcome(Status.UNASSERTED, None, "there is no value")
        if not earlier:
            return Outcome(Status.UNASSERTED, now, "there is nothing to compare with: no earlier partition has rows")
        mean = sum(earlier) / len(earlier)
        if mean == 0:
            return Outcome(
                Status.UNASSERTED, now, f"there is nothing to compare with: the mean of {counted(len(earlier), 'earlier partition')} is 0"
            )
        change = (now - mean) / abs(mean)
        comparison = f"{now:,.6g} is {change:+.1%} of the mean {mean:,.6g} of {counted(len(earlier), 'earlier partition')}"
        expected = bounds_in_words(self.min_change, self.max_change)
        if within(change, self.min_change, self.max_change):
            return Outcome(Status.PASSED, now, f"{comparison}; expected {expected}")
        # More rows may still come, so a number below the lower bound says nothing yet.
        if self.min_change is not None and change < self.min_change and measured.is_filling:
            return Outcome(Status.UNASSERTED, now, f"{comparison}, and the partition is still being filled")
        return Outcome(Status.FAILED, now, f"{comparison}; expected {expected}")


AnyAggregateRule = Sum | Metric | Change
"""Any rule of this module."""


def compared(number: Any, low: Number | None, high: Number | None) -> Outcome:
    """The outcome of a rule whose number has to lie between bounds, both included, or to be NULL (None)."""
    shown = "there is no value" if number is None else _shown(number)
    status = Status.PASSED if within(number, low, high) else Status.FAILED
    return Outcome(status, plain(number), f"{shown}; expected {bounds_in_words(low, high)}")


def within(value: Decimal | float | None, low: float | None, high: float | None) -> bool:
    """Whether a number lies within the bounds, both included. None passes.

    A Decimal is compared with the exact digits of the bounds as the YAML has them, and not with the binary value of the float.
    """
    if isinstance(value, Decimal):
        low, high = (Decimal(repr(bound)) if isinstance(bound, float) else bound for bound in (low, high))  # pyright: ignore[reportAssignmentType]
    return value is None or ((low is None or value >= low) and (high is None or value <= high))


def plain(value: Any) -> float | None:
    """A number as records and charts can hold it; None for NaN and infinite values."""
    number = None if value is None else float(value)
    return number if number is not None and math.isfinite(number) else None


def _shown(value: Any) -> str:
    """A number for a message, without trailing zeros of an exact decimal."""
    if not isinstance(value, Decimal):
        return f"{value:,}"
    text = f"{value:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
