"""Quality rules: the entries under ``checks:`` of a container, as plain values that are validated when they are made.

Belongs here: the attributes of every rule and their meaning. Does not belong: SQL (``quality.predicates``), which rules share a pass over
the rows (``quality.planner``), or the result of a rule (``quality.verdict``).

A row passes a rule about a value if the value is NULL, as with SQL's CHECK. The rule ``not_null`` is the one that forbids NULL.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import ConfigDict, Field

from incremental_assets.core.names import encode_name

Number = int | float
Value = bool | int | float | str
Names = tuple[str, ...]


class Severity(str, Enum):
    """The severity of a broken rule, with the values of Dagster's ``AssetCheckSeverity``."""

    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The attributes that all rules have. Each subclass is one kind of rule, or several with the same attributes.

    ``rule``: the name of the rule in the YAML. ``name``: the id, if the one that is made from the other attributes is not wanted.
    ``filter``: a condition in Spark SQL; rows for which it is false or NULL are not asserted. ``tolerance``: how many of the asserted rows
    may break the rule, as a share from 0.0 to 1.0 (a float) or as a count (an int). ``blocking``: downstream assets do not run if the rule
    is broken. ``place``: file and line of the entry in the YAML. Raises ValueError if an attribute does not make sense.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    rule: str
    name: str | None = None
    filter: str | None = None
    tolerance: Number = 0
    severity: Severity = Severity.ERROR
    blocking: bool = False
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    description: str | None = None
    owner: str | None = None
    place: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.tolerance >= 0 or (isinstance(self.tolerance, float) and self.tolerance > 1):
            raise ValueError(
                f"tolerance is {self.tolerance}: write a share of the asserted rows from 0.0 to 1.0, or a whole number of them"
            )
        if self.blocking and self.severity is Severity.WARN:
            raise ValueError("blocking stops what is downstream, which severity warn does not; leave one of them out")
        if self.name is not None and not re.fullmatch(r"[A-Za-z0-9_]+", self.name):
            raise ValueError(f"name {self.name!r}: letters, digits and _ only, as Dagster wants it of checks")

    @property
    def id(self) -> str:
        """The id of the rule in the UI, in the records and in the fingerprint of an anomaly.

        It is ``name``, else it is made of ``rule`` and ``subject``, so that it stays the same if bounds or the severity change.
        """
        if self.name is not None:
            return self.name
        return "_".join((self.rule, *(encode_name(part) for part in self.subject)))

    @property
    def asks(self) -> str:
        """A digest of what the rule measures, without its bounds and its name. Numbers with different digests cannot be compared."""
        return digest(repr((self.rule, self.subject, self.expressions)))

    @property
    def subject(self) -> Names:
        """The texts that distinguish the rule from others with the same ``rule`` on the same container."""
        return self.columns_used

    @property
    def columns_used(self) -> Names:
        """The columns of the container that the rule names, apart from those within expressions."""
        single: str | None = getattr(self, "column", None)
        several: Names = getattr(self, "columns", ())
        return several if single is None else (single, *several)

    @property
    def expressions(self) -> Names:
        """The texts of Spark SQL that the user has written: the rule's expression and its filter."""
        own = getattr(self, "expression", None)
        return tuple(text for text in (own, self.filter) if text is not None)

    def tolerates(self, failed: int, asserted: int) -> bool:
        """Whether the rule passes although ``failed`` of the ``asserted`` rows break it."""
        if not isinstance(self.tolerance, float):
            return failed <= self.tolerance
        return failed <= Decimal(repr(self.tolerance)) * asserted  # with floats, 0.29 * 100 is less than 29

    def words(self) -> dict[str, Any]:
        """The attributes as the YAML writes them, without those that have their default."""
        said = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "place"}
        plain: dict[str, Any] = {name: value.value if isinstance(value, Enum) else value for name, value in said.items()}
        defaults: dict[str, Any] = {"tolerance": 0, "severity": "error", "blocking": False}
        return {
            name: [*cast(Names, value)] if isinstance(value, tuple) else value
            for name, value in plain.items()
            if value not in (None, {}, ()) and defaults.get(name, ...) != value
        }


@dataclass(frozen=True, kw_only=True)
class RowRule(Rule):
    """A rule that each row passes or breaks by itself."""


@dataclass(frozen=True, kw_only=True)
class NumberRule(Rule):
    """A rule about one number that is computed from all asserted rows of a partition. ``tolerance`` has no meaning for it."""


# ---------------------------------------------------------------- rules about single rows
@dataclass(frozen=True, kw_only=True)
class NotNull(RowRule):
    """None of the columns is NULL."""

    rule: Literal["not_null"] = "not_null"
    columns: Annotated[Names, Field(min_length=1)]


