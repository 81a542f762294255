"""Rules of quality: what the YAML says that rows of a container have to be like. Plain values, checked when they are made.

Belongs here: every rule's words and their meaning. Does not belong: SQL (``quality.predicates``), which of them share a pass over the rows
(``quality.planner``), or what became of them (``quality.verdict``).

A rule that looks at a value takes NULL for one it says nothing about, as SQL's CHECK does: ``not_null`` is the rule that forbids it.
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
    """How bad it is when the rule is broken: as Dagster's checks."""

    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What every rule has.

    ``name``: its id, where one made from its words is not enough. ``filter``: a Spark SQL condition; rows for which it does not hold are
    not asserted. ``tolerance``: how many of the asserted rows may break it: a share (0.05) or a count (5). ``blocking``: what is downstream
    does not run where it is broken. ``place``: file and line of the YAML.
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
        """Its name in the UI, in the records and in an anomaly's fingerprint: the same as long as its name or its subject is."""
        if self.name is not None:
            return self.name
        return "_".join((self.rule, *(encode_name(part) for part in self.subject)))

    @property
    def asks(self) -> str:
        """A digest of what it counts, whatever its bounds and its name: numbers of another are not comparable."""
        return digest(repr((self.rule, self.subject, self.expressions)))

    @property
    def subject(self) -> Names:
        """What tells it from others of its kind."""
        return self.columns_used

    @property
    def columns_used(self) -> Names:
        """The container's columns that it names outside of expressions."""
        single: str | None = getattr(self, "column", None)
        several: Names = getattr(self, "columns", ())
        return several if single is None else (single, *several)

    @property
    def expressions(self) -> Names:
        """Its Spark SQL, written by the user."""
        own = getattr(self, "expression", None)
        return tuple(text for text in (own, self.filter) if text is not None)

    def tolerates(self, failed: int, asserted: int) -> bool:
        """Whether so many failed rows of the asserted ones still pass."""
        if not isinstance(self.tolerance, float):
            return failed <= self.tolerance
        return failed <= Decimal(repr(self.tolerance)) * asserted  # 0.29 of 100 rows are 29, which floats do not know

    def words(self) -> dict[str, Any]:
        """What the YAML says that is not the default."""
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
    """Holds, or not, for each row by itself."""


@dataclass(frozen=True, kw_only=True)
class NumberRule(Rule):
    """Holds, or not, for a number that is made from all rows of a partition. The tolerance has no meaning for it."""


# ---------------------------------------------------------------- of each row
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
    """The value lies between the bounds, both included; ``min`` and ``max`` have one bound."""

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
    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="


@dataclass(frozen=True, kw_only=True)
class Compare(RowRule):
    """The column's value compared with another field of the row, or with a value."""

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
    """The number of characters lies between the bounds, both included."""

    rule: Literal["length"] = "length"
    column: str
    min: int | None = None
    max: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_bounds(self.min, self.max)


@dataclass(frozen=True, kw_only=True)
class MatchesPattern(RowRule):
    """The regular expression (Java's, as Spark's RLIKE) is found in the value; ^ and $ bind it to its ends."""

    rule: Literal["matches_pattern"] = "matches_pattern"
    column: str
    pattern: str


@dataclass(frozen=True, kw_only=True)
class ExpectedValues(RowRule):
    """The value is one of these."""

    rule: Literal["expected_values"] = "expected_values"
    column: str
    values: Annotated[tuple[Value, ...], Field(min_length=1)]


TYPES = {
    **{name: name for name in ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "binary", "boolean")},
    **{name: name for name in ("date", "timestamp", "timestamp_ntz", "variant", "char", "varchar")},
    **{"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float", "dec": "decimal", "numeric": "decimal"},
    **{"timestamp_ltz": "timestamp"},
}  # fmt: skip
"""Spark's names of types that values can have, by themselves and by their other names."""
_NESTED = {name: name for name in ("array", "map", "struct")}


def as_a_table_names_it(type_: str) -> str | None:
    """Without blanks, and ``integer`` is its ``int``; None where Spark has no type of this name."""
    text = type_.strip().lower()
    written = (re.match(r"[a-z_ ]*", text) or [""])[0]
    name = (TYPES | _NESTED).get(written.strip())
    if name is None:
        return None
    full = f"{name}{text.removeprefix(written)}".replace(" ", "")
    return "decimal(10,0)" if full == "decimal" else full


