"""A row that broke a rule, in the words of a message: ``seats = 0 (id 4711)``."""

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from incremental_assets.core.rules.rule import FailedRow, Rule
from incremental_assets.core.shown_text import on_one_line

_MOST_COLUMNS = 4
"""How many values of a row are shown, at most."""
_MOST_CHARACTERS = 60
"""How much of a value is shown: a UUID, and a short text."""


def value_of(rule: Rule, row: str) -> str | None:
    """The values of the row that the rule is about; None if it names no column of it. ``row``: a JSON object of all columns."""
    named = [name.lower() for name in rule.columns_used or re.findall(r"\w+", " ".join(rule.expressions))]
    values: Mapping[str, Any] = json.loads(row, parse_float=Decimal)
    shown = [f"{name} = {_quoted(value)}" for name, value in values.items() if name.lower() in named]
    return on_one_line(", ".join(shown[:_MOST_COLUMNS])) or None


def key_of(key: str) -> str:
    """The key of a row: ``id 4711``, ``order 12, line 3``. ``key``: a JSON object of the key columns, each value as text."""
    values: Mapping[str, Any] = json.loads(key)
    return on_one_line(", ".join(f"{name} {'NULL' if value is None else _cut(str(value))}" for name, value in values.items()))


def example(value: str | None, key: str | None) -> str:
    """What follows a count of rows: ``, e.g. seats = 0 (id 4711)``; empty if neither is known."""
    if value is None:
        return "" if key is None else f", e.g. {key_of(key)}"
    return f", e.g. {value}" if key is None else f", e.g. {value} ({key_of(key)})"


def example_in(rule: Rule, rows: Sequence[FailedRow]) -> str:
    """The same of the first of these rows, which broke the rule; empty if there is none."""
    return example(value_of(rule, rows[0].row), rows[0].key) if rows else ""


def _quoted(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return f"'{_cut(value)}'"
    return _cut(str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False, default=str))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
