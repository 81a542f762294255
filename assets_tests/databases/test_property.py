"""Random histories of a source and its syncs: after everything has committed and one more sync, the lake equals its source.

In a history, connections of a real PostgreSQL insert, update, delete, set equal and older times, roll back, prepare, lose their connection
and commit late. Between and *during* their transactions, real syncs write several Delta tables: there are refreshes, lost events, restored
tables, and syncs that end at each of their stages. ``pytest assets_tests/databases/test_property.py --seed 7 --steps 3000`` plays one.

Belongs here: the product as a whole. Does not belong: the watermark rule alone, which ``test_watermark_rule`` tests with a simulated lake.
"""

import contextlib
import datetime
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest
from deltalake import DeltaTable
from psycopg import sql

from assets_tests import hostile
from assets_tests.harness import Project, long
from incremental_assets.core.names import encode_name
from incremental_assets.core.plan import Mode
from incremental_assets.databases import sync
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.postgres.transactions import Transactions
from incremental_assets.delta import sweep, write
from incremental_assets.delta.engine import READ_BY, WRITE_BY
from incremental_assets.runs import commit as container_output
from incremental_assets.runs.adapters import learned
from incremental_assets.runs.partitions import container_partitions
from incremental_assets.spark.session import SparkSession, open_session

MOST_PREPARED = 4
REFRESH = Mode.REFRESH
LAKE_SHARE = 0.2
POINTS = [
    "before it asks for the highest identifier",
    "before it asks who is at work",
    "before it freezes the source",
    "after it has frozen the source",
    "before the data is committed",
    "between data and state",
    "after the state, before the event",
    "before it keeps what it has learned without reading",
    "before a sweep removes rows",
    "between the rows of a sweep and their state",
]
HOUR, DAY = 3_600_000_000, 86_400_000_000
SCHEMA = """
create table log (id bigserial primary key, day date, at timestamp, made timestamptz default now(),
  stamped timestamptz default clock_timestamp(), note text);
create index on log (day); create index on log (at);
create table items (id bigserial primary key, day date, created_at timestamptz, updated_at timestamptz, note text);
create index on items (updated_at);
create schema {schema}; create table {pages} (id text primary key, at timestamptz, note text, {text} text);
comment on table {pages} is {comment}; comment on column {pages}.{text} is {comment};
"""


def do(connection: psycopg.Connection, statement: str, parameters: Any = None) -> psycopg.Cursor[Any]:
    return connection.execute(statement.encode(), parameters)


class Killed(Exception):
    """Raised where a sync is to end as if it were killed there."""


@dataclass
class Lake:
    """One way to sync one of the source's tables, in a project of its own. ``below`` is a condition in SQL for rows that are surely below
    the watermark. ``exact``: whether lake and source are equal after a sync; otherwise updates and deletes need a refresh."""

    name: str
    table: str
    below: str | None
    exact: bool
    attributes: dict[str, Any]
    schema: str = "public"
    project: Project = field(init=False)
    versions: int = 0
    homes: int = 0

    @property
    def is_swept(self) -> bool:
        return self.name in ("upsert_sweep", "upsert_soft")

    @property
    def is_apart(self) -> bool:
        """Whether its partitions are cut along another column than its identifier."""
        return self.name == "upsert_apart"

    @property
    def relation(self) -> str:
        return sql.Identifier(self.schema, self.table).as_string(None).replace("%", "%%")


def lakes(schema: str, pages: str) -> list[Lake]:
    """All lakes that a history may have. ``schema`` and ``pages``: the schema and the name of the table whose names and keys are any
    text."""

    def log(name: str, column: str, kind: str, below: str, **container: Any) -> Lake:
        return Lake(name, "log", below, True, {"incremental": [f"public.log:{column}:{kind}"], "containers": {"log": container}})

    def items(name: str, entry: Any, below: str | None, **container: Any) -> Lake:
        incremental = [entry] if entry else []
        return Lake(name, "items", below, not entry, {"incremental": incremental, "containers": {"items": container} if container else {}})

    text = {"table": f"{schema}.{pages}", "column": "at", "type": "timestamp", "strategy": "upsert"}
    kept = {"schema": schema, "incremental": [text], "containers": {pages: {"safety_lag": 600, "partition_by": "month"}}}
    week = {"column": "day", "every": "week"}
    apart = {"table": "items", "column": "updated_at", "type": "timestamp", "strategy": "upsert", "partition_by": week}
    two = {"table": "items", "column": ["created_at", "updated_at"], "type": "timestamp", "strategy": "upsert"}
    return [
        log("append_date", "day", "date", "day < %s::date - 2", safety_lag=2 * 86400, partition_by="month"),
        log("append_timestamp", "at", "datetime", "at < %s::timestamp - interval '1 hour'", safety_lag=3600, partition_by="week"),
        log("append_integer", "id", "integer", "id < %s", partition_by=20),
        items(
            "upsert",
            "public.items:updated_at:timestamp!upsert",
            "updated_at < %s::timestamptz - interval '10 minutes'",
            safety_lag=600,
            partition_by="month",
        ),
        Lake("upsert_text", pages, "at < %s::timestamptz - interval '10 minutes'", False, kept, schema),
        # Of the following lakes, a history has one, chosen at random.
        log("append_now", "made", "timestamp", "made < %s::timestamptz", partition_by="hour"),
        log("append_writers", "stamped", "timestamp", "stamped < %s::timestamptz", hold_back="writers", partition_by="day"),
        items("upsert_two", two, "greatest(created_at, updated_at) < %s::timestamptz - interval '10 minutes'", safety_lag=600),
        items("upsert_apart", apart, "updated_at < %s::timestamptz - interval '10 minutes'", safety_lag=600),
        items("append_changed", "public.items:id:integer", None, partition_by=15, safety_lag=3),
        *(
            items(
                f"upsert_{deletes}",
                "public.items:updated_at:timestamp!upsert",
                "updated_at < %s::timestamptz - interval '10 minutes'",
                safety_lag=600,
                partition_by="week",
                deletes=deletes,
                deletes_every="1 second",
                max_deleted_share=0.5,
            )
            for deletes in ("sweep", "soft")
        ),
        items("snapshot", None, None),
    ]