@dataclass(frozen=True, kw_only=True)
class IsType(RowRule):
    """The value, a text most likely, can be read as this type of Spark's."""

    rule: Literal["is_type"] = "is_type"
    column: str
    type: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"[a-z_]+(\(\d+(,\s*\d+)?\))?", self.type) or self.type.partition("(")[0] not in TYPES:
            raise ValueError(f"type {self.type!r}: write it as Spark does: int, bigint, double, decimal(12,2), date, timestamp, boolean")


@dataclass(frozen=True, kw_only=True)
class NotInFuture(RowRule):
    """The date or time is not later than the scan; times without zone are taken to be in the datastore's."""

    rule: Literal["not_in_future"] = "not_in_future"
    column: str


@dataclass(frozen=True, kw_only=True)
class Sign(RowRule):
    """The number is above zero, or is not below it."""

    rule: Literal["positive", "not_negative"]
    column: str


@dataclass(frozen=True, kw_only=True)
class Contains(RowRule):
    """Somewhere in the text there is an e-mail address, or an http(s) or ftp URL."""

    rule: Literal["contains_email", "contains_url"]
    column: str


@dataclass(frozen=True, kw_only=True)
class Expression(RowRule):
    """A condition in Spark SQL holds for the row; where it is NULL, it does."""

    rule: Literal["expression"] = "expression"
    expression: str

    @property
    def subject(self) -> Names:
        return (digest(self.expression),)


# ---------------------------------------------------------------- of groups of rows
class Reach(str, Enum):
    """Among which rows a value has to be unique."""

    PARTITION = "partition"
    TABLE = "table"


@dataclass(frozen=True, kw_only=True)
class Unique(Rule):
    """No two rows have the same values in these columns; rows with a NULL in one of them are not compared, as in SQL."""

    rule: Literal["unique"] = "unique"
    columns: Annotated[Names, Field(min_length=1)]
    scope: Reach = Reach.PARTITION


@dataclass(frozen=True, kw_only=True)
class ExistsIn(Rule):
    """The value is, or is not, among those of a field of another container (``container`` of the datastore, or ``datastore/container``)."""

    rule: Literal["exists_in", "not_exists_in"]
    column: str
    container: str
    field: str

    @property
    def subject(self) -> Names:
        return (self.column, self.container, self.field)


# ---------------------------------------------------------------- of a number
@dataclass(frozen=True, kw_only=True)
class Sum(NumberRule):
    """The sum over the partition lies between the bounds, both included; of no values it is 0."""

    rule: Literal["sum"] = "sum"
    column: str
    min: Number | None = None
    max: Number | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_bounds(self.min, self.max)


@dataclass(frozen=True, kw_only=True)
class DistinctCount(NumberRule):
    """The number of different values (or combinations, without NULLs) lies between the bounds, both included."""

    rule: Literal["distinct_count"] = "distinct_count"
    columns: Annotated[Names, Field(min_length=1)]
    min: int | None = None
    max: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_bounds(self.min, self.max)


@dataclass(frozen=True, kw_only=True)
class Metric(NumberRule):
    """An aggregate in Spark SQL over the partition lies between the bounds, both included; where it is NULL, it passes."""

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
    """The number of rows (``volumetric``) or an aggregate (``metric_change``), against the mean of the ``over`` partitions before it.

    ``min_change`` and ``max_change``: shares of that mean: -0.5 is half as much, 1.0 twice. The partition itself is not part of the mean,
    nor are those without rows. The lower bound is not asserted of a partition that is still being filled.
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


# ---------------------------------------------------------------- of the table
@dataclass(frozen=True, kw_only=True)
class ExpectedSchema(Rule):
    """The table has these columns, of these types where one is given (as Spark calls them); ``only``: and no others."""

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
    """The newest value of the column (default: the incremental identifier) is at most so old: ``90 minutes``, ``36 hours``, ``2 days``."""

    rule: Literal["freshness"] = "freshness"
    max_age: str
    column: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.seconds

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
"""What an entry of ``checks:`` can be; its word ``rule`` tells which."""


def digest(text: str) -> str:
    """Eight hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]
