"""Random histories of a server's tables: transactions that commit late, updates, and syncs that end at any stage.

Belongs here: histories, and the kills of processes. Does not belong: single cases (``test_server_sync``, ``test_server_late_commits``).
"""

import contextlib
import random

import pytest

from assets_tests.databases.servers.parameters import Shop
from assets_tests.databases.servers.project import ServerProject
from assets_tests.databases.servers.sql import By
from assets_tests.databases.servers.stages import STAGES

NAMES = ("arrivals", "changes", "days")
WORDS = ("begin", "insert", "insert", "insert", "update", "commit", "commit", "rollback", "sync", "sync", "dies")


def made(shop: Shop) -> ServerProject:
    """A project with a table for each way of telling new rows from old, which was synced once."""
    project = shop(settle_seconds=0)
    if not project.reads_past_locks:
        pytest.skip("without snapshots the read waits for the open transaction's locks")
    sql = project.sql
    project.configure(incremental=["arrivals:id:integer", project.entry("changes", By.CHANGED), "days:created:datetime"])
    project.execute(
        f"create table arrivals (id {sql.numbered_wide}, value int)",
        f"create table changes (id {sql.numbered}, value int, changed {sql.changed})",
        "create index changes_changed on changes (changed)",
        f"create table days (id {sql.numbered}, value int, created {sql.created_coarse})",
    )
    project.sync()
    return project


def history(project: ServerProject, seed: int, steps: int) -> None:
    """Plays one history and then asserts that the lake equals the source."""
    dice, serial, sql = random.Random(seed), iter(range(10**9)), project.sql
    sessions = [project.session() for _ in range(4)]
    try:
        for session in sessions:
            session.cursor().execute(sql.short_lock_wait)
        for _ in range(steps):
            session = dice.choice(sessions)
            with session.cursor() as cursor, contextlib.suppress(*project.server_errors):
                match dice.choice(WORDS):
                    case "begin":
                        cursor.execute(sql.begin)
                    case "commit":
                        cursor.execute(sql.commit)
                    case "rollback":
                        cursor.execute(sql.rollback)
                    case "insert":
                        cursor.execute(f"insert into {dice.choice(NAMES)} (value) values ({next(serial)}), ({next(serial)})")
                    case "update":
                        cursor.execute(f"update changes set value = {next(serial)} where id % 5 = {dice.randrange(5)}")
                    case "sync":
                        for line in project.sync(stale=True).values():
                            assert line["status"] in ("synced", "skipped"), line["message"]
                    case _:
                        project.sync_that_fails(dice.choice(STAGES))
        for session in sessions:
            session.cursor().execute(sql.commit if dice.random() < 0.7 else sql.rollback)
    finally:
        for session in sessions:
            session.close()
    project.sync(stale=True)
    for name in NAMES:
        project.assert_equal(name)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_short_history_loses_and_doubles_no_row(seed: int, shop: Shop) -> None:
    """Each single case may be right and their combination wrong: rows are then missing or doubled for ever."""
    history(made(shop), seed, 25)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 18))
def test_a_long_history_loses_and_doubles_no_row(seed: int, shop: Shop) -> None:
    """As the short ones, with more to combine."""
    history(made(shop), seed, 120)


@pytest.mark.parametrize("stage", [one if one == "between rows and state" else pytest.param(one, marks=pytest.mark.long) for one in STAGES])
def test_a_sync_that_is_killed_is_completed_by_the_next(stage: str, shop: Shop) -> None:
    """Wherever a process is killed, the next sync must neither miss rows below a stored watermark, nor write rows twice."""
    project = shop()
    sql = project.sql
    project.configure(incremental=[project.entry("changes", By.CHANGED)])
    project.execute(
        f"create table changes (id {sql.numbered}, value int, changed {sql.changed})",
        "create index changes_changed on changes (changed)",
        *(f"insert into changes (value) values ({n})" for n in range(10)),
    )
    project.one("changes")
    project.prepare_to_die()
    project.execute("update changes set value = 100 where id < 4", "insert into changes (value) values (200)")
    project.sync_that_dies(stage)
    project.one("changes")
    project.assert_equal("changes")
