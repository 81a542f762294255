"""Rules about the table as a whole: its columns, and the age of its newest row.

Belongs here: the verdicts of these rules. Does not belong: rules about rows and partitions (``scan``, ``judge``).
"""

import datetime
from collections.abc import Sequence

from pyspark.errors import PySparkException

from incremental_assets.core.rules import ExpectedSchema, Freshness, as_a_table_names_it
from incremental_assets.core.schema import Column
from incremental_assets.core.spark_types import without_quotes
from incremental_assets.delta.guards import expr
from incremental_assets.quality.predicates import RuleNotApplicable
from incremental_assets.quality.rows import Rows
from incremental_assets.quality.verdict import Status, Verdict

AHEAD_SECONDS = 300
"""How many seconds the source's clock may be ahead of ours. A row that is dated later than that does not prove that new rows arrive."""
TableVerdict = tuple[Status, float | None, str]
"""Status, value and message of a verdict."""


def table_verdict(rule: ExpectedSchema | Freshness, rows: Rows, scanned: int) -> Verdict:
    """Return the rule's verdict. ``scanned`` is the number of rows in the scan scope."""
    try:
        if isinstance(rule, ExpectedSchema):
            status, value, message = schema_as_expected(rule, rows.head.columns)
        else:
            identifier = rows.scan_scope.container.identifier
            status, value, message = fresh(rule, rows, identifier.columns if identifier else ())
    except RuleNotApplicable as error:
        status, value, message = Status.ERRORED, None, str(error)
    except PySparkException as error:
        rows.note([rule.id], error)
        status, value, message = Status.ERRORED, None, rows.troubles[rule.id]
    return Verdict(
        rule.id, None, status, rule.severity, rule.blocking, scanned, scanned, None, value, message, rows.scan_scope.question_digest(rule)
    )


def schema_as_expected(rule: ExpectedSchema, columns: Sequence[Column]) -> TableVerdict:
    """Compare the table's columns with the rule. The value is the number of differences."""
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


def fresh(rule: Freshness, rows: Rows, identifier: Sequence[str]) -> TableVerdict:
    """Compare the age of the newest row with the rule. The value is the age in seconds.

    The value is None if no row is new enough, because only files that may hold new enough rows are read. Rows that are dated in the future
    do not count: a single one of them would make a table look fresh that nothing writes to any more. ``identifier`` are the columns to use
    if the rule names none; for an identifier of two columns the newer value counts. Raises RuleNotApplicable if there is no column to judge
    by.
    """
    columns = (rule.column,) if rule.column is not None else tuple(identifier)
    if not columns:
        raise RuleNotApplicable("the container has no incremental identifier; say which column tells how old a row is")
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
        # A date is as old as its day. For a time without a zone, both sides of the difference are local times of the datastore's zone.
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
    # For a date the predicate selects whole days, so that the newest row may still be older than the limit.
    status = Status.PASSED if age <= rule.seconds else Status.FAILED
    return status, age, f"the newest row is {datetime.timedelta(seconds=int(age))} old; allowed are {rule.max_age}{but}"
