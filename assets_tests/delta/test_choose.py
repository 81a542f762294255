"""Which ways a batch is written in, as a table of cases, and what a user reads about it.

Belongs here: the order in which ways are tried, and ``engine`` and ``sync/way`` of real syncs. Does not belong: what a way itself can write
(``test_local_write``, ``test_add_files``).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from assets_tests.delta.test_add_files import HeldRows, batch
from assets_tests.harness import Folder, Project, Workspace
from incremental_assets.core.container import Engine
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.plan import Mode
from incremental_assets.core.window import EVERYTHING
from incremental_assets.databases import rows
from incremental_assets.delta import engine as module
from incremental_assets.delta.choose import choose, first_that_can
from incremental_assets.delta.engine import FILES_BY, READ_BY, _warn, why_spark_reads, why_spark_reads_files
from incremental_assets.delta.result import WAY
from incremental_assets.delta.table import Head
from incremental_assets.delta.write_batch import AllRows, InWindows, NotHere, OfFiles, StagedFiles, Way, WithKeys, WriteBatch, WriteResult
from incremental_assets.runs.records.metadata import plain

MakeProject = Callable[..., Project]
WINDOWS = InWindows(None, (EVERYTHING,))
KEYS = pa.table({"k": [1]})
STAGED = StagedFiles("folder", [], 32)


class Rows(HeldRows):
    def __init__(self, staged: StagedFiles | None) -> None:
        self._staged = staged

    @property
    def staged(self) -> StagedFiles | None:
        return self._staged


@pytest.mark.parametrize(
    ("replaces", "strategy", "staged", "is_first", "ways"),
    [
        (WINDOWS, Strategy.APPEND, None, True, "few_here into_files overwritten"),
        (WINDOWS, Strategy.APPEND, None, False, "few_here into_files overwritten"),
        (WINDOWS, Strategy.UPSERT, None, True, "few_here into_files overwritten"),
        (WINDOWS, Strategy.UPSERT, None, False, "few_here into_files merged"),
        (AllRows(WINDOWS), Strategy.UPSERT, None, False, "all_here into_files overwritten"),
        (AllRows(WINDOWS), Strategy.APPEND, None, True, "few_here into_files overwritten"),
        (OfFiles(("a",), only_adds=True), Strategy.APPEND, STAGED, False, "staged into_files overwritten"),
        (OfFiles(("a",)), Strategy.APPEND, STAGED, False, "staged few_here into_files overwritten"),
        (OfFiles(("a",)), Strategy.APPEND, None, False, "few_here into_files overwritten"),
        (AllRows(OfFiles(("a",))), Strategy.APPEND, STAGED, False, "staged all_here into_files overwritten"),
        (WithKeys(KEYS, KEYS), Strategy.UPSERT, None, False, "changed_here changed_by_spark"),
    ],
)
def test_the_ways_are_tried_from_the_cheapest_on(
    replaces: Any, strategy: Strategy, staged: StagedFiles | None, is_first: bool, ways: str
) -> None:
    """An upsert by an overwrite would lose the rows that it did not read, and one by added files would double those with the same keys."""
    container = replace(batch().container, strategy=strategy)
    head = Head(0 if is_first else 3, (), {})
    found = choose(batch(container=container, replaces=replaces, rows=Rows(staged)), head)
    assert " ".join(way.__name__ for way in found) == ways


def test_the_last_way_has_the_reasons_of_those_before_it() -> None:
    """Nobody would know why a sync of ten rows has started Spark."""
    asked: list[str] = []

    def cannot(write_batch: WriteBatch) -> WriteResult:
        asked.append("cannot")
        raise NotHere("there are many rows")

    def can(write_batch: WriteBatch) -> WriteResult:
        return WriteResult(1, 1, 0, 0, 1, 1, Way.MERGE)

    outcome = first_that_can("shop/t", (cannot, cannot, can), batch())
    assert asked == ["cannot", "cannot"] and outcome.reasons == ("there are many rows",)
    assert outcome.how == "MERGE, by this process: there are many rows"
    assert first_that_can("shop/t", (can, cannot), batch()).reasons == () and len(asked) == 2
    with pytest.raises(NotHere):  # Spark's way never says so: if it did, the user has to hear of it
        first_that_can("shop/t", (can, cannot)[1:], batch())


def way_of(project: Workspace, name: str, **kwargs: Any) -> str:
    """Syncs a container. Returns how its rows were written, as Dagster's UI shows it."""
    project.one(name, **kwargs)
    with project.instance() as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey([project.store, name]))
    assert event is not None and event.asset_materialization is not None
    return str(plain(event.asset_materialization.metadata)[WAY])


