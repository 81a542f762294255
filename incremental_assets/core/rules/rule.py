"""What all rules have in common, and what a scan says of a rule: its verdict on a partition, and the rows that broke it."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar, cast

from pydantic import ConfigDict

from incremental_assets.core.names import encode_name
from incremental_assets.core.rules.declared import Declared
from incremental_assets.core.shown_text import counted

Number = int | float
Names = tuple[str, ...]


class Severity(str, Enum):
    """The severity of a broken rule, with the values of Dagster's ``AssetCheckSeverity``."""

    WARN = "warn"
    ERROR = "error"


class Status(str, Enum):
    """The outcome of a rule for one partition.

    ``PASSED``: no asserted row breaks the rule, or no more rows than its tolerance allows. ``FAILED``: the rule is broken. ``ERRORED``: the
    rule cannot be evaluated (a column is missing, or an expression fails), so it has neither passed nor failed. ``UNASSERTED``: there is
    nothing to compare with, for example no earlier partition.
    """

    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    UNASSERTED = "unasserted"


@dataclass(frozen=True)
class Measured:
    """What a scan measured for one rule in one partition.

    ``rows``: of the partition. ``asserted``: those that the rule's filter keeps. ``number``: for a rule that rows break, how many of the
    asserted rows break it; for a rule about a number, that number, None if it is NULL. ``earlier``: the numbers of the earlier partitions
    that the rule compares with; those without rows or number are left out. ``is_filling``: more rows are expected in the partition.
    """

    rows: int
    asserted: int
    number: Any
    earlier: tuple[float, ...] = ()
    is_filling: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a rule says of the numbers that a scan measured. The fields are those of ``Verdict``."""

    status: Status
    value: float | None
    message: str
    failed: int | None = None


@dataclass(frozen=True)
class Verdict:
    """The outcome of one rule for one partition.

    ``partition``: the partition's key; None for the rows without an identifier, for containers without partitions, and for rules about the
    table as a whole. ``rows``: how many rows the partition has. ``asserted``: how many of them the rule's filter keeps. ``failed``: how
    many of these break the rule; None for a rule about a number. ``value``: a number for a chart: the share of failed rows among the
    asserted ones, or the number that the rule is about. ``message``: one line for the reader. ``asks``: a digest of what is measured
    (``ScanScope.question_digest``); values with different digests are not comparable.
    """

    rule: str
    partition: str | None
    status: Status
    severity: Severity = Severity.ERROR
    blocking: bool = False
    rows: int = 0
    asserted: int = 0
    failed: int | None = None
    value: float | None = None
    message: str = ""
    asks: str = ""

    @property
    def unasserted(self) -> int:
        """The number of rows that the filter leaves out."""
        return self.rows - self.asserted

    @property
    def blocks(self) -> bool:
        """Whether downstream assets must not run."""
        return self.blocking and self.status in (Status.FAILED, Status.ERRORED)


@dataclass(frozen=True)
class FailedRow:
    """One row that broke a rule, as the scan saw it.

    ``partition``: the key of its partition. ``key``: a JSON object of the key columns, each value as text; None if the container has no
    key. ``row``: a JSON object of all columns. ``rules``: the ids of the rules that the row breaks.
    """

    partition: str | None
    key: str | None
    row: str
    rules: Names


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The attributes that all rules have. Each subclass is one kind of rule, or several with the same attributes.

    ``rule``: the name of the rule in the YAML. ``name``: the id, if the one that is made from the other attributes is not wanted.
    ``filter``: a condition in Spark SQL; rows for which it is false or NULL are not asserted. ``tolerance``: how many of the asserted rows
    may break the rule, as a share from 0.0 to 1.0 (a float) or as a count (an int). ``blocking``: downstream assets do not run if the rule
    is broken. ``place``: file and line of the entry in the YAML. Raises ValueError if an attribute does not make sense.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    aggregates: ClassVar[bool] = False
    """Whether the attribute ``expression`` is an aggregate of many rows, and not a condition of one."""

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

    # ---------------------------------------------------------------- its words
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

    def words(self) -> dict[str, Any]:
        """The attributes as the YAML writes them, without those that have their default."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "place"}
        plain: dict[str, Any] = {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}
        defaults: dict[str, Any] = {"tolerance": 0, "severity": "error", "blocking": False}
        return {
            name: [*cast(Names, value)] if isinstance(value, tuple) else value
            for name, value in plain.items()
            if value not in (None, {}, ()) and defaults.get(name, ...) != value
        }

    @property
    def expected(self) -> str:
        """What the rule expects, in words, as the beginning of a sentence. Column names and SQL are Markdown code."""
        raise NotImplementedError

    @property
    def is_by_partition(self) -> bool:
        """Whether that is said of the rows of one partition together, and not of each row or of the table."""
        return False

    def sentence(self, is_partitioned: bool) -> str:
        """What the rule expects, as one sentence for a person. ``is_partitioned``: whether the container has partitions."""
        where = " in each partition" if is_partitioned and self.is_by_partition else ""
        of = f", of the rows where {code(self.filter)}" if self.filter is not None else ""
        return f"{self.expected}{where}{of}{_tolerance_in_words(self.tolerance)}."

    def check(self, declared: Declared) -> None:
        """Raises NotDeclared if the rule names something that the container does not have, or if its SQL cannot be parsed."""
        for name in self.columns_used:
            declared.expect_column(name)
        own: str | None = getattr(self, "expression", None)
        if own is not None:
            declared.expect_sql(own, aggregates=self.aggregates)
        if self.filter is not None:
            declared.expect_sql(self.filter, aggregates=False)

    # ---------------------------------------------------------------- its verdict
    def verdict(self, outcome: Outcome, partition: str | None, rows: int, asserted: int, asks: str) -> Verdict:
        """The outcome as the verdict on a partition. ``asks``: the digest of what was measured."""
        return Verdict(
            rule=self.id,
            partition=partition,
            status=outcome.status,
            severity=self.severity,
            blocking=self.blocking,
            rows=rows,
            asserted=asserted,
            failed=outcome.failed,
            value=outcome.value,
            message=outcome.message,
            asks=asks,
        )

    def tolerates(self, failed: int, asserted: int) -> bool:
        """Whether the rule passes although ``failed`` of the ``asserted`` rows break it."""
        if not isinstance(self.tolerance, float):
            return failed <= self.tolerance
        return failed <= Decimal(repr(self.tolerance)) * asserted  # with floats, 0.29 * 100 is less than 29


