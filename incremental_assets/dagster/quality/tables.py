"""Verdicts and failed rows as tables in the UI.

Belongs here: their form. Does not belong: which there are.
"""

import json
from collections.abc import Sequence
from typing import Any

import dagster as dg

from incremental_assets.dagster.quality.scanning import Summary
from incremental_assets.quality.verdict import FailedRow, Status

MOST_SAMPLES = 5
MOST_VERDICTS = 100


def samples(rows: Sequence[FailedRow], rule: str, partition: str | None, *, everywhere: bool) -> Any:
    """Some of the rows that broke the rule; None where there are none on record."""
    found = [row for row in rows if rule in row.rules and (everywhere or row.partition == partition)][:MOST_SAMPLES]
    if not found:
        return None
    shown = [json.loads(row.row) for row in found]
    names = list(dict.fromkeys(name for row in shown for name in row))
    records = [dg.TableRecord({name: _cell(row.get(name)) for name in names}) for row in shown]
    return dg.MetadataValue.table(records, schema=dg.TableSchema([dg.TableColumn(name) for name in names]))


def verdicts_table(summary: Summary) -> Any:
    """The worst first."""
    order = (Status.ERRORED, Status.FAILED, Status.UNASSERTED, Status.PASSED)
    verdicts = sorted(summary.result.verdicts, key=lambda verdict: order.index(verdict.status))[:MOST_VERDICTS]
    names = ("rule", "partition", "status", "asserted", "failed", "unasserted", "value", "message")
    records = [
        dg.TableRecord({name: _cell(verdict.status.value if name == "status" else getattr(verdict, name)) for name in names})
        for verdict in verdicts
    ]
    return dg.MetadataValue.table(records, schema=dg.TableSchema([dg.TableColumn(name) for name in names]))


def _cell(value: Any) -> str | int | float | bool:
    if value is None:
        return ""
    return value if isinstance(value, str | int | float | bool) else json.dumps(value, ensure_ascii=False)
