"""Converts the results of a sync to Dagster's metadata, and reads them back from it for the command line.

Values that are not known are left out of the metadata.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import dagster as dg
from dagster._core.execution.context.metadata_logging import AssetMetadataHandle, OutputMetadataAccumulator

from incremental_assets.core.schema import Column
from incremental_assets.databases.sweep import PREFIX
from incremental_assets.delta.result import HELD_BACK_BY, INTERNALS, NEW, PREVIOUS

IN_WORDS, ALL_INTERNALS = "sync", "sync/internals"
"""The metadata keys of what a sync has done, in words, and of its values that are neither figures nor meant for people."""


def as_metadata(values: Mapping[str, Any]) -> dict[str, Any]:
    """Converts plain values to Dagster metadata, and leaves out those that are None.

    Numbers and texts stay what they are, a tuple of ``Column`` becomes a table schema, lists and mappings become JSON.
    """
    return {name: _as_metadata(value) for name, value in values.items() if value is not None}


def as_event_metadata(values: Mapping[str, Any]) -> dict[str, Any]:
    """Converts what a sync reports to the metadata of its event: what happened in words, the figures, and all else as one JSON entry.

    Dagster's UI shows the entries in this order, and plots the figures.
    """
    internals = {name: values[name] for name in INTERNALS if values.get(name) is not None}
    figures = {name: value for name, value in values.items() if name not in INTERNALS}
    return {IN_WORDS: dg.MetadataValue.md(_in_words(values)), **as_metadata(figures), ALL_INTERNALS: dg.MetadataValue.json(internals)}


def _in_words(values: Mapping[str, Any]) -> str:
    """What a sync has done, for a person, in Markdown. What is not known is left out."""
    known = {name: value for name, value in values.items() if value is not None}
    rows = [f"{known[f'sync/rows_{what}']:,} {what}" for what in ("read", "inserted", "updated", "deleted") if f"sync/rows_{what}" in known]
    begun = f"**{known['sync/status']}**" + (f" by {known['sync/strategy']}" if "sync/strategy" in known else "")
    items = {
        "rows": ", ".join(rows),
        "window": str(known.get("sync/range", "")),
        "watermark": f"{known.get(PREVIOUS, 'none')} → {known.get(NEW, 'none')}" if NEW in values else "",
    }
    return "\n".join(
        [
            begun + (f", in {known['sync/seconds']:,.1f} s" if "sync/seconds" in known else ""),
            "",
            *(f"- {name}: {text}" for name, text in items.items() if text),
            *(["", str(known["sync/message"])] if known.get("sync/message") else []),
        ]
    )


def _as_metadata(value: Any) -> Any:
    if isinstance(value, dg.MetadataValue):  # Dagster's values are tuples, too
        return value
    if isinstance(value, int):
        return dg.MetadataValue.int(value)
    if isinstance(value, tuple):
        columns = cast(tuple[Column, ...], value)
        return dg.TableSchema([dg.TableColumn(column.name, column.type, description=column.comment) for column in columns])
    return dg.MetadataValue.json(cast(Any, value)) if isinstance(value, list | dict) else value


def plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata values as plain Python values, whether a sync has recorded them one by one, as versions before did, or in one entry."""
    values = {name: getattr(value, "value", value) for name, value in metadata.items()}
    return {**(values.pop(ALL_INTERNALS, None) or {}), **values}


def add_metadata_of_partitions(context: dg.OutputContext, metadata: Mapping[str, Mapping[str, Any]]) -> None:
    """Adds metadata to the materializations of single partitions of the run.

    ``step_context.add_asset_metadata`` does the same for one partition, but it reads all partition keys of the asset at each call: with
    10,000 partitions it takes an hour (see the characterization tests).
    """
    step = context.step_context
    added = {AssetMetadataHandle(asset_key=context.asset_key, partition_key=key): own for key, own in metadata.items()}
    step._metadata_accumulator = OutputMetadataAccumulator(per_output_metadata={**step._metadata_accumulator.per_output_metadata, **added})


