"""Rules about the values of a row, which each row passes or breaks by itself.

A row passes a rule about a value if the value is NULL, as with SQL's CHECK. The rule ``not_null`` is the one that forbids NULL.
"""

import re
import string
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

from pydantic import Field

from incremental_assets.core.rules.rule import CountingRule, Names, bounds_in_words, code, digest, expect_bounds, in_words
from incremental_assets.core.rules.sql import ScannedTable, Value, between, constant, text
from incremental_assets.core.spark_types import ATOMIC_TYPES

_LETTERS, _WORD = string.ascii_letters, string.ascii_letters + string.digits
EMAIL = rf"@(?<=[{_WORD}._%+-]@)[{_WORD}-]+(?:\.[{_WORD}-]+)*?\.[{_LETTERS}]{{2}}"
"""Regular expression, for Java and Python, that finds an e-mail address anywhere in a text, from its ``@`` on.

It begins with the ``@``, looks behind it, and takes as few labels as possible: Java then takes a third of the time that it takes to try
each character of the text as the beginning of an address. Each letter is written out, because Java looks such a class up in a table, and
compares with the bounds of each range where there are ranges: 280 ns a text in place of 430.
"""
URL = r"(https?|ftp)://[^\s/$.?#][^\s]*"
"""Regular expression, for Java and Python, that finds an http, https or ftp URL anywhere in a text."""
_MOST_NAMED = 10
"""How many values a sentence names."""


@dataclass(frozen=True, kw_only=True)
class RowRule(CountingRule):
    """A rule that each row passes or breaks by itself."""

    def condition(self, table: ScannedTable) -> str:
        """The condition in Spark SQL for a row to pass. It is NULL, which passes too, for rows that the rule does not apply to.

        Raises RuleNotApplicable.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class NotNull(RowRule):
    """None of the columns is NULL."""

    rule: Literal["not_null"] = "not_null"
    columns: Annotated[Names, Field(min_length=1)]

    @property
    def expected(self) -> str:
        return f"Each row has a value in {code(*self.columns)}"

    def condition(self, table: ScannedTable) -> str:
        return " AND ".join(f"{table.column(name)} IS NOT NULL" for name in self.columns)


@dataclass(frozen=True, kw_only=True)
class Between(RowRule):
    """The value lies between the bounds, both included. ``between`` has two bounds, ``min`` and ``max`` have one."""

    rule: Literal["between", "min", "max"] = "between"
    column: str
    min: Value | None = None
    max: Value | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_bounds(self.min, self.max)
        wanted = {"between": ("min", "max"), "min": ("min",), "max": ("max",)}[self.rule]
        given = tuple(name for name in ("min", "max") if getattr(self, name) is not None)
        if given != wanted:
            raise ValueError(f"{self.rule} takes {' and '.join(wanted)}, and here is {' and '.join(given)}")

    @property
    def expected(self) -> str:
        verb = "lies" if self.rule == "between" else "is"
        return f"Each value of {code(self.column)} {verb} {bounds_in_words(self.min, self.max)}"

    def condition(self, table: ScannedTable) -> str:
        low, high = (None if bound is None else table.constant(self.column, bound) for bound in (self.min, self.max))
        return between(table.column(self.column), low, high)


class Operator(str, Enum):
    """The comparison operators of ``Compare``, as Spark SQL writes them."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="


_OPERATOR_IN_WORDS = {
    Operator.EQUAL: "equal to",
    Operator.NOT_EQUAL: "not equal to",
    Operator.LESS: "less than",
    Operator.AT_MOST: "at most",
    Operator.GREATER: "greater than",
    Operator.AT_LEAST: "at least",
}


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

    @property
    def expected(self) -> str:
        other = code(self.field) if self.field is not None else in_words(self.value)
        return f"In each row, {code(self.column)} is {_OPERATOR_IN_WORDS[self.operator]} {other}"

    def condition(self, table: ScannedTable) -> str:
        if self.field is not None:
            other = table.other(self.field, than=self.column)
        else:
            # There is a field or a value; the empty text is only for the type checker.
            other = table.constant(self.column, self.value if self.value is not None else "")
        return f"{table.column(self.column)} {self.operator.value} {other}"


@dataclass(frozen=True, kw_only=True)
class Length(RowRule):
    """The length lies between the bounds, both included: in characters, or in bytes for a binary column."""

    rule: Literal["length"] = "length"
    column: str
    min: int | None = None
    max: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_bounds(self.min, self.max)

    @property
    def expected(self) -> str:
        return f"The length of each value of {code(self.column)} is {bounds_in_words(self.min, self.max)}"

    def condition(self, table: ScannedTable) -> str:
        column = table.column(self.column)
        low, high = (None if bound is None else constant(bound) for bound in (self.min, self.max))
        if table.type_of(self.column) == "binary":
            return between(f"octet_length({column})", low, high)
        value = f"cast({column} AS string)"
        # A character of UTF-8 has one to four bytes. Spark knows the number of bytes, and has to count the characters, which was an eighth
        # of the time of a scan with three such rules: so characters are counted only where the bytes leave the answer open.
        least = None if self.min is None else f"(octet_length({value}) >= {constant(4 * self.min)} OR char_length({value}) >= {low})"
        most = None if high is None else f"(octet_length({value}) <= {high} OR char_length({value}) <= {high})"
        return " AND ".join(one for one in (least, most) if one is not None)


