"""Columns of files that have no value so far: the table has them once one comes, with the type of that value, and not as text for ever.

Belongs here: CSV, TSV and JSON, by both readers. Does not belong: Parquet (``test_files_parquet``), and types of columns with values
(``test_local_read``, ``test_local_json``).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from assets_tests.harness import Folder, long
from incremental_assets.delta.engine import FILES_BY

Make = Callable[..., Folder]


def content(kind: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    if kind == "json":
        return "".join(json.dumps({name: row.get(name) for name in names}) + "\n" for row in rows)
    cells = [[json.dumps(row[name]) if name in row else "" for name in names] for row in rows]
    separator = "," if kind == "csv" else "\t"
    return "\n".join(separator.join(line) for line in [list(names), *cells]) + "\n"


def types(project: Folder) -> dict[str, str]:
    head = project.table("sales").head()
    assert head is not None
    return {column.name: column.type for column in head.columns if not column.name.startswith("_file")}


@pytest.mark.parametrize(("kind", "by"), [("csv", ""), ("json", ""), *long(("tsv", ""), ("csv", "spark"), ("json", "spark"))])
def test_a_column_gets_its_type_with_its_first_value(folder: Make, monkeypatch: pytest.MonkeyPatch, kind: str, by: str) -> None:
    """The column would be text for ever, as its first file happened to have no value in it; sums of it would fail."""
    monkeypatch.setenv(FILES_BY, by)
    project = folder(containers={"sales": {"glob": f"*.{kind}", "format": kind}})
    project.put(f"a.{kind}", content(kind, [{"id": 1}, {"id": 2}], ["id", "paid", "note"]))
    line = project.one("sales")
    assert line["status"] == "synced" and "no file has a value of" in line["message"], line
    assert "columns:" in line["message"] and types(project) == {"id": "bigint"}
    project.put(f"b.{kind}", content(kind, [{"id": 3}], ["id", "paid", "note"]))
    line = project.one("sales")
    assert "no file has a value" not in line["message"], "what is known is not said with each sync"
    if kind != "json":  # a file of columns that only files without values have had is no file of another kind
        project.put(f"c.{kind}", content(kind, [{"paid": 1.5}], ["paid"]))
    else:
        project.put(f"c.{kind}", content(kind, [{"paid": 1.5}], ["paid", "note"]))
    line = project.one("sales")
    assert line["status"] == "synced" and "column paid (double) was added" in line["message"], line
    assert types(project) == {"id": "bigint", "paid": "double"}
    head = project.table("sales").head()
    assert head is not None and head.valueless == ("note",)
    assert sorted(project.rows("sales", "id, paid"), key=str) == [(1, None), (2, None), (3, None), (None, 1.5)]


@pytest.mark.parametrize("by", ["", *long("spark")])
def test_a_first_file_that_is_only_a_header_fixes_no_type(folder: Make, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """An export of an empty day would make all columns text."""
    monkeypatch.setenv(FILES_BY, by)
    project = folder(containers={"sales": {"glob": "*.csv", "format": "csv", "columns": {"day": "date"}}})
    project.put("a.csv", "id,day,amount\n")
    assert project.one("sales")["status"] == "synced"
    assert types(project) == {"day": "date"}
    project.put("b.csv", "id,day,amount\n1,2026-01-31,1.5\n")
    assert project.one("sales")["status"] == "synced"
    assert types(project) == {"day": "date", "id": "bigint", "amount": "double"}
    assert [(i, str(day), amount) for i, day, amount in project.rows("sales", "id, day, amount")] == [(1, "2026-01-31", 1.5)]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["csv", *long("json")])
def test_an_audit_knows_the_columns_without_value(folder: Make, kind: str) -> None:
    """It would refuse a file that the sync has read, as the table has none of its columns, and no repair would change that."""
    project = folder(containers={"sales": {"glob": f"*.{kind}", "format": kind}})
    project.put(f"a.{kind}", content(kind, [{"id": 1}, {"id": 2}], ["id", "paid", "note"]))
    assert project.one("sales")["status"] == "synced"
    project.put(f"b.{kind}", content(kind, [{}], ["paid", "note"]))
    assert project.one("sales")["status"] == "synced"
    found = project.audit("sales")["sales"]
    assert (found["status"], found["rows"], found["partitions_checked"]) == ("equal", 3, 2), found
    project.put(f"c.{kind}", content(kind, [{"paid": 1.5}], ["paid"]))
    found = project.audit("sales")["sales"]
    assert (found["status"], found["rows"], found["partitions_checked"]) == ("equal", 4, 3), found
    assert types(project) == {"id": "bigint", "paid": "double"}


@pytest.mark.long
def test_rules_say_that_a_column_has_no_value_yet(folder: Make) -> None:
    """A rule would only say that the column does not exist, which looks like a wrong name."""
    checks = [{"rule": "not_null", "columns": ["paid"]}]
    project = folder(containers={"sales": {"glob": "*.csv", "format": "csv", "checks": checks}})
    project.put("a.csv", "id,paid\n1,\n")
    line = project.one("sales", ok=False)
    head = project.table("sales").head()
    assert head is not None and head.valueless == ("paid",), line
    assert "no file has a value of 'paid' yet" in str(project.scan("sales"))
