"""When a table counts as one whose rows are written once and never changed, so that ``append`` is proposed unasked; and which one is small.

Belongs here: the limits, on plain values. Does not belong: what PostgreSQL says of real tables (``test_detect``).
"""

import datetime
from dataclasses import replace

import pytest

from incremental_assets.catalog.detect import WHOLE_BYTES, propose
from incremental_assets.core.container import Kind, SourceColumn, SourceTable
from incremental_assets.core.evidence import ColumnEvidence, TableEvidence

NOW = datetime.datetime.now(datetime.timezone.utc)


def ago(days: float) -> datetime.datetime:
    return NOW - datetime.timedelta(days=days)


TIME = "timestamp with time zone"
LOG = SourceTable(
    "log", Kind.TABLE, (SourceColumn("id", "bigint", "bigint", True), SourceColumn("at", TIME, TIME, True, default="now()")), ("id",),
)  # fmt: skip
DAYS = tuple(ago(days).date() for days in (1, 2, 3, 40))
PROVED = TableEvidence(
    {"at": ColumnEvidence(days=DAYS)}, (("id",),), 5000, 0, 5000, bytes=WHOLE_BYTES + 1, counted_since=ago(30), made_at=ago(300)
)


def test_rows_that_have_come_for_weeks_and_were_never_changed_are_appended() -> None:
    """Otherwise each sync of the largest tables, logs and events, would read them whole."""
    found = propose(LOG, PROVED)
    assert found.trusted and any("on 3 days or more" in one for one in found.reasons), found.reasons


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        (replace(PROVED, counted_since=ago(13)), "14 would prove it"),  # the counters were reset, or the server has crashed
        (replace(PROVED, made_at=ago(1)), "in 1 day, and 14 would prove it"),  # restored into an old server
        (replace(PROVED, counted_since=None), "since when the source has counted is not known"),
        (replace(PROVED, made_at=None), "since when the table is there is not known"),
        (replace(PROVED, columns={}), "on 0 days that are known"),  # filled once, and nobody has used it
        (replace(PROVED, columns={"at": ColumnEvidence(days=(ago(1).date(), ago(40).date(), ago(-5).date()))}), "on 1 day that is known"),
        (replace(PROVED, columns={"at": ColumnEvidence(days=DAYS), "id": ColumnEvidence()}, inserts=900, live=900), "which are too few"),
        (replace(PROVED, changes=None), "cannot be seen"),
    ],
)
def test_without_a_proof_rows_are_not_appended_unasked(evidence: TableEvidence, said: str) -> None:
    """An application that updates its rows would find its changes missing in the lake, for ever and without a word."""
    found = propose(LOG, evidence)
    assert (found.columns, found.trusted, found.waits) == (("at",), False, True)
    assert any(said in one for one in found.reasons), found.reasons


@pytest.mark.parametrize(
    ("evidence", "said"),
    [(replace(PROVED, changes=3), "3 rows were updated or deleted"), (replace(PROVED, live=100), "it was truncated")],
)
def test_what_speaks_against_it_is_not_waited_for(evidence: TableEvidence, said: str) -> None:
    """A datastore that has appended such a table since it was proved must warn. One whose counters were reset must not."""
    found = propose(LOG, evidence)
    assert not found.trusted and not found.waits and any(said in one for one in found.reasons), found.reasons


def test_rows_from_before_the_counters_prove_nothing_and_speak_against_nothing() -> None:
    """A standby that has taken over has counted since then, and says that it has for years."""
    found = propose(LOG, replace(PROVED, live=5_000_000))
    assert not found.trusted and found.waits


def test_a_small_table_is_synced_whole() -> None:
    """The identifier of a table of twelve rows can only be wrong; read whole it takes no longer."""
    changed = SourceColumn("updated_at", TIME, TIME, True, default="now()")
    customer = replace(LOG, columns=(*LOG.columns, changed))
    evidence = replace(PROVED, columns={"updated_at": ColumnEvidence(at_insert="touch", at_update="touch")})
    assert propose(customer, evidence).trusted
    small = propose(customer, replace(evidence, bytes=WHOLE_BYTES))
    assert (small.columns, small.trusted, small.waits) == (("updated_at",), False, True) and "small (16.0 MB)" in small.reasons[0]
    assert propose(customer, replace(evidence, bytes=None)).trusted, "a source that tells no sizes has no small tables"