@dataclass(frozen=True, kw_only=True)
class MatchesPattern(RowRule):
    """The regular expression (Java's syntax, as in Spark's RLIKE) matches a part of the value; ^ and $ match its ends."""

    rule: Literal["matches_pattern"] = "matches_pattern"
    column: str
    pattern: str

    @property
    def expected(self) -> str:
        return f"Each value of {code(self.column)} matches the pattern {code(self.pattern)}"

    def condition(self, table: ScannedTable) -> str:
        return f"cast({table.column(self.column)} AS string) RLIKE {text(self.pattern)}"


@dataclass(frozen=True, kw_only=True)
class ExpectedValues(RowRule):
    """The value is one of ``values``."""

    rule: Literal["expected_values"] = "expected_values"
    column: str
    values: Annotated[tuple[Value, ...], Field(min_length=1)]

    @property
    def expected(self) -> str:
        named, more = ", ".join(map(in_words, self.values[:_MOST_NAMED])), len(self.values) - _MOST_NAMED
        return f"Each value of {code(self.column)} is one of {named}{f' and {more:,} others' if more > 0 else ''}"

    def condition(self, table: ScannedTable) -> str:
        return f"{table.column(self.column)} IN ({', '.join(table.constant(self.column, value) for value in self.values)})"


@dataclass(frozen=True, kw_only=True)
class IsType(RowRule):
    """The value, usually a text, can be cast to this Spark type (``try_cast``)."""

    rule: Literal["is_type"] = "is_type"
    column: str
    type: str

    def __post_init__(self) -> None:
        super().__post_init__()
        # The type becomes part of the SQL as it is, so nothing else than a known name with numbers in parentheses may pass.
        if not re.fullmatch(r"[a-z_]+(\(\d+(,\s*\d+)?\))?", self.type) or self.type.partition("(")[0] not in ATOMIC_TYPES:
            raise ValueError(f"type {self.type!r}: write it as Spark does: int, bigint, double, decimal(12,2), date, timestamp, boolean")

    @property
    def expected(self) -> str:
        return f"Each value of {code(self.column)} can be read as {code(self.type)}"

    def condition(self, table: ScannedTable) -> str:
        column = table.column(self.column)
        return f"({column} IS NULL OR try_cast({column} AS {self.type}) IS NOT NULL)"


@dataclass(frozen=True, kw_only=True)
class NotInFuture(RowRule):
    """The date or time is not later than the start of the scan. A time without zone is in the time zone of the datastore."""

    rule: Literal["not_in_future"] = "not_in_future"
    column: str

    @property
    def expected(self) -> str:
        return f"No value of {code(self.column)} lies in the future"

    def condition(self, table: ScannedTable) -> str:
        return f"{table.column(self.column)} <= {table.moment(self.column, table.now)}"


@dataclass(frozen=True, kw_only=True)
class Sign(RowRule):
    """The number is above zero (``positive``), or is not below zero (``not_negative``)."""

    rule: Literal["positive", "not_negative"]
    column: str

    @property
    def expected(self) -> str:
        which, where = ("Each", "above") if self.rule == "positive" else ("No", "below")
        return f"{which} value of {code(self.column)} is {where} zero"

    def condition(self, table: ScannedTable) -> str:
        return f"{table.number(self.column)} {'>' if self.rule == 'positive' else '>='} 0"


@dataclass(frozen=True, kw_only=True)
class Contains(RowRule):
    """The text contains an e-mail address (``contains_email``), or an http, https or ftp URL (``contains_url``)."""

    rule: Literal["contains_email", "contains_url"]
    column: str

    @property
    def expected(self) -> str:
        what = "an e-mail address" if self.rule == "contains_email" else "an http, https or ftp URL"
        return f"Each value of {code(self.column)} contains {what}"

    def condition(self, table: ScannedTable) -> str:
        return f"cast({table.column(self.column)} AS string) RLIKE {text(EMAIL if self.rule == 'contains_email' else URL)}"


@dataclass(frozen=True, kw_only=True)
class Expression(RowRule):
    """The condition in Spark SQL is true or NULL for the row."""

    rule: Literal["expression"] = "expression"
    expression: str

    @property
    def subject(self) -> Names:
        return (digest(self.expression),)

    @property
    def expected(self) -> str:
        return f"No row makes {code(self.expression)} false"

    def condition(self, table: ScannedTable) -> str:
        return self.expression


AnyRowRule = NotNull | Between | Compare | Length | MatchesPattern | ExpectedValues | IsType | NotInFuture | Sign | Contains | Expression
"""Any rule of this module."""
