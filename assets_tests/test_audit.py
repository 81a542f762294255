"""The audit finds every difference between source and lake, invents none, and repairs what it finds.

Belongs here: the command and its runs. Does not belong: the hashes of values (``databases/test_hashed_rows``), and the search for keys
(``core/test_comparison``).
"""

from collections.abc import Callable
from typing import Any

import pytest

from assets_tests.harness import Project
from incremental_assets.dagster.audit import AuditOptions, audit_lines
from incremental_assets.dagster.runner import Runner

MakeProject = Callable[..., Project]
NOTES = """create table notes (id int primary key, day date, note text);
  insert into notes select i, date '2026-01-01' + i % 90, 'n' || i from generate_series(1, 900) i"""


def audit(project: Project, *names: str, **options: Any) -> dict[str, dict[str, Any]]:
    """Audits containers in this process. Returns the records by the container's name."""
    chosen = [d for d in project.catalog() if d.table.name in names]
    with project.instance() as instance:
        lines = list(audit_lines(Runner(project.dagster(chosen), instance), chosen, AuditOptions(**options), instance))
    return {line["container"].partition("/")[2]: line for line in lines}


@pytest.fixture
def shop(project: MakeProject) -> Project:
    made = project(incremental=["public.notes:day:date"], containers={"notes": {"partition_by": "month"}})
    made.execute(NOTES)
    return made


def test_what_no_sync_sees_is_found_and_repaired(shop: Project) -> None:
    """Rows that were changed, deleted or added below the watermark would stay wrong for ever."""
    first = audit(shop, "notes")["notes"]
    assert (first["status"], first["rows"], first["partitions_checked"]) == ("equal", 900, 3), first
    shop.execute("update notes set note = 'changed' where id = 1; delete from notes where id = 2")
    shop.execute("insert into notes values (1001, '2026-01-05', 'late')")
    found = audit(shop, "notes")["notes"]
    assert (found["status"], found["missing"], found["stale"], found["surplus"]) == ("different", 1, 1, 1), found
    assert found["partitions_different"] == ["2026-01-01"]
    assert found["examples"] == {"missing": [["1001"]], "stale": [["1"]], "surplus": [["2"]]}
    repaired = audit(shop, "notes", repair=True)["notes"]
    assert repaired["status"] == "repaired", repaired
    shop.assert_equal("notes")
    assert audit(shop, "notes")["notes"]["status"] == "equal"
