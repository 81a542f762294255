"""What the SQL of rules is made of: quoted names and constants, from typed values. This is the one place that makes them.

SQL that the user writes is passed on unchanged. The scan gives each such text to Spark's parser separately, so that it cannot change the
meaning of another text.

Comparisons between different kinds of types are refused here. Spark would cast a text to a number implicitly, so whether the job fails
would depend on the rows of the day.
"""

import datetime
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from incremental_assets.core.names import backticked as quote
from incremental_assets.core.names import literal
from incremental_assets.core.schema import Column

Value = bool | int | float | str
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_TIMES = ("date", "timestamp", "timestamp_ntz")
_NUMERAL = re.compile(r"-?\d+(\.\d+)?")


class RuleNotApplicable(Exception):
    """The rule cannot be evaluated on this table; the message says why. The verdict is then ``errored``."""


@dataclass(frozen=True)
class ScannedTable:
    """The table that rules are evaluated on, and the moment of the scan.

    ``columns``: the table's columns with their Spark types. ``now``: the time of the scan. ``timezone``: the zone in which values without
    a time zone are understood. ``identifier``: the columns of the incremental identifier; empty if there is none.
    ``valueless``: columns that the source has without any value, so that the table does not have them yet.
    """

    columns: Sequence[Column]
    now: datetime.datetime
    timezone: str = "UTC"
    identifier: tuple[str, ...] = ()
    valueless: tuple[str, ...] = ()

    def type_of(self, name: str) -> str:
        """The Spark type of a column. Delta column names are case-insensitive.

        Raises RuleNotApplicable if the table has no such column.
        """
        for column in self.columns:
            if column.name.lower() == name.lower():
                return column.type
        if name.lower() in {one.lower() for one in self.valueless}:
            raise RuleNotApplicable(
                f"no file has a value of {name!r} yet, so that the table does not have the column; columns: sets its type"
            )
        raise RuleNotApplicable(f"the table has no column {name!r}")

    def column(self, name: str) -> str:
        """The quoted name of a column. Raises RuleNotApplicable if the table has no such column."""
        self.type_of(name)
        return quote(name)

    def number(self, name: str) -> str:
        """The quoted name of a numeric column. Raises RuleNotApplicable if the column is not numeric."""
        kind = self.type_of(name)
        if family(kind) != "number":
            raise RuleNotApplicable(f"column {name!r} is {kind}, and holds no numbers; an expression can cast it")
        return self.column(name)

    def other(self, name: str, than: str) -> str:
        """The quoted name of column ``name``, which column ``than`` is compared with.

        Raises RuleNotApplicable if the types of the two columns cannot be compared.
        """
        kinds = self.type_of(than), self.type_of(name)
        if family(kinds[0]) != family(kinds[1]):
            raise RuleNotApplicable(f"column {than!r} is {kinds[0]}, and {name!r} is {kinds[1]}; an expression can cast one")
        return self.column(name)

    def constant(self, name: str, value: Value) -> str:
        """A value of the YAML as a constant to compare the column with. Raises RuleNotApplicable if the types cannot be compared."""
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
        """An instant as a constant of the column's type. Raises RuleNotApplicable if the column does not hold dates or times."""
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


def family(kind: str) -> str:
    """The family of a Spark type. Values can be compared within a family; a type that is not listed is a family of its own."""
    base = kind.partition("(")[0]
    return "number" if base in _NUMBERS else "time" if base in _TIMES else "text" if base in ("string", "char", "varchar") else kind


def text(value: str) -> str:
    """A string constant of Spark SQL.

    Spark substitutes ``${…}`` with its settings even inside constants (``spark.sql.variable.substitute`` is on by default), so the dollar
    sign is written as an escape.
    """
    return literal(value).replace("${", "\\u0024{")


def constant(value: Value) -> str:
    """A value of the YAML as a constant of Spark SQL. Numbers keep exactly the digits that the YAML has."""
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
    """A value that Spark returned as a constant of Spark SQL.

    Dates are returned by Spark as days since 1970 (see ``quality.groups``), because Python has no dates before year 1.
    """
    if kind == "date":
        return f"date_from_unix_date({value})"
    return text(value) if isinstance(value, str) else f"{value:f}BD" if isinstance(value, Decimal) else constant(value)


def between(value: str, low: str | None, high: str | None) -> str:
    """The condition that a value lies between two constants, both included; a bound that is None is left out."""
    return " AND ".join(f"{value} {sign} {bound}" for sign, bound in ((">=", low), ("<=", high)) if bound is not None)
