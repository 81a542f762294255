"""What people see of a sync that takes long: a line for each container, in place, below the messages.

Belongs here: the numbers, and a command on a real terminal. Does not belong: the messages themselves.
"""

import os
import pty
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assets_tests.harness import Project
from incremental_assets.delta import progress as module
from incremental_assets.delta.progress import Phase, Progress, RunProgress, displayed_by, show
from incremental_assets.delta.scope import LakeScope
from incremental_assets.runs.workers import run_in_workers
from incremental_assets.spark.progress import TaskProgress
from incremental_assets.spark.session import stop_server


class Noted:
    """A display that keeps what it is to show."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, Progress | None]] = []

    def show(self, container: str, progress: Progress | None) -> None:
        self.shown.append((container, progress))

    @property
    def numbers(self) -> list[tuple[int, int]]:
        return [(one.rows, one.expected) for _, one in self.shown if one is not None]


def test_the_rows_of_all_batches_are_counted_and_never_more_than_are_there() -> None:
    """A load of 60 million rows has several commits. Each would begin at nothing again, and the time left would be that of one."""
    noted, run = Noted(), RunProgress(print, print)
    with displayed_by(noted):
        run.begin("shop/large", 600)
        for at in range(2):
            run.reads(300)
            run.tasks(TaskProgress(1, 4, 2, 0, 2.0))
            run.tasks(TaskProgress(4, 4, 0, 0, 8.0))
            run.committed(310 - at)
        run.counts()
        run.tasks(TaskProgress(1, 2, 1, 0, 1.0))  # of the query that counts
        run.end()
    assert noted.numbers == [(n, 600) for n in (0, 0, 75, 300, 310, 310, 385, 610, 619, 619)]
    assert noted.shown[-1] == ("shop/large", None)


def test_rows_that_this_process_reads_are_counted_one_batch_after_another() -> None:
    """A first load of an hour would look as if nothing were read, as it has no tasks of Spark."""
    noted, run = Noted(), RunProgress(print, print)
    with displayed_by(noted):
        run.begin("shop/large", 600)
        run.reads(300)
        run.read(100)
        run.read(150)
        run.committed(290)
        run.reads(300)
        run.read(10)
        run.end()
    assert noted.numbers == [(n, 600) for n in (0, 0, 100, 250, 290, 290, 300)]


def test_no_count_of_rows_goes_back_where_spark_writes_what_was_read() -> None:
    """15,000 rows that become 3,761 look like a sync that has begun anew, or has lost rows."""
    noted, run = Noted(), RunProgress(print, print)
    with displayed_by(noted):
        run.begin("shop/large", 15_000)
        run.reads(15_000)
        run.read(15_000)
        run.tasks(TaskProgress(1, 4, 2, 0, 2.0))
        run.committed(14_998)
        run.counts()
    assert [rows for rows, _ in noted.numbers] == [0, 0, 15_000, 15_000, 15_000, 14_998], "at the end, the rows that were read are known"


@pytest.mark.long
def test_a_sync_says_that_it_starts_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute of *reads and writes* without a row looks like a source that does not answer."""
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    noted, scope = Noted(), LakeScope(str(tmp_path / "lake"), tmp_path / "home", "test", print)
    try:
        with displayed_by(noted):
            scope.progress.begin("shop/t", 100)
            assert scope.spark.range(3).count() == 3
            scope.progress.reads(100)
            assert scope.assets_spark.range(3).count() == 3
    finally:
        scope.close_assets_spark()
        scope.stack.close()
        stop_server(tmp_path / "home")
    phases = [one.phase for _, one in noted.shown if one is not None]
    assert phases[:3] == [Phase.READS, Phase.STARTS, Phase.READS] and phases.count(Phase.STARTS) == 1, phases


