"""What is known of a container before anything runs, and the checks of a rule's names and SQL against it.

What the catalog does not know, such as the columns of files, is only found wrong by a scan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from incremental_assets.core.names import nearest

_UNKNOWN_TO_THE_PARSER = (">>>", "!<", "!>")
"""Operators of Spark SQL that the parser does not know. Texts with one of them are not checked."""
_WITHOUT_PARENTHESES = ("current_time", "localtimestamp", "user")
"""Functions of Spark that may be called without parentheses, which the parser takes for columns."""


class NotDeclared(Exception):
    """A rule cannot be right; the message says why, and does not name the rule."""


@dataclass(frozen=True)
class Declared:
    """What is known of a container.

    ``label``: the container's. ``columns``: its columns; None if they are not known. ``containers``: the names of all containers of the
    datastore with their columns, None for those that are not known. ``has_partitions``: whether it has an incremental identifier. All
    methods raise NotDeclared.
    """

    label: str
    columns: Sequence[str] | None
    containers: Mapping[str, Sequence[str] | None]
    has_partitions: bool

    def expect_column(self, name: str) -> None:
        """Checks that the container has the column, if its columns are known."""
        if self.columns is not None and not _is_in(name, self.columns):
            raise NotDeclared(f"there is no column {name!r}.{nearest(name, self.columns)}")

    def expect_field(self, container: str, field: str) -> None:
        """Checks that the other container has the field. The containers of other datastores are not known here, so they are not checked."""
        store, slash, name = container.rpartition("/")
        if slash and store != self.label.partition("/")[0]:
            return
        if name not in self.containers:
            raise NotDeclared(f"there is no container {name!r} in the datastore.{nearest(name, self.containers)}")
        fields = self.containers[name]
        if fields is not None and not _is_in(field, fields):
            raise NotDeclared(f"container {name!r} has no column {field!r}.{nearest(field, fields)}")

    def expect_sql(self, text: str, *, aggregates: bool) -> None:
        """Parses a condition or an aggregate with a parser of Spark's dialect that needs no Spark.

        Spark may still refuse what the parser accepts; the scan then reports the rule as errored. ``aggregates`` requires an aggregate of
        many rows; otherwise an aggregate is refused.
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
            why = found[0]["description"].partition(" for <")[0].rstrip(".")
            raise NotDeclared(f"{text!r} is no expression of Spark SQL: {why}{near}") from error
        if isinstance(parsed, exp.Tuple):
            raise NotDeclared(f"{text!r} is several expressions; write one")
        if isinstance(parsed, exp.Query) or isinstance(parsed.this, exp.Describe):
            raise NotDeclared(f"{text!r} is a statement; write a condition or an aggregate")
        if parsed.find(exp.Query) is not None:  # a subquery has columns and aggregates of its own
            return
        if not aggregates and parsed.find(exp.AggFunc) is not None:
            raise NotDeclared(f"{text!r} aggregates rows, which a condition of one row cannot; rule: metric does")
        if aggregates and parsed.find(exp.Func) is None and parsed.find(exp.Column) is not None:
            raise NotDeclared(f"{text!r} has no aggregate: of all rows of a partition it needs one number, such as avg(…)")
        if parsed.find(exp.Lambda) is not None:  # parameters of a lambda are no columns
            return
        for column in parsed.find_all(exp.Column):
            if not isinstance(column.this, exp.Star) and not column.table and column.name.lower() not in _WITHOUT_PARENTHESES:
                self.expect_column(column.name)


def _is_in(name: str, names: Sequence[str]) -> bool:
    """Whether a column is among the names. Delta column names are case-insensitive."""
    return any(name.lower() == one.lower() for one in names)
