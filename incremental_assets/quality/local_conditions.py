"""The conditions of rules about single rows, evaluated with Arrow: which rows of a table break the rule, exactly as Spark would say it."""

# The functions of pyarrow.compute are made when it is imported, so that no stub names them.
# pyright: reportAttributeAccessIssue=false

import datetime
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from incremental_assets.core.rules.sql import ScannedTable, Value
from incremental_assets.core.rules.values import (
    EMAIL,
    URL,
    Between,
    Compare,
    Contains,
    ExpectedValues,
    Length,
    MatchesPattern,
    NotInFuture,
    NotNull,
    Operator,
    RowRule,
    Sign,
)

Broken = Callable[[pa.Table], pa.ChunkedArray]
"""Returns for each row whether it breaks the rule, without NULLs. The table has the rule's columns, by their names in lower case."""

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
EXACT = (*_INTEGERS, "decimal", "string", "boolean", "date", "timestamp", "timestamp_ntz")
"""The types whose values Arrow compares as Spark does. Floating-point numbers are not among them, because NaN equals NaN in Spark only."""
_DIGITS = 38
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_NUMERAL = re.compile(r"-?\d+(\.\d+)?")
# Letters, digits and other characters without a meaning of their own, classes without `[` and `&&`, groups, and greedy repetition: what
# Java and Python read alike. `.` and `$` are left out, as the two differ in what ends a line.
_ATOM = r"(?:[A-Za-z0-9 _@%/:;,<>=!~\"'#-]|\\[dwsDWS.\\/+*?()\[\]{}|^$-])"
_CLASS = r"\[\^?(?:[A-Za-z0-9 _@%/:;,<>=!~\"'#.+*?(){}|$-]|\\[dws.\\\]\[^-])+\]"
_LIKE_JAVA = re.compile(rf"\^?(?:(?:{_ATOM}|{_CLASS}|\((?:\?:)?|\)|\|)(?:[+*?]|\{{\d+(?:,\d*)?\}})?)*\$?")
_LINE_ENDS = re.compile("[\n\r\x85\u2028\u2029]")

_COMPARISONS: dict[Operator, Callable[[Any, Any], pa.ChunkedArray]] = {
    Operator.EQUAL: pc.equal,
    Operator.NOT_EQUAL: pc.not_equal,
    Operator.LESS: pc.less,
    Operator.AT_MOST: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.AT_LEAST: pc.greater_equal,
}


def broken_by(rule: RowRule, table: ScannedTable) -> Broken | None:
    """Return what tells the rows that break the rule; None if Spark has to tell it. Raises RuleNotApplicable as the rule itself does."""
    match rule:
        case NotNull():
            for name in rule.columns:
                table.type_of(name)  # raises RuleNotApplicable for one that the table lacks
            return _any_null([name.lower() for name in rule.columns])
        case Between():
            bounds = [(Operator.AT_LEAST, rule.min), (Operator.AT_MOST, rule.max)]
            return _all_of([_against(table, rule.column, operator, bound) for operator, bound in bounds if bound is not None])
        case Compare(field=None, value=value) if value is not None:
            return _all_of([_against(table, rule.column, rule.operator, value)])
        case Compare(field=field) if field is not None:
            return _all_of([_fields(table, rule.column, rule.operator, field)])
        case Sign():
            least = Operator.GREATER if rule.rule == "positive" else Operator.AT_LEAST
            return _all_of([_against(table, rule.column, least, 0)])
        case NotInFuture():
            return _all_of([_until(table, rule.column)])
        case Length():
            return _all_of(_lengths(table, rule))
        case ExpectedValues():
            return _among(table, rule.column, rule.values)
        case Contains():
            return _matching(table, rule.column, EMAIL if rule.rule == "contains_email" else URL)
        case MatchesPattern():
            return _matching(table, rule.column, rule.pattern) if _LIKE_JAVA.fullmatch(rule.pattern) else None
        case _:
            return None


