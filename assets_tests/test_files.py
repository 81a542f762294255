"""Folders of files, kept in step: what a user sees who puts files there, changes them, removes them, and looks into the lake.

Real folder, real Spark, real Delta, real Dagster runs.
"""

from collections.abc import Callable

from assets_tests.harness import Folder

Make = Callable[..., Folder]


def sales(make: Make, **attributes: object) -> Folder:
    """A container ``sales`` over CSV files."""
    entry = {"glob": "sales/**/orders_*.csv", **attributes.pop("entry", {})}  # pyright: ignore[reportGeneralTypeIssues]
    return make(containers={"sales": entry}, **attributes)


def test_files_come_change_and_go(folder: Make) -> None:
    project = sales(folder)
    project.put("sales/a/orders_1.csv", "id,amount\n1,10\n2,20\n")
    project.put("sales/orders_2.csv", "id,amount\n3,30\n")
    project.put("other/orders_9.csv", "id,amount\n9,90\n")
    first = project.one("sales")
    assert first["status"] == "synced", first
    assert (first["rows_read"], first["partitions"]) == (3, ["sales/a/orders_1.csv", "sales/orders_2.csv"])
    assert project.files("sales") == {"sales/a/orders_1.csv": 2, "sales/orders_2.csv": 1}
    assert project.one("sales")["status"] == "skipped"

    project.put("sales/a/orders_1.csv", "id,amount\n1,11\n", at=1_000_000_000)  # an old time: it came late
    project.put("sales/orders_3.csv", "id,amount\n4,40\n")
    second = project.one("sales")
    assert sorted(second["partitions"]) == ["sales/a/orders_1.csv", "sales/orders_3.csv"]
    assert project.files("sales") == {"sales/a/orders_1.csv": 1, "sales/orders_2.csv": 1, "sales/orders_3.csv": 1}
    assert sorted(project.rows("sales", "id, amount")) == [(1, 11), (3, 30), (4, 40)]

    (project.root / "sales/orders_2.csv").unlink()
    gone = project.one("sales")
    assert gone["status"] == "skipped" and "1 are gone from the folder; their rows stay" in gone["message"]
    assert len(project.files("sales")) == 3
    project.configure(prune_files=True)
    pruned = project.one("sales")
    assert pruned["rows_deleted"] == 1 and "sales/orders_2.csv" not in project.files("sales")
    with project.instance() as instance:
        assert "sales/orders_2.csv" not in instance.get_dynamic_partitions("landing/sales")
