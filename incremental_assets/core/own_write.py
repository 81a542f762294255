"""How an asset of the user's own is written, as its metadata says: ``write``, ``merge_keys`` and ``partition_expr``."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.names import nearest
from incremental_assets.core.own_rows import PartitionExpr

_OF_THE_MOMENT = frozenset(
    {
        *("current_date", "current_timestamp", "current_time", "localtimestamp", "localtime", "now", "curdate"),
        *("user", "current_user", "session_user", "current_timezone", "current_catalog", "current_database", "current_schema", "version"),
    }
)
"""Functions of Spark whose value is not one of the row, by the names that the parser gives them."""
WRITE, MERGE_KEYS, PARTITION_EXPR = "write", "merge_keys", "partition_expr"
"""The keys of the asset's metadata. The last one is Dagster's own convention for what an asset's partitions go by."""


class WriteMode(str, Enum):
    """What a write does with the rows that the table has.

    ``OVERWRITE``: the rows of the run's partitions are replaced, or those of the whole table. ``APPEND``: they stay, and rows are added.
    ``MERGE``: rows with the same keys are updated, others are added.
    """

    OVERWRITE = "overwrite"
    APPEND = "append"
    MERGE = "merge"


@dataclass(frozen=True)
class OwnWrite:
    """``merge_keys``: the columns that tell two rows apart; empty unless ``mode`` is ``MERGE``."""

    mode: WriteMode = WriteMode.OVERWRITE
    merge_keys: tuple[str, ...] = ()


def parse_write(label: str, metadata: Mapping[str, Any]) -> OwnWrite:
    """Parses ``write`` and ``merge_keys``; without them, an asset is overwritten. ``label``: names the asset in messages.

    Raises ConfigurationError, which says what to write.
    """
    given, keys = metadata.get(WRITE, WriteMode.OVERWRITE.value), metadata.get(MERGE_KEYS)
    modes = {mode.value: mode for mode in WriteMode}
    mode = modes.get(given) if isinstance(given, str) else None
    if mode is None:
        raise ConfigurationError(
            f"{label}: its metadata says write: {given!r}, which is unknown. Write one of {', '.join(map(repr, modes))}; without `write`, "
            f"the partitions of the run are overwritten."
        )
    if mode is not WriteMode.MERGE:
        if keys is not None:
            raise ConfigurationError(
                f"{label}: its metadata has merge_keys, and write is {mode.value!r}. Add {{'write': 'merge'}}, or remove merge_keys."
            )
        return OwnWrite(mode)
    names = column_names(keys)
    if not names:
        raise ConfigurationError(
            f"{label}: write is 'merge', and merge_keys {'names no column' if keys is None else f'is {keys!r}'}. Name the columns that "
            f"tell two rows apart: @asset(metadata={{'write': 'merge', 'merge_keys': ['<column>', …]}})."
        )
    return OwnWrite(mode, names)


def column_names(given: object) -> tuple[str, ...] | None:
    """The names of different columns from a text or a list of texts; None if it is something else, or if a name occurs twice."""
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, Sequence) or not all(isinstance(name, str) and name for name in cast(Sequence[object], listed)):
        return None
    names = tuple(cast(Sequence[str], listed))
    return names if len({name.lower() for name in names}) == len(names) else None


def parse_partition_expr(label: str, metadata: Mapping[str, Any], dimensions: Sequence[str]) -> tuple[str, ...]:
    """What each dimension of the asset's partitions goes by: the name of a column, or an expression in Spark SQL.

    ``dimensions``: their names; empty if the partitions have only one.

    Raises ConfigurationError, which says what to write.
    """
    given = metadata.get(PARTITION_EXPR)
    if not dimensions:
        if isinstance(given, str) and given:
            return (given,)
        found = "is not known" if given is None else f"cannot be {given!r}"
        raise ConfigurationError(
            f"{label}: the column of its partitions {found}. Add @asset(metadata={{'partition_expr': '<column or expression>'}})."
        )
    wanted = "{" + ", ".join(f"{name!r}: '<column>'" for name in dimensions) + "}"
    columns: Mapping[str, Any] = cast(Mapping[str, Any], given) if isinstance(given, Mapping) else {}
    missing = [name for name in dimensions if not (isinstance(columns.get(name), str) and columns[name])]
    unknown = [name for name in columns if name not in dimensions]
    if missing or unknown:
        what = f"says nothing of {', '.join(missing)}" if missing else f"has no such dimension: {', '.join(unknown)}"
        raise ConfigurationError(f"{label}: partition_expr {what}. Add @asset(metadata={{'partition_expr': {wanted}}}).")
    if len({columns[name].lower() for name in dimensions}) < len(dimensions):
        raise ConfigurationError(
            f"{label}: partition_expr names one column for two dimensions; each dimension needs a column or an expression of its own."
        )
    return tuple(columns[name] for name in dimensions)


def expect_columns(label: str, what: str, named: Sequence[str], there: Sequence[str]) -> tuple[str, ...]:
    """The columns of ``there`` with these names, compared without case as Delta does. ``what``: the metadata that names them.

    Raises ConfigurationError if there is no such column.
    """
    spelled = {name.lower(): name for name in there}
    for name in named:
        if name.lower() not in spelled:
            raise ConfigurationError(f"{label}: {what} names {name!r}, and there is no such column.{nearest(name, there)}")
    return tuple(spelled[name.lower()] for name in named)


def column_or_expression(label: str, given: str, there: Sequence[str]) -> PartitionExpr:
    """The column of ``there`` with this name, compared without case as Delta does; else the text as an expression in Spark SQL.

    Raises ConfigurationError if the text is a name, and there is no such column.
    """
    spelled = {name.lower(): name for name in there}
    if given.lower() in spelled:
        return PartitionExpr(spelled[given.lower()])
    if re.fullmatch(r"\w+", given):
        raise ConfigurationError(f"{label}: {PARTITION_EXPR} names {given!r}, and there is no such column.{nearest(given, there)}")
    wrong = _no_value_of_the_row(given)
    if wrong is not None:
        raise ConfigurationError(
            f"{label}: {PARTITION_EXPR} is {given!r}, which {wrong}, so that it does not say to which partition a row belongs. "
            f"Write the name of a column, or an expression of the columns {', '.join(there)}."
        )
    return PartitionExpr(given, is_column=False)


def _no_value_of_the_row(text: str) -> str | None:
    """Why an expression may have another value for the same row tomorrow, or has the same for all rows; None: it does not, or is not known.

    With ``current_date()``, each row of the table would belong to the partition of today, and the run of that partition would replace them
    all. What Spark finds wrong by itself, such as aggregates and random numbers, is left to it (``delta.own_frames.expr_types``).
    """
    # The import takes a tenth of a second, so only an asset with an expression pays for it.
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        parsed = sqlglot.parse_one(f"SELECT\n{text}\n", dialect="spark").expressions[0]
    except SqlglotError:
        return None
    if isinstance(parsed, exp.Alias):
        return f"has the name {parsed.alias!r} behind it"
    if parsed.find(exp.Query, exp.Values) is not None:
        return "has a subquery"
    for one in parsed.find_all(exp.Func):
        name = one.name.lower() if isinstance(one, exp.Anonymous) else one.sql_name().lower()
        if name in _OF_THE_MOMENT:
            return f"has a value of the moment or the session ({name})"
    if parsed.find(exp.Column) is None and not any(one.name.lower() == "identifier" for one in parsed.find_all(exp.Anonymous)):
        return "has no column"
    return None
