"""What can be said of a container's rules before anything runs: do names lead somewhere, is the SQL any.

Belongs here: checks against what the catalog knows. Does not belong: reading the YAML (orchestration), or asking the rules (``scan``): of
what the catalog does not know, such as the columns of files, a scan says the same.
"""

from collections.abc import Mapping, Sequence

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.names import nearest
from incremental_assets.core.rules import Change, ExistsIn, Freshness, Metric, Rule

_UNKNOWN_TO_THE_PARSER = (">>>", "!<", "!>")
"""Operators of Spark's."""
_WITHOUT_PARENTHESES = ("current_time", "localtimestamp", "user")
"""Functions of Spark's that the parser takes for columns."""


def check_rules(
    label: str,
    rules: Sequence[Rule],
    columns: Sequence[str] | None,
    containers: Mapping[str, Sequence[str] | None],
    has_partitions: bool = True,
) -> None:
    """``columns``: of the container, as far as they are known. ``containers``: of its datastore, with their columns.

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
        own = getattr(rule, "expression", None)
        if own is not None:
            _check_sql(label, rule, own, columns, of_rows=isinstance(rule, Metric | Change))
        if rule.filter is not None:
            _check_sql(label, rule, rule.filter, columns, of_rows=False)
        if isinstance(rule, ExistsIn):
            _check_other(label, rule, containers)
        if isinstance(rule, Freshness) and rule.column is None and not has_partitions:
            raise _wrong(label, rule, "the container has no incremental identifier; say which column tells how old a row is")
        if isinstance(rule, Change) and not has_partitions:
            raise _wrong(label, rule, "it compares partitions, and the container has none: it needs an incremental identifier")


def _check_other(label: str, rule: ExistsIn, containers: Mapping[str, Sequence[str] | None]) -> None:
    """What other datastores have is not known here."""
    store, slash, name = rule.container.rpartition("/")
    if slash and store != label.partition("/")[0]:
        return
    if name not in containers:
        raise _wrong(label, rule, f"there is no container {name!r} in the datastore.{nearest(name, containers)}")
    fields = containers[name]
    if fields is not None and not any(rule.field.lower() == field.lower() for field in fields):
        raise _wrong(label, rule, f"container {name!r} has no column {rule.field!r}.{nearest(rule.field, fields)}")


def _known(label: str, rule: Rule, name: str, columns: Sequence[str]) -> None:
    if not any(name.lower() == column.lower() for column in columns):
        raise _wrong(label, rule, f"there is no column {name!r}.{nearest(name, columns)}")


def _check_sql(label: str, rule: Rule, text: str, columns: Sequence[str] | None, of_rows: bool) -> None:
    """By a parser of Spark's dialect that needs no Spark; what it lets pass, Spark may still refuse when the rule is asked.

    ``of_rows``: it may be an aggregate of many rows.
    """
    import sqlglot  # a tenth of a second, which a project without SQL in its rules is spared
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    if any(operator in text for operator in _UNKNOWN_TO_THE_PARSER):
        return
    try:
        parsed = sqlglot.parse_one(f"SELECT (\n{text}\n)", dialect="spark").expressions[0]
        if not isinstance(parsed, exp.Query):
            sqlglot.parse_one(f"SELECT\n{text}\n", dialect="spark")  # its parentheses are its own
    except SqlglotError as error:
        found = getattr(error, "errors", None) or [{"description": str(error).splitlines()[0], "highlight": ""}]
        highlight = (found[0].get("highlight") or "").strip()
        near = f" near {highlight!r}" if highlight and highlight != ")" else ""
        raise _wrong(
            label, rule, f"{text!r} is no expression of Spark SQL: {found[0]['description'].partition(' for <')[0].rstrip('.')}{near}"
        ) from error
    if isinstance(parsed, exp.Tuple):
        raise _wrong(label, rule, f"{text!r} is several expressions; write one")
    if isinstance(parsed, exp.Query) or isinstance(parsed.this, exp.Describe):
        raise _wrong(label, rule, f"{text!r} is a statement; write a condition or an aggregate")
    if parsed.find(exp.Query) is not None:  # with columns, and aggregates, of its own
        return
    if not of_rows and parsed.find(exp.AggFunc) is not None:
        raise _wrong(label, rule, f"{text!r} aggregates rows, which a condition of one row cannot; rule: metric does")
    if of_rows and parsed.find(exp.Func) is None and parsed.find(exp.Column) is not None:
        raise _wrong(label, rule, f"{text!r} has no aggregate: of all rows of a partition it needs one number, such as avg(…)")
    if columns is None or parsed.find(exp.Lambda) is not None:  # names of a lambda's own are no columns
        return
    for column in parsed.find_all(exp.Column):
        if not isinstance(column.this, exp.Star) and not column.table and column.name.lower() not in _WITHOUT_PARENTHESES:
            _known(label, rule, column.name, columns)


def _wrong(label: str, rule: Rule, what: str) -> ConfigurationError:
    place = f"{rule.place}: " if rule.place else ""
    return ConfigurationError(f"{place}{label}: check {rule.id}: {what.rstrip('.')}.")
