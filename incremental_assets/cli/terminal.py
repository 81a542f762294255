"""Output on a terminal: one JSON object a line on stdout, tables, and messages on stderr."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.live import Live

from incremental_assets.cli.tables import SENTENCES, Records
from incremental_assets.core.schema import Column, mapped_names, said_of_mapped
from incremental_assets.core.shown_text import counted, in_json, on_lines, on_one_line
from incremental_assets.core.yaml_text import flow

SHOWN_VERDICTS = 100
"""How many verdicts that did not pass the table of a scan shows."""
_WITHOUT_TERMINAL = 1_000_000
"""How many characters a line has at most where stdout is no terminal: what is written into a file is neither cut nor broken."""
_errors = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False, markup=False)


def out(record: dict[str, Any]) -> None:
    """Print a record as one JSON object on one line, and flush it: a program that reads the output sees each record at once."""
    _write(in_json(json.dumps(record, ensure_ascii=False)))


def line(text: str) -> None:
    """Print a result on stdout, on one line."""
    _write(on_one_line(text))


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def error_console() -> Console:
    """What prints messages on stderr. Whatever else is shown on stderr has to be shown by it, too."""
    return _errors


def say(text: str) -> None:
    """Print a message for the reader on stderr."""
    _errors.print(on_lines(text))


def say_record(record: dict[str, Any]) -> None:
    """Print what has become of a container, without the warnings that the log of its run has printed."""
    from incremental_assets.runs.loggers import without_what_the_log_has

    message = without_what_the_log_has(record["container"], record["message"])
    say(": ".join(part for part in (record["container"], record["status"], message) if part))


def print_table(
    title: str, records: Iterable[dict[str, Any]], columns: tuple[str, ...], *, cut: str | None = None, whole: bool = False
) -> None:
    """Print records as a table on stdout (``as_table``); none, as a sentence."""
    show(as_table(title, records, columns, cut=cut, whole=whole))


def show(records: Records) -> None:
    """Print records on stdout."""
    _console().print(records, soft_wrap=True)


def as_table(
    title: str, records: Iterable[dict[str, Any]], columns: tuple[str, ...], *, cut: str | None = None, whole: bool = False
) -> Records:
    """The records as a table that is not printed yet. ``columns``: the most important ones first, as the last ones are left out where a
    terminal is narrow. ``cut``: a column whose texts end where the line does. ``whole``: none is left out, and where they do not fit, each
    value has a line of its own."""
    rows = [tuple(_cell(column, record.get(column)) for column in columns) for record in records]
    return Records(on_one_line(title), columns, rows, cut, whole)


def whole_screen() -> Live:
    """What shows one table after the other in the same place, on a screen of its own where stdout is a terminal."""
    return Live(console=_console(), auto_refresh=False, screen=sys.stdout.isatty())


def _console() -> Console:
    # Rich knows the width of a terminal, and that in COLUMNS.
    return Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WITHOUT_TERMINAL, emoji=False, markup=False)


def _cell(column: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = ", ".join(value) if isinstance(value, list) else str(value)
    return on_one_line(" ".join(text.splitlines()) if column in SENTENCES else text)


def print_catalog(datastore: str, records: list[dict[str, Any]], *, explain: bool = False, is_first: bool = False) -> None:
    """Print a line for each container of a datastore, and below them the differences and what needs somebody's attention.

    ``explain``: also all that is known of each, the safety lags that nobody has set, and the proposals with all their reasons.
    ``is_first``: all containers are new to the user, whatever the records say of changes.
    """
    there = [{**one, "synced": _synced(one), "why": _why(one)} for one in records if one["status"] != "pruned"]
    columns = ("container", "rows", "synced", "why")
    if any(record["glob"] for record in records):
        columns = ("container", "status", "files", "bytes", "format", "glob", "kind")
    synced = sum(1 for one in there if one["not_synced"] is None)
    show(as_table(f"{datastore}: {counted(synced, 'container')}", there, columns, cut="why"))
    changed = [
        {**r, "fields": "; ".join(f"{f['field'] or ''} {f['change']}: {f['before'] or '–'} → {f['after'] or '–'}" for f in r["fields"])}
        for r in records
        if r["change"]
    ]
    if changed and any(r["change"] != "new" for r in records):  # the first catalog finds nothing but new ones
        print_table("differences", changed, ("container", "change", "fields"))
    filtered = [r for r in records if r["row_security"] == "accept"]
    if filtered:
        print_table("rows that row security hides are left out", filtered, ("container", "row_security"))
    lacking = [{"container": r["container"], **column} for r in records for column in r["left_out"]]
    if lacking:
        print_table("columns that are left out, as the lake cannot have them", lacking, ("container", "name", "why"))
    for record in records:
        mapped = mapped_names([Column(one["name"], "") for one in record["columns"]]) if is_first or record["change"] else []
        if mapped:
            say(f"{record['container']}: {said_of_mapped(mapped)}")
    refused = [r for r in records if r["trouble"]]
    if refused:
        print_table("troubles", refused, ("container", "trouble"))
    for record in records:
        if record["not_synced"]:
            say(f"{record['container']} is {record['not_synced']}. {_how_to_sync(record)}")
    for record in [] if is_first else records:  # `add` has written the proposals into its comments
        if record["proposal"] and record["proposal"]["outgrown"]:
            say(f"{record['container']} is large and synced whole; this reads only what is new: {record['proposal']['entry']}")
    if explain:
        _print_explained(records)


def say_privileges(datastore: str, missing: Sequence[str]) -> None:
    """Says which privileges the role of the datastore lacks, as statements."""
    if missing:
        say(f"{datastore}: the role works, and lacks what these statements of an administrator would give it:")
    for statement in missing:
        say(f"  {statement}")


def _how_to_sync(record: dict[str, Any]) -> str:
    """What to write for a new table."""
    entry = record["proposal"]["entry"]
    by = "" if entry is None else f", or under incremental: {entry}"
    name = record["container"].partition("/")[2]
    return f"To sync it, name it in the YAML under containers: {flow({name: {}})}{by}. To leave it out, list it under exclude."


def _synced(record: dict[str, Any]) -> str:
    """How a container is synced, in a few words."""
    if record["not_synced"]:
        return "not"
    if record["identifier"] is None:
        return "whole"
    partitions = "" if record["partition_by"] is None else f", {record['partition_by']}"
    return f"{record['strategy']} by {record['identifier']}{partitions}"


def _why(record: dict[str, Any]) -> str | None:
    """Why it is synced so, or what is wrong with it: the first reason."""
    if record["trouble"] or record["not_synced"]:
        return record["trouble"] or record["not_synced"]
    if record["missing_since"]:
        return f"gone from the source since {record['missing_since']}"
    return next(iter(record["proposal"]["why"]), None) if record["proposal"] else None


def _print_explained(records: list[dict[str, Any]]) -> None:
    """Print all that a catalog knows of its containers."""
    details = ("container", "status", "kind", "strategy", "identifier", "partition_by", "primary_key", "rows", "bytes", "first", "last")
    print_table("details", [record for record in records if record["status"] != "pruned"], details, whole=True)
    unproved = [r for r in records if r["safety_lag_is_auto"] and r["safety_lag"]]
    if unproved:
        print_table("safety lag that nobody has set", unproved, ("container", "identifier", "safety_lag", "safety_lag_reason"))
    proposed = [{"container": r["container"], **r["proposal"]} for r in records if r["proposal"]]
    if proposed:
        print_table("proposals (for incremental:)", proposed, ("container", "used", "trusted", "entry", "partition_by", "why"), whole=True)


def print_syncs(records: list[dict[str, Any]]) -> None:
    """Print a line for each container that was synced."""
    rows = [
        {
            **record,
            "read": record["rows_read"],
            "inserted": record["rows_inserted"],
            "updated": record["rows_updated"],
            "deleted": record["rows_deleted"],
            "watermark": _text(record["watermark"]["new"]),
            "previous": _text(record["watermark"]["previous"]),
            "partitions": len(record["partitions"]),
            "seconds": f"{record['seconds']:.1f}",
        }
        for record in records
    ]
    columns = (
        "container",
        "status",
        "read",
        "inserted",
        "updated",
        "deleted",
        "watermark",
        "seconds",
        "partitions",
        "strategy",
        "previous",
    )
    print_table("sync", rows, columns, cut="watermark")


def print_scans(records: list[dict[str, Any]]) -> None:
    """Print a line for each container, and below it the verdicts that did not pass."""
    rows = [
        {**one, "opened": (one["anomalies"] or {}).get("opened"), "resolved": (one["anomalies"] or {}).get("resolved"),
         "open": (one["anomalies"] or {}).get("open"), "rows": one["rows_scanned"]}
        for one in records
    ]  # fmt: skip
    columns = ("container", "status", "rules", "passed", "failed", "errored", "open", "opened", "resolved", "rows", "partitions", "passes")
    print_table("scan", rows, columns)
    found = [{"container": one["container"], **verdict} for one in records for verdict in one["verdicts"] or []]
    if found:
        shown = ("container", "rule", "status", "message", "partition", "severity", "rows_failed", "rows_asserted", "value")
        print_table("not passed", found[:SHOWN_VERDICTS], shown)
    if len(found) > SHOWN_VERDICTS:
        say(f"… and {len(found) - SHOWN_VERDICTS:,} more: --json has them")


def _text(watermark: Any) -> str | None:
    """A watermark as text: the same digits as in messages, and in the YAML."""
    return None if watermark is None else str(watermark)


def short(value: Any) -> Any:
    """Shorten a list of more than six values to its length and its first and last value."""
    many = isinstance(value, list) and len(value) > 6
    return f"{len(value)}: {value[0]} … {value[-1]}" if many else value
