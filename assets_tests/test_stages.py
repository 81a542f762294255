"""A sync that dies at a stage, another host that writes at one, and what a sync must not take for its own: each guard by itself.

Belongs here: one fast test of each guard between plan and state. Does not belong: death from outside (``test_kill``), random histories
(``test_property``), and failures that others shipped (``test_failures``).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assets_tests.harness import Project
from assets_tests.test_kill import other_host
from incremental_assets.dagster import io_manager
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.delta import write
from incremental_assets.delta.table import LakeTable
from incremental_assets.spark.session import open_session

MakeProject = Callable[..., Project]


class Killed(Exception):
    """A sync that ends here, as a killed one does."""


STAGES: dict[str, tuple[Any, str]] = {
    "before the data is committed": (PostgresReader, "still_there"),
    "between data and state": (write, "set_property"),
    "after the state, before the event": (io_manager, "commit"),
}


def days(project: MakeProject) -> Project:
    shop = project(
        incremental=["public.days:day:date", "public.notes:day:date!upsert"],
        containers={name: {"partition_by": "month"} for name in ("days", "notes")},
    )
    for name in ("days", "notes"):
        shop.execute(f"""create table {name} (id int primary key, day date);
            insert into {name} select i, date '2026-01-10' + i from generate_series(1, 40) i""")
    return shop


@pytest.mark.parametrize("stage", STAGES)
def test_a_sync_that_dies_at_a_stage_is_healed_by_the_next(project: MakeProject, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    """A watermark that is stored although its rows are not would leave them behind for good; rows without it would come twice."""
    shop = days(project)
    shop.sync()
    for name in ("days", "notes"):
        shop.execute(
            f"insert into {name} select i, date '2026-02-20' + i % 3 from generate_series(50, 60) i; delete from {name} where id = 40"
        )
    owner, name = STAGES[stage]
    real, died = getattr(owner, name), list[str]()

    def dies(*arguments: Any, **named: Any) -> Any:
        if stage.startswith("after"):
            real(*arguments, **named)
        died.append(stage)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies)
        lines = shop.sync()
    assert {line["status"] for line in lines.values()} == {"failed"} and len(died) == 2, lines
    for line in shop.sync().values():
        assert line["status"] in ("synced", "skipped"), line
    for name in ("days", "notes"):
        shop.assert_equal(name)


def test_a_first_load_that_dies_before_its_rows_is_made_again(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no event yet whose lower watermark would count: a table that says more than it has would never get its rows."""
    shop = days(project)
    owner, name = STAGES["before the data is committed"]

    def dies(*arguments: Any, **named: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies)
        assert shop.sync("days")["days"]["status"] == "failed"
    line = shop.one("days")
    assert line["status"] == "synced", line
    shop.assert_equal("days")


@pytest.mark.parametrize(("container", "commits"), [("days", 3), ("notes", 2)])
def test_another_host_before_the_commit_begins(project: MakeProject, monkeypatch: pytest.MonkeyPatch, container: str, commits: int) -> None:
    """The rows were frozen before the other host's, and would be written over them under the other's higher watermark."""
    _meet(project, monkeypatch, container, io_manager, "commit", commits)


def test_another_host_just_before_the_write(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, where the other host comes after the commit has looked whether the table is the one that was planned for."""
    _meet(project, monkeypatch, "notes", PostgresReader, "still_there", 2)


def _meet(project: MakeProject, monkeypatch: pytest.MonkeyPatch, container: str, owner: Any, name: str, commits: int) -> None:
    """``commits``: of rows, when all is over. The first load, the other host's, and that of the second attempt where it finds a change; one
    more would be old rows, which nothing would mend after a kill."""
    shop = days(project)
    shop.one(container)
    other = other_host(shop)
    real, met = getattr(owner, name), [0]

    def meets(*arguments: Any) -> Any:
        met[0] += 1
        if met[0] == 1:
            shop.execute(f"update {container} set day = '2026-02-22' where id = 50")
            shop.execute(f"insert into {container} select i, date '2026-02-20' from generate_series(61, 70) i")
            shop.execute(f"insert into {container} values (99, '2026-02-25')")
            assert other.one(container)["status"] == "synced"
        return real(*arguments)

    shop.execute(f"insert into {container} select i, date '2026-02-21' from generate_series(50, 60) i")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, meets)
        line = shop.one(container)
    assert line["status"] == "synced" and met[0] > 2, "it has not noticed the other"
    shop.assert_equal(container)
    found = [(commit.version, commit.operation) for commit in shop.table(container).data_commits_since(0)]
    assert len(found) == commits, f"older rows were written over newer ones: {found}"
    other.source.close()


def test_rows_that_somebody_deleted_from_the_lake_come_back(project: MakeProject, spark_home: Path) -> None:
    """The source is as it was, so a sync that looks only there would skip for ever."""
    shop = days(project)
    shop.one("days")
    assert shop.one("days")["status"] == "skipped"
    with open_session(spark_home, name="somebody") as spark:
        spark.sql(f"delete from {shop.table('days').sql_name} where day = date '2026-02-19'").collect()
    assert shop.one("days")["rows_inserted"] == 1
    shop.assert_equal("days")


def test_after_a_restore_the_lower_watermark_counts(project: MakeProject, spark_home: Path) -> None:
    """The events tell of rows that the restored table does not have: read from their watermark on, those would never come back."""
    shop = days(project)
    shop.one("days")
    before = shop.table("days").head()
    assert before is not None
    shop.execute("insert into days select i, date '2026-03-01' + i from generate_series(50, 60) i")
    shop.one("days")
    with open_session(spark_home, name="somebody") as spark:
        spark.sql(f"restore table {shop.table('days').sql_name} to version as of {before.version}").collect()
    shop.execute("insert into days values (70, '2026-05-30')")
    assert shop.one("days")["watermark"]["previous"] == "2026-02-19"
    shop.assert_equal("days")


def test_the_table_of_another_container_is_left_alone(project: MakeProject) -> None:
    """A folder that was renamed by hand would be filled with another table's rows."""
    shop = days(project)
    shop.one("days")
    (shop.lake_root / "shop" / "days").rename(shop.lake_root / "shop" / "notes")
    before = LakeTable(shop.lake, "shop", "notes").head()
    refused = shop.one("notes", ok=False)
    assert refused["status"] == "failed" and "holds the table of shop/days" in refused["message"], refused["message"]
    assert LakeTable(shop.lake, "shop", "notes").head() == before
