"""Syncs that end at a given stage, other hosts that write at one, and tables that are not as the last sync left them.

Belongs here: one fast test of each guard between a sync's plan and its stored state. Does not belong: processes that are killed
(``test_kill``), random histories (``test_property``), and known failures of other loaders (``test_failures``).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assets_tests.harness import Project, long
from assets_tests.test_kill import other_host
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.delta import write
from incremental_assets.delta.engine import WRITE_BY
from incremental_assets.delta.table import LakeTable
from incremental_assets.runs import commit as container_output
from incremental_assets.spark.session import open_session

MakeProject = Callable[..., Project]


class Killed(Exception):
    """Raised where a sync is to end as if it were killed there."""


STAGES: dict[str, tuple[Any, str]] = {
    "before the data is committed": (PostgresReader, "still_there"),
    "between data and state": (write, "set_property"),
    "after the state, before the event": (container_output, "commit"),
}


def days(project: MakeProject) -> Project:
    shop = project(
        incremental=["public.days:day:date", "public.notes:day:date!upsert"],
        containers={"days": {"partition_by": "month"}, "notes": {"partition_by": "month", "deletes": "keep"}},
    )
    for name in ("days", "notes"):
        shop.execute(f"""create table {name} (id int primary key, day date);
            insert into {name} select i, date '2026-01-10' + i from generate_series(1, 40) i""")
    return shop


@pytest.mark.parametrize("stage", STAGES)
def test_a_sync_that_ends_at_any_stage_is_completed_by_the_next(project: MakeProject, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    """Wherever the sync ended, the next one must neither miss rows below a stored watermark, nor write rows twice."""
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


def test_a_first_load_that_ends_before_its_rows_is_repeated(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first sync has ended there is no event with a lower watermark, so a watermark stored before the rows would be believed."""
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


@pytest.mark.parametrize("container", ["days", *long("notes")])
def test_a_commit_of_another_host_after_the_plan_is_not_overwritten(
    project: MakeProject, monkeypatch: pytest.MonkeyPatch, container: str
) -> None:
    """The rows of this sync's snapshot are older than the other host's and must not replace them below the other's higher watermark."""
    _sync_while_another_host_commits(project, monkeypatch, container, container_output, "commit")


@pytest.mark.parametrize("write_by", ["", "spark"])
def test_a_commit_of_another_host_just_before_the_write_is_not_overwritten(
    project: MakeProject, monkeypatch: pytest.MonkeyPatch, write_by: str
) -> None:
    """The same, where the other host commits after this commit has checked that the table is at the version of the plan."""
    monkeypatch.setenv(WRITE_BY, write_by)
    _sync_while_another_host_commits(project, monkeypatch, "notes", PostgresReader, "still_there")


def _sync_while_another_host_commits(project: MakeProject, monkeypatch: pytest.MonkeyPatch, container: str, owner: Any, name: str) -> None:
    """Lets another host sync the container before the first call of a function of this sync.

    The table has two commits of rows in the end, the first load and the other host's: this sync's second attempt finds nothing that the
    lake has not. One more would have replaced newer rows by older ones."""
    shop = days(project)
    shop.one(container)
    other = other_host(shop)
    real, calls = getattr(owner, name), [0]

    def after_the_other_host(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == 1:
            shop.execute(f"update {container} set day = '2026-02-22' where id = 50")
            shop.execute(f"insert into {container} select i, date '2026-02-20' from generate_series(61, 70) i")
            shop.execute(f"insert into {container} values (99, '2026-02-25')")
            assert other.one(container)["status"] == "synced"
        return real(*arguments)

    shop.execute(f"insert into {container} select i, date '2026-02-21' from generate_series(50, 60) i")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, after_the_other_host)
        line = shop.one(container)
    assert line["status"] == "synced" and calls[0] > 2, "the sync has not noticed the other host"
    shop.assert_equal(container)
    found = [(commit.version, commit.operation) for commit in shop.table(container).data_commits_since(0)]
    assert len(found) == 2, f"older rows were written over newer ones: {found}"
    other.source.close()


def test_rows_that_somebody_deleted_from_the_lake_come_back(project: MakeProject, spark_home: Path) -> None:
    """The source has not changed, so a sync that looks only at the source would be skipped and the rows would stay missing."""
    shop = days(project)
    shop.one("days")
    assert shop.one("days")["status"] == "skipped"
    with open_session(spark_home, name="somebody") as spark:
        spark.sql(f"delete from {shop.table('days').sql_name} where day = date '2026-02-19'").collect()
    assert shop.one("days")["rows_inserted"] == 1
    shop.assert_equal("days")


def test_after_a_restore_the_lower_watermark_counts(project: MakeProject, spark_home: Path) -> None:
    """The events have the watermark of rows that the restored table does not have. A sync from there on would never bring them back."""
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
    """Where somebody has renamed a table's folder, a sync must not write another container's rows to it."""
    shop = days(project)
    shop.one("days")
    (shop.lake_root / "shop" / "days").rename(shop.lake_root / "shop" / "notes")
    before = LakeTable(shop.lake, "shop", "notes").head()
    refused = shop.one("notes", ok=False)
    assert refused["status"] == "failed" and "holds the table of shop/days" in refused["message"], refused["message"]
    assert LakeTable(shop.lake, "shop", "notes").head() == before