@dataclass(frozen=True, kw_only=True)
class PartitionRule(Rule):
    """A rule with a verdict on each partition."""

    def outcome(self, measured: Measured) -> Outcome:
        """What the numbers of a partition mean for the rule."""
        raise NotImplementedError

    def outcome_without_rows(self, message: str) -> Outcome:
        """The outcome for a partition that had rows in an earlier scan, and has none any more."""
        return Outcome(Status.PASSED, None, message)


@dataclass(frozen=True, kw_only=True)
class CountingRule(PartitionRule):
    """A rule that rows break. The number that is measured for it is the number of these rows, which ``tolerance`` limits."""

    def outcome(self, measured: Measured) -> Outcome:
        failed, asserted = int(measured.number or 0), measured.asserted
        passes = self.tolerates(failed, asserted)
        of = counted(asserted, "row")
        broken = f"{failed:,} of {of} break{'s' if failed == 1 else ''} it"
        message = broken if failed else f"all {of} pass" if asserted > 1 else "the one row passes" if asserted else "no rows"
        if failed and passes:
            message += f", which the tolerance of {self.tolerance} allows"
        return Outcome(Status.PASSED if passes else Status.FAILED, failed / asserted if asserted else 0.0, message, failed)

    def outcome_without_rows(self, message: str) -> Outcome:
        return Outcome(Status.PASSED, None, message, failed=0)


def expect_bounds(low: Any, high: Any) -> None:
    """Raises ValueError if there is no bound, or if the lower one is above the upper one."""
    if low is None and high is None:
        raise ValueError("it has no bound: write min, max, or both")
    if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
        raise ValueError(f"min {low} is above max {high}")


def digest(text: str) -> str:
    """The first eight hexadecimal digits of the text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def code(*names: str) -> str:
    """The names, or texts of SQL, as Markdown code, with commas and *and* between them."""
    *others, last = (f"`{name}`" for name in names)
    return f"{', '.join(others)} and {last}" if others else last


def in_words(value: Any) -> str:
    """A value of the YAML in a sentence: a number with commas between thousands, everything else as it is written."""
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def bounds_in_words(low: Any, high: Any) -> str:
    """The bounds as text. At least one of them must be given."""
    if low is not None and high is not None:
        return f"between {in_words(low)} and {in_words(high)}"
    return f"at least {in_words(low)}" if low is not None else f"at most {in_words(high)}"


def _tolerance_in_words(tolerance: Number) -> str:
    share = f"{100 * tolerance:.6g} % of the rows" if isinstance(tolerance, float) else counted(tolerance, "row")
    return f"; {share} may break it" if tolerance else ""
