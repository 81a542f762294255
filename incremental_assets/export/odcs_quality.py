"""The rules of a container's ``checks:`` in the words of the Open Data Contract Standard.

A rule becomes one of the standard's own metrics where that means the same; any other one is kept whole as a check of this product.
"""

from typing import Any

from incremental_assets.core.rules.keys import Unique, UniqueScope
from incremental_assets.core.rules.rule import Rule, Severity
from incremental_assets.core.rules.table import Freshness
from incremental_assets.core.rules.values import ExpectedValues, MatchesPattern, NotNull

Json = dict[str, Any]
ENGINE = "incremental-assets"
_DIMENSIONS = {
    "not_null": "completeness", "unique": "uniqueness", "distinct_count": "uniqueness", "exists_in": "consistency",
    "not_exists_in": "consistency", "compare": "consistency", "freshness": "timeliness", "not_in_future": "timeliness",
    "volumetric": "coverage", "metric_change": "coverage", "sum": "accuracy", "metric": "accuracy", "expression": "accuracy",
}  # fmt: skip
"""The dimension of quality that each rule is about; all others are about ``conformity``."""


def quality(rule: Rule) -> Json | None:
    """The rule as an entry of ``quality``; None for the freshness, which is a service level of the contract."""
    if isinstance(rule, Freshness):
        return None
    common: Json = {
        "name": rule.id,
        **({"description": rule.description} if rule.description else {}),
        "dimension": _DIMENSIONS.get(rule.rule, "conformity"),
        "severity": "error" if rule.severity is Severity.ERROR else "warning",
        **({"tags": [f"{name}={value}" for name, value in rule.tags.items()]} if rule.tags else {}),
    }
    metric = _metric(rule)
    if metric is None:
        return {**common, "type": "custom", "engine": ENGINE, "implementation": rule.words()}
    return {**common, "type": "library", **metric, **_limit(rule)}


def _metric(rule: Rule) -> Json | None:
    """The standard's metric that means the same, with its arguments; None if there is none."""
    # The standard's metrics are about all rows: a filter, or rows within a partition only, is something else.
    if rule.filter is not None:
        return None
    match rule:
        case NotNull(columns=(column,)):
            return {"metric": "nullValues", "arguments": {"property": column}}
        case Unique(scope=UniqueScope.TABLE):
            return {"metric": "duplicateValues", "arguments": {"properties": list(rule.columns)}}
        case ExpectedValues():
            return {"metric": "invalidValues", "arguments": {"property": rule.column, "validValues": list(rule.values)}}
        case MatchesPattern():
            return {"metric": "invalidValues", "arguments": {"property": rule.column, "pattern": rule.pattern}}
        case _:
            return None


def _limit(rule: Rule) -> Json:
    """How many rows may break the rule."""
    if isinstance(rule.tolerance, float) and rule.tolerance:
        return {"mustBeLessOrEqualTo": rule.tolerance * 100, "unit": "percent"}
    return {"mustBeLessOrEqualTo": int(rule.tolerance), "unit": "rows"} if rule.tolerance else {"mustBe": 0, "unit": "rows"}
