"""Rules about the table as a whole (``core.rules.table``): their queries are run, and their verdict is made of the answers.

Belongs here: running these queries. Does not belong: rules with a verdict on each partition (``scan``).
"""

from incremental_assets.core.rules.rule import Outcome, Status, Verdict
from incremental_assets.core.rules.table import TableRule
from incremental_assets.delta.guards import expr
from incremental_assets.quality.rows import Rows


def table_verdict(rule: TableRule, rows: Rows, scanned: int) -> Verdict:
    """Return the rule's verdict. ``scanned`` is the number of rows in the scan scope."""
    asks = rows.scan_scope.question_digest(rule)
    with rows.noting(rule):
        return rule.verdict(_outcome(rule, rows), None, scanned, scanned, asks)
    return rule.verdict(Outcome(Status.ERRORED, None, rows.troubles[rule.id]), None, scanned, scanned, asks)


def _outcome(rule: TableRule, rows: Rows) -> Outcome:
    answers: list[dict[str, object]] = []
    for query in rule.queries(rows.in_sql):
        rows.passes += 1
        frame = rows.whole.where(query.where)
        if rule.filter is not None:
            frame = frame.where(expr(rule.filter))
        answers.append(frame.selectExpr(query.select).selectExpr(*query.aggregates).collect()[0].asDict())
    return rule.outcome(rows.in_sql, answers)