def _expect_bounds(low: Any, high: Any) -> None:
    if low is None and high is None:
        raise ValueError("it has no bound: write min, max, or both")
    if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
        raise ValueError(f"min {low} is above max {high}")


@dataclass(frozen=True, kw_only=True)
class Between(RowRule):
    """The value lies between the bounds, both included. ``between`` has two bounds, ``min`` and ``max`` have one."""

    rule: Literal["between", "min", "max"] = "between"
    column: str
    min: Value | None = None
    max: Value | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_bounds(self.min, self.max)
        wanted = {"between": ("min", "max"), "min": ("min",), "max": ("max",)}[self.rule]
        given = tuple(name for name in ("min", "max") if getattr(self, name) is not None)
        if given != wanted:
            raise ValueError(f"{self.rule} takes {' and '.join(wanted)}, and here is {' and '.join(given)}")


class Operator(str, Enum):
    """The comparison operators of ``Compare``, as Spark SQL writes them."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="


@dataclass(frozen=True, kw_only=True)
class Compare(RowRule):
    """The comparison of the column's value with another field of the row, or with a constant, is true."""

    rule: Literal["compare"] = "compare"
    column: str
    operator: Operator
    field: str | None = None
    value: Value | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.field is None) == (self.value is None):
            raise ValueError("it compares with either another field (field:) or a value (value:)")

    @property
    def columns_used(self) -> Names:
        return (self.column,) if self.field is None else (self.column, self.field)

    @property
    def subject(self) -> Names:
        return (self.column, self.operator.name.lower(), self.field if self.field is not None else str(self.value))


@dataclass(frozen=True, kw_only=True)
class Length(RowRule):
    """The length lies between the bounds, both included: in characters, or in bytes for a binary column."""

    rule: Literal["length"] = "length"
    column: str
    min: int | None = None
    max: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_bounds(self.min, self.max)


@dataclass(frozen=True, kw_only=True)
class MatchesPattern(RowRule):
    """The regular expression (Java's syntax, as in Spark's RLIKE) matches a part of the value; ^ and $ match its ends."""

    rule: Literal["matches_pattern"] = "matches_pattern"
    column: str
    pattern: str


@dataclass(frozen=True, kw_only=True)
class ExpectedValues(RowRule):
    """The value is one of ``values``."""

    rule: Literal["expected_values"] = "expected_values"
    column: str
    values: Annotated[tuple[Value, ...], Field(min_length=1)]


TYPES = {
    **{name: name for name in ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "binary", "boolean")},
    **{name: name for name in ("date", "timestamp", "timestamp_ntz", "variant", "char", "varchar")},
    **{"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float", "dec": "decimal", "numeric": "decimal"},
    **{"timestamp_ltz": "timestamp"},
}  # fmt: skip
"""Spark's name of each atomic type, by that name and by its synonyms."""
_NESTED = {name: name for name in ("array", "map", "struct")}


def as_a_table_names_it(type_: str) -> str | None:
    """The text of a type as a Spark table has it: without blanks, in lower case, ``int`` instead of ``integer``.

    Returns None if Spark has no type of this name. What follows the name (parameters, element types) is not checked.
    """
    text = type_.strip().lower()
    written = (re.match(r"[a-z_ ]*", text) or [""])[0]
    name = (TYPES | _NESTED).get(written.strip())
    if name is None:
        return None
    full = f"{name}{text.removeprefix(written)}".replace(" ", "")
    return "decimal(10,0)" if full == "decimal" else full  # Spark's default precision and scale


@dataclass(frozen=True, kw_only=True)
class IsType(RowRule):
    """The value, usually a text, can be cast to this Spark type (``try_cast``)."""

    rule: Literal["is_type"] = "is_type"
    column: str
    type: str

    def __post_init__(self) -> None:
        super().__post_init__()
        # The type becomes part of the SQL as it is, so nothing else than a known name with numbers in parentheses may pass.
        if not re.fullmatch(r"[a-z_]+(\(\d+(,\s*\d+)?\))?", self.type) or self.type.partition("(")[0] not in TYPES:
            raise ValueError(f"type {self.type!r}: write it as Spark does: int, bigint, double, decimal(12,2), date, timestamp, boolean")


@dataclass(frozen=True, kw_only=True)
class NotInFuture(RowRule):
    """The date or time is not later than the start of the scan. A time without zone is in the time zone of the datastore."""

    rule: Literal["not_in_future"] = "not_in_future"
    column: str


@dataclass(frozen=True, kw_only=True)
class Sign(RowRule):
    """The number is above zero (``positive``), or is not below zero (``not_negative``)."""

    rule: Literal["positive", "not_negative"]
    column: str


