"""Random histories of MariaDB tables: transactions that commit late, updates, and syncs that end at any stage.

Belongs here: histories, and the kills of processes. Does not belong: single cases (``test_mysql_sync``, ``test_mysql_late_commits``).
"""

import contextlib
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from assets_tests.databases.mysql.dying_sync import STAGES
from assets_tests.databases.mysql.project import MySQLProject

TABLES = (
    "create table arrivals (id bigint unsigned primary key auto_increment, value int)",
    "create table changes (id int primary key auto_increment, value int,"
    " at timestamp(6) not null default current_timestamp(6) on update current_timestamp(6), key (at))",
    "create table days (id int primary key auto_increment, value int, at datetime(3) not null default current_timestamp(3))",
)
IDENTIFIERS = ["arrivals:id:integer", "changes:at:timestamp!upsert", "days:at:datetime"]
NAMES = ("arrivals", "changes", "days")


class Killed(Exception):
    """Raised where a sync is to end as if it were killed there."""


def history(project: MySQLProject, seed: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plays one history and then asserts that the lake equals the source."""
    dice, serial = random.Random(seed), iter(range(10**9))
    sessions = [project.session() for _ in range(4)]
    try:
        for session in sessions:
            session.cursor().execute("set session innodb_lock_wait_timeout = 1")
        for _ in range(steps):
            session = dice.choice(sessions)
            with session.cursor() as cursor, contextlib.suppress(project.server_errors):
                match dice.choice(
                    ("begin", "insert", "insert", "insert", "update", "commit", "commit", "rollback", "sync", "sync", "dies")
                ):
                    case "begin":
                        cursor.execute("begin")
                    case "insert":
                        cursor.execute(f"insert into {dice.choice(NAMES)} (value) values ({next(serial)}), ({next(serial)})")
                    case "update":
                        cursor.execute(f"update changes set value = {next(serial)} where id % 5 = {dice.randrange(5)}")
                    case "sync":
                        for line in project.sync(stale=True).values():
                            assert line["status"] in ("synced", "skipped"), line["message"]
                    case "dies":
                        dies(project, dice.choice(list(STAGES)), monkeypatch)
                    case word:
                        cursor.execute(word)
        for session in sessions:
            session.cursor().execute("commit" if dice.random() < 0.7 else "rollback")
    finally:
        for session in sessions:
            session.close()
    project.sync(stale=True)
    for name in NAMES:
        project.assert_equal(name)


def dies(project: MySQLProject, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync that ends at a stage by an error, as far as it comes there."""
    owner, name = STAGES[stage]
    real = getattr(owner, name)

    def ends(*arguments: Any, **named: Any) -> Any:
        if stage == "before the event":
            real(*arguments, **named)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, ends)
        project.sync(stale=True)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_short_history_loses_and_doubles_no_row(seed: int, shop: Callable[..., MySQLProject], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each single case may be right and their combination wrong: rows are then missing or doubled for ever."""
    project = shop(incremental=IDENTIFIERS, settle_seconds=0)
    project.execute(*TABLES)
    project.sync()
    history(project, seed, 25, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 18))
def test_a_long_history_loses_and_doubles_no_row(seed: int, shop: Callable[..., MySQLProject], monkeypatch: pytest.MonkeyPatch) -> None:
    """As the short ones, with more to combine."""
    project = shop(incremental=IDENTIFIERS, settle_seconds=0)
    project.execute(*TABLES)
    project.sync()
    history(project, seed, 120, monkeypatch)


@pytest.mark.parametrize("stage", STAGES)
def test_a_sync_that_is_killed_is_completed_by_the_next(stage: str, shop: Callable[..., MySQLProject]) -> None:
    """Wherever a process is killed, the next sync must neither miss rows below a stored watermark, nor write rows twice."""
    project = shop(incremental=["changes:at:timestamp!upsert"])
    project.execute(TABLES[1], *(f"insert into changes (value) values ({n})" for n in range(10)))
    project.one("changes")
    project.write()
    project.cli("catalog", "shop", spark=False)
    project.execute("update changes set value = 100 where id < 4", "insert into changes (value) values (200)")
    command = [sys.executable, "-m", "assets_tests.databases.mysql.dying_sync", stage, "--project", str(project.path), "sync"]
    done = subprocess.run(command, env=project.environment(), capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode != 0, done.stdout + done.stderr
    assert project.one("changes")["status"] in ("synced", "skipped")
    project.assert_equal("changes")
