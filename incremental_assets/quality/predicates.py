"""Rules as Spark SQL text. This is the one place that builds it, from typed values and quoted names.

Belongs here: the condition under which a row passes, the aggregate that a rule is about, and constants. Does not belong: aggregating,
counting, running (``scan``). SQL that the user writes is passed on unchanged. The scan gives each such text to Spark's parser separately,
so that it cannot change the meaning of another text.

Comparisons between different kinds of types are refused here. Spark would cast a text to a number implicitly, so whether the job fails
would depend on the rows of the day.
"""

import datetime
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from incremental_assets.core.names import backticked as quote
from incremental_assets.core.names import literal
from incremental_assets.core.rules import (
    Between,
    Change,
    Compare,
    Contains,
    ExpectedValues,
    Expression,
    IsType,
    Length,
    MatchesPattern,
    Metric,
    NotInFuture,
    NotNull,
    NumberRule,
    RowRule,
    Sign,
    Sum,
    Value,
)

EMAIL = r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}"
"""Regular expression, for Java and Python, that finds an e-mail address anywhere in a text."""
URL = r"(https?|ftp)://[^\s/$.?#][^\s]*"
"""Regular expression, for Java and Python, that finds an http, https or ftp URL anywhere in a text."""


_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_TIMES = ("date", "timestamp", "timestamp_ntz")
_NUMERAL = re.compile(r"-?\d+(\.\d+)?")


class RuleNotApplicable(Exception):
    """The rule cannot be evaluated on this table; the message says why. The verdict is then ``errored``."""


def family(kind: str) -> str:
    """Return the family of a Spark type. Values can be compared within a family; a type that is not listed is a family of its own."""
    base = kind.partition("(")[0]
    return "number" if base in _NUMBERS else "time" if base in _TIMES else "text" if base in ("string", "char", "varchar") else kind


def text(value: str) -> str:
    """Return a string constant of Spark SQL.

    Spark substitutes ``${…}`` with its settings even inside constants (``spark.sql.variable.substitute`` is on by default), so the dollar
    sign is written as an escape.
    """
    return literal(value).replace("${", "\\u0024{")


@dataclass(frozen=True)
class PredicateContext:
    """The table and the moment that rules are evaluated for.

    ``types`` maps the table's columns to their Spark types. ``now`` is the time of the scan. ``timezone`` is the zone in which values
    without a time zone are understood.
    """

    types: Mapping[str, str]
    now: datetime.datetime
    timezone: str = "UTC"

    def column(self, name: str) -> str:
        """Return the quoted name of a column. Delta column names are case-insensitive.

        Raises RuleNotApplicable if the table has no such column.
        """
        if not any(name.lower() == known.lower() for known in self.types):
            raise RuleNotApplicable(f"the table has no column {name!r}")
        return quote(name)

    def type_of(self, name: str) -> str:
        """Return the Spark type of a column. Raises RuleNotApplicable if the table has no such column."""
        self.column(name)
        return next(kind for known, kind in self.types.items() if known.lower() == name.lower())

    def number(self, name: str) -> str:
        """Return the quoted name of a numeric column. Raises RuleNotApplicable if the column is not numeric."""
        kind = self.type_of(name)
        if family(kind) != "number":
            raise RuleNotApplicable(f"column {name!r} is {kind}, and holds no numbers; an expression can cast it")
        return self.column(name)

    def other(self, name: str, than: str) -> str:
        """Return the quoted name of column ``name``, which column ``than`` is compared with.

        Raises RuleNotApplicable if the types of the two columns cannot be compared.
        """
        kinds = self.type_of(than), self.type_of(name)
        if family(kinds[0]) != family(kinds[1]):
            raise RuleNotApplicable(f"column {than!r} is {kinds[0]}, and {name!r} is {kinds[1]}; an expression can cast one")
        return self.column(name)

    def constant(self, name: str, value: Value) -> str:
        """Return a value of the YAML as a constant to compare the column with. Raises RuleNotApplicable if the types cannot be compared."""
        kind = self.type_of(name)
        mine = family(kind)
        if isinstance(value, str):
            if mine == "time":
                return f"{kind.upper()}{text(value)}"
            # The YAML has the number in quotes if it has more digits than a float can hold. ``BD`` makes it an exact decimal.
            if mine == "number" and _NUMERAL.fullmatch(value):
                return f"{value}BD"
        fits = "boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"
        if mine != fits:
            hint = "; write it in quotes" if mine in ("text", "time") else ""
            raise RuleNotApplicable(f"column {name!r} is {kind}, and {value!r} is a {fits}{hint}")
        return constant(value)

    def moment(self, name: str, at: datetime.datetime) -> str:
        """Return an instant as a constant of the column's type. Raises RuleNotApplicable if the column does not hold dates or times."""
        kind = self.type_of(name)
        local = at.astimezone(ZoneInfo(self.timezone))
        if kind == "date":
            return f"DATE'{local.date().isoformat()}'"
        if kind == "timestamp_ntz":
            return f"TIMESTAMP_NTZ'{local.replace(tzinfo=None).isoformat(sep=' ', timespec='microseconds')}'"
        if kind == "timestamp":
            utc = at.astimezone(datetime.timezone.utc).replace(tzinfo=None)
            return f"TIMESTAMP'{utc.isoformat(sep=' ', timespec='microseconds')}Z'"
        raise RuleNotApplicable(f"column {name!r} is {kind}, and holds no dates or times")


