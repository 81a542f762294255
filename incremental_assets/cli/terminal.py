"""Output on a terminal: one JSON object a line on stdout, tables, and messages on stderr.

Belongs here: how a record is printed. Does not belong: which records there are (the other modules of ``cli``).
"""

import json
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

SHOWN_VERDICTS = 100
"""How many verdicts that did not pass the table of a scan shows."""
_errors = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False, markup=False)


def out(record: dict[str, Any]) -> None:
    """Print a record as one JSON object on one line, and flush it: a program that reads the output sees each record at once."""
    sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def error_console() -> Console:
    """What prints messages on stderr. Whatever else is shown on stderr has to be shown by it, too."""
    return _errors


def say(text: str) -> None:
    """Print a message for the reader on stderr."""
    _errors.print(text)


def print_table(title: str, records: Iterable[dict[str, Any]], columns: tuple[str, ...]) -> None:
    """Print records as a table on stdout. Where stdout is no terminal, the table is 200 characters wide."""
    show(as_table(title, records, columns))


def show(table: Table) -> None:
    """Print a table on stdout."""
    _console().print(table)


def as_table(title: str, records: Iterable[dict[str, Any]], columns: tuple[str, ...], *, narrow: bool = False) -> Table:
    """The records as a table that is not printed yet. ``narrow``: without lines, so that eight short columns fit 80 characters."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0)) if narrow else Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column)
    for record in records:
        table.add_row(*(_cell(record.get(column)) for column in columns))
    return table


def whole_screen() -> Live:
    """What shows one table after the other in the same place, on a screen of its own where stdout is a terminal."""
    return Live(console=_console(), auto_refresh=False, screen=sys.stdout.isatty())


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 200, emoji=False, markup=False)


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


def print_catalog(datastore: str, records: list[dict[str, Any]]) -> None:
    """Print the containers of a datastore, and below them the differences, the safety lags that nobody has set, and the proposals."""
    columns = ("container", "status", "kind", "strategy", "identifier", "partition_by", "primary_key", "rows", "bytes", "first", "last")
    if any(record["glob"] for record in records):
        columns = ("container", "status", "kind", "glob", "format", "files", "bytes")
    print_table(datastore, [r for r in records if r["status"] != "pruned"], columns)
    changed = [
        {**r, "fields": "; ".join(f"{f['field'] or ''} {f['change']}: {f['before'] or '–'} → {f['after'] or '–'}" for f in r["fields"])}
        for r in records
        if r["change"]
    ]
    if changed:
        print_table("differences", changed, ("container", "change", "fields"))
    unproved = [r for r in records if r["safety_lag_is_auto"] and r["safety_lag"]]
    if unproved:
        print_table("safety lag that nobody has set", unproved, ("container", "identifier", "safety_lag", "safety_lag_reason"))
    proposed = [{"container": r["container"], **r["proposal"]} for r in records if r["proposal"]]
    if proposed:
        print_table("proposals (for incremental:)", proposed, ("container", "used", "trusted", "entry", "partition_by", "why"))


def print_syncs(records: list[dict[str, Any]]) -> None:
    """Print a line for each container that was synced."""
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


def print_scans(records: list[dict[str, Any]]) -> None:
    """Print a line for each container, and below it the verdicts that did not pass."""
    rows = [
        {**one, "opened": (one["anomalies"] or {}).get("opened"), "resolved": (one["anomalies"] or {}).get("resolved"),
         "open": (one["anomalies"] or {}).get("open"), "rows": one["rows_scanned"]}
        for one in records
    ]  # fmt: skip
    columns = ("container", "status", "rules", "passed", "failed", "errored", "rows", "partitions", "passes", "opened", "resolved", "open")
    print_table("scan", rows, columns)
    found = [{"container": one["container"], **verdict} for one in records for verdict in one["verdicts"] or []]
    if found:
        shown = ("container", "rule", "partition", "status", "severity", "rows_asserted", "rows_failed", "value", "message")
        print_table("not passed", found[:SHOWN_VERDICTS], shown)
    if len(found) > SHOWN_VERDICTS:
        say(f"… and {len(found) - SHOWN_VERDICTS:,} more: --json has them")


def _moved(watermark: dict[str, Any]) -> str:
    """Return the watermark before and after the sync as text, or the watermark alone if it has not moved."""
    if watermark["previous"] == watermark["new"]:
        return str(watermark["new"] or "")
    return f"{watermark['previous'] or '–'} → {watermark['new'] or '–'}"


def short(value: Any) -> Any:
    """Shorten a list of more than six values to its length and its first and last value."""
    many = isinstance(value, list) and len(value) > 6
    return f"{len(value)}: {value[0]} … {value[-1]}" if many else value
