"""Verdicts and failed rows as tables of the UI."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import dagster as dg

from incremental_assets.core.rules.rule import FailedRow, Status, Verdict

MOST_SAMPLES = 5
"""At most so many failed rows are shown with an evaluation."""
MOST_VERDICTS = 100
"""At most so many verdicts are shown with the observation of a scan."""


def rows_of(rows: Sequence[FailedRow], rule: str, partition: str | None, *, everywhere: bool) -> Sequence[FailedRow]:
    """Some of the rows that broke the rule, of those that the scan has kept.

    ``partition``: the partition of the rows (None: rows in no partition). ``everywhere``: rows of all partitions.
    """
    found = (row for row in rows if rule in row.rules and (everywhere or row.partition == partition))
    return list(itertools.islice(found, MOST_SAMPLES))


def samples(rows: Sequence[FailedRow]) -> Any:
    """A table of the rows."""
    shown = [json.loads(row.row) for row in rows]
    names = list(dict.fromkeys(name for row in shown for name in row))
    records = [dg.TableRecord({name: _cell(row.get(name)) for name in names}) for row in shown]
    return dg.MetadataValue.table(records, schema=dg.TableSchema([dg.TableColumn(name) for name in names]))


def verdicts_table(verdicts: Sequence[Verdict]) -> Any:
    """A table of the verdicts, the worst status first."""
    order = (Status.ERRORED, Status.FAILED, Status.UNASSERTED, Status.PASSED)
    verdicts = sorted(verdicts, key=lambda verdict: order.index(verdict.status))[:MOST_VERDICTS]
    names = ("rule", "partition", "status", "asserted", "failed", "unasserted", "value", "message")
    records = [
        dg.TableRecord({name: _cell(verdict.status.value if name == "status" else getattr(verdict, name)) for name in names})
        for verdict in verdicts
    ]
    return dg.MetadataValue.table(records, schema=dg.TableSchema([dg.TableColumn(name) for name in names]))


def _cell(value: Any) -> str | int | float | bool:
    """The value as a cell of a Dagster table, which takes plain scalars only: None becomes empty text, other values become JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str | int | float | bool) else json.dumps(value, ensure_ascii=False)
