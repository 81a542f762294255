"""First loads whose rows Spark's tasks read over ADBC into files, with one commit through delta-rs: the same rows as through JDBC.

Belongs here: what this way of reading could alter, lose or double, and when it must not be taken. Does not belong: what both ways have in
common (``test_sync``, ``test_types``).
"""

from collections.abc import Callable

import pytest

from assets_tests.databases import test_types
from assets_tests.harness import Project
from incremental_assets.delta.add_files import READ_BY

MakeProject = Callable[..., Project]


@pytest.fixture
def arrow(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> MakeProject:
    """Makes projects that read into files whatever can be read so, however few rows there are."""
    monkeypatch.setenv(READ_BY, "arrow")
    return project


def engines(project: Project, name: str) -> list[str]:
    """What wrote the rows of a table, commit by commit, the first one first: ``files`` or ``Spark``."""
    table = project.table(name).opened()
    assert table is not None
    commits = [entry for entry in reversed(table.history()) if entry["operation"] in ("WRITE", "MERGE", "DELETE")]
    return ["files" if str(entry.get("engineInfo")).startswith("delta-rs") else "Spark" for entry in commits]


def test_every_type_arrives_as_it_is(arrow: MakeProject) -> None:
    """Values would be rounded, shifted, cut or nulled, other than through JDBC: ADBC has forms of its own for many types."""
    made = arrow(incremental=["public.appended:at:timestamp", "public.upserted:at:timestamp!upsert"])
    made.execute(test_types.TYPES)
    names = ("appended", "upserted", "whole")
    for name in names:
        test_types.create(made, name)
        test_types.insert(made, name)
    first = made.sync()
    for name in names:
        assert first[name]["status"] == "synced", first[name]["message"]
        assert engines(made, name) == ["files"]
        made.assert_equal(name)
    for name in names:  # what Spark writes beside these files
        test_types.insert(made, name, 101, "2024-11-06")
    made.sync()
    for name in names:
        made.assert_equal(name)