@pytest.mark.parametrize(
    ("engine", "first", "again"),
    [
        ("auto", "add files, by this process", "rewrite files, by this process"),
        ("spark", "add files, by Spark: engine: spark says so", "MERGE, by Spark: engine: spark says so"),
    ],
)
def test_engine_says_who_reads_and_writes(project: MakeProject, engine: str, first: str, again: str) -> None:
    """A user whose Spark alone reaches the store could not say so, and would not see in the UI who has written."""
    made = project(engine=engine, incremental=["public.t:id:integer!upsert"], containers={"t": {"primary_key": ["id"]}})
    made.execute("create table t (id int primary key, v text); insert into t select i, 'x' from generate_series(1, 50) i")
    assert way_of(made, "t") == first
    made.execute("update t set v = 'newer' where id = 50")
    assert way_of(made, "t", mode=Mode.REFRESH) == again
    made.assert_equal("t")


def test_many_rows_of_an_upsert_are_merged_here(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark takes two to three times as long for a million changed rows, and ten seconds more where no server runs."""
    monkeypatch.setattr(rows, "MOST_LOCAL_ROWS", 10)
    made = project(incremental=["public.t:id:integer!upsert"])
    made.execute("create table t (id int primary key, v text); insert into t select i, 'x' from generate_series(1, 50) i; analyze t")
    assert way_of(made, "t") == "add files, by this process: there are many rows"
    made.execute("update t set v = 'newer' where id > 20")
    assert way_of(made, "t", mode=Mode.REFRESH) == "rewrite files, by this process"
    monkeypatch.setattr(rows, "MOST_COMPARED_ROWS", 10)
    made.execute("update t set v = 'newest' where id > 30")
    assert way_of(made, "t", mode=Mode.REFRESH) == "rewrite files, by this process: there are many rows"
    made.assert_equal("t")


def test_a_container_has_an_engine_of_its_own(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """One large table would be loaded by a cluster that is needed for something else, or all of them by one process."""
    monkeypatch.setattr(module, "has_other_machines", lambda: True)
    monkeypatch.setattr(rows, "MOST_LOCAL_ROWS", 10)
    made = project(engine="arrow", containers={"other": {"engine": "auto"}})
    for name in ("t", "other"):
        made.execute(f"create table {name} (id int primary key, v text); insert into {name} select i, 'x' from generate_series(1, 50) i")
        made.execute(f"analyze {name}")
    assert way_of(made, "t") == "add files, by this process: there are many rows"
    assert way_of(made, "other") == "add files, by Spark: there are many rows; they are too few for tasks of Spark"
    made.assert_equal("t")


def test_files_are_read_by_spark_where_engine_says_so(folder: Callable[..., Folder]) -> None:
    """Files that this process reads and Spark would reject could not be read in one way."""
    made = folder(settle_seconds=0, containers={"a": {"glob": "a*.csv"}, "b": {"glob": "b*.csv", "engine": "spark"}})
    for name in ("a", "b"):
        made.put(f"{name}.csv", "id,n\n1,2\n")
    assert way_of(made, "a") == "add files, by this process"
    assert "Spark" in way_of(made, "b")
    assert made.rows("a", "id, n") == made.rows("b", "id, n") == [(1, 2)]


@pytest.mark.parametrize(
    ("variable", "value", "instead"), [(READ_BY, "jdbc", "spark"), (READ_BY, "arrow", "arrow"), (FILES_BY, "spark", "spark")]
)
def test_the_old_variables_warn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str, value: str, instead: str
) -> None:
    """A project would be read in another way from the next version on, without a word before."""
    monkeypatch.setenv(variable, value)
    _warn.cache_clear()
    of_rows, of_files = why_spark_reads(Engine.AUTO), why_spark_reads_files(Engine.AUTO)
    assert f"{variable}={value} will have no meaning" in caplog.text and f"engine: {instead}" in caplog.text
    assert (of_rows or of_files) == (f"{variable} says so" if instead == "spark" else None)
    assert why_spark_reads(Engine.ARROW) is None, "engine says otherwise"
