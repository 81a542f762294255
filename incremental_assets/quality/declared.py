"""What can be said of a container's rules before anything runs: do names lead somewhere, is the SQL any.

Belongs here: checks against what the catalog knows. Does not belong: reading the YAML (orchestration), or asking the rules (``scan``): of
what the catalog does not know, such as the columns of files, a scan says the same.
"""

from collections.abc import Collection, Sequence

from incremental_assets.model.errors import ConfigurationError
from incremental_assets.model.names import nearest
from incremental_assets.model.rules import ExistsIn, Metric, Rule


def check_rules(label: str, rules: Sequence[Rule], columns: Sequence[str] | None, containers: Collection[str]) -> None:
    """``columns``: of the container, as far as they are known. ``containers``: of its datastore.

    Raises ConfigurationError that begins with the place in the YAML.
    """
    seen: dict[str, Rule] = {}
    for rule in rules:
        other = seen.setdefault(rule.id.lower(), rule)
        if other is not rule:
            there = f" ({other.place})" if other.place else ""
            raise _wrong(label, rule, f"another rule has the id {rule.id!r} too{there}; give one of them a name")
        if columns is not None:
            for name in rule.columns_used:
                _known(label, rule, name, columns)
        for text in rule.expressions:
            _check_sql(label, rule, text, columns)
        if isinstance(rule, ExistsIn) and "/" not in rule.container and rule.container not in containers:
            raise _wrong(label, rule, f"there is no container {rule.container!r} in the datastore.{nearest(rule.container, containers)}")


def _known(label: str, rule: Rule, name: str, columns: Sequence[str]) -> None:
    if not any(name.lower() == column.lower() for column in columns):
        raise _wrong(label, rule, f"there is no column {name!r}.{nearest(name, columns)}")


def _check_sql(label: str, rule: Rule, text: str, columns: Sequence[str] | None) -> None:
    """By a parser of Spark's dialect that needs no Spark; what it lets pass, Spark may still refuse when the rule is asked."""
    import sqlglot  # a tenth of a second, which a project without SQL in its rules is spared
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        parsed = sqlglot.parse_one(text, dialect="spark")
        sqlglot.parse_one(f"SELECT (\n{text}\n)", dialect="spark")  # no statement, nor several
    except SqlglotError as error:
        found = getattr(error, "errors", None) or [{"description": str(error).splitlines()[0], "highlight": ""}]
        near = f" near {found[0]['highlight']!r}" if found[0].get("highlight") else ""
        raise _wrong(
            label, rule, f"{text!r} is no expression of Spark SQL: {found[0]['description'].partition(' for <')[0].rstrip('.')}{near}"
        ) from error
    if isinstance(parsed, exp.Query):
        raise _wrong(label, rule, f"{text!r} is a statement; write a condition or an aggregate")
    aggregates = parsed.find(exp.AggFunc) is not None
    if aggregates and not isinstance(rule, Metric) and rule.rule != "metric_change":
        raise _wrong(label, rule, f"{text!r} aggregates rows, which a condition of one row cannot; rule: metric does")
    if columns is None or parsed.find(exp.Lambda) is not None:  # names of a lambda's own are no columns
        return
    for column in parsed.find_all(exp.Column):
        if not isinstance(column.this, exp.Star) and not column.table:
            _known(label, rule, column.name, columns)


def _wrong(label: str, rule: Rule, what: str) -> ConfigurationError:
    place = f"{rule.place}: " if rule.place else ""
    return ConfigurationError(f"{place}{label}: check {rule.id}: {what.rstrip('.')}.")
