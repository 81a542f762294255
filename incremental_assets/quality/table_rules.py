"""Rules of the table as a whole: its columns, and how old its newest row is.

Belongs here: their verdicts. Does not belong: rules of rows and partitions (``scan``).
"""

import datetime
from collections.abc import Sequence

from pyspark.errors import PySparkException

from incremental_assets.core.rules import ExpectedSchema, Freshness, as_a_table_names_it
from incremental_assets.core.schema import Column
from incremental_assets.core.spark_types import without_quotes
from incremental_assets.delta.guards import expr
from incremental_assets.quality.predicates import CannotAsk
from incremental_assets.quality.rows import Rows
from incremental_assets.quality.verdict import Status, Verdict

AHEAD_SECONDS = 300
"""What a source's clock may be ahead of ours: a row that is dated later than that does not tell that rows come in."""
Told = tuple[Status, float | None, str]


def table_verdict(rule: ExpectedSchema | Freshness, rows: Rows, scanned: int) -> Verdict:
    """``scanned``: how many rows the scan looks at."""
    try:
        if isinstance(rule, ExpectedSchema):
            status, value, message = schema_as_expected(rule, rows.head.columns)
        else:
            identifier = rows.ground.container.identifier
            status, value, message = fresh(rule, rows, identifier.columns if identifier else ())
    except CannotAsk as error:
        status, value, message = Status.ERRORED, None, str(error)
    except PySparkException as error:
        rows.note([rule.id], error)
        status, value, message = Status.ERRORED, None, rows.troubles[rule.id]
    return Verdict(rule.id, None, status, rule.severity, rule.blocking, scanned, scanned, None, value, message, rows.ground.asks(rule))


def schema_as_expected(rule: ExpectedSchema, columns: Sequence[Column]) -> Told:
    """The value is the number of differences."""
    have = {column.name.lower(): column for column in columns}
    wrong: list[str] = []
    for name, type_ in rule.types.items():
        found = have.get(name.lower())
        if found is None:
            wrong.append(f"{name} is missing")
        elif type_ is not None and without_quotes(found.type) != as_a_table_names_it(type_):
            wrong.append(f"{name} is {found.type} and not {type_}")
    if rule.only:
        expected = {name.lower() for name in rule.types}
        wrong += [f"{column.name} is not expected" for column in columns if column.name.lower() not in expected]
    message = "; ".join(wrong) if wrong else f"{len(rule.types)} columns as expected"
    return (Status.FAILED if wrong else Status.PASSED), float(len(wrong)), message


def fresh(rule: Freshness, rows: Rows, identifier: Sequence[str]) -> Told:
    """The value is the age of the newest row in seconds; None where it is older than is allowed. Reads only files that may have newer ones.

    Rows that are dated in the future do not count: one of them would make a table look well that nobody fills any more.

    Raises CannotAsk.
    """
    columns = (rule.column,) if rule.column is not None else tuple(identifier)
    if not columns:
        raise CannotAsk("the container has no incremental identifier; say which column tells how old a row is")
    asked = rows.asked
    limit = asked.now - datetime.timedelta(seconds=rule.seconds)
    newest: list[float] = []
    ahead = 0
    for name in columns:
        rows.passes += 1
        quoted, kind = asked.column(name), asked.type_of(name)
        frame = rows.whole.where(f"{quoted} >= {asked.moment(name, limit)}")
        if rule.filter is not None:
            frame = frame.where(expr(rule.filter))
        # A date is as new as its day; of a time without zone both sides are the clock's on the wall.
        now = asked.moment(name, asked.now)
        micros = [f"unix_micros(cast({value} AS timestamp))" for value in (now, quoted)]
        ago = f"cast(datediff({now}, {quoted}) AS bigint) * 86400" if kind == "date" else f"({micros[0]} - {micros[1]}) / 1000000"
        come = f"min(CASE WHEN ago >= {-AHEAD_SECONDS} THEN ago END) AS age"
        found = (
            frame.selectExpr(f"{ago} AS ago").selectExpr(come, f"count(CASE WHEN ago < {-AHEAD_SECONDS} THEN 1 END) AS ahead").collect()[0]
        )
        newest += [float(found["age"])] if found["age"] is not None else []
        ahead += found["ahead"]
    but = f"; {ahead:,} of a time that is still to come do not count" if ahead else ""
    if not newest:
        return Status.FAILED, None, f"there is no row with {' or '.join(columns)} since {limit.isoformat(timespec='seconds')}{but}"
    age = max(0.0, min(newest))
    status = Status.PASSED if age <= rule.seconds else Status.FAILED  # a day's rows are read whole, and may be older
    return status, age, f"the newest row is {datetime.timedelta(seconds=int(age))} old; allowed are {rule.max_age}{but}"
