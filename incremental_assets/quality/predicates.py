"""Rules as Spark SQL, built in this one place from typed values and quoted names.

Belongs here: the condition under which a row passes, the number that a rule is about, and constants. Does not belong: aggregating,
counting, running (``scan``). What the user writes in SQL is passed on as it is; the scan gives each such text to Spark by itself, so that
it cannot reach into another.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from zoneinfo import ZoneInfo

from incremental_assets.model.names import backticked as quote
from incremental_assets.model.names import literal as text
from incremental_assets.model.rules import (
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


class CannotAsk(Exception):
    """The rule cannot be asked of this table; the message says why."""


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
        return plain if len(plain) <= 38 else f"CAST('{value!r}' AS DOUBLE)"
    return str(value) if -(2**63) < value < 2**63 else f"{value}BD"


def row_predicate(rule: RowRule, asked: Asked) -> str:
    """True for a row that passes, NULL (which passes too) where the rule says nothing about it. Raises CannotAsk."""
    column = asked.column
    match rule:
        case NotNull():
            return " AND ".join(f"{column(name)} IS NOT NULL" for name in rule.columns)
        case Between():
            return " AND ".join(_bounds(column(rule.column), rule.min, rule.max))
        case Compare():
            other = column(rule.field) if rule.field is not None else constant(rule.value if rule.value is not None else "")
            return f"{column(rule.column)} {rule.operator.value} {other}"
        case Length():
            return " AND ".join(_bounds(f"char_length(cast({column(rule.column)} AS string))", rule.min, rule.max))
        case MatchesPattern():
            return f"cast({column(rule.column)} AS string) RLIKE {text(rule.pattern)}"
        case ExpectedValues():
            return f"{column(rule.column)} IN ({', '.join(map(constant, rule.values))})"
        case IsType():
            return f"({column(rule.column)} IS NULL OR try_cast({column(rule.column)} AS {rule.type}) IS NOT NULL)"
        case NotInFuture():
            return f"{column(rule.column)} <= {asked.moment(rule.column, asked.now)}"
        case Sign():
            return f"{column(rule.column)} {'>' if rule.rule == 'positive' else '>='} 0"
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
            return f"coalesce(sum({asked.column(rule.column)}), 0)"
        case Metric():
            return rule.expression
        case Change():
            return rule.expression if rule.expression is not None else "count(*)"
        case _:
            raise TypeError(f"{type(rule).__name__} is no aggregate of one pass")


def within(value: float | None, low: float | None, high: float | None) -> bool:
    """Both bounds included; a number that there is not passes."""
    return value is None or ((low is None or value >= low) and (high is None or value <= high))


def bounds_in_words(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"between {low:,} and {high:,}"
    return f"at least {low:,}" if low is not None else f"at most {high:,}"


def _bounds(value: str, low: Value | None, high: Value | None) -> list[str]:
    return [f"{value} {sign} {constant(bound)}" for sign, bound in ((">=", low), ("<=", high)) if bound is not None]
