"""Rules as Spark SQL, built in this one place from typed values and quoted names.

Belongs here: the condition under which a row passes, the number that a rule is about, and constants. Does not belong: aggregating,
counting, running (``scan``). What the user writes in SQL is passed on as it is; the scan gives each such text to Spark by itself, so that
it cannot reach into another.

What cannot be compared is refused by the column's type. Spark would read a text as a number, and so fail, or not, by the rows of the day.
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
URL = r"(https?|ftp)://[^\s/$.?#][^\s]*"


_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_TIMES = ("date", "timestamp", "timestamp_ntz")
_NUMERAL = re.compile(r"-?\d+(\.\d+)?")


class CannotAsk(Exception):
    """The rule cannot be asked of this table; the message says why."""


def family(kind: str) -> str:
    """Types whose values can be compared with each other; a type that is not listed stands alone."""
    base = kind.partition("(")[0]
    return "number" if base in _NUMBERS else "time" if base in _TIMES else "text" if base in ("string", "char", "varchar") else kind


def text(value: str) -> str:
    """A string constant. Spark fills ``${…}`` in with its settings, in constants too, unless it is spelled otherwise."""
    return literal(value).replace("${", "\\u0024{")


@dataclass(frozen=True)
class Asked:
    """Of what, and when, rules are asked. ``types``: of the table's columns, as Spark calls them. ``timezone``: of times without zone."""

    types: Mapping[str, str]
    now: datetime.datetime
    timezone: str = "UTC"

    def column(self, name: str) -> str:
        """Its quoted name. Raises CannotAsk where the table has none of that name; Delta does not tell case apart."""
        if not any(name.lower() == known.lower() for known in self.types):
            raise CannotAsk(f"the table has no column {name!r}")
        return quote(name)

    def type_of(self, name: str) -> str:
        self.column(name)
        return next(kind for known, kind in self.types.items() if known.lower() == name.lower())

    def number(self, name: str) -> str:
        """The quoted name of a column of numbers. Raises CannotAsk where it holds none."""
        kind = self.type_of(name)
        if family(kind) != "number":
            raise CannotAsk(f"column {name!r} is {kind}, and holds no numbers; an expression can cast it")
        return self.column(name)

    def other(self, name: str, than: str) -> str:
        """The quoted name of a column that another one is compared with. Raises CannotAsk where they cannot be."""
        kinds = self.type_of(than), self.type_of(name)
        if family(kinds[0]) != family(kinds[1]):
            raise CannotAsk(f"column {than!r} is {kinds[0]}, and {name!r} is {kinds[1]}; an expression can cast one")
        return self.column(name)

    def constant(self, name: str, value: Value) -> str:
        """A value of the YAML that the column's are compared with. Raises CannotAsk where they cannot be."""
        kind = self.type_of(name)
        mine = family(kind)
        if isinstance(value, str):
            if mine == "time":
                return f"{kind.upper()}{text(value)}"
            if mine == "number" and _NUMERAL.fullmatch(value):  # in quotes, as more digits than a float has are kept so
                return f"{value}BD"
        fits = "boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"
        if mine != fits:
            hint = "; write it in quotes" if mine in ("text", "time") else ""
            raise CannotAsk(f"column {name!r} is {kind}, and {value!r} is a {fits}{hint}")
        return constant(value)

    def moment(self, name: str, at: datetime.datetime) -> str:
        """An instant as a constant that the column's values can be compared with. Raises CannotAsk where it holds no times."""
        kind = self.type_of(name)
        local = at.astimezone(ZoneInfo(self.timezone))
        if kind == "date":
            return f"DATE'{local.date().isoformat()}'"
        if kind == "timestamp_ntz":
            return f"TIMESTAMP_NTZ'{local.replace(tzinfo=None).isoformat(sep=' ', timespec='microseconds')}'"
        if kind == "timestamp":
            utc = at.astimezone(datetime.timezone.utc).replace(tzinfo=None)
            return f"TIMESTAMP'{utc.isoformat(sep=' ', timespec='microseconds')}Z'"
        raise CannotAsk(f"column {name!r} is {kind}, and holds no dates or times")


def constant(value: Value) -> str:
    """A value of the YAML: numbers exactly as they are written there."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float):
        plain = format(Decimal(repr(value)), "f")
        return plain if math.isfinite(value) and len(plain) <= 38 else f"CAST('{value!r}' AS DOUBLE)"
    return str(value) if -(2**63) < value < 2**63 else f"{value}BD"


def exact(value: Any, kind: str) -> str:
    """A value that Spark gave back, as a constant. Of a date it gives the day's number, as Python has no dates before the year 1."""
    if kind == "date":
        return f"date_from_unix_date({value})"
    return text(value) if isinstance(value, str) else f"{value:f}BD" if isinstance(value, Decimal) else constant(value)


def row_predicate(rule: RowRule, asked: Asked) -> str:
    """True for a row that passes, NULL (which passes too) where the rule says nothing about it. Raises CannotAsk."""
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


def number(rule: NumberRule, asked: Asked) -> str:
    """The aggregate that the rule is about. Raises CannotAsk."""
    match rule:
        case Sum():
            quoted = asked.number(rule.column)
            # As PostgreSQL does: the sum of large ids has no room in a bigint.
            return f"coalesce(sum({f'cast({quoted} AS decimal(20,0))' if asked.type_of(rule.column) == 'bigint' else quoted}), 0)"
        case Metric():
            return rule.expression
        case Change():
            return rule.expression if rule.expression is not None else "count(*)"
        case _:
            raise TypeError(f"{type(rule).__name__} is no aggregate of one pass")


def within(value: Decimal | float | None, low: float | None, high: float | None) -> bool:
    """Both bounds included; a number that there is not passes. An exact one is compared with the bounds as they are written."""
    if isinstance(value, Decimal):
        low, high = (Decimal(repr(bound)) if isinstance(bound, float) else bound for bound in (low, high))  # pyright: ignore[reportAssignmentType]
    return value is None or ((low is None or value >= low) and (high is None or value <= high))


def bounds_in_words(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"between {low:,} and {high:,}"
    return f"at least {low:,}" if low is not None else f"at most {high:,}"


def _bounds(value: str, low: str | None, high: str | None) -> str:
    return " AND ".join(f"{value} {sign} {bound}" for sign, bound in ((">=", low), ("<=", high)) if bound is not None)
