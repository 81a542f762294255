"""Random histories of a source whose log is followed: after everything has ended and one more sync, the lake equals its source.

In a history, several connections of a real PostgreSQL insert, update, delete, change keys, update rows beside long values, roll back,
prepare and commit late. Others truncate, add columns, drop the slot and make it again, or advance it. Between their statements real syncs
run, which end at random stages: by an error, or as processes of their own by SIGKILL (``dying_sync``). PostgreSQL crashes, between syncs
and in the middle of one, and the Delta tables are restored to older versions.

Belongs here: capture as a whole. Does not belong: single cases (``test_capture``).
"""

import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from assets_tests.capture.test_capture import SLOT, STAGES, Killed, set_up
from assets_tests.harness import Project
from incremental_assets.databases import capture_sync
from incremental_assets.demo.postgres import EmbeddedPostgres

MakeProject = Callable[..., Project]
KEYS = 60
SCHEMA = """
create table items (id int primary key, day date, n int, doc text); alter table items alter doc set storage external;
create table notes (a int, b text, note text, primary key (a, b));
insert into items select i, date '2026-01-01' + i, 0, repeat('x', 5000) from generate_series(1, 30) i;
insert into notes select i % 5, 'k' || i, 'n' from generate_series(1, 30) i"""


class History:
    """One random history. ``rare``: how often, in a thousand steps, something happens that does not happen every day.

    ``happened``: how often each kind of step was taken.
    """

    def __init__(self, project: Project, server: EmbeddedPostgres, seed: int, rare: int) -> None:
        self.project, self.server, self.random, self.rare = project, server, random.Random(seed), rare
        self.happened = Counter[str]()
        self.clients = [psycopg.connect(project.url) for _ in range(3)]
        self.prepared: list[str] = []
        self.columns = 0
        self.said: list[str] = []

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        for client in self.clients:
            client.commit()
            client.close()
        for name in self.prepared:
            self.project.execute(f"commit prepared '{name}'")

    def step(self) -> None:
        chance = self.random.random()
        if chance * 1000 < self.rare:
            rare = [
                self.truncate, self.alter, self.new_slot, self.advanced_slot, self.restore, self.crash, self.crash_in_a_sync,
                self.killed_process,
            ]  # fmt: skip
            chosen = self.random.choice(rare)
            self.happened[chosen.__name__] += 1
            chosen()
        elif chance < 0.6:
            self.write(self.random.choice(self.clients))
        elif chance < 0.8:
            self.end(self.random.choice(self.clients))
        elif chance < 0.87:
            self.killed_sync()
        else:
            self.sync(*([] if self.random.random() < 0.5 else [self.random.choice(["items", "notes"])]))

    # ------------------------------------------------------------------ the application
    def write(self, client: psycopg.Connection) -> None:
        key, other, number = self.random.randint(1, KEYS), self.random.randint(1, KEYS), self.random.randint(0, 10_000)
        day, long = f"date '2026-01-01' + {number} % 200", f"repeat(md5('{number}'), 200)"
        statement = self.random.choice([
            f"insert into items values ({key}, {day}, {number}, {long}) on conflict do nothing",
            f"update items set n = {number} where id = {key}",
            f"update items set n = {number}, doc = {long} where id = {key}",
            f"update items set day = {day} where id between {key} and {key + 5}",
            f"update items set id = {other} where id = {key} and not exists (select from items where id = {other})",
            f"delete from items where id = {key}",
            f"delete from items where id between {key} and {key + 5}",
            f"insert into notes values ({key % 7}, 'k{other}', 'n{number}') on conflict (a, b) do update set note = excluded.note",
            f"update notes set b = 'k{other}' where a = {key % 7} and b = 'k{key}'",
            f"delete from notes where a = {key % 7} and b > 'k{other}'",
        ])  # fmt: skip
        try:
            client.execute("set local lock_timeout = '50ms'")
            client.execute(statement.encode())
        except psycopg.Error:  # somebody else holds the row, or has written the key
            client.rollback()

    def end(self, client: psycopg.Connection) -> None:
        kind = self.random.random()
        if kind < 0.2:
            client.rollback()
        elif kind < 0.3 and len(self.prepared) < 3 and client.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
            name = f"p{self.random.getrandbits(40)}"
            client.execute(f"prepare transaction '{name}'".encode())
            client.commit()
            self.prepared.append(name)
        elif kind < 0.4 and self.prepared:
            name = self.prepared.pop(self.random.randrange(len(self.prepared)))
            self.project.execute(f"{self.random.choice(['commit', 'rollback'])} prepared '{name}'")
        else:
            client.commit()

    def everybody_ends(self) -> None:
        for client in self.clients:
            self.random.choice([client.commit, client.rollback])()
        while self.prepared:
            self.project.execute(f"commit prepared '{self.prepared.pop()}'")

    def truncate(self) -> None:
        self.everybody_ends()
        self.project.execute(
            f"truncate {self.random.choice(['items', 'notes'])}; insert into items values (1, '2026-01-01', 1, 'x') on conflict do nothing"
        )

    def alter(self) -> None:
        self.everybody_ends()
        self.columns += 1
        default = self.random.choice(["", "default 5", "default floor(random() * 10)"])
        self.project.execute(f"alter table items add column c{self.columns} int {default}")

    def new_slot(self) -> None:
        self.everybody_ends()
        self.project.execute(f"select pg_drop_replication_slot('{SLOT}')")
        self.write(self.clients[0])
        self.clients[0].commit()
        self.project.execute(f"select pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")

    def advanced_slot(self) -> None:
        self.write(self.clients[0])
        self.clients[0].commit()
        self.project.execute(f"select pg_replication_slot_advance('{SLOT}', pg_current_wal_lsn())")

    def restore(self) -> None:
        delta = self.project.table(self.random.choice(["items", "notes"])).opened()
        if delta is not None and delta.version() > 2:
            delta.restore(self.random.randint(0, delta.version() - 1))

    def crash(self) -> None:
        """PostgreSQL ends as by a power failure, and starts again. Open transactions are gone, prepared ones are not."""
        self.server.stop(immediate=True)
        self.server.start()
        for client in (*self.clients, self.project.source):
            client.close()
        self.clients = [psycopg.connect(self.project.url) for _ in self.clients]
        self.project.source = psycopg.connect(self.project.url, autocommit=True)

    # ------------------------------------------------------------------ syncs
    def sync(self, *names: str) -> None:
        for line in self.project.sync(*names, allow_empty=True).values():
            # A load waits for those who have written to the table before, and says so.
            assert line["status"] != "failed" or "waits for transactions" in line["message"], line
            self.said.append(line["message"])

    def killed_sync(self) -> None:
        def dies() -> None:
            raise Killed

        self.sync_with(dies)

    def crash_in_a_sync(self) -> None:
        self.write(self.clients[0])
        self.clients[0].commit()
        self.sync_with(self.crash)

    def sync_with(self, happens: Callable[[], None]) -> None:
        """A sync of all containers, at a random stage of which something happens."""
        owner, name = STAGES[self.random.choice(list(STAGES))]
        calls = self.random.randint(1, 2)

        def instead(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls -= 1
            if calls == 0:
                happens()
            return real(*arguments, **named)

        real = getattr(owner, name)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(owner, name, instead)
            self.project.sync(allow_empty=True)

    def killed_process(self) -> None:
        """The command line is killed at a random stage, or comes to its end if that has not so many calls."""
        for _ in range(8):  # so that there is something to do, for both containers
            self.write(self.clients[0])
            self.clients[0].commit()
        self.project.write()
        stage, calls, afterwards = self.random.choice(list(STAGES)), self.random.choice([1, 1, 1, 2]), self.random.random() < 0.5
        command = [sys.executable, "-m", "assets_tests.capture.dying_sync", stage, str(calls), "after" if afterwards else "before"]
        done = subprocess.run(
            [*command, "--project", str(self.project.path), "sync", "--allow-empty", "--json"],
            cwd=Path(__file__).parents[2], env=self.project.environment(), capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        self.happened["killed by SIGKILL"] += done.returncode == -signal.SIGKILL
        waits = "waits for transactions" in done.stdout
        assert done.returncode in (0, -signal.SIGKILL) or waits, (stage, done.returncode, done.stdout, done.stderr[-2000:])


def play(project: MakeProject, server: EmbeddedPostgres, seed: int, steps: int, rare: int) -> History:
    made = project(incremental=["public.items:day:date"], containers={"items": {"partition_by": "month"}}, capture="log")
    made.execute(SCHEMA)
    set_up(made, "items", "notes")
    made.sync()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(capture_sync, "KEYS_A_COMMIT", 7)
        patched.setattr(capture_sync, "SETTLE_SECONDS", 0.3)
        history = History(made, server, seed, rare)
        history.play(steps)
        history.sync()
    for name in ("items", "notes"):
        made.assert_equal(name)
    return history


def test_a_short_history_loses_and_doubles_no_change(project: MakeProject, postgres: EmbeddedPostgres) -> None:
    play(project, postgres, seed=1, steps=20, rare=0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_a_long_history_loses_and_doubles_no_change(
    project: MakeProject, postgres: EmbeddedPostgres, seed: int, record_property: Callable[[str, object], None]
) -> None:
    history = play(project, postgres, 100 + seed, steps=120, rare=100)
    record_property("happened", dict(history.happened))
    found = history.project.audit("items", "notes")
    assert {one["status"] for one in found.values()} == {"equal"}, found
