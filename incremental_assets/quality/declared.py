"""Checks of a container's rules before anything runs: whether the names in them exist, and whether the SQL can be parsed.

Belongs here: checks against what the catalog knows. Does not belong: reading the YAML (``dagster.components``), or evaluating the rules
(``scan``). What the catalog does not know, such as the columns of files, is only found wrong by a scan.
"""

from collections.abc import Mapping, Sequence

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.names import nearest
from incremental_assets.core.rules import Change, ExistsIn, Freshness, Metric, Rule

_UNKNOWN_TO_THE_PARSER = (">>>", "!<", "!>")
"""Operators of Spark SQL that the parser does not know. Texts with one of them are not checked."""
_WITHOUT_PARENTHESES = ("current_time", "localtimestamp", "user")
"""Functions of Spark that may be called without parentheses, which the parser takes for columns."""


def check_rules(
    label: str,
    rules: Sequence[Rule],
    columns: Sequence[str] | None,
    containers: Mapping[str, Sequence[str] | None],
    has_partitions: bool = True,
) -> None:
    """Raise ConfigurationError, beginning with the place in the YAML, if a rule of the container ``label`` cannot be right.

    ``columns`` are the container's columns; None if they are not known. ``containers`` maps the names of all containers of the datastore to
    their columns, None for those that are not known. ``has_partitions`` says whether the container has an incremental identifier.
    """
    seen: dict[str, Rule] = {}
    for rule in rules:
        # Ids are names of Dagster asset checks and parts of anomaly fingerprints, so they must be unique.
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
    """Check the other container of a lookup. The containers of other datastores are not known here, so they are not checked."""
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
    """Parse a condition or an aggregate with a parser of Spark's dialect that needs no Spark.

    Spark may still refuse what the parser accepts; the scan then reports the rule as errored. ``of_rows`` requires an aggregate of many
    rows, and otherwise an aggregate is refused.
    """
    # The import takes a tenth of a second, so only a project with SQL in its rules pays for it.
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    if any(operator in text for operator in _UNKNOWN_TO_THE_PARSER):
        return
    try:
        parsed = sqlglot.parse_one(f"SELECT (\n{text}\n)", dialect="spark").expressions[0]
        if not isinstance(parsed, exp.Query):
            # Without the added parentheses, the text must parse as well: ``a) OR (b`` would only parse inside them.
            sqlglot.parse_one(f"SELECT\n{text}\n", dialect="spark")
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
    if parsed.find(exp.Query) is not None:  # a subquery has columns and aggregates of its own
        return
    if not of_rows and parsed.find(exp.AggFunc) is not None:
        raise _wrong(label, rule, f"{text!r} aggregates rows, which a condition of one row cannot; rule: metric does")
    if of_rows and parsed.find(exp.Func) is None and parsed.find(exp.Column) is not None:
        raise _wrong(label, rule, f"{text!r} has no aggregate: of all rows of a partition it needs one number, such as avg(…)")
    if columns is None or parsed.find(exp.Lambda) is not None:  # parameters of a lambda are no columns
        return
    for column in parsed.find_all(exp.Column):
        if not isinstance(column.this, exp.Star) and not column.table and column.name.lower() not in _WITHOUT_PARENTHESES:
            _known(label, rule, column.name, columns)


def _wrong(label: str, rule: Rule, what: str) -> ConfigurationError:
    place = f"{rule.place}: " if rule.place else ""
    return ConfigurationError(f"{place}{label}: check {rule.id}: {what.rstrip('.')}.")