def comparable(kind: str) -> pa.DataType | None:
    """Return the Arrow type in which columns of a Spark type are compared with each other; None if Spark compares them otherwise."""
    base = kind.partition("(")[0]
    if base not in EXACT:
        return None
    if base in _INTEGERS:
        return pa.int64()
    if base == "decimal":
        precision, scale = _decimal(kind)
        return pa.decimal128(precision, scale)
    return {
        "string": pa.string(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }[base]


# ---------------------------------------------------------------- the parts of a condition
_Condition = Callable[[pa.Table], pa.ChunkedArray]
"""Whether a row passes: true, false, or NULL, which passes too."""


def _all_of(conditions: Sequence[_Condition | None]) -> Broken | None:
    """The rows for which one of the conditions is false."""
    known = [one for one in conditions if one is not None]
    if len(known) < len(conditions):
        return None

    def broken(rows: pa.Table) -> pa.ChunkedArray:
        failed = [pc.fill_null(pc.invert(one(rows)), False) for one in known]
        found = failed[0]
        for other in failed[1:]:
            found = pc.or_(found, other)
        return found

    return broken


def _any_null(names: Sequence[str]) -> Broken:
    def broken(rows: pa.Table) -> pa.ChunkedArray:
        found = pc.is_null(rows.column(names[0]))
        for name in names[1:]:
            found = pc.or_(found, pc.is_null(rows.column(name)))
        return found

    return broken


def _against(table: ScannedTable, name: str, operator: Operator, value: Value) -> _Condition | None:
    """The comparison of a column with a value of the YAML."""
    # It raises RuleNotApplicable for a value that the column cannot be compared with.
    table.constant(name, value)
    kind, of = table.type_of(name), _COMPARISONS[operator]
    constant = _constant(kind, value)
    if constant is None:
        return None
    if kind != "double":
        return lambda rows: of(rows.column(name.lower()).cast(constant.type), constant)

    def compared(rows: pa.Table) -> pa.ChunkedArray:
        column = rows.column(name.lower())
        # For Spark, NaN is greater than any other number; for Arrow, it is neither greater nor less.
        above = operator in (Operator.GREATER, Operator.AT_LEAST)
        return pc.or_(of(column, constant), pc.is_nan(column)) if above else of(column, constant)

    return compared


def _constant(kind: str, value: Value) -> pa.Scalar | None:
    """A value of the YAML in the type in which it is compared with a column of this Spark type; None if Spark has to compare them."""
    base = kind.partition("(")[0]
    if base == "date":
        return _day(value)
    if base in ("string", "boolean"):
        return pa.scalar(value, pa.string() if base == "string" else pa.bool_())
    number = _number(value)
    if number is None:
        return None
    if base == "double":
        return pa.scalar(float(number), pa.float64())
    if base in _INTEGERS:
        return pa.scalar(int(number), pa.int64()) if number == int(number) and -(2**63) <= number < 2**63 else None
    if base == "decimal":
        precision, scale = _decimal(kind)
        digits = number.as_tuple()
        exponent = int(digits.exponent)
        wide = max(scale, -exponent)
        whole = max(precision - scale, len(digits.digits) + exponent)
        return pa.scalar(number, pa.decimal128(_DIGITS, wide)) if whole + wide <= _DIGITS else None
    return None


def _day(value: Value) -> pa.Scalar | None:
    try:
        return pa.scalar(datetime.date.fromisoformat(value), pa.date32()) if isinstance(value, str) and _DAY.fullmatch(value) else None
    except ValueError:
        return None  # 2024-02-30: Spark says what is wrong


def _number(value: Value) -> Decimal | None:
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, str):
        return Decimal(value) if _NUMERAL.fullmatch(value) else None
    number = Decimal(repr(value))
    # A number of more digits is a floating-point number in Spark, and a comparison with it is not exact.
    return number if len(format(number, "f")) <= _DIGITS else None


def _decimal(kind: str) -> tuple[int, int]:
    precision, scale = (int(part) for part in kind.partition("(")[2].rstrip(")").split(","))
    return precision, scale


def _fields(table: ScannedTable, name: str, operator: Operator, other: str) -> _Condition | None:
    table.other(other, than=name)
    mine, theirs = comparable(table.type_of(name)), comparable(table.type_of(other))
    if mine is None or mine != theirs:
        return None
    of = _COMPARISONS[operator]
    return lambda rows: of(rows.column(name.lower()).cast(mine), rows.column(other.lower()).cast(mine))


def _until(table: ScannedTable, name: str) -> _Condition:
    table.moment(name, table.now)
    kind, local = table.type_of(name), table.now.astimezone(ZoneInfo(table.timezone))
    moment = pa.scalar(
        local.date() if kind == "date" else local.replace(tzinfo=None) if kind == "timestamp_ntz" else table.now, comparable(kind)
    )
    return lambda rows: pc.less_equal(rows.column(name.lower()).cast(moment.type), moment)


def _lengths(table: ScannedTable, rule: Length) -> list[_Condition | None]:
    of = {"string": pc.utf8_length, "binary": pc.binary_length}.get(table.type_of(rule.column))
    if of is None:
        return [None]
    name, found = rule.column.lower(), list[_Condition | None]()
    if (least := rule.min) is not None:
        found.append(lambda rows: pc.greater_equal(of(rows.column(name)), pa.scalar(least, pa.int64())))
    if (most := rule.max) is not None:
        found.append(lambda rows: pc.less_equal(of(rows.column(name)), pa.scalar(most, pa.int64())))
    return found


def _among(table: ScannedTable, name: str, values: Sequence[Value]) -> Broken | None:
    for value in values:
        table.constant(name, value)
    kind = table.type_of(name)
    constants = [found for value in values if (found := _constant(kind, value)) is not None]
    if comparable(kind) is None or len(constants) < len(values) or len({one.type for one in constants}) > 1:
        return None
    known = pa.array([one.as_py() for one in constants], constants[0].type)

    def broken(rows: pa.Table) -> pa.ChunkedArray:
        column = rows.column(name.lower()).cast(known.type)
        return pc.and_(pc.is_valid(column), pc.invert(pc.is_in(column, value_set=known)))

    return broken


def _matching(table: ScannedTable, name: str, pattern: str) -> Broken | None:
    table.column(name)
    if table.type_of(name) != "string":
        return None
    search = re.compile(pattern, re.ASCII).search
    ends = pattern.endswith("$") and not pattern.endswith("\\$")

    def broken(rows: pa.Table) -> pa.ChunkedArray:
        column = rows.column(name.lower())
        texts = [text for text in column.unique().to_pylist() if text is not None]
        if ends and any(_LINE_ENDS.search(text) for text in texts):
            raise pa.ArrowInvalid(f"{name}: a text of several lines ends elsewhere for Java than for Python")
        return pc.is_in(column, value_set=pa.array([text for text in texts if search(text) is None], pa.string()))

    return broken