@dataclass(frozen=True, kw_only=True)
class Contains(RowRule):
    """The text contains an e-mail address (``contains_email``), or an http, https or ftp URL (``contains_url``)."""

    rule: Literal["contains_email", "contains_url"]
    column: str


@dataclass(frozen=True, kw_only=True)
class Expression(RowRule):
    """The condition in Spark SQL is true or NULL for the row."""

    rule: Literal["expression"] = "expression"
    expression: str

    @property
    def subject(self) -> Names:
        return (digest(self.expression),)


# ---------------------------------------------------------------- rules about several rows
class UniqueScope(str, Enum):
    """The rows among which a value has to be unique: those of its partition, or those of the whole table."""

    PARTITION = "partition"
    TABLE = "table"


@dataclass(frozen=True, kw_only=True)
class Unique(Rule):
    """No two rows have the same values in these columns. Rows with a NULL in one of them are not compared, as in SQL."""

    rule: Literal["unique"] = "unique"
    columns: Annotated[Names, Field(min_length=1)]
    scope: UniqueScope = UniqueScope.PARTITION


@dataclass(frozen=True, kw_only=True)
class ExistsIn(Rule):
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


# ---------------------------------------------------------------- rules about a number of a partition
@dataclass(frozen=True, kw_only=True)
class Sum(NumberRule):
    """The sum over the partition lies between the bounds, both included. Without any value the sum is 0."""

    rule: Literal["sum"] = "sum"
    column: str
    min: Number | None = None
    max: Number | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_bounds(self.min, self.max)


@dataclass(frozen=True, kw_only=True)
class DistinctCount(NumberRule):
    """The number of distinct values (or combinations of values, without NULLs) lies between the bounds, both included."""

    rule: Literal["distinct_count"] = "distinct_count"
    columns: Annotated[Names, Field(min_length=1)]
    min: int | None = None
    max: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_bounds(self.min, self.max)


@dataclass(frozen=True, kw_only=True)
class Metric(NumberRule):
    """An aggregate in Spark SQL over the partition lies between the bounds, both included, or is NULL."""

    rule: Literal["metric"] = "metric"
    expression: str
    min: Number | None = None
    max: Number | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_bounds(self.min, self.max)

    @property
    def subject(self) -> Names:
        return (digest(self.expression),)


@dataclass(frozen=True, kw_only=True)
class Change(NumberRule):
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
        _expect_bounds(self.min_change, self.max_change)
        if (self.rule == "metric_change") != (self.expression is not None):
            raise ValueError("metric_change takes an expression, and volumetric none")

    @property
    def subject(self) -> Names:
        return () if self.expression is None else (digest(self.expression),)


# ---------------------------------------------------------------- rules about the table
@dataclass(frozen=True, kw_only=True)
class ExpectedSchema(Rule):
    """The table has these columns. ``types``: the Spark type of each, or None for any type. ``only``: the table has no other columns."""

    rule: Literal["expected_schema"] = "expected_schema"
    types: Annotated[Mapping[str, str | None], Field(min_length=1)]
    only: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for column, type_ in self.types.items():
            if type_ is not None and as_a_table_names_it(type_) is None:
                raise ValueError(
                    f"type {type_!r} of {column}: write it as Spark does: int, bigint, decimal(12,2), timestamp, array<string>"
                )


@dataclass(frozen=True, kw_only=True)
class Freshness(Rule):
    """The newest value of the column is not older than ``max_age``: ``90 minutes``, ``36 hours``, ``2 days``.

    ``column`` is None for the incremental identifier.
    """

    rule: Literal["freshness"] = "freshness"
    max_age: str
    column: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.seconds  # raises ValueError if ``max_age`` cannot be parsed

    @property
    def seconds(self) -> int:
        """``max_age`` in seconds."""
        found = re.fullmatch(r"(\d+) *(second|minute|hour|day|week)s?", self.max_age.strip())
        if found is None:
            raise ValueError(f"max_age {self.max_age!r}: write a number and a unit, such as 90 minutes, 36 hours or 2 days")
        seconds = int(found[1]) * {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}[found[2]]
        if seconds > 1000 * 365 * 86_400:
            raise ValueError(f"max_age {self.max_age!r} is longer than 1,000 years")
        return seconds


AnyRule = Annotated[
    NotNull
    | Between
    | Compare
    | Length
    | MatchesPattern
    | ExpectedValues
    | IsType
    | NotInFuture
    | Sign
    | Contains
    | Expression
    | Unique
    | ExistsIn
    | Sum
    | DistinctCount
    | Metric
    | Change
    | ExpectedSchema
    | Freshness,
    Field(discriminator="rule"),
]
"""Any entry under ``checks:``. Its attribute ``rule`` decides which class it is."""


def digest(text: str) -> str:
    """The first eight hexadecimal digits of the text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]
