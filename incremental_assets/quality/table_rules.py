"""Rules about the table as a whole (``core.rules.table``): their queries, and their verdict, which is made of the answers."""

from incremental_assets.core.rules.rule import Outcome, Status, Verdict
from incremental_assets.core.rules.table import TableRule
from incremental_assets.delta.guards import expr
from incremental_assets.quality.passes import Pass, run
from incremental_assets.quality.rows import Rows, Values


def table_passes(rule: TableRule, rows: Rows) -> list[Pass]:
    """Return the passes that the rule needs. Raises RuleNotApplicable."""
    found: list[Pass] = []
    for query in rule.queries(rows.in_sql):
        frame = rows.whole.where(query.where)
        if rule.filter is not None:
            frame = frame.where(expr(rule.filter))
        aggregates = {name: expr(text) for name, text in query.aggregates.items()}
        found.append(Pass([rule], frame.selectExpr(query.select), aggregates, of_table=True))
    return found


def table_verdict(rule: TableRule, rows: Rows, scanned: int, answers: "list[Values] | None" = None) -> Verdict:
    """Return the rule's verdict. ``scanned``: the number of rows in the scan scope. ``answers``: of its passes, if they have been run."""
    asks = rows.scan_scope.question_digest(rule)
    with rows.noting(rule):
        if answers is None:
            answers = [run(rows, one) for one in table_passes(rule, rows)]
        outcome = rule.outcome(rows.in_sql, [answer[None] for answer in answers])
        return rule.verdict(outcome, None, scanned, scanned, asks)
    return rule.verdict(Outcome(Status.ERRORED, None, rows.troubles[rule.id]), None, scanned, scanned, asks)
