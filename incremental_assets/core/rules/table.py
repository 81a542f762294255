"""Rules about the table as a whole: its columns, and the age of its newest row.

Such a rule has one verdict, whatever partitions are scanned.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from incremental_assets.core.duration import for_people, seconds_of
from incremental_assets.core.rules.declared import Declared, NotDeclared
from incremental_assets.core.rules.rule import Outcome, Rule, Status, code
from incremental_assets.core.rules.sql import RuleNotApplicable, ScannedTable
from incremental_assets.core.shown_text import counted
from incremental_assets.core.spark_types import as_a_table_names_it, without_quotes

AHEAD_SECONDS = 300
"""How many seconds the source's clock may be ahead of ours. A row that is dated later than that does not prove that new rows arrive."""
_NO_IDENTIFIER = "the container has no incremental identifier; say which column tells how old a row is"


@dataclass(frozen=True)
class TableQuery:
    """One question to all rows of the table, in Spark SQL.

    ``where``: a condition for the rows; the rule's filter is added to it. ``select``: what is taken of each row. ``aggregates``: what is
    computed from that, by the names of the answers.
    """

    where: str
    select: str
    aggregates: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class TableRule(Rule):
    """A rule with one verdict on the table as a whole."""

    def queries(self, table: ScannedTable) -> Sequence[TableQuery]:
        """What the rule has to know of the rows. Raises RuleNotApplicable."""
        return ()

    def outcome(self, table: ScannedTable, answers: Sequence[Mapping[str, Any]]) -> Outcome:
        """What the table and the answers, one to each query, mean for the rule."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class ExpectedSchema(TableRule):
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

    @property
    def expected(self) -> str:
        columns = ", ".join(code(name) + (f" ({type_})" if type_ else "") for name, type_ in self.types.items())
        return f"The table has the columns {columns}{', and no others' if self.only else ''}"

    def outcome(self, table: ScannedTable, answers: Sequence[Mapping[str, Any]]) -> Outcome:
        """The value is the number of differences."""
        have = {column.name.lower(): column for column in table.columns}
        wrong: list[str] = []
        for name, type_ in self.types.items():
            found = have.get(name.lower())
            if found is None:
                wrong.append(f"{name} is missing")
            elif type_ is not None and without_quotes(found.type) != as_a_table_names_it(type_):
                wrong.append(f"{name} is {found.type} and not {type_}")
        if self.only:
            expected = {name.lower() for name in self.types}
            wrong += [f"{column.name} is not expected" for column in table.columns if column.name.lower() not in expected]
        message = "; ".join(wrong) if wrong else f"{counted(len(self.types), 'column')} as expected"
        return Outcome(Status.FAILED if wrong else Status.PASSED, float(len(wrong)), message)


@dataclass(frozen=True, kw_only=True)
class Freshness(TableRule):
    """The newest value of the column is not older than ``max_age``: ``90 minutes``, ``36 hours``, ``2 days``.

    ``column`` is None for the incremental identifier; for an identifier of two columns the newer value counts. Rows that are dated in the
    future do not count: a single one of them would make a table look fresh that nothing writes to any more.
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
        return seconds_of("max_age", self.max_age)

    @property
    def expected(self) -> str:
        by = "" if self.column is None else f" by {code(self.column)}"
        return f"The newest row{by} is at most {self.max_age} old"

    def check(self, declared: Declared) -> None:
        super().check(declared)
        if self.column is None and not declared.has_partitions:
            raise NotDeclared(_NO_IDENTIFIER)

    def queries(self, table: ScannedTable) -> Sequence[TableQuery]:
        """One query for each column that may tell the age. Only rows that may be new enough are read."""
        columns = self._columns(table)
        if not columns:
            raise RuleNotApplicable(_NO_IDENTIFIER)
        return [self._query(table, name) for name in columns]

    def _query(self, table: ScannedTable, name: str) -> TableQuery:
        """The least age in seconds of the rows that have come, as ``age``, and as ``ahead`` the number of those that are still to come."""
        column, now = table.column(name), table.moment(name, table.now)
        # A date is as old as its day. For a time without a zone, both sides of the difference are local times of the datastore's zone.
        if table.type_of(name) == "date":
            ago = f"cast(datediff({now}, {column}) AS bigint) * 86400"
        else:
            ago = f"(unix_micros(cast({now} AS timestamp)) - unix_micros(cast({column} AS timestamp))) / 1000000"
        return TableQuery(
            where=f"{column} >= {table.moment(name, self._limit(table))}",
            select=f"{ago} AS ago",
            aggregates={
                "age": f"min(CASE WHEN ago >= {-AHEAD_SECONDS} THEN ago END)",
                "ahead": f"count(CASE WHEN ago < {-AHEAD_SECONDS} THEN 1 END)",
            },
        )

    def outcome(self, table: ScannedTable, answers: Sequence[Mapping[str, Any]]) -> Outcome:
        """The value is the age in seconds; None if no row is new enough, because no other rows were read."""
        ahead = sum(answer["ahead"] for answer in answers)
        but = f"; {ahead:,} of a time that is still to come do not count" if ahead else ""
        ages = [float(answer["age"]) for answer in answers if answer["age"] is not None]
        if not ages:
            since = self._limit(table).isoformat(timespec="seconds")
            return Outcome(Status.FAILED, None, f"there is no row with {' or '.join(self._columns(table))} since {since}{but}")
        age = max(0.0, min(ages))
        # For a date the query selects whole days, so that the newest row may still be older than the limit.
        status = Status.PASSED if age <= self.seconds else Status.FAILED
        return Outcome(status, age, f"the newest row is {for_people(age)} old; allowed are {self.max_age}{but}")

    def _columns(self, table: ScannedTable) -> tuple[str, ...]:
        return table.identifier if self.column is None else (self.column,)

    def _limit(self, table: ScannedTable) -> datetime.datetime:
        return table.now - datetime.timedelta(seconds=self.seconds)


AnyTableRule = ExpectedSchema | Freshness
"""Any rule of this module."""
