"""Rules that are broken, as problems: one for each container and rule, however many anomalies it has."""

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlencode

from incremental_assets.core.anomalies import Anomaly
from incremental_assets.core.rules.examples import example
from incremental_assets.core.rules.rule import Severity as RuleSeverity
from incremental_assets.core.shown_text import counted
from incremental_assets.operations.alerts.problems import Facts, Problem, Severity


def broken_rules(anomalies: Iterable[Anomaly], facts: Mapping[str, Facts], blocking: Mapping[str, Sequence[str]]) -> Mapping[str, Problem]:
    """The problems by their keys. ``anomalies``: all that are open; those of a container that is not among ``facts``, as it is no longer
    synced, are nobody's to mend. ``blocking``: by container, the rules because of which its last sync has failed."""
    by_rule: dict[tuple[str, str], list[Anomaly]] = {}
    for one in (one for one in anomalies if one.container in facts):
        by_rule.setdefault((one.container, one.rule), []).append(one)
    return {
        f"{label} rule {rule}": _problem(some, facts[label], rule in blocking.get(label, ())) for (label, rule), some in by_rule.items()
    }


def _problem(some: Sequence[Anomaly], facts: Facts, blocks: bool) -> Problem:
    """``some``: the open anomalies of one rule. ``blocks``: whether the last sync has failed because of it."""
    newest = min(some, key=lambda one: (-one.changed_at, one.partition or "", one.key or ""))
    blocking = " (blocking: the sync has written its rows, and what is downstream has not run)" if blocks else ""
    text = f"{newest.container}: {newest.rule}{blocking}: {_how_many(some, newest)}"
    if newest.partition is not None:
        others = len({one.partition for one in some} - {newest.partition})
        text += f", in {newest.partition}" + (f" and {counted(others, 'other partition')}" if others else "")
    is_error = any(one.severity is RuleSeverity.ERROR for one in some)
    return Problem(
        Severity.FAILURE if is_error else Severity.WARNING,
        text,
        link=f"{facts.link}?{urlencode({'view': 'checks', 'checkDetail': newest.rule})}",
        since=min(one.first_seen for one in some) / 1e6,
        example=example(newest.value, newest.key) if facts.samples else "",
    )


def _how_many(some: Sequence[Anomaly], newest: Anomaly) -> str:
    """The number of rows; what the rule says of the number or the table that it is about."""
    counts = [one.rows for one in some if one.rows is not None]
    return counted(sum(counts), "row") if len(counts) == len(some) else newest.message
