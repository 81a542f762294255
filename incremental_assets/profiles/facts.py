"""What the stored profiles of a datastore have counted of columns of dates, times and integers, read without Spark."""

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from deltalake.exceptions import DeltaError

from incremental_assets.core.errors import LakeError
from incremental_assets.core.evidence import ProfiledColumn, TableProfile
from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.table import LakeTable, read_rows
from incremental_assets.profiles.column import Form
from incremental_assets.profiles.store import ProfileStore

_READ = [
    "container", "partition", "delta_version", "profiled_at", "operation_id", "column_name", "form", "rows", "nulls", "minimum", "maximum",
    "distinct_count",
]  # fmt: skip
_FORMS = [one.value for one in (Form.INTEGER, Form.DAY, Form.LOCAL, Form.INSTANT)]
_OF_TIME = re.compile(r"\d{4}-\d\d")
"""What the keys of partitions of time begin with. Their order is that of time."""


def profile_facts(lake: str, datastore: str, tables: Mapping[str, LakeTable]) -> Mapping[str, TableProfile]:
    """The profiles of the containers, by their labels; those that have none are left out. Raises LakeError.

    ``tables``: the Delta tables of the containers whose profiles are wanted, by label.
    """
    if not tables:
        return {}
    store = ProfileStore(lake, datastore).table
    with place_errors(store.url):
        delta = store.opened()
        if delta is None:
            return {}
        try:
            found = read_rows(delta, ("container", list(tables)), columns=_READ).to_pylist()
        except DeltaError as error:
            raise LakeError(f"{store.url}: the profiles cannot be read: {error}") from error
    by_label: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        by_label.setdefault(row["container"], []).append(row)
    return {label: _table(rows, tables[label]) for label, rows in by_label.items()}


def _table(rows: Sequence[Mapping[str, Any]], table: LakeTable) -> TableProfile:
    head = table.head()
    by_column: dict[str, list[Mapping[str, Any]]] = {}
    for row in (one for one in rows if one["form"] in _FORMS):
        by_column.setdefault(row["column_name"], []).append(row)
    oldest: datetime.datetime = min(row["profiled_at"] for row in rows)
    newest = max(rows, key=lambda row: row["profiled_at"])
    # An incremental profile looks at the newest partitions only: all others are as old as their own states.
    is_older = head is None or max(row["delta_version"] for row in rows) < head.version
    columns = {name: _column(states) for name, states in by_column.items()}
    return TableProfile(oldest.astimezone(datetime.timezone.utc).isoformat(), str(newest["operation_id"]), is_older, columns)


def _column(states: Sequence[Mapping[str, Any]]) -> ProfiledColumn:
    form = Form(states[0]["form"])
    filled = [one for one in states if one["minimum"] is not None]
    least = min((_value(form, one["minimum"]), one["minimum"]) for one in filled)[1] if filled else None
    greatest = max((_value(form, one["maximum"]), one["maximum"]) for one in filled)[1] if filled else None
    # How many values several partitions have in common is in their sketches only, which Spark merges.
    distinct = states[0]["distinct_count"] if len(states) == 1 else None
    return ProfiledColumn(
        rows=sum(one["rows"] for one in states),
        nulls=sum(one["nulls"] for one in states),
        minimum=least,
        maximum=greatest,
        distinct=distinct,
        in_order=_in_order(form, filled),
    )


def _in_order(form: Form, filled: Iterable[Mapping[str, Any]]) -> float | None:
    """The share of neighbouring partitions of time in which the values of the later one do not begin below the end of the earlier one."""
    timed = sorted((one for one in filled if one["partition"] and _OF_TIME.match(one["partition"])), key=lambda one: one["partition"])
    ranges = [(_value(form, one["minimum"]), _value(form, one["maximum"])) for one in timed]
    pairs = [later[0] >= before[1] for before, later in pairwise(ranges)]
    return sum(pairs) / len(pairs) if pairs else None


def _value(form: Form, shown: str) -> Any:
    """A value that compares as the text means it. Times are ISO 8601 texts of one width, but for their fractions of a second."""
    return int(shown) if form is Form.INTEGER else shown