def line(
    container: str,
    status: str,
    *,
    mode: str | None = None,
    strategy: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    partitions: list[str] | None = None,
    run_id: str | None = None,
    seconds: float = 0.0,
    message: str = "",
    watermark: int | str | None = None,
    checks: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Builds one record of ``sync --json``. Its fields are a contract with the users' scripts.

    ``status``: skipped, synced, warning or failed. ``metadata``: of the materialization, or of the observation of a run without rows; its
    values take precedence over ``mode``, ``strategy`` and ``watermark``, which come from the plan. ``checks``: the summary of the scan in
    the same run. A row count is 0 for a skipped container and None where it is not known.
    """
    found = plain(metadata or {})
    holders = found.get(HELD_BACK_BY)
    return {
        "container": container,
        "status": status,
        "mode": found.get("sync/mode", mode),
        "strategy": found.get("sync/strategy", strategy),
        "rows_read": found.get("sync/rows_read", 0 if status == "skipped" else None),
        "rows_inserted": found.get("sync/rows_inserted", 0 if status == "skipped" else None),
        "rows_updated": found.get("sync/rows_updated", 0 if status == "skipped" else None),
        "rows_deleted": found.get("sync/rows_deleted", 0 if status == "skipped" else None),
        "watermark": {
            "previous": found.get(PREVIOUS, watermark),
            "new": found.get(NEW, watermark),
            "held_back_by": json.loads(holders) if isinstance(holders, str) else holders or None,
        },
        "partitions": partitions or [],
        "sweep": _sweep(found),
        "delta_version": found.get("sync/delta_version"),
        "checks": checks,
        "run_id": run_id,
        "seconds": round(seconds, 3),
        "message": message or found.get("sync/message", ""),
    }


def _sweep(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """The numbers of a sweep in the metadata of an event; None if there was no sweep."""
    numbers = {name.removeprefix(PREFIX): value for name, value in found.items() if name.startswith(PREFIX)}
    return {**numbers, "refused": bool(numbers["refused"])} if numbers else None


def _checks_in_one(checks: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Merges the summaries of several scans into one; None without any scan.

    What is counted by partition is summed, ``failed`` and ``errored`` are the largest count, lists are joined; everything else is the last
    scan's.
    """
    if not checks:
        return None
    last = checks[-1]
    sums = {name: sum(one[name] for one in checks) for name in ("rows_scanned", "partitions", "passes")}
    worst = {name: max(one[name] for one in checks) for name in ("failed", "errored")}
    lists = {name: [each for one in checks for each in one[name]] for name in ("blocked", "verdicts")}
    counts = {name: sum(one["anomalies"][name] for one in checks) for name in ("opened", "reopened", "resolved")}
    rules = sorted({rule for one in checks for rule in one["error_rules"]})
    return {**last, **sums, **worst, **lists, "error_rules": rules, "anomalies": {**last["anomalies"], **counts}}


def in_one(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merges the records of several runs of one container (partitions that are not contiguous in Dagster's order) into one.

    The worst status counts. Row counts are summed, and are None where one of them is not known. The run id and the Delta version are the
    last run's.
    """
    if len(lines) == 1:
        return lines[0]

    def total(name: str) -> int | None:
        values = [one[name] for one in lines]
        return None if None in values else sum(values)

    worst = max(lines, key=lambda one: ("skipped", "synced", "warning", "failed").index(one["status"]))
    counts = {name: total(name) for name in ("rows_read", "rows_inserted", "rows_updated", "rows_deleted")}
    messages = dict.fromkeys(one["message"] for one in lines if one["message"])
    return {
        **lines[-1],
        **counts,
        "status": worst["status"],
        "watermark": {**lines[-1]["watermark"], "previous": lines[0]["watermark"]["previous"]},
        "checks": _checks_in_one([one["checks"] for one in lines if one["checks"] is not None]),
        "partitions": list(dict.fromkeys(key for one in lines for key in one["partitions"])),
        "seconds": round(sum(one["seconds"] for one in lines), 3),
        "message": "; ".join(messages),
    }