def constant(value: Value) -> str:
    """Return a value of the YAML as a constant of Spark SQL. Numbers keep exactly the digits that the YAML has."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float):
        # Spark reads a number without exponent as an exact decimal, of at most 38 digits. Anything else is cast from text to a double.
        plain = format(Decimal(repr(value)), "f")
        return plain if math.isfinite(value) and len(plain) <= 38 else f"CAST('{value!r}' AS DOUBLE)"
    return str(value) if -(2**63) < value < 2**63 else f"{value}BD"


def exact(value: Any, kind: str) -> str:
    """Return a value that Spark returned as a constant of Spark SQL.

    Dates are returned by Spark as days since 1970 (see ``scan``), because Python has no dates before year 1.
    """
    if kind == "date":
        return f"date_from_unix_date({value})"
    return text(value) if isinstance(value, str) else f"{value:f}BD" if isinstance(value, Decimal) else constant(value)


def row_predicate(rule: RowRule, asked: PredicateContext) -> str:
    """Return the condition for a row to pass. It is NULL, which passes too, for rows that the rule does not apply to.

    Raises RuleNotApplicable.
    """
    column = asked.column
    match rule:
        case NotNull():
            return " AND ".join(f"{column(name)} IS NOT NULL" for name in rule.columns)
        case Between():
            low, high = (None if bound is None else asked.constant(rule.column, bound) for bound in (rule.min, rule.max))
            return _bounds(column(rule.column), low, high)
        case Compare():
            if rule.field is not None:
                other = asked.other(rule.field, than=rule.column)
            else:
                # ``Compare`` makes sure that there is a field or a value; the empty text is only for the type checker.
                other = asked.constant(rule.column, rule.value if rule.value is not None else "")
            return f"{column(rule.column)} {rule.operator.value} {other}"
        case Length():
            measured = "octet_length({})" if asked.type_of(rule.column) == "binary" else "char_length(cast({} AS string))"
            low, high = (None if bound is None else constant(bound) for bound in (rule.min, rule.max))
            return _bounds(measured.format(column(rule.column)), low, high)
        case MatchesPattern():
            return f"cast({column(rule.column)} AS string) RLIKE {text(rule.pattern)}"
        case ExpectedValues():
            return f"{column(rule.column)} IN ({', '.join(asked.constant(rule.column, value) for value in rule.values)})"
        case IsType():
            return f"({column(rule.column)} IS NULL OR try_cast({column(rule.column)} AS {rule.type}) IS NOT NULL)"
        case NotInFuture():
            return f"{column(rule.column)} <= {asked.moment(rule.column, asked.now)}"
        case Sign():
            return f"{asked.number(rule.column)} {'>' if rule.rule == 'positive' else '>='} 0"
        case Contains():
            return f"cast({column(rule.column)} AS string) RLIKE {text(EMAIL if rule.rule == 'contains_email' else URL)}"
        case Expression():
            return rule.expression
        case _:
            raise TypeError(f"{type(rule).__name__} has no condition")


def number(rule: NumberRule, asked: PredicateContext) -> str:
    """Return the aggregate that the rule is about, as Spark SQL. Raises RuleNotApplicable."""
    match rule:
        case Sum():
            quoted = asked.number(rule.column)
            # PostgreSQL returns numeric for a sum of bigint. Spark returns bigint, which a sum of large ids overflows.
            return f"coalesce(sum({f'cast({quoted} AS decimal(20,0))' if asked.type_of(rule.column) == 'bigint' else quoted}), 0)"
        case Metric():
            return rule.expression
        case Change():
            return rule.expression if rule.expression is not None else "count(*)"
        case _:
            raise TypeError(f"{type(rule).__name__} is no aggregate of one pass")


def within(value: Decimal | float | None, low: float | None, high: float | None) -> bool:
    """Return whether a number lies within the bounds, both included. None passes.

    A Decimal is compared with the exact digits of the bounds as the YAML has them, and not with the binary value of the float.
    """
    if isinstance(value, Decimal):
        low, high = (Decimal(repr(bound)) if isinstance(bound, float) else bound for bound in (low, high))  # pyright: ignore[reportAssignmentType]
    return value is None or ((low is None or value >= low) and (high is None or value <= high))


def bounds_in_words(low: float | None, high: float | None) -> str:
    """Return the bounds as text for a message. At least one of them must be given."""
    if low is not None and high is not None:
        return f"between {low:,} and {high:,}"
    return f"at least {low:,}" if low is not None else f"at most {high:,}"


def _bounds(value: str, low: str | None, high: str | None) -> str:
    return " AND ".join(f"{value} {sign} {bound}" for sign, bound in ((">=", low), ("<=", high)) if bound is not None)
