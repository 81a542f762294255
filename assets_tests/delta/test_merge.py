"""Upserts that Spark writes by a MERGE: the rows that have changed, counted, and those that are gone.

Belongs here: what a MERGE of ours could double, lose or count wrongly. Does not belong: what upserts do in general (``test_sync``,
``test_refresh``, the random histories).
"""

import json
from collections.abc import Callable

import pytest

from assets_tests.harness import Project
from incremental_assets.delta.engine import WRITE_BY

MakeProject = Callable[..., Project]
NOTES = """create table notes (id int, "part" text, at timestamptz, note text, primary key (id, "part"));
insert into notes select i, 'p' || i % 3, timestamptz '2026-01-01' + i * interval '1 minute', 'n' || i from generate_series(1, 300) i"""


@pytest.fixture(autouse=True)
def _by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few rows would be written without Spark."""
    monkeypatch.setenv(WRITE_BY, "spark")


def upserted(project: MakeProject, create: str = NOTES) -> Project:
    made = project(incremental=["public.notes:at:timestamp!upsert"])
    made.execute(create)
    made.one("notes")
    return made


def test_changed_and_new_rows_are_merged_and_counted(project: MakeProject) -> None:
    """Rows would be there twice, or the number of updates would be that of all rows read."""
    shop = upserted(project)
    shop.execute("update notes set note = 'changed', at = now() where id % 10 = 0")
    shop.execute("insert into notes select i, 'p', now(), 'new' from generate_series(301, 305) i")
    line = shop.one("notes")
    assert (line["rows_inserted"], line["rows_updated"], line["rows_deleted"]) == (5, 30, 0), line
    shop.assert_equal("notes")
    table = shop.table("notes").opened()
    assert table is not None
    (commit,) = [one for one in table.history() if one["operation"] == "MERGE"]
    assert json.loads(commit["userMetadata"])["run_id"] == line["run_id"], "the commit says which run has written it"


def test_a_deletion_is_written_by_a_merge(project: MakeProject) -> None:
    """The deleted row would stay."""
    shop = upserted(project)
    shop.execute("update notes set at = now() where id > 290")
    shop.one("notes")
    shop.execute("delete from notes where id = 300; update notes set note = 'changed' where id = 299")
    line = shop.one("notes")
    assert line["rows_deleted"] == 1, line
    shop.assert_equal("notes")


@pytest.mark.long
@pytest.mark.parametrize(
    "create",
    [
        NOTES.replace('"part"', '"a,b"'),
        pytest.param(NOTES.replace('"part"', '"a`b"'), marks=pytest.mark.long),
        pytest.param(NOTES.replace("id int", "id float8"), marks=pytest.mark.long),
    ],
)
def test_keys_of_any_name_are_merged(project: MakeProject, create: str) -> None:
    """A backtick ends a name for Spark's parser, and a float has two zeros."""
    shop = upserted(project, create)
    shop.execute("update notes set note = 'changed', at = now() where id <= 10")
    line = shop.one("notes")
    assert line["rows_updated"] == 10, line
    shop.assert_equal("notes")
