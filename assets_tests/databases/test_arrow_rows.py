"""Few rows are read in the run's own process: when they are, when Spark reads them after all, and how such a read ends.

Belongs here: the choice and the end of this read. Does not belong: the values (``test_types``), and their comparison with the lake
(``test_local_rows``).
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from assets_tests.harness import Project
from incremental_assets.core.errors import SourceError
from incremental_assets.core.window import EVERYTHING
from incremental_assets.databases import rows
from incremental_assets.databases.postgres.source import PostgresSnapshot, PostgresSource
from incremental_assets.databases.source import WindowRead
from incremental_assets.delta.engine import READ_BY

MakeProject = Callable[..., Project]
READ = WindowRead((EVERYTHING,), True, None, 1)
MEGABYTE = 1 << 20


@contextmanager
def snapshot_of(project: Project, name: str) -> Iterator[PostgresSnapshot]:
    definition = project.definition(name)
    with PostgresSource(definition.settings.address, definition.container, timezone="UTC") as source, source.snapshot():
        yield source.snapshot_rows(definition.container, ())


@pytest.mark.long
def test_few_rows_are_read_here_and_many_by_spark(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync of ten rows would take twice as long, and one of a billion would end for want of memory."""
    made = project(incremental=["public.t:id:integer"])
    made.execute("create table t (id int primary key, v text); insert into t select i, repeat('x', 100) from generate_series(1, 2000) i")
    with snapshot_of(made, "t") as snapshot:
        read = snapshot.local(READ, MEGABYTE)
        assert read is not None and read.num_rows == 2000 and read.schema.types == [pa.int32(), pa.string()]
        assert snapshot.local(READ, 1000) is None, "they are larger than the planner took them for"
    reads: list[int | None] = []
    real = PostgresSnapshot.local

    def watched(*args: Any) -> Any:
        found = real(*args)
        reads.append(None if found is None else found.num_rows)
        return found

    monkeypatch.setattr(PostgresSnapshot, "local", watched)
    made.one("t")
    assert reads == [2000]
    for limit in ("MOST_LOCAL_ROWS", "MOST_COMPARED_ROWS"):
        monkeypatch.setattr(rows, limit, 100)
    made.execute("insert into t select i, 'new' from generate_series(2001, 2500) i; analyze t")
    made.one("t")
    monkeypatch.undo()
    monkeypatch.setenv(READ_BY, "jdbc")
    made.execute("insert into t values (3000, 'newer')")
    made.one("t")
    assert reads == [2000], "neither many rows nor those of this setting"
    made.assert_equal("t")


def test_a_value_that_the_lake_cannot_hold_is_left_to_spark(project: MakeProject) -> None:
    """Infinity would arrive as a time long ago. The read by Spark says in which column it is, and what helps."""
    made = project(incremental=["public.t:id:integer"])
    made.execute("create table t (id int primary key, at timestamptz); insert into t values (1, 'infinity')")
    with snapshot_of(made, "t") as snapshot:
        assert snapshot.local(READ, MEGABYTE) is None


def test_an_error_of_the_source_is_one_here_too(project: MakeProject) -> None:
    """A view that fails must fail the sync, and not look like an empty one."""
    made = project()
    made.execute("create view v as select i as id, 10 / (i - 500) as x from generate_series(1, 1000) i")
    with snapshot_of(made, "v") as snapshot, pytest.raises(SourceError, match="division by zero"):
        snapshot.local(READ, MEGABYTE)


def test_a_read_that_is_interrupted_ends_at_once(project: MakeProject) -> None:
    """A run that is terminated would wait for its query, and its container with it."""
    made = project()
    made.execute("create view v as select i as id, pg_sleep(60)::text as x from generate_series(1, 100) i")
    main = threading.get_ident()

    def interrupt_when_it_runs() -> None:
        with psycopg.connect(made.url, autocommit=True) as watching:
            running = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'"
            while watching.execute(running).fetchone() == (0,):
                time.sleep(0.05)
        signal.pthread_kill(main, signal.SIGINT)

    with snapshot_of(made, "v") as snapshot:
        threading.Thread(target=interrupt_when_it_runs, daemon=True).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            snapshot.local(READ, MEGABYTE)
        assert time.monotonic() - began < 30, "the query of a hundred minutes was cancelled"