def test_the_text_says_how_many_rows_how_fast_and_how_long_still() -> None:
    """That is what somebody wants to know who waits for an hour."""
    assert Progress("a", Phase.READS, 0, 6_000_000, 3.0).text() == "reads and writes, about 6,000,000 rows, 3 s"
    half = Progress("a", Phase.READS, 2_000_000, 6_000_000, 4.0)
    assert half.text() == "reads and writes, 2,000,000 of about 6,000,000 rows, 500,000 rows a second, about 8 s left"
    later = replace(half, waited=2.0)
    assert later.text() == "reads and writes, 2,000,000 of about 6,000,000 rows, 500,000 rows a second, about 6 s left"
    assert replace(half, waited=100.0).text().endswith("about 0 s left")
    assert Progress("a", Phase.STARTS, waited=9.0).text() == "starts Spark, 9 s"
    assert Progress("a", Phase.READS, 0, 0, 3.0).text() == "reads and writes, 3 s"
    assert Progress("a", Phase.COUNTS, 7, 6, 5.0).text() == "counts rows and logs events, 7 of about 7 rows, 5 s"


def test_the_text_of_a_query_says_how_long_it_may_still_take() -> None:
    """That nothing was read says nothing, where the rows do not come from files."""
    assert TaskProgress(0, 8, 2, 0, 5.0).text() == "Spark: 0 of 8 tasks done, 2 running, 5 s"


def test_the_log_has_a_line_from_time_to_time_and_a_terminal_only_the_display(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the UI a load of an hour looks like one that hangs; on a terminal the same numbers would be there twice."""
    monkeypatch.setattr(module, "LOG_SECONDS", 0.0)
    said, unseen = list[str](), list[str]()
    run = RunProgress(said.append, unseen.append)
    run.tasks(TaskProgress(2, 8, 2, 12_300_000, 10.0))
    run.begin("shop/large", 600)
    run.reads(600)
    run.tasks(TaskProgress(1, 4, 2, 0, 2.0))
    assert said[0] == "Spark: 2 of 8 tasks done, 2 running, 12.3 MB read, 10 s, about 30 s left"
    assert said[1].startswith("shop/large: reads and writes, 150 of about 600 rows") and not unseen
    with displayed_by(Noted()):
        run.tasks(TaskProgress(2, 4, 2, 0, 4.0))
    assert len(said) == 2 and len(unseen) == 1


def work(_: Path) -> Callable[[int], dict[str, Any]]:
    def run(task: int) -> dict[str, Any]:
        show(f"shop/{task}", Progress(f"shop/{task}", Phase.READS, task))
        sys.stderr.write(f"message of {task}\n")
        show(f"shop/{task}", None)
        return {"task": task}

    return run


@pytest.mark.long
def test_a_worker_writes_nothing_into_the_lines_of_its_parent(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Two processes that write to one terminal would leave torn lines there. What a worker says comes by way of its parent."""
    noted = Noted()
    with displayed_by(noted):
        records = list(run_in_workers(1, deque([3]), work, tmp_path, lambda *_: {}, threading.Event()))
    assert records == [{"task": 3}]
    assert noted.shown == [("shop/3", Progress("shop/3", Phase.READS, 3)), ("shop/3", None)]
    assert capfd.readouterr().err == "message of 3\n"


@pytest.mark.long
def test_a_terminal_shows_a_line_for_the_container_and_then_the_table(project: Callable[..., Project]) -> None:
    """The real command on a real terminal: the line is in place while it works, and gone when the table is printed."""
    shop = project(incremental=["public.orders:id:integer"])
    shop.execute("create table orders (id int primary key, note text)")
    shop.execute("insert into orders select g, 'note ' || g from generate_series(1, 20000) g")
    shop.write()
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(shop.path), "sync"]
    environment = {**os.environ, **shop.environment(), "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, cwd=shop.path)
    os.close(theirs)
    seen = b""
    while True:
        try:
            found = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not found:
            break
        seen += found
    os.close(ours)
    assert process.wait() == 0, seen.decode()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert re.search(r"shop/orders: reads and writes, about [1-9][0-9,]+ rows, \d+ s", text), text
    assert re.search(r"shop/orders: (reads and writes|counts rows and logs events), 20,000 of about 20,000 rows", text), text
    table = text[text.rindex("│ container") :] if "│ container" in text else text[text.rindex("container") :]
    assert "20,000" in table and "reads and writes" not in table