@dataclass
class Client:
    """One connection of the application. ``began``: the clock when its transaction began; ``drawn``: ids that it has drawn and not used."""

    connection: psycopg.Connection
    began: int | None = None
    drawn: list[int] = field(default_factory=list)
    savepoint: bool = False


class Message:
    """One message of several transactions. Each waits for an advisory lock before it commits, until the history releases that lock. All of
    them have the ``now()`` at which the message arrived."""

    def __init__(self, url: str, plain: psycopg.Connection, transactions: list[str]) -> None:
        self._plain, self.gates = plain, list(range(1, len(transactions) + 1))
        for gate in self.gates:
            do(plain, "select pg_advisory_lock(%s)", [gate])
        held = (f"begin; {one}; select pg_advisory_xact_lock({gate}); commit" for gate, one in zip(self.gates, transactions, strict=True))
        self._thread = threading.Thread(target=self._send, args=(url, "; ".join(held)))
        self._thread.start()
        self._arrive()

    def _send(self, url: str, text: str) -> None:
        with psycopg.connect(url, autocommit=True, application_name="application") as connection:
            do(connection, text)

    def go_on(self) -> None:
        """Lets the transaction that waits commit, and the next one of the message begin."""
        do(self._plain, "select pg_advisory_unlock(%s)", [self.gates.pop(0)])
        if self.gates:
            self._arrive()
        else:
            self._thread.join(60)
            assert not self._thread.is_alive()

    def _arrive(self) -> None:
        waits = "select exists (select from pg_locks where locktype = 'advisory' and not granted and objid = %s and objsubid = 1)"
        until = time.monotonic() + 60
        while do(self._plain, waits, [self.gates[0]]).fetchone() != (True,):
            assert time.monotonic() < until and self._thread.is_alive(), "the transaction does not wait for its lock"
            time.sleep(0.01)


