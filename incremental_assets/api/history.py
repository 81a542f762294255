"""Operations that have run, are running or are queued: found by id, listed, and summed up by the request that launched them.

A request may launch several runs. They have its id as a tag, so that one id stands for all of them; each run has an id of its own, too,
whoever has launched it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from http import HTTPStatus
from typing import Any

import dagster as dg

from incremental_assets.api.payloads import RunsQuery
from incremental_assets.api.problems import Problem
from incremental_assets.operations.history import RESULTS, operation_of, type_of
from incremental_assets.runs.records.run_tags import CONTAINER_TAG, REQUEST_TAG, datastore_of, runs_with, tag_of

MOST_SEARCHED = 5000
"""Among how many of the newest runs those are looked for that Dagster's own filters cannot find."""


def page_of(instance: dg.DagsterInstance, query: RunsQuery) -> dict[str, Any]:
    """The operations of the query, as one page of them. Each is a run."""
    now = datetime.now(timezone.utc).timestamp()
    asked = dg.RunsFilter(
        statuses=None if query.result is None else _statuses(query.result),
        tags=None if query.container is None else {CONTAINER_TAG: query.container},
        created_after=_utc(query.start),
        created_before=_utc(query.end),
    )
    first, last = (query.page - 1) * query.size, query.page * query.size
    complete = True
    if query.sort in ("created", "-created") and query.type is None and query.datastore is None and query.id is None:
        total = instance.get_runs_count(asked)
        found = instance.get_run_records(asked, limit=last, ascending=query.sort == "created")[first:] if first < total else []
    else:
        newest = list(instance.get_run_records(asked, limit=MOST_SEARCHED))
        complete = len(newest) < MOST_SEARCHED
        records = [record for record in newest if _fits(record, query)]
        if query.sort.endswith("duration"):
            records.sort(key=lambda record: _duration(record, now) or 0.0)
        else:
            records.reverse()  # Dagster gives the newest first
        if query.sort.startswith("-"):
            records.reverse()
        total, found = len(records), records[first:last]
    items = [item_of(instance, record) for record in found]
    return page(items, total, query.page, query.size) | {"complete": complete}


def page(items: Sequence[Any], total: int, number: int, size: int) -> dict[str, Any]:
    """The form of every answer that has several things."""
    return {"items": list(items), "total": total, "page": number, "size": size, "pages": -(-total // size)}


def _utc(moment: datetime | None) -> datetime | None:
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)


def _statuses(result: str) -> list[dg.DagsterRunStatus]:
    return [status for status in dg.DagsterRunStatus if RESULTS.get(status, "queued") == result]


def _fits(record: dg.RunRecord, query: RunsQuery) -> bool:
    """Whether the record is one of the query's, as far as Dagster's own filters do not say so."""
    run = record.dagster_run
    ids = (run.run_id, tag_of(run, REQUEST_TAG) or "")
    return (
        (query.type is None or type_of(run) == query.type)
        and (query.datastore is None or _datastore(run) == query.datastore)
        and (query.id is None or any(one.startswith(query.id) for one in ids))
    )


def _datastore(run: dg.DagsterRun) -> str | None:
    """The datastore that a run is about, by its tags, or by its assets where it has none of these."""
    named = datastore_of(run)
    stores = {key.path[0] for key in run.asset_selection or ()}
    return named or (stores.pop() if len(stores) == 1 else None)


def _duration(record: dg.RunRecord, now: float) -> float | None:
    """How many seconds the run took, or has taken until now; None: it has not begun."""
    return None if record.start_time is None else max(0.0, (record.end_time or now) - record.start_time)


def item_of(instance: dg.DagsterInstance, record: dg.RunRecord) -> dict[str, Any]:
    """One run as an operation: the fields of ``incremental-assets operations --json``, and some more."""
    run, now = record.dagster_run, datetime.now(timezone.utc).timestamp()
    seconds = _duration(record, now)
    datastore = _datastore(run)
    return operation_of(instance, record) | {
        "request": tag_of(run, REQUEST_TAG),
        "duration": None if seconds is None else round(seconds, 3),
        "datastore": None if datastore is None else {"id": datastore, "name": datastore},
        "container": tag_of(run, CONTAINER_TAG),
        "parent": run.parent_run_id,
    }


# ---------------------------------------------------------------------- by id
@dataclass(frozen=True)
class Found:
    """What an id stands for: a run, or all runs of a request. ``id``: the whole id. ``records``: at least one."""

    id: str
    records: Sequence[dg.RunRecord]


def find(instance: dg.DagsterInstance, id: str) -> Found:
    """The runs of an id, of a run or of a request. Raises Problem where there are none."""
    if len(id) > 36 or not id or set(id) - set("0123456789abcdef-"):
        raise Problem(HTTPStatus.NOT_FOUND, "there is no operation with this id: an id has the letters a to f, digits and hyphens.")
    record = instance.get_run_record_by_id(id)
    found = [record] if record is not None else runs_with(instance, REQUEST_TAG, id, MOST_SEARCHED)
    if not found:
        raise Problem(
            HTTPStatus.NOT_FOUND, f"there is no operation {id}. GET /api/operations lists them, and ?id= finds one by its beginning."
        )
    return Found(id, found)


def operation(instance: dg.DagsterInstance, found: Found) -> dict[str, Any]:
    """What an id stands for, as one operation, with its runs as ``items``.

    It has the form of one operation (000 reads ``result``), and that of a page with its runs (003 reads ``items``).
    """
    items = [item_of(instance, record) for record in sorted(found.records, key=lambda record: record.create_timestamp)]
    if len(items) == 1 and items[0]["id"] == found.id:
        return items[0] | page(items, 1, 1, 1)
    results = [item["result"] for item in items]
    ended = [item["end_time"] for item in items]
    started = [item["start_time"] for item in items if item["start_time"] is not None]
    summed: Mapping[str, Any] = {
        "id": found.id,
        "type": items[0]["type"],
        "created": items[0]["created"],
        "start_time": min(started, default=None),
        "end_time": None if None in ended else max(ended),
        "result": _result(results),
        "message": "; ".join(f"{item['of']}: {item['message']}" for item in items if item["result"] in ("failure", "aborted"))[:10_000],
        "triggered_by": items[0]["triggered_by"],
    }
    return {**summed, **page(items, len(items), 1, len(items))}


def _result(results: Sequence[str]) -> str:
    """The result of several runs: none before all have ended, and then the worst."""
    if all(one == "queued" for one in results):
        return "queued"
    if any(one in ("queued", "running") for one in results):
        return "running"
    return next((one for one in ("failure", "aborted") if one in results), "success")
