"""Rules about values of several rows: whether they repeat, how many different ones there are, and whether another container has them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

from pydantic import Field

from incremental_assets.core.rules.declared import Declared
from incremental_assets.core.rules.numbers import compared
from incremental_assets.core.rules.rule import CountingRule, Measured, Names, Outcome, PartitionRule, bounds_in_words, code, expect_bounds
from incremental_assets.core.rules.sql import RuleNotApplicable, ScannedTable, family
from incremental_assets.core.schema import Column


@dataclass(frozen=True, kw_only=True)
class GroupedRule(PartitionRule):
    """A rule for which the rows of a partition are grouped by ``columns``. Rows with a NULL in one of them are left out.

    There is one group for each combination of values. It has the number of its rows as ``n``, and ``again``: whether further rows of the
    table have these values.
    """

    columns: Annotated[Names, Field(min_length=1)]

    @property
    def number_of_groups(self) -> str:
        """The number that the rule is about: an aggregate in Spark SQL over the groups of a partition."""
        raise NotImplementedError

    @property
    def broken_groups(self) -> str | None:
        """The condition in Spark SQL for a group whose rows break the rule; None for a rule that rows do not break."""
        return None

    @property
    def is_of_table(self) -> bool:
        """Whether the rows outside the partition matter, that is, whether ``again`` is about the table and not about the partition."""
        return False


class UniqueScope(str, Enum):
    """The rows among which a value has to be unique: those of its partition, or those of the whole table."""

    PARTITION = "partition"
    TABLE = "table"


@dataclass(frozen=True, kw_only=True)
class Unique(CountingRule, GroupedRule):
    """No two rows have the same values in these columns. Rows with a NULL in one of them are not compared, as in SQL."""

    rule: Literal["unique"] = "unique"
    scope: UniqueScope = UniqueScope.PARTITION

    @property
    def is_of_table(self) -> bool:
        return self.scope is UniqueScope.TABLE

    @property
    def is_by_partition(self) -> bool:
        return not self.is_of_table

    @property
    def expected(self) -> str:
        return f"No two rows{' of the table' if self.is_of_table else ''} have the same {code(*self.columns)}"

    @property
    def broken_groups(self) -> str:
        return "again" if self.is_of_table else "n > 1"

    @property
    def number_of_groups(self) -> str:
        return f"coalesce(sum(n) FILTER (WHERE {self.broken_groups}), 0)"


@dataclass(frozen=True, kw_only=True)
class DistinctCount(GroupedRule):
    """The number of distinct values (or combinations of values, without NULLs) lies between the bounds, both included."""

    rule: Literal["distinct_count"] = "distinct_count"
    min: int | None = None
    max: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_bounds(self.min, self.max)

    @property
    def is_by_partition(self) -> bool:
        return True

    @property
    def expected(self) -> str:
        return f"The number of different values of {code(*self.columns)} is {bounds_in_words(self.min, self.max)}"

    @property
    def number_of_groups(self) -> str:
        return "count(*)"

    def outcome(self, measured: Measured) -> Outcome:
        return compared(measured.number, self.min, self.max)


@dataclass(frozen=True, kw_only=True)
class ExistsIn(CountingRule):
    """The value is (``exists_in``), or is not (``not_exists_in``), among the values of a field of another container.

    ``container``: the name of a container of the same datastore, or ``datastore/container``.
    """

    rule: Literal["exists_in", "not_exists_in"]
    column: str
    container: str
    field: str

    @property
    def subject(self) -> Names:
        return (self.column, self.container, self.field)

    @property
    def expected(self) -> str:
        which = "No" if self.is_broken_if_found else "Each"
        return f"{which} value of {code(self.column)} is among those of {code(self.field)} in {code(self.container)}"

    def check(self, declared: Declared) -> None:
        super().check(declared)
        declared.expect_field(self.container, self.field)

    @property
    def is_broken_if_found(self) -> bool:
        """Whether a row breaks the rule if the other container has its value, and not if it lacks it."""
        return self.rule == "not_exists_in"

    def lookup_field(self, table: ScannedTable, others: Sequence[Column]) -> Column:
        """The field among the columns of the other container. Raises RuleNotApplicable if there is none that can be compared."""
        kind = table.type_of(self.column)
        found = next((other for other in others if other.name.lower() == self.field.lower()), None)
        if found is None:
            raise RuleNotApplicable(f"container {self.container!r} has no column {self.field!r}")
        if family(kind) != family(found.type):
            raise RuleNotApplicable(f"column {self.column!r} is {kind}, and {self.field!r} of container {self.container!r} is {found.type}")
        return found


AnyKeyRule = Unique | DistinctCount | ExistsIn
"""Any rule of this module."""
