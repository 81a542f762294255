"""Words on a terminal: one JSON object a line on stdout, tables, and messages on stderr.

Belongs here: how a record looks. Does not belong: which records there are (``cli``).
"""

import json
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

_errors = Console(stderr=True, soft_wrap=True, highlight=False)


def out(record: dict[str, Any]) -> None:
    """One object, one line, at once."""
    sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """A message for the reader, on stderr."""
    _errors.print(text, markup=False)


def print_table(title: str, records: Iterable[dict[str, Any]], columns: tuple[str, ...]) -> None:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column)
    for record in records:
        table.add_row(*(_cell(record.get(column)) for column in columns))
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return (
        f"{value:,}"
        if isinstance(value, int) and not isinstance(value, bool)
        else ", ".join(value)
        if isinstance(value, list)
        else str(value)
    )


def print_syncs(records: list[dict[str, Any]]) -> None:
    rows = [
        {
            **record,
            "read": record["rows_read"],
            "inserted": record["rows_inserted"],
            "updated": record["rows_updated"],
            "deleted": record["rows_deleted"],
            "watermark": _moved(record["watermark"]),
            "partitions": len(record["partitions"]),
            "seconds": f"{record['seconds']:.1f}",
        }
        for record in records
    ]
    print_table(
        "sync", rows, ("container", "status", "strategy", "read", "inserted", "updated", "deleted", "watermark", "partitions", "seconds")
    )


def _moved(watermark: dict[str, Any]) -> str:
    if watermark["previous"] == watermark["new"]:
        return str(watermark["new"] or "")
    return f"{watermark['previous'] or '–'} → {watermark['new'] or '–'}"


def short(value: Any) -> Any:
    """A long list by its number and its ends."""
    many = isinstance(value, list) and len(value) > 6
    return f"{len(value)}: {value[0]} … {value[-1]}" if many else value
