"""The grammar of entries under ``incremental:``: ``schema.table:column:type[:direction][@start_value][!strategy]``."""

import re
from dataclasses import dataclass
from enum import Enum

from incremental_assets.core.cursor_type import IdentifierType
from incremental_assets.core.errors import ConfigurationError

GRAMMAR = "schema.table:column:type[:i|:e][@start][!append|!upsert]   with type one of date, datetime, timestamp, integer"


class Strategy(str, Enum):
    """How the rows of a window are written to the Delta table.

    ``APPEND``: the windows that were read are replaced (``replaceWhere``). ``UPSERT``: rows are merged by the primary key (MERGE).
    ``SNAPSHOT``: the whole table is replaced; this is the strategy of a container without identifier, and the YAML cannot ask for it.
    """

    APPEND = "append"
    UPSERT = "upsert"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True)
class PartitionColumn:
    """The column by whose windows a container is partitioned, where that is not its identifier.

    ``every``: as the YAML's ``partition_by`` of a container says it; None: the default.
    """

    column: str
    every: str | int | None = None


@dataclass(frozen=True)
class IncrementalSpec:
    """One entry of ``incremental:``.

    ``schema`` is None if the entry does not name one. ``columns`` has two names if the identifier is the greater of two columns. ``start``
    is the text of the start value. ``excluded``: the direction is ``e``, and the container is synced without identifier.
    ``partition_by``: the column by which the container is partitioned; None: the identifier itself.
    """

    schema: str | None
    table: str
    columns: tuple[str, ...]
    type: IdentifierType
    start: str | None = None
    strategy: Strategy = Strategy.APPEND
    excluded: bool = False
    partition_by: PartitionColumn | None = None


def _fail(text: str, position: int, what: str) -> ConfigurationError:
    return ConfigurationError(f"incremental: {what}\n    {text}\n    {' ' * position}^\n  The grammar is {GRAMMAR}")


def parse_type(text: str) -> IdentifierType:
    """The identifier type of this name. Raises ConfigurationError for any other text."""
    try:
        return IdentifierType(text)
    except ValueError:
        raise ConfigurationError(f"unknown type {text!r}; an identifier is one of {', '.join(t.value for t in IdentifierType)}.") from None


def parse_strategy(text: str) -> Strategy:
    """The strategy ``append`` or ``upsert``. Raises ConfigurationError for any other text, also for ``snapshot``."""
    if text in (Strategy.APPEND.value, Strategy.UPSERT.value):
        return Strategy(text)
    raise ConfigurationError(f"unknown strategy {text!r}; it is append or upsert.")


def parse_incremental(text: str, own_schema: str | None = None) -> IncrementalSpec:
    """Parses one entry. Raises ConfigurationError, whose message has a caret under the position of the error.

    ``own_schema``: the datastore's. Behind it and a dot, all up to the colon is the table's name; other names have at most one dot.
    """
    position = len(text) - len(text.lstrip())
    table_match = re.match(r"[^:@!\s][^:@!]*", text[position:])
    if table_match is None:
        raise _fail(text, position, "a table name is missing")
    name = table_match[0].rstrip()
    # Names that contain a colon, @ or ! cannot be written in this grammar; the YAML has a mapping for them.
    is_own = own_schema is not None and name.startswith(f"{own_schema}.")
    schema, _, table = (own_schema or "", ".", name[len(own_schema or "") + 1 :]) if is_own else name.rpartition(".")
    if not table or (("." in name) and not schema):
        raise _fail(text, position, f"{name!r} is not schema.table")
    if "." in schema and not is_own:
        raise _fail(text, position, f"{name!r} has more than one dot; write such names as {{table: …, column: …, type: …}}")
    position += len(table_match[0])
    column, position = _part(text, position, "a column")
    kind, position = _part(text, position, "a type")
    try:
        type_ = parse_type(kind)
    except ConfigurationError as error:
        raise _fail(text, text.rindex(kind, 0, position), str(error)) from error
    excluded = False
    if text[position : position + 1] == ":":
        direction, after = _part(text, position, "a direction")
        if direction not in ("i", "e"):
            raise _fail(text, position + 1, f"unknown direction {direction!r}; it is i (include) or e (exclude)")
        excluded, position = direction == "e", after
    start: str | None = None
    if text[position : position + 1] == "@":
        end = text.find("!", position)
        end = len(text) if end < 0 else end
        start = text[position + 1 : end].strip()
        if not start:
            raise _fail(text, position + 1, "a start value is missing after @")
        position = end
    strategy = Strategy.APPEND
    if text[position : position + 1] == "!":
        word = text[position + 1 :].strip()
        try:
            strategy = parse_strategy(word)
        except ConfigurationError as error:
            raise _fail(text, position + 1, str(error)) from error
        position = len(text)
    if text[position:].strip():
        raise _fail(text, position, f"did not expect {text[position:].strip()!r} here")
    return IncrementalSpec(schema or None, table, (column,), type_, start, strategy, excluded)


def _part(text: str, position: int, what: str) -> tuple[str, int]:
    if text[position : position + 1] != ":":
        raise _fail(text, position, f"{what} is missing: ':' expected")
    match = re.match(r"[^:@!]+", text[position + 1 :])
    if match is None or not match[0].strip():
        raise _fail(text, position + 1, f"{what} is missing")
    return match[0].strip(), position + 1 + len(match[0])