class History:
    """A random history. All its decisions come from ``random``, so that a seed always plays the same history."""

    def __init__(
        self,
        seed: int,
        steps: int,
        url: str,
        folder: Path,
        spark_home: Path,
        spark: SparkSession | None,
        short: bool = False,
        only: str | None = None,
        place: str | None = None,
    ) -> None:
        """``spark``: None: nothing is read, written, restored or joined by Spark, so names are plain ones. ``short``: whether the history
        has only one lake, with a larger share of the steps, so that many histories can be played. ``only``: the name of this lake.
        ``place``: an address in a store below which the lakes are; otherwise they are in the folder."""
        self.random = random.Random(seed)
        self.read_by, self.write_by = ("", "") if spark is None else (("", ""), ("jdbc", ""), ("", ""), ("", "spark"))[seed // 2 % 4]
        """Some of the histories are read, or written, by Spark alone, as large tables are."""
        self.lake_share = 0.4 if short else LAKE_SHARE
        self.seed, self.steps, self.url, self.folder, self.spark_home, self.spark = seed, steps, url, folder, spark_home, spark
        self.log: list[str] = []
        self.counts: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}
        today = datetime.datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)
        self.epoch = today - datetime.timedelta(days=200)
        self.clock = 0
        self.last = 0
        self.names = 0
        # A generator of its own, so that the rest of a history does not depend on the texts.
        self.texts = random.Random(f"{seed} texts")
        self.schema, self.pages, self.column = hostile.names(self.texts, 3)
        self.keys: set[str] = set()
        self.prepared: list[str] = []
        self.message: Message | None = None
        self.armed: dict[str, list[Any]] = {}
        self.passed: set[str] = set()
        self.plain = psycopg.connect(url, autocommit=True)
        relation, comment = sql.Identifier(self.schema, self.pages), hostile.text(self.texts, without="\0", most_bytes=300)
        names = {"schema": sql.Identifier(self.schema), "pages": relation, "text": sql.Identifier(self.column), "comment": comment}
        do(self.plain, sql.SQL(SCHEMA).format(**names).as_string(self.plain))
        self.clients = [self._client() for _ in range(4)]
        every = [lake for lake in lakes(self.schema, self.pages) if spark is not None or lake.schema == "public"]
        self.lakes = self.random.sample(every, 1) if short else [*every[:5], *self.random.sample(every[5:], 1)]
        if only is not None:
            self.lakes = [lake for lake in every if lake.name == only]
        is_swept = any(lake.is_swept for lake in self.lakes)
        is_apart = any(lake.is_apart for lake in self.lakes)
        for lake in self.lakes:
            others = {"items", "log"} - {lake.table} if lake.schema == "public" else ()
            times = {"settle_seconds": 0.02, "watermark_margin_seconds": 0.05}
            lake.project = Project(folder / lake.name, url, spark_home, exclude=[*others], **times, **lake.attributes)
            if place is not None:
                lake.project.lake = f"{place}/{lake.name}"
        self.source_steps: list[tuple[int, Callable[[], None]]] = [
            (6, self.begin),
            (16, self.insert_log),
            (10, self.insert_items),
            (12, self.update_items),
            (4 if not is_swept else 20, self.delete_items),
            (0 if not is_swept else 10, self.return_item),
            (3, self.change_keys),
            (0 if not is_apart else 20, self.move_items),
            (10, self.insert_pages),
            (8, self.change_pages),
            (5, self.draw),
            (14, self.commit),
            (2, self.commit_and_chain),
            (3, self.send_message),
            (5, self.go_on_with_message),
            (3, self.roll_back),
            (3, self.savepoint),
            (3, self.prepare),
            (3, self.end_prepared),
            (1, self.die),
            (1, self.vacuum),
            (10, self.tick),
        ]
        self.lake_steps: list[tuple[int, Callable[[Lake], None]]] = [
            (60, self.sync),
            (14, self.killed_sync),
            (8, self.refresh_some),
            (3, self.refresh_all),
            (2, self.reset),
            (6, self.restore),
            (2, self.wipe_events),
            (2, self.new_home),
            (2, self.optimize),
            (0 if not is_swept else 20, self.sweep),
        ]

    def _client(self) -> Client:
        return Client(psycopg.connect(self.url, autocommit=True, application_name="application"))

    def note(self, text: str) -> None:
        self.log.append(text)

    # ------------------------------------------------------------------ the source
    def source_step(self) -> None:
        weights, actions = zip(*self.source_steps, strict=True)
        action = self.random.choices(actions, weights)[0]
        self.counts["source steps"] += 1
        action()

    def run(self, client: Client, statement: str, parameters: Any = None) -> psycopg.Cursor[Any]:
        state = f"c{self.clients.index(client)}{'*' if client.began is not None else ' '}"
        self.note(f"{state} {' '.join(statement.split())} {parameters if parameters else ''}")
        return do(client.connection, statement, parameters)

    def someone(self, *, open_: bool | None = None) -> Client | None:
        fitting = [c for c in self.clients if open_ is None or (c.began is not None) == open_]
        return self.random.choice(fitting) if fitting else None

    def begin(self) -> None:
        if client := self.someone(open_=False):
            level = self.random.choice(["read committed", "repeatable read"])
            self.run(client, f"begin isolation level {level}")
            client.began = self.clock

    def draw(self) -> None:
        """Draws ids that the same transaction inserts much later."""
        if client := self.someone(open_=True):
            client.drawn += [row[0] for row in self.run(client, "select nextval('log_id_seq') from generate_series(1, 2)")]

    def moment(self, client: Client, lag: int) -> int | None:
        """A time as applications make it: now, when the transaction began, an equal one, none, or one that is older by up to the lag."""
        began = client.began if client.began is not None else self.clock
        value = self.random.choice(
            [self.clock, self.clock, began, began, max(self.last, began - lag), began - self.random.randint(0, lag), None]
        )
        if value is not None:
            self.last = max(self.last, value)
        return value

    def time(self, value: int | None) -> str | None:
        return None if value is None else (self.epoch + datetime.timedelta(microseconds=value)).isoformat(sep=" ")

    def insert_log(self) -> None:
        client = self.someone()
        assert client is not None
        for _ in range(self.random.choice([1, 1, 2, 5])):
            at, day = self.moment(client, HOUR), self.moment(client, 0)
            if day is not None:
                day -= self.random.choice([0, 0, 0, DAY, 2 * DAY])
            note = f"n{self.random.random():.6f}{self.any_text()}"
            columns, values = ["at", "day", "note"], [self.time(at), (self.time(day) or "")[:10] or None, note]
            if client.drawn and self.random.random() < 0.5:
                columns.append("id")
                values.append(str(client.drawn.pop(self.random.randrange(len(client.drawn)))))
            chance = self.random.random()
            if chance < 0.04:  # a value of the far future, to which the watermark must not move
                columns.append(self.random.choice(["made", "stamped"]))
                values.append("2090-01-01")
            elif chance < 0.06 and "id" not in columns:
                columns.append("id")
                values.append(str(10**12 + self.random.randrange(10**9)))
            elif chance < 0.1:
                columns += ["made", "stamped"]
                values += [None, None]
            marks = ", ".join(["%s"] * len(values))
            self.run(client, f"insert into log ({', '.join(columns)}) values ({marks})", values)

    def insert_items(self) -> None:
        client = self.someone()
        assert client is not None
        for _ in range(self.random.choice([1, 1, 3])):
            day = self.moment(client, 0)
            at = self.time(self.moment(client, HOUR // 6))
            values = ((self.time(day) or "")[:10] or None, at, at, f"i{self.random.random():.6f}")
            self.run(client, "insert into items (day, created_at, updated_at, note) values (%s, %s, %s, %s)", values)

    def one_of_items(self) -> str:
        """A row that is not locked, in SQL. One thread plays the history, so it cannot wait for a lock of its own."""
        return f"(select id from items where id %% 3 = {self.random.randrange(3)} order by id {self.random.choice(['', 'desc'])} " \
               f"offset {self.random.choice([0, 0, 1, 4, 9])} limit 1 for update skip locked)"  # fmt: skip

    def update_items(self) -> None:
        client = self.someone()
        assert client is not None
        at = self.time(self.moment(client, HOUR // 6))
        with self.losing_races(client):
            created = "null" if at is None else "created_at"  # otherwise the greater of the two columns falls back to an old value
            change = f"update items set updated_at = %s, created_at = {created}, note = %s where id = {self.one_of_items()}"
            self.run(client, change, (at, f"u{len(self.log)}"))

    def move_items(self) -> None:
        """Moves a row to another day, or to none; at times without a new time, so that no sync sees it."""
        client = self.someone()
        assert client is not None
        day = self.random.choice([None, *(self.time(n * 9 * DAY) for n in range(20))])
        at = self.time(self.moment(client, HOUR // 6)) if self.random.random() < 0.8 else None
        new = "updated_at" if at is None else "%s"
        with self.losing_races(client):
            change = f"update items set day = %s, updated_at = {new} where id = {self.one_of_items()} and id %% 1 = 0"
            self.run(client, change, [day and day[:10], *([] if at is None else [at])])

    def delete_items(self) -> None:
        client = self.someone()
        assert client is not None
        with self.losing_races(client):
            self.run(client, f"delete from items where id = {self.one_of_items()} and id %% 1 = %s", (0,))

    def change_keys(self) -> None:
        """Gives rows other keys, and other times, as applications do that merge two records or import one again."""
        client = self.someone()
        assert client is not None
        at = self.time(self.moment(client, HOUR // 6))
        created = "null" if at is None else "created_at"
        with self.losing_races(client):
            change = (
                f"update items set id = nextval('items_id_seq'), updated_at = %s, created_at = {created} where id = {self.one_of_items()}"
            )
            self.run(client, change, (at,))
            key = self.any_text()
            if key not in self.keys:
                self.keys.add(key)
                table = sql.Identifier(self.schema, self.pages).as_string(None).replace("%", "%%")
                one = f"(select id from {table} order by id limit 1 for update skip locked)"
                self.run(client, f"update {table} set id = %s, at = %s where id = {one}", (key, at))

    def return_item(self) -> None:
        """Inserts a row with a key that was deleted or never used. Another transaction may just be using it."""
        if client := self.someone(open_=False):
            self.run(client, "set lock_timeout = '100ms'")
            at, order = self.time(self.moment(client, HOUR // 6)), self.random.choice(["", "desc"])
            with contextlib.suppress(psycopg.errors.LockNotAvailable):
                free = f"""select g from generate_series(1, (select max(id) from items)) g
                  where not exists (select from items where id = g) order by g {order} limit 1"""
                values = (at, at, f"r{len(self.log)}")
                self.run(client, f"insert into items (id, created_at, updated_at, note) select g, %s, %s, %s from ({free}) q", values)
            self.run(client, "set lock_timeout = 0")

    def any_text(self) -> str:
        return hostile.text(self.texts, without="\0")

    def insert_pages(self) -> None:
        """Inserts rows whose keys were never used, as an insert would wait for another transaction with the same key."""
        client = self.someone()
        assert client is not None
        table = sql.Identifier(self.schema, self.pages).as_string(None).replace("%", "%%")
        for _ in range(self.random.choice([1, 1, 3])):
            key, at = self.any_text(), self.time(self.moment(client, HOUR // 6))
            if key not in self.keys:
                self.keys.add(key)
                self.run(client, f"insert into {table} values (%s, %s, %s, %s)", (key, at, self.any_text(), self.any_text()))

    def change_pages(self) -> None:
        client = self.someone()
        assert client is not None
        table = sql.Identifier(self.schema, self.pages).as_string(None).replace("%", "%%")
        one = f"(select id from {table} order by id {self.random.choice(['', 'desc'])} limit 1 for update skip locked)"
        at = self.time(self.moment(client, HOUR // 6))
        with self.losing_races(client):
            if self.random.random() < 0.2:
                self.run(client, f"delete from {table} where id = {one} and %s", (True,))
            else:
                self.run(client, f"update {table} set at = %s, note = %s where id = {one}", (at, self.any_text()))

    @contextlib.contextmanager
    def losing_races(self, client: Client) -> Iterator[None]:
        """Rolls back where a transaction with repeatable read meets a newer row and fails."""
        try:
            yield
        except psycopg.errors.SerializationFailure:
            self.end(client, "rollback")

    def end(self, client: Client, how: str) -> None:
        self.run(client, how)
        client.began, client.drawn, client.savepoint = None, [], False

    def commit(self) -> None:
        if client := self.someone(open_=True):
            self.end(client, "commit")

    def commit_and_chain(self) -> None:
        """Commits and begins the next transaction, whose time is the one at which the message with the commit arrived."""
        if client := self.someone(open_=True):
            self.end(client, "commit and chain")
            client.began = self.clock

    def send_message(self) -> None:
        """Sends several transactions in one message. The ``now()`` of the later ones is older than the end of the first one."""
        if self.message is None:
            rows = [f"insert into log (note) values ('m{len(self.log)}.{n}')" for n in range(self.random.choice([2, 2, 3]))]
            self.note(f"message: {'; '.join(rows)}, a transaction each")
            self.message = Message(self.url, self.plain, rows)

    def go_on_with_message(self) -> None:
        if self.message is not None:
            self.note("message: the next of its transactions commits")
            self.message.go_on()
            if not self.message.gates:
                self.message = None

    def roll_back(self) -> None:
        if client := self.someone(open_=True):
            self.end(client, "rollback")

    def savepoint(self) -> None:
        if client := self.someone(open_=True):
            self.run(client, "rollback to savepoint s" if client.savepoint and self.random.random() < 0.6 else "savepoint s")
            client.savepoint = True
            client.drawn = []  # rows inserted after the savepoint are gone, so it is not known which ids are used

    def prepare(self) -> None:
        client = self.someone(open_=True)
        if client is not None and len(self.prepared) < MOST_PREPARED:
            self.names += 1
            name = f"{self.plain.info.dbname}_{self.names}"
            self.end(client, f"prepare transaction '{name}'")
            self.prepared.append(name)

    def end_prepared(self) -> None:
        if self.prepared:
            name = self.prepared.pop(self.random.randrange(len(self.prepared)))
            how = self.random.choice(["commit", "commit", "rollback"])
            self.note(f"{how} prepared '{name}'")
            do(self.plain, f"{how} prepared '{name}'")

    def die(self) -> None:
        """Ends a connection during its transaction."""
        if client := self.someone(open_=True):
            index = self.clients.index(client)
            self.note(f"c{index} dies")
            do(self.plain, "select pg_terminate_backend(%s, 5000)", (client.connection.info.backend_pid,))
            client.connection.close()
            self.clients[index] = self._client()

    def vacuum(self) -> None:
        """Freezes rows, which changes no row of the source, so that the lake must not change either."""
        self.note("vacuum (freeze)")
        do(self.plain, "vacuum (freeze) items")
        do(self.plain, "vacuum (freeze) log")
        do(self.plain, f"vacuum (freeze) {sql.Identifier(self.schema, self.pages).as_string(None)}")

    def tick(self) -> None:
        self.clock += self.random.choice([1, 1, 1000, HOUR // 60, HOUR, 12 * HOUR, DAY])
        self.clock = min(self.clock, 195 * DAY)

    # ------------------------------------------------------------------ the lake
    def lake_step(self) -> None:
        lake = self.random.choice(self.lakes)
        weights, actions = zip(*self.lake_steps, strict=True)
        action: Callable[[Lake], None] = self.random.choices(actions, weights)[0]
        began = time.monotonic()
        action(lake)
        self.seconds[action.__name__] = self.seconds.get(action.__name__, 0.0) + time.monotonic() - began

    @contextlib.contextmanager
    def inside(self, kill: bool, alone: bool, points: Sequence[str] | None = None) -> Iterator[None]:
        """Prepares what happens while the sync of the block runs: it ends at one of its stages, or the application goes on at some."""

        def die() -> None:
            self.note("   … and dies")
            raise Killed

        def go_on() -> None:
            for _ in range(self.random.choice([1, 2, 4])):
                self.source_step()

        if kill:
            self.armed[self.random.choice(POINTS[:7] if points is None else points)] = [0, die]
        if not alone and self.random.random() < 0.6:
            for point in self.random.sample(POINTS, self.random.choice([1, 2])):
                self.armed.setdefault(point, [self.random.choice([0, 0, 1, 2]), go_on])
        try:
            yield
        finally:
            self.armed.clear()

    def reach(self, point: str) -> None:
        """A sync has come to this point: does what was prepared for it."""
        self.passed.add(point)
        if point not in self.armed:
            return
        times_before, happens = self.armed[point]
        if times_before:
            self.armed[point][0] -= 1
            return
        del self.armed[point]
        self.note(f"   {point}:")
        happens()

    def go(self, lake: Lake, what: str, kill: bool = False, **asked: Any) -> dict[str, Any]:
        """Runs one sync with what happens meanwhile. Afterwards no row below its watermark may be missing, and none may be there twice."""
        self.note(f"== {what} {lake.name} {asked or ''}")
        self.counts[what] += 1
        with self.inside(kill, what.startswith("last"), POINTS[8:] if asked.get("sweep") else None):
            try:
                line = lake.project.one(lake.table, ok=False, **asked)
            except Killed:  # during the plan, when there is no run yet that could fail
                assert kill
                self.counts["failed"] += 1
                return {}
        shown = line["watermark"]
        self.note(f"   {line['status']}: read {line['rows_read']}, {shown['previous']} → {shown['new']}, {line['message'][:150]}")
        self.counts[line["status"]] += 1
        if line["status"] == "failed":
            assert (kill and "Killed" in line["message"]) or "--allow-empty" in line["message"], line
        else:
            self.check(lake, shown["new"])
        return line

    def check(self, lake: Lake, watermark: Any) -> None:
        table = lake.project.table(lake.table)
        if table.head() is None or lake.name == "append_changed":
            return
        found = lake.project.rows(lake.table, "id, note")
        doubled = [key for key, times in Counter(row[0] for row in found).items() if times > 1]
        assert not doubled, f"{lake.name}: twice in the lake: {doubled}"
        if lake.below is None or watermark is None:
            return
        due = do(self.plain, f"select id, note from {lake.relation} where {lake.below}", (watermark,)).fetchall()
        lost = set(due) - set(found)
        assert not lost, f"{lake.name}: below the watermark {watermark} and not in the lake: {sorted(lost)}"

    def sync(self, lake: Lake) -> None:
        self.go(lake, "sync")

    def killed_sync(self, lake: Lake) -> None:
        self.go(lake, "killed sync", kill=True, **self.random.choice([{}, {}, {}, {"reset": True}, {"mode": REFRESH}]))

    def sweep(self, lake: Lake) -> None:
        """Sweeps a container that has sweeps, and perhaps dies in it; syncs any other one."""
        if not lake.is_swept:
            return self.sync(lake)
        kill = self.random.random() < 0.4
        self.go(lake, "killed sweep" if kill else "sweep", kill=kill, sweep=True, allow_empty=self.random.random() < 0.5)
        return None

    def refresh_all(self, lake: Lake) -> None:
        self.go(lake, "refresh", mode=REFRESH, allow_empty=self.random.random() < 0.7)

    def refresh_some(self, lake: Lake) -> None:
        """Refreshes a random range of the partitions that exist."""
        with lake.project.instance() as instance:
            asset = next(a for a in lake.project.dagster().resolve_asset_graph().asset_nodes if a.key.path[-1] == encode_name(lake.table))
            keys = asset.partitions_def.get_partition_keys(dynamic_partitions_store=instance) if asset.partitions_def else []
        if not keys:
            return self.sync(lake)
        ordered = sorted(keys, key=int) if keys[0].lstrip("-").isdigit() else list(keys)
        low, high = sorted(self.random.choices(range(len(ordered)), k=2))
        self.go(lake, "refresh", keys=(ordered[low], ordered[high]), allow_empty=self.random.random() < 0.7)
        return None

    def reset(self, lake: Lake) -> None:
        self.go(lake, "reset", reset=True)

    def restore(self, lake: Lake) -> None:
        head = lake.project.table(lake.table).head()
        if head is not None:
            version = self.random.randint(0, head.version)
            self.note(f"== restore {lake.name} to version {version} of {head.version}")
            self.counts["restore"] += 1
            if self.spark is None and version < head.version:
                DeltaTable(lake.project.table(lake.table).address).restore(version)
            elif self.spark is not None:
                self.spark.sql(f"RESTORE TABLE {lake.project.table(lake.table).sql_name} TO VERSION AS OF {version}").collect()

    def optimize(self, lake: Lake) -> None:
        table = lake.project.table(lake.table)
        if table.head() is not None:
            self.note(f"== optimize {lake.name}")
            self.counts["optimize"] += 1
            if self.spark is None:
                DeltaTable(table.address).optimize.compact()
            else:
                self.spark.sql(f"OPTIMIZE {table.sql_name}").collect()

    def wipe_events(self, lake: Lake) -> None:
        self.note(f"== wipe the events of {lake.name}")
        self.counts["wipe"] += 1
        with lake.project.instance() as instance:
            instance.wipe_assets([dg.AssetKey(["shop", encode_name(lake.table)])])

    def new_home(self, lake: Lake) -> None:
        self.note(f"== a new DAGSTER_HOME for {lake.name}")
        self.counts["new home"] += 1
        lake.homes += 1
        lake.project.home = lake.project.path / f".dagster_home_{lake.homes}"
        lake.project.home.mkdir()

    # ------------------------------------------------------------------ the whole
    def play(self) -> None:
        if self.random.random() < 0.8:  # else it begins with an empty source
            for _ in range(20):
                self.insert_log()
                self.insert_items()
                self.insert_pages()
                self.tick()
        for _ in range(self.steps):
            if self.random.random() < self.lake_share:
                self.lake_step()
            else:
                self.source_step()
        self.settle()
        for lake in self.lakes:
            self.go(lake, "last sync")
            found = lake.project.compare(lake.table, schema=lake.schema)
            if lake.is_apart:
                self.assert_reported(lake)
            if lake.exact:
                assert found.equal, (lake.name, found)
            elif "upsert" in lake.name and not lake.is_apart:  # deleted rows and old keys stay until a refresh; nothing else may differ
                assert not found.only_in_source, (lake.name, found)
            # An audit syncs first, and that sync sweeps where a sweep is due by the clock: such a lake is audited after its last sweep.
            if not lake.is_swept:
                self.audit(lake, found.only_in_source, found.only_in_lake)
        for lake in self.lakes:
            if lake.is_swept:
                self.go(lake, "last sweep", sweep=True, allow_empty=True)
                self.assert_swept(lake)
                self.audit(lake, 0, 0)
        for lake in self.lakes:
            if not lake.exact and lake.name != "upsert_soft":
                if self.random.random() < 0.5:
                    self.go(lake, "last refresh", mode=REFRESH, allow_empty=True)
                else:
                    line = lake.project.audit(lake.table, repair=True, allow_empty=True)[lake.table]
                    assert line["status"] in ("equal", "repaired"), line
                lake.project.assert_equal(lake.table, schema=lake.schema)
                self.audit(lake, 0, 0)
        # A point that no sync reaches is never tested. The sync of a container without identifier does not ask for a highest one.
        missed = {*POINTS[:7]} - self.passed
        assert not missed or self.lakes[0].name == "snapshot", f"never reached: {sorted(missed)}"

    def audit(self, lake: Lake, only_in_source: int, only_in_lake: int) -> None:
        """Audits a lake, which has to find as many rows that differ as the comparison that moves all rows here."""
        line = lake.project.audit(lake.table)[lake.table]
        self.note(f"== audit {lake.name}: {line['status']}: {line['message'][:150]}")
        self.counts["audit"] += 1
        assert line["status"] == ("different" if only_in_source or only_in_lake else "equal"), line
        assert (line["missing"] + line["stale"], line["surplus"] + line["stale"]) == (only_in_source, only_in_lake), line

    def assert_reported(self, lake: Lake) -> None:
        """The newest event of each partition has the number of rows that the lake has in it."""
        with lake.project.instance() as instance:
            partitions = container_partitions(lake.project.definition(lake.table), instance)
            records = instance.fetch_materializations(dg.AssetKey(["shop", encode_name(lake.table)]), limit=1000).records
        assert partitions is not None
        events = [r.asset_materialization for r in reversed(records) if r.asset_materialization is not None]
        counted = {e.partition: e.metadata["dagster/partition_row_count"].value for e in events if e.partition is not None}
        days = lake.project.rows(lake.table, "day", "day is not null")
        there = Counter(partitions.key_of((day - datetime.date(1970, 1, 1)).days) for (day,) in days)
        assert {key: rows for key, rows in counted.items() if rows} == there, (lake.name, counted, there)

    def assert_swept(self, lake: Lake) -> None:
        """After a sweep the lake has the rows of its source, and beside them only rows that are marked as deleted."""
        if lake.name == "upsert_sweep":
            lake.project.assert_equal(lake.table, schema=lake.schema)
            return
        source = do(self.plain, f"select id, note from {lake.relation}").fetchall()
        found = lake.project.rows(lake.table, "id, note", "_deleted_at is null")
        assert Counter(found) == Counter(source), (lake.name, set(found) ^ set(source))

    def settle(self) -> None:
        """Commits all open transactions."""
        while self.message is not None:
            self.go_on_with_message()
        for client in self.clients:
            if client.began is not None:
                self.end(client, "commit")
        while self.prepared:
            self.end_prepared()

    def close(self) -> None:
        while self.message is not None:
            self.go_on_with_message()
        for client in self.clients:
            client.connection.close()
        while self.prepared:
            do(self.plain, f"rollback prepared '{self.prepared.pop()}'")
        self.plain.close()
        for lake in self.lakes:
            lake.project.source.close()


def watch(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the syncs call the history at each point. Everything is still done by the product's code."""

    def before(owner: Any, name: str, point: str) -> None:
        real = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            history.reach(point)
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, wrapped)

    real_snapshot, real_commit = PostgresReader.snapshot, write.commit

    @contextlib.contextmanager
    def snapshot(reader: PostgresReader) -> Iterator[str]:
        history.reach(POINTS[2])
        with real_snapshot(reader) as name:
            history.reach(POINTS[3])
            yield name

    def commit(*args: Any, **kwargs: Any) -> Any:
        outcome = real_commit(*args, **kwargs)
        history.reach(POINTS[6])
        return outcome

    monkeypatch.setenv(READ_BY, os.environ.get(READ_BY) or history.read_by)
    monkeypatch.setenv(WRITE_BY, os.environ.get(WRITE_BY) or history.write_by)
    before(PostgresReader, "highest", POINTS[0])
    before(Transactions, "at_work", POINTS[1])
    before(learned, "set_property_without_spark", POINTS[7])
    before(PostgresReader, "still_there", POINTS[4])
    before(write, "set_property", POINTS[5])
    before(sync, "sweep", POINTS[8])
    before(sweep, "set_property", POINTS[9])
    monkeypatch.setattr(PostgresReader, "snapshot", snapshot)
    monkeypatch.setattr(container_output, "commit", commit)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_a_long_history_loses_and_doubles_no_row(
    request: pytest.FixtureRequest, database: str, tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The product's most important promise: no row is missing in the lake, and none is there twice."""
    seed, steps = int(request.config.getoption("--seed") or 0), int(request.config.getoption("--steps") or 0)
    request.node.user_properties.append(("history", _played(seed, steps, database, tmp_path, spark_home, monkeypatch)))


@pytest.mark.parametrize("number", [0, *long(1, 2)])
def test_a_short_history_loses_and_doubles_no_row(
    request: pytest.FixtureRequest, database: str, tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The same promise with one container and few steps. ``assets_tests.soak`` plays many of these histories."""
    seed = int(request.config.getoption("--seed") or 0) + number
    _played(seed, 12, database, tmp_path, spark_home, monkeypatch, short=True)


@pytest.mark.long
@pytest.mark.parametrize("lake", ["upsert_sweep", pytest.param("upsert_soft", marks=pytest.mark.long)])
def test_after_a_sweep_the_lake_has_no_row_that_the_source_does_not_have(
    request: pytest.FixtureRequest, database: str, tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch, lake: str
) -> None:
    """The same promise for deleted rows, without a refresh: whatever else happens, and whatever is killed."""
    seed = int(request.config.getoption("--seed") or 0)
    _played(seed, 20, database, tmp_path, spark_home, monkeypatch, short=True, only=lake)


@pytest.mark.long
@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_container_that_is_partitioned_by_another_column_loses_no_row_and_reports_each_count(
    request: pytest.FixtureRequest, database: str, tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The same promise, and in the end the newest event of each partition has the number of its rows, whatever was killed and moved."""
    seed = int(request.config.getoption("--seed") or 0) + number
    _played(seed, 20, database, tmp_path, spark_home, monkeypatch, short=True, only="upsert_apart")


def _played(
    seed: int,
    steps: int,
    database: str,
    tmp_path: Path,
    spark_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    short: bool = False,
    only: str | None = None,
) -> str:
    with open_session(spark_home, name="history") as spark:
        return played(History(seed, steps, database, tmp_path, spark_home, spark, short, only), monkeypatch)


def played(history: History, monkeypatch: pytest.MonkeyPatch) -> str:
    """Plays the history. The test fails where something is wrong, and shows what the history did. Returns what it did in a line."""
    began = time.monotonic()
    watch(history, monkeypatch)
    try:
        history.play()
    except Exception as error:  # noqa: BLE001 the test fails, and shows its history
        log = "\n".join(history.log)
        pytest.fail(f"--seed {history.seed} --steps {history.steps}:\n{log}\n{type(error).__name__}: {error}", pytrace=False)
    finally:
        history.close()
    seconds = {name: round(value) for name, value in history.seconds.items()}
    summary = f"seed {history.seed}, {history.steps} steps, {time.monotonic() - began:.0f} s: {dict(history.counts)}; {seconds}"
    print(summary)  # noqa: T201
    return summary
