"""The rule that moves the watermark: its parts, and thousands of random histories against a simulated source and lake.

A history interleaves transactions (open, prepared, committed late, rolled back, ended by a restart) with the steps of syncs. A sync may be
killed at each step, may refresh windows, may have lost its events, or may find its table restored. The source and the order of a sync's
steps are simulated; the decisions are those of `incremental_assets.core`.
``pytest assets_tests/core/test_watermark_rule.py --histories 100000`` plays more histories, and ``--seed N --histories 1`` plays one again.

Belongs here: the planning half alone. Does not belong: real servers (``test_property``). `BROKEN` has wrong rules that look right; the
histories must find each of them, which shows that the simulation can fail.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incremental_assets.core.cursor_type import CursorType
from incremental_assets.core.errors import NewerFormat
from incremental_assets.core.lag_window import LagWindow
from incremental_assets.core.stored_format import product_version
from incremental_assets.core.unfilled import Unfilled
from incremental_assets.core.watermark import Activity, Advance, OpenTransactions, Pending, Session, TableState, advance
from incremental_assets.core.window import EVERYTHING, Window, covered_from

NOBODY = OpenTransactions(server_started=1)
QUIET = Activity(server_started=1)


def opened(*virtual: str, prepared: Sequence[str] = (), server_started: int = 1) -> OpenTransactions:
    return OpenTransactions(frozenset(virtual), frozenset(prepared), server_started=server_started)


def at_work(*virtual: str, prepared: Sequence[str] = (), server_started: int = 1) -> Activity:
    return Activity(frozenset(virtual), frozenset(prepared), server_started=server_started)


# ---------------------------------------------------------------------- who is still open
@pytest.mark.parametrize(
    ("noted", "now", "left"),
    [
        (opened("3/1"), QUIET, NOBODY),
        (opened("3/1", "4/7"), at_work("4/7", "5/9"), opened("4/7")),
        (opened(prepared=["77"]), at_work(prepared=["77", "78"]), opened(prepared=["77"])),
        (opened(prepared=["77"]), QUIET, NOBODY),
        (opened("3/1"), at_work(prepared=["78"]), opened(prepared=["78"])),  # 3/1 may be the transaction that is prepared now
        (opened("3/1", prepared=["78"]), at_work(prepared=["78"]), opened(prepared=["78"])),  # 3/1 is not 78, which was prepared before
        (opened("3/1", "4/1"), at_work("4/1", prepared=["78"]), opened("4/1", prepared=["78"])),
        (opened("3/1"), at_work("3/1", server_started=2), NOBODY),  # after a restart, the same number is another transaction
        (opened("3/1", prepared=["77"]), at_work(prepared=["77"], server_started=2), opened(prepared=["77"])),
        (opened("3/1"), at_work(prepared=["78"], server_started=2), opened(prepared=["78"])),  # prepared before the restart, survived it
    ],
)
def test_transactions_count_as_open_until_they_have_ended(noted: OpenTransactions, now: Activity, left: OpenTransactions) -> None:
    """Otherwise the watermark passes rows of a transaction that has not ended, or never moves again after a restart of the server."""
    found = noted.still_open(now)
    assert (found.virtual, found.prepared) == (left.virtual, left.prepared)
    assert bool(found) == bool(left)


def session(transaction: int | None = None, message: int | None = None, idle: bool = False, identity: str = "7/1") -> Session:
    return Session(identity, transaction, message, idle)


@pytest.mark.parametrize(
    ("row", "counts"),
    [
        (session(transaction=90, message=90), True),
        (session(transaction=100, message=100), True),
        (session(transaction=90, message=200), True),  # a later message in a transaction whose time is older
        (session(message=90), True),  # between two transactions of one message, or after a COMMIT that has released its locks
        (session(transaction=101, message=101), False),
        (session(message=101), False),
        (session(message=90, idle=True), False),
    ],
)
def test_which_sessions_may_still_commit_an_old_time(row: Session, counts: bool) -> None:
    """Otherwise the second transaction of one message, whose ``now()`` is that of the first, is lost for good: it has no virtual id yet."""
    activity = Activity(sessions=(row,), server_started=1)
    noted = activity.noted(100, by_session=True)
    assert bool(noted) == counts
    assert bool(noted.still_open(activity)) == counts
    assert not activity.noted(100, by_session=False), "integers go by virtual ids alone"


def test_a_session_of_a_pool_counts_until_its_transaction_has_ended() -> None:
    """Otherwise an application whose connections are always at work holds the watermark back for ever."""
    noted = Activity(sessions=(session(transaction=90, message=90),), server_started=1).noted(100, by_session=True)
    assert noted.still_open(Activity(sessions=(session(transaction=90, message=150),), server_started=1))
    ended = noted.still_open(Activity(sessions=(session(transaction=160, message=160),), server_started=1))
    assert not ended
    assert not ended.still_open(Activity(sessions=(session(transaction=90, message=90),), server_started=1)), "once is for good"
    another = Activity(sessions=(session(transaction=90, message=90, identity="7/2"),), server_started=1)
    assert not noted.still_open(another), "a new session with the same process id is somebody else"


def test_a_session_that_can_no_longer_be_watched_counts_as_open() -> None:
    """Otherwise rows are lost where a privilege is revoked during a sync, so that their session is no longer visible."""
    noted = Activity(sessions=(session(transaction=90, message=90),), server_started=1).noted(100, by_session=True)
    assert noted.still_open(Activity(unwatched_pids=frozenset({"7"}), server_started=1))


def test_sessions_that_cannot_be_watched_go_by_their_virtual_ids() -> None:
    """Otherwise a role without pg_read_all_stats sees no session at all, and loses the rows that they commit."""
    hidden = Activity(virtual=frozenset({"3/1", "4/1"}), unwatched=frozenset({"3/1"}), unwatched_pids=frozenset({"8"}), server_started=1)
    assert hidden.noted(100, by_session=True).virtual == {"3/1"}
    assert hidden.noted(100, by_session=False).virtual == {"3/1", "4/1"}


def test_a_steady_stream_of_prepared_transactions_does_not_stop_the_watermark() -> None:
    """Otherwise an application that always commits in two phases holds the watermark back for ever, as was seen over 1,000 syncs."""
    left = opened("3/1")
    for number in range(1, 10):
        left = left.still_open(at_work(prepared=[str(number), str(number + 1)]))
        if not left:
            break
    assert not left and number == 3, "only the transactions that were prepared when 3/1 was first gone are waited for"


# ---------------------------------------------------------------------- the decision
def test_the_watermark_moves_to_the_highest_value_where_nobody_is_open() -> None:
    """Otherwise each sync reads all rows since the first one again."""
    assert advance(10, (), 20, NOBODY, QUIET, True) == Advance(20, (), False)
    assert advance(None, (), 20, NOBODY, QUIET, True) == Advance(20, (), False)


def test_an_open_transaction_holds_the_watermark_back() -> None:
    """Otherwise rows that are committed after the sync lie below the watermark, and no sync ever reads them."""
    assert advance(10, (), 20, opened("4/1"), at_work("4/1", "5/1"), True) == Advance(10, (Pending(20, opened("4/1")),), True)
    assert advance(None, (), 20, opened("3/1"), at_work("3/1"), True) == Advance(None, (Pending(20, opened("3/1")),), True)


def test_a_table_without_new_rows_is_not_reported_as_held_back() -> None:
    """Otherwise a quiet table is reported as held back by whoever happens to be connected."""
    assert advance(20, (), 20, opened("3/1"), at_work("3/1"), True) == Advance(20, (), False)
    assert advance(20, (), None, opened("3/1"), at_work("3/1"), True) == Advance(20, (), False)


def test_an_empty_table_has_no_watermark() -> None:
    """Otherwise the first rows of a table that was empty at its first sync lie below a watermark that nothing supports."""
    assert advance(None, (), None, NOBODY, QUIET, True) == Advance(None, (), False)


def test_the_watermark_moves_to_a_pending_value_once_its_transactions_have_ended() -> None:
    """Otherwise the watermark never moves where one transaction follows another and some transaction is always open."""
    pending = (Pending(20, opened("3/1")),)
    moved = advance(10, pending, 30, opened("4/1"), at_work("4/1"), True)
    assert moved == Advance(20, (Pending(30, opened("4/1")),), True)
    assert advance(10, pending, 30, opened("3/1", "4/1"), at_work("3/1", "4/1"), True).watermark == 10
    assert advance(10, pending, None, NOBODY, QUIET, True) == Advance(20, (), False)


def test_only_the_oldest_and_the_newest_pending_value_are_kept() -> None:
    """Otherwise the state of a table grows with each sync for as long as somebody forgets to commit."""
    forgotten = opened("3/1")
    watermark, pending = 10, ()
    for highest in range(20, 120, 10):
        moved = advance(watermark, pending, highest, forgotten, at_work("3/1"), True)
        watermark, pending = moved.watermark, moved.pending
    assert (watermark, [p.value for p in pending]) == (10, [20, 110])


def test_the_watermark_moves_although_some_transaction_is_always_open() -> None:
    """Otherwise, where an application always has some short transaction open, each sync reads all rows since the first one again."""
    watermark: int | None = 0
    pending: tuple[Pending, ...] = ()
    for number in range(1, 50):
        moved = advance(watermark, pending, number * 10, opened(f"3/{number}"), at_work(f"3/{number}"), True)
        watermark, pending = moved.watermark, moved.pending
        assert watermark == (number - 1) * 10
        assert len(pending) == 1


@pytest.mark.parametrize("covered", [None, False])
def test_the_watermark_stays_where_the_rows_above_it_were_not_read(covered: bool | None) -> None:
    """Otherwise, after a refresh of an old partition, the next sync skips all rows between that partition and the watermark."""
    pending = (Pending(20, opened("3/1", "4/1")),)
    struck = (Pending(20, opened("4/1")),)
    assert advance(10, pending, 30, NOBODY, at_work("4/1"), covered) == Advance(10, struck, False), (
        "transactions that have ended are struck all the same"
    )


def test_the_watermark_stops_where_the_read_ends() -> None:
    """Otherwise a load in several windows that was killed never loads the rest."""
    assert advance(10, (), 30, NOBODY, QUIET, 20) == Advance(20, (), False)
    assert advance(None, (), 30, NOBODY, QUIET, 0) == Advance(0, (), False), "zero is a place like any other"
    assert advance(10, (Pending(25, opened("3/1")),), 30, opened("4/1"), at_work("4/1"), 20).watermark == 20
    assert advance(10, (), 15, NOBODY, QUIET, 20) == Advance(15, (), False)


def test_a_value_within_the_margin_is_pending_and_held_back_by_nobody() -> None:
    """Otherwise the last second of a table without new rows stays above the watermark, or a busy table is reported as held back."""
    withheld = (Pending(20, OpenTransactions(), by_margin=True),)
    assert advance(10, (), 15, NOBODY, QUIET, True, withheld=20) == Advance(15, withheld, False)
    assert advance(15, withheld, 20, NOBODY, QUIET, True) == Advance(20, (), False), "once the clock has passed the margin"
    assert advance(15, withheld, 15, NOBODY, QUIET, True, withheld=20) == Advance(15, withheld, False), (
        "not before the clock has passed the margin"
    )
    assert advance(15, withheld, 20, opened("3/1"), at_work("3/1"), True).watermark == 15, (
        "no open transactions had been noted for the value within the margin"
    )
    assert advance(15, withheld, 15, NOBODY, QUIET, None).pending == withheld


ids = st.frozensets(st.sampled_from(["1/1", "2/1", "3/1"]))
opens = st.builds(
    OpenTransactions, virtual=ids, prepared=st.frozensets(st.sampled_from(["7", "8"])), server_started=st.sampled_from([1, 2])
)
looks = st.builds(Activity, virtual=ids, prepared=st.frozensets(st.sampled_from(["7", "8"])), server_started=st.sampled_from([1, 2]))
places = st.integers(-5, 15)


@given(
    st.none() | places,
    st.lists(st.builds(Pending, places, opens), max_size=2).map(tuple),
    st.none() | places,
    opens,
    looks,
    st.none() | st.just(True) | places,
)
def test_the_watermark_never_falls_and_never_passes_what_was_read(
    old: int | None,
    pending: tuple[Pending, ...],
    highest: int | None,
    held_by: OpenTransactions,
    now: Activity,
    covered: int | bool | None,
) -> None:
    """Otherwise rows are lost below a watermark that passed what was read, or the stored state grows with each sync."""
    found = advance(old, pending, highest, held_by, now, covered)
    if old is not None:
        assert found.watermark is not None and found.watermark >= old
    if found.watermark != old and found.watermark is not None:
        known = [p.value for p in pending if not p.open.still_open(now)] + ([highest] if highest is not None and not held_by else [])
        assert found.watermark <= max(known)
        assert covered is not None and covered is not False
        assert covered is True or found.watermark <= covered
    assert len(found.pending) <= 2
    if covered is not None and covered is not False:
        assert all(found.watermark is None or p.value > found.watermark for p in found.pending)
        if highest is not None and (found.watermark is None or highest > found.watermark):
            assert found.held_back == bool(held_by)


# ---------------------------------------------------------------------- the state in a table's property
moments = st.integers(-(10**15), 10**17)
names = st.frozensets(st.text())
states = st.builds(
    TableState,
    identifier=st.text(),
    strategy=st.sampled_from(["append", "upsert", "snapshot"]),
    key=st.lists(st.text()).map(tuple),
    source=st.text(),
    watermark=st.none() | moments,
    pending=st.lists(
        st.builds(Pending, moments, st.builds(OpenTransactions, names, names, names, moments, moments), st.booleans()),
        max_size=2,
    ).map(tuple),
    fingerprint=st.none() | st.text(),
    data_version=st.none() | st.integers(0),
    loaded=st.booleans(),
    start=st.none() | st.text(),
    text_columns=st.lists(st.text()).map(tuple),
    columns=st.none() | st.lists(st.text()).map(tuple),
    unfilled=st.none()
    | st.builds(
        Unfilled,
        st.lists(st.text()).map(tuple),
        st.lists(st.builds(Window, st.none() | st.integers(0, 500), st.none() | st.integers(501, 1000))).map(tuple),
    ),
)


@given(st.sampled_from(CursorType) | st.none(), states)
def test_the_state_survives_the_table_property(cursor_type: CursorType | None, state: TableState) -> None:
    """Otherwise a watermark loses a microsecond between two syncs, or a transaction that was open is forgotten."""
    if cursor_type is CursorType.DATE:  # days that dates can hold
        shorter = [replace(p, value=p.value % 10**6) for p in state.pending]
        state = replace(state, watermark=state.watermark % 10**6 if state.watermark is not None else None, pending=tuple(shorter))
    assert TableState.from_json(cursor_type, state.to_json(cursor_type)) == state


def test_the_state_is_readable_and_exact() -> None:
    """Otherwise the watermark in the table's properties cannot be read by a person, or tools read a rounded number."""
    state = TableState("id:integer:integer", "append", ("id",), "1/2", watermark=2**60 + 1)
    assert f'"watermark":{2**60 + 1}' in state.to_json(CursorType.INTEGER)
    assert '"watermark":"2025-01-08T14:30:25.000001Z"' in replace(state, watermark=1_736_346_625_000_001).to_json(CursorType.TIMESTAMP)


def test_the_state_of_an_older_version_is_read() -> None:
    """Otherwise every sync fails after an upgrade, or the transactions that were open are forgotten."""
    state = TableState("id:integer:integer", "append", ("id",), "1/2", watermark=5, pending=(Pending(9, opened("3/1", prepared=["7"])),))
    older = json.loads(state.to_json(CursorType.INTEGER))
    for entry in older["pending"]:
        del entry["sessions"], entry["by_margin"]
    assert TableState.from_json(CursorType.INTEGER, json.dumps(older)) == state


def test_the_state_of_a_newer_version_is_refused() -> None:
    """Otherwise an older version of the product ignores what it does not know in the state, and moves the watermark by the rest."""
    stored = json.loads(TableState("id:integer:integer", "append", (), "1/2").to_json(CursorType.INTEGER))
    assert stored["written_by"] == product_version()
    with pytest.raises(NewerFormat, match=r"newer version of incremental-assets, 9\.1 .*install incremental-assets 9\.1 or newer"):
        TableState.from_json(CursorType.INTEGER, json.dumps({**stored, "format": 99, "written_by": "9.1"}))


# ====================================================================== the simulation
class Row(NamedTuple):
    """A row of the source or the lake. ``version`` differs with each write, so that an older state of a row is recognized."""

    key: int
    value: int | None
    version: int


@dataclass(frozen=True)
class Setting:
    """The kind of source and container of a history. ``values`` says where identifiers come from."""

    strategy: str
    values: str  # now: when the transaction began; clock: when the row is written; date: the day; sequence: drawn, perhaps long before
    lag: int = 0
    nulls: bool = False
    outliers: bool = False
    untidy: bool = False  # with deletes, and updates that leave the identifier as it is, which only a refresh finds
    pieces: int = 1
    writers: bool = False  # hold_back: writers
    settle: int = 1
    sessions: int = 4
    margin: int = 0

    @property
    def by_session(self) -> bool:
        return self.values != "sequence"

    @property
    def margin_in_effect(self) -> int:
        """The margin below the source's clock, which integers do not have."""
        return self.margin if self.by_session else 0

    @property
    def cursor_type(self) -> CursorType:
        return {"sequence": CursorType.INTEGER, "date": CursorType.DATE}.get(self.values, CursorType.TIMESTAMP)


DAY_LENGTH = 10


@dataclass
class Client:
    """A session of the source. ``message``: when its newest message arrived, None while it is idle; ``queued``: how many transactions
    follow in the same message; ``reported``: whether the list of activity shows it as active, which it does not at once after a message."""

    message: int | None = None
    queued: int = 0
    reported: bool = True


@dataclass
class Transaction:
    began: int
    name: str
    held: list[int] = field(default_factory=list[int])  # sequence values drawn and not yet used
    writes: dict[int, Row | None] = field(default_factory=dict[int, Row | None])
    preparing_since: int | None = None


class Source:
    """A database as a sync sees it: only what is committed, a clock, a sequence, and who is open."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._clock = 1000
        self.clients: dict[int, Client] = {}
        self.sequence = 0
        self.rows: dict[int, Row] = {}
        self.open: dict[int, Transaction] = {}
        self.prepared: dict[str, Transaction] = {}
        self.server_started = 1
        self._locals = 0  # begins anew with each start of the server, as virtual ids do
        self._transactions = 700
        self._keys = 0
        self._versions = 0

    @property
    def clock(self) -> int:
        return self._clock

    @clock.setter
    def clock(self, now: int) -> None:
        self._clock = now
        for client in self.clients.values():  # a session shows its message at the latest when the margin is over
            client.reported = client.reported or (client.message or 0) + self.setting.margin < now

    # ------------------------------------------------------------------ what applications do
    def client(self, slot: int) -> Client:
        return self.clients.setdefault(slot, Client())

    def arrive(self, slot: int, x: int) -> None:
        """Lets a message of one to three transactions arrive, which the list of activity does not show yet."""
        client = self.client(slot)
        if slot not in self.open and client.message is None:
            client.message, client.queued, client.reported = self.clock, 1 + x % 3, self.setting.margin == 0

    def begin(self, slot: int) -> Transaction:
        """Begins the next transaction of the session's message, or one of a new message."""
        client = self.client(slot)
        if slot not in self.open:
            if client.message is None:
                client.message, client.queued = self.clock, 1
            client.reported, client.queued = True, client.queued - 1
            self._locals += 1
            self.open[slot] = Transaction(client.message, f"{slot}/{self._locals}")
        elif not client.queued and self.open[slot].preparing_since is None:
            client.message = self.clock  # a message within the transaction
        return self.open[slot]

    def chain(self, slot: int) -> None:
        """Lets COMMIT AND CHAIN arrive: the commit may come later, and the transaction after it has the time of this message."""
        client = self.client(slot)
        if slot in self.open and self.open[slot].preparing_since is None:
            client.message, client.queued = self.clock, max(1, client.queued)

    def end_message(self, slot: int) -> None:
        client = self.client(slot)
        if slot not in self.open:
            client.message, client.queued, client.reported = None, 0, True

    def _left(self, slot: int) -> Transaction:
        """Ends the slot's transaction and returns it. Its message ends as well where no transaction follows in it."""
        client = self.client(slot)
        if not client.queued:
            client.message = None
        return self.open.pop(slot)

    def draw(self, slot: int) -> None:
        self.sequence += 1
        self.begin(slot).held.append(self.sequence)

    def insert(self, slot: int, x: int) -> None:
        transaction = self.begin(slot)
        if transaction.preparing_since is None:
            self._keys += 1
            self._write(transaction, self._keys, self._value(transaction, x))

    def update(self, slot: int, x: int) -> None:
        """Updates a row with a new identifier, except for some rows of an untidy history."""
        transaction = self.begin(slot)
        row = self._choose(transaction, x)
        if row is not None:
            kept = self.setting.untidy and x & 64
            self._write(transaction, row.key, row.value if kept else self._value(transaction, x))

    def delete(self, slot: int, x: int) -> None:
        transaction = self.begin(slot)
        row = self._choose(transaction, x)
        if row is not None:
            transaction.writes[row.key] = None

    def undo(self, slot: int) -> None:
        """Rolls back to a savepoint before the last write."""
        if slot in self.open and self.open[slot].writes:
            self.open[slot].writes.popitem()

    def commit(self, slot: int) -> None:
        if slot in self.open and self.open[slot].preparing_since is None:
            self._apply(self._left(slot))

    def rollback(self, slot: int) -> None:
        if slot in self.open and self.open[slot].preparing_since is None:
            self._left(slot)

    def prepare(self, slot: int) -> None:
        """Prepares a transaction in two steps: it takes its time at the first one, and is listed as prepared from the second one on."""
        transaction = self.open.get(slot)
        if transaction is None:
            return
        if transaction.preparing_since is None:
            transaction.preparing_since = self.clock
        else:
            self._transactions += 1
            self.prepared[str(self._transactions)] = self._left(slot)

    def finish_prepared(self, x: int, commit: bool) -> None:
        if self.prepared:
            transaction = self.prepared.pop(sorted(self.prepared)[x % len(self.prepared)])
            if commit:
                self._apply(transaction)

    def restart(self) -> None:
        self.open.clear()
        self.clients.clear()
        self.clock += 1
        self.server_started = self.clock
        self._locals = 0

    def end_all(self, random: Random) -> None:
        for slot in list(self.open):
            if random.random() < 0.8:
                self.open[slot].preparing_since = None
                self.commit(slot)
            else:
                del self.open[slot]
        while self.prepared:
            self.finish_prepared(0, commit=True)
        self.clients.clear()
        self.clock += self.setting.margin + 1

    def _value(self, transaction: Transaction, x: int) -> int | None:
        setting = self.setting
        if setting.nulls and x % 11 == 0:
            return None
        if setting.values == "sequence":
            if transaction.held and not setting.writers:
                value = transaction.held.pop(x % len(transaction.held))
            else:
                self.sequence += 1
                value = self.sequence
        else:
            value = {"now": transaction.began, "clock": self.clock, "date": transaction.began // DAY_LENGTH}[setting.values]
        if setting.outliers and x % 13 == 0:
            return value + 5 + x % 40
        return value - (setting.lag if x & 4 else x % (setting.lag + 1)) if x % 3 == 0 else value

    def _choose(self, transaction: Transaction, x: int) -> Row | None:
        """A committed row that nobody else has locked."""
        if not self.rows or transaction.preparing_since is not None:
            return None
        key = sorted(self.rows)[x % len(self.rows)]
        others = (t for t in (*self.open.values(), *self.prepared.values()) if t is not transaction)
        if any(key in other.writes for other in others) or transaction.writes.get(key, 0) is None:
            return None
        return transaction.writes.get(key) or self.rows[key]

    def _write(self, transaction: Transaction, key: int, value: int | None) -> None:
        self._versions += 1
        transaction.writes[key] = Row(key, value, self._versions)

    def _apply(self, transaction: Transaction) -> None:
        for key, row in transaction.writes.items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row

    # ------------------------------------------------------------------ what a sync asks
    def highest(self, partitioning: bool = True, margin: int = 0) -> int | None:
        seen = max((row.value for row in self.rows.values() if row.value is not None), default=None)
        now = self.clock - margin
        limit = {"sequence": self.sequence, "date": now // DAY_LENGTH}.get(self.setting.values, now)
        return seen if seen is None or not partitioning else min(seen, limit)

    def _counted(self, transactions: Mapping[str, Transaction]) -> frozenset[str]:
        return frozenset(name for name, t in transactions.items() if t.writes or not self.setting.writers)

    def virtual(self) -> frozenset[str]:
        return self._counted({t.name: t for t in self.open.values()})

    def sessions(self) -> tuple[Session, ...]:
        """The rows of the list of activity. A session stays the same for as long as the server runs, as those of a pool do."""
        found: list[Session] = []
        for slot, client in self.clients.items():
            message = client.message if client.reported else None
            transaction = self.open.get(slot)
            began = transaction.began if transaction else None
            found.append(Session(f"{slot}/{self.server_started}", began, message, message is None and transaction is None))
        return tuple(found)

    def prepared_ids(self) -> frozenset[str]:
        return self._counted(self.prepared)


@dataclass(frozen=True)
class Version:
    """One commit of a Delta table. ``state`` is its property, which a commit of data carries along unchanged."""

    kind: str
    rows: tuple[Row, ...]
    state: str | None


@dataclass
class _Asked:
    """What a sync has found in the source so far: the arguments of ``core.watermark.advance``."""

    highest: int | None = None
    withheld: int | None = None
    clock: int = 0
    held_by: OpenTransactions = NOBODY
    now: Activity = QUIET


class Killed(Exception):
    """Raised to end a sync whose table was changed, or whose source was restarted."""


@dataclass(frozen=True)
class Rule:
    """How a sync decides. The defaults are those of the product; any other value is a plausible mistake."""

    advance: Callable[..., Advance] = advance
    lag_window: Callable[[int | None, int], LagWindow] = LagWindow
    order: str = "highest, open, settled, snapshot"
    prepared_last: bool = True
    data_first: bool = True
    lower_of_both: bool = True
    cut_to_clock: bool = True
    rereads_nulls: bool = True
    adopts_without_reading: bool = False
    margin: bool = True
    by_session: bool = True


class Lake:
    """One container's table, and the syncs that write it. A sync is an iterator, so that other operations can happen between its steps."""

    def __init__(self, source: Source, rule: Rule) -> None:
        self.source = source
        self.setting = source.setting
        self.rule = rule
        self.versions: list[Version] = []
        self.events: list[int | None] = []
        self.zombie: tuple[int, Version] | None = None
        self.read = 0

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.versions[-1].rows if self.versions else ()

    def state(self) -> TableState | None:
        text = self.versions[-1].state if self.versions else None
        return TableState.from_json(self.setting.cursor_type, text) if text else None

    def lose_events(self, x: int) -> None:
        """Removes some of the newest events, or all."""
        del self.events[x % (len(self.events) + 1) :]

    def restore(self, x: int) -> None:
        if self.versions:
            old = self.versions[x % len(self.versions)]
            self.versions.append(Version("restore", old.rows, old.state))

    def land_zombie(self) -> None:
        """Lets a killed client's query commit, unless there was another commit since, for then Delta refuses it."""
        if self.zombie is not None and self.zombie[0] == len(self.versions):
            self.versions.append(self.zombie[1])
        self.zombie = None

    # ------------------------------------------------------------------ a sync
    def sync(self, refresh: Sequence[Window] | None = None) -> Iterator[None]:
        """One sync, or a refresh of windows. Raises Wrong where the lake differs from what the source was when it was read."""
        rule, source = self.rule, self.source
        state = self.state()
        event = self.events[-1] if self.events else None
        watermark = None if state is None else state.watermark
        if watermark is not None and event is not None:
            watermark = min(watermark, event) if rule.lower_of_both else event
        if rule.adopts_without_reading and state is not None:
            now = Activity(source.virtual(), source.prepared_ids(), source.sessions(), server_started=source.server_started)
            ended = [p.value for p in state.pending if not p.open.still_open(now)]
            watermark = max([watermark, *ended]) if watermark is not None else None
        nulls = self.setting.nulls and rule.rereads_nulls
        if refresh is not None:
            yield from self._step(state, watermark, refresh, nulls and EVERYTHING in refresh, checked=False)
            return
        if state is None:  # a table without state is loaded whole, which replaces what a killed load has left in it
            windows = [EVERYTHING] if self.versions else self._pieces(EVERYTHING)
            for number, window in enumerate(windows):
                yield from self._step(self.state(), None, [window], nulls and number + 1 == len(windows), len(windows) == 1)
            return
        lag_window = self.lag_window.window(watermark)
        if state.pending and state.watermark == watermark:
            if (yield from self._learned(state)):
                return
        elif self.is_unchanged(state, lag_window):
            self._check(tuple(source.rows.values()), "skipped")
            return
        pieces = self._pieces(lag_window)
        for number, window in enumerate(pieces):
            state = self.state()
            yield from self._step(
                state, watermark if number == 0 else None, [window], nulls and number + 1 == len(pieces), len(pieces) == 1
            )

    def _learned(self, state: TableState) -> Generator[None, None, bool]:
        """A sync that reads no rows, as they are unchanged, and only moves the watermark where transactions have ended. Returns whether the
        rows were unchanged."""
        source, base = self.source, len(self.versions)
        answer = _Asked()
        for step in "highest", "open":
            yield from self._ask(step, answer)
        yield
        rows = dict(source.rows)
        moved = self._decided(state.watermark, state.pending, answer, True)
        if len(self.versions) != base:
            raise Killed  # somebody else has written to the table
        if not self.is_unchanged(state, self.lag_window.window(state.watermark), rows):
            return False
        self._check(tuple(rows.values()), "skipped")
        fingerprint = self._fingerprint(rows, self.lag_window.window(moved.watermark))
        after = replace(state, watermark=moved.watermark, pending=moved.pending, fingerprint=fingerprint)
        yield
        if after != state and len(self.versions) == base:
            self.versions.append(Version("state", self.rows, after.to_json(self.setting.cursor_type)))
            yield
            self.events.append(moved.watermark)
        return True

    def _decided(self, old: int | None, pending: tuple[Pending, ...], answer: _Asked, covered: int | bool | None) -> Advance:
        return self.rule.advance(old, pending, answer.highest, answer.held_by, answer.now, covered, answer.withheld)

    @property
    def lag_window(self) -> LagWindow:
        return self.rule.lag_window(None, self.setting.lag)

    def _pieces(self, window: Window) -> list[Window]:
        highest = self.source.highest()
        low = window.lower if window.lower is not None else 900 if self.setting.cursor_type is CursorType.TIMESTAMP else 0
        if highest is None or highest - low < self.setting.pieces:
            return [window]
        edges = sorted({low + (highest - low) * number // self.setting.pieces for number in range(1, self.setting.pieces)})
        return self.lag_window.pieces(window, edges)

    def _fingerprint(self, rows: Mapping[int, Row], lag_window: Window) -> str:
        seen = sorted((r.key, r.version) for r in rows.values() if self._scoped(r, [lag_window], True))
        return repr(seen)

    def is_unchanged(self, state: TableState, lag_window: Window, rows: Mapping[int, Row] | None = None) -> bool:
        if state.fingerprint is None or state.fingerprint != self._fingerprint(self.source.rows if rows is None else rows, lag_window):
            return False
        for number in range(len(self.versions) - 1, -1, -1):
            if number <= (state.data_version or 0):
                return number == state.data_version
            if self.versions[number].kind != "state":
                return False
        return False

    def _scoped(self, row: Row, windows: Sequence[Window], nulls: bool) -> bool:
        return nulls if row.value is None else any(window.contains(row.value) for window in windows)

    def _at_work(self) -> Iterator[Activity | None]:
        """Asks who is at work: sessions and virtual ids, then prepared transactions, with a step between the two. Yields the answer
        last."""
        source, first = self.source, self.rule.prepared_last
        started = source.server_started
        prepared = frozenset[str]() if first else source.prepared_ids()
        virtual, sessions = source.virtual(), source.sessions()
        yield None
        if first:
            prepared = source.prepared_ids()
        else:
            virtual, sessions = source.virtual(), source.sessions()
        # hold_back: writers goes by locks, which have virtual ids alone
        watched = not self.setting.writers and self.rule.by_session
        yield Activity(virtual, prepared, sessions if watched else (), frozenset() if watched else virtual, server_started=started)

    def _ask(self, step: str, answer: _Asked) -> Iterator[None]:
        rule, source, setting = self.rule, self.source, self.setting
        if step == "highest":
            answer.clock = source.clock
            margin = setting.margin_in_effect if rule.margin else 0
            answer.highest, at_once = source.highest(rule.cut_to_clock, margin), source.highest(rule.cut_to_clock)
            answer.withheld = at_once if at_once != answer.highest else None
        elif step == "open":
            for found in self._at_work():
                yield
                answer.now = found or answer.now
            answer.held_by = answer.now.noted(answer.clock if answer.clock else source.clock, by_session=setting.by_session)
        elif step == "settled":
            for _ in range(setting.settle):
                if answer.held_by:
                    for found in self._at_work():
                        yield
                        answer.now = found or answer.now
                    answer.held_by = answer.held_by.still_open(answer.now)

    def _step(
        self, state: TableState | None, watermark: int | None, windows: Sequence[Window], nulls: bool, checked: bool
    ) -> Iterator[None]:
        rule, source = self.rule, self.source
        started, base = source.server_started, len(self.versions)
        answer, snapshot = _Asked(now=Activity(server_started=started)), dict[int, Row]()
        for step in rule.order.split(", "):
            if step == "snapshot":
                snapshot = dict(source.rows)
            else:
                yield from self._ask(step, answer)
            yield
            if source.server_started != started:
                raise Killed  # the connection to the source is gone
        old = None if state is None else state.watermark
        if old is not None and watermark is not None:
            old = min(old, watermark) if rule.lower_of_both else watermark
        pending = () if state is None else state.pending
        moved = self._decided(old, pending, answer, self.lag_window.covered_to(windows, old))
        read = [row for row in snapshot.values() if self._scoped(row, windows, nulls)]
        self.read += len(read)
        after = self._next_state(state, moved, windows, nulls, snapshot, base)
        commits = [
            Version("data", self._written(state, windows, nulls, read, snapshot), self.versions[-1].state if self.versions else None),
            Version("state", (), after.to_json(self.setting.cursor_type)),
        ]
        if not rule.data_first:
            commits.reverse()
        for number, commit in enumerate(commits):
            if commit.kind == "data":
                self.zombie = (base + number, commit)
                if not rule.data_first:
                    commit = replace(commit, state=self.versions[-1].state)
            else:
                commit = replace(commit, rows=self.rows)
            yield
            if len(self.versions) != base + number:
                raise Killed  # somebody else has written to the table
            self.zombie = None
            self.versions.append(commit)
        if checked:
            self._check(tuple(snapshot.values()), "synced")
        yield
        self.events.append(moved.watermark)

    def _next_state(
        self, state: TableState | None, moved: Advance, windows: Sequence[Window], nulls: bool, snapshot: Mapping[int, Row], base: int
    ) -> TableState:
        before = state or TableState("id", self.setting.strategy, ("key",), "1/1")
        lag_window = self.lag_window.window(moved.watermark)
        covers = covered_from(windows, lag_window.lower) is True and nulls == self.setting.nulls
        kept = before.fingerprint if before.watermark == moved.watermark else None
        return replace(
            before,
            watermark=moved.watermark,
            pending=moved.pending,
            fingerprint=self._fingerprint(snapshot, lag_window) if covers else kept,
            data_version=base if self.rule.data_first else base + 1,
            loaded=True,
        )

    def _written(
        self, state: TableState | None, windows: Sequence[Window], nulls: bool, read: list[Row], snapshot: Mapping[int, Row]
    ) -> tuple[Row, ...]:
        if state is None and self.versions:
            return tuple(read)
        if self.setting.strategy == "append":
            return (*(row for row in self.rows if not self._scoped(row, windows, nulls)), *read)
        merged = {row.key: row for row in self.rows}
        came = {row.key for row in read}
        for row in self.rows:
            if row.key not in came and self._scoped(row, windows, nulls):  # it has moved to another window, or was deleted
                if row.key in snapshot:
                    merged[row.key] = snapshot[row.key]
                else:
                    del merged[row.key]
        merged.update((row.key, row) for row in read)
        return tuple(merged.values())

    def _check(self, rows: tuple[Row, ...], what: str) -> None:
        if not self.setting.untidy and (difference := compared(self.rows, rows)):
            raise Wrong(f"{what}, but {difference}")


class Wrong(AssertionError):
    """Lake and source differ."""


def compared(lake: Sequence[Row], source: Sequence[Row]) -> str:
    """How two sets of rows differ, in words, or an empty text where they do not."""
    have, want = Counter(lake), Counter(source)
    lost, more = sorted((want - have).elements(), key=str), sorted((have - want).elements(), key=str)
    return "" if have == want else f"the lake lacks {lost} and has too much of {more}"


# ---------------------------------------------------------------------- histories
Operation = tuple[str, int]

WEIGHTS = {
    "sync": 30,
    "insert": 20,
    "commit": 16,
    "begin": 4,
    "arrive": 4,
    "chain": 4,
    "end message": 2,
    "draw": 4,
    "update": 8,
    "prepare": 6,
    "finish prepared": 4,
    "rollback": 2,
    "undo": 2,
    "delete": 4,
    "refresh": 5,
    "kill": 2,
    "kill as zombie": 2,
    "land zombie": 2,
    "lose events": 2,
    "restore": 2,
    "restart": 1,
    "wait": 2,
}
ALWAYS = {"sync", "insert", "commit"}


def setting_of(random: Random) -> Setting:
    return Setting(
        strategy=random.choice(["append", "upsert"]),
        values=random.choice(["now", "clock", "date", "sequence"]),
        lag=random.choice([0, 0, 0, 2, 5]),
        nulls=random.random() < 0.3,
        outliers=random.random() < 0.3,
        untidy=random.random() < 0.1,
        pieces=random.choice([1, 1, 2, 3]),
        settle=random.choice([1, 3]),
        sessions=random.choice([1, 2, 3, 5]),
        margin=random.choice([0, 0, 3, 8]),
    )


def history_of(random: Random) -> list[Operation]:
    """The operations of a history. Each history does some things often and others never, which finds more than the same mixture each
    time."""
    often = [weight * (random.choice([1, 1, 3]) if name in ALWAYS else random.choice([0, 0, 1, 4])) for name, weight in WEIGHTS.items()]
    names = random.choices(list(WEIGHTS), often, k=random.randint(20, 300))
    pace = random.choice([3, 9, 30])
    return [(name, random.getrandbits(24) // 30 * 30 + random.randrange(pace)) for name in names]


def play(setting: Setting, history: Sequence[Operation], rule: Rule) -> str:
    """Plays a history, ends all transactions, and syncs once more. Returns what is wrong then, or an empty text."""
    source = Source(setting)
    lake = Lake(source, rule)
    running: Iterator[None] | None = None
    try:
        for name, x in history:
            slot, source.clock = x // 30 % setting.sessions, source.clock + (x >> 8) % 3
            if name == "sync":
                running = ahead(running or lake.sync(), 1 + x % 30)
            elif name == "refresh":  # a refresh waits for the sync that is running
                ahead(running or iter(()), 10_000)
                running = ahead(lake.sync(windows_of(setting, source, x)), 1 + x % 30)
            elif name in ("kill", "kill as zombie"):
                running = None
                lake.zombie = lake.zombie if name == "kill as zombie" else None
            else:
                apply(source, lake, name, slot, x)
        source.end_all(Random(len(history)))
        if running is not None:
            ahead(running, 10_000)
        ahead(lake.sync(), 10_000)
        if setting.untidy:
            ahead(lake.sync([EVERYTHING]), 10_000)
    except Wrong as wrong:
        return str(wrong)
    if difference := compared(lake.rows, tuple(source.rows.values())):
        return f"after the last sync {difference}"
    # A row that is dated in the future stays within the margin, so that the watermark must not reach it yet.
    state, highest = lake.state(), source.highest(margin=setting.margin_in_effect)
    if not setting.untidy and highest is not None and state is not None and rule == Rule():
        unchanged = lake.is_unchanged(state, lake.lag_window.window(state.watermark))
        if not unchanged and (state.watermark is None or state.watermark < highest):
            return f"nobody is open, but the watermark stays at {state.watermark} below {highest}"
    return ""


def ahead(running: Iterator[None], steps: int) -> Iterator[None] | None:
    """Takes a sync some steps further. Returns None where it has ended."""
    try:
        for _ in range(steps):
            next(running)
    except (StopIteration, Killed):
        return None
    return running


def apply(source: Source, lake: Lake, name: str, slot: int, x: int) -> None:
    setting = source.setting
    if name == "insert":
        source.insert(slot, x)
    elif name == "update" and (setting.strategy == "upsert" or setting.untidy):
        source.update(slot, x)
    elif name == "delete" and setting.untidy:
        source.delete(slot, x)
    elif name == "finish prepared":
        source.finish_prepared(x, commit=x & 7 != 0)
    elif name == "restart":
        source.restart()
    elif name == "lose events":
        lake.lose_events(x)
    elif name == "restore":
        lake.restore(x)
    elif name == "land zombie":
        lake.land_zombie()
    elif name == "wait":
        source.clock += x % 30
    elif name == "arrive":
        source.arrive(slot, x)
    elif name in ("begin", "draw"):
        getattr(source, name)(slot)
    elif name == "end message":
        source.end_message(slot)
    elif name in ("undo", "commit", "rollback", "prepare", "chain") and source.open:
        getattr(source, name)(sorted(source.open)[slot % len(source.open)])


def windows_of(setting: Setting, source: Source, x: int) -> list[Window]:
    """Windows of a refresh: random partitions, or the newest ones, as in most refreshes."""
    lower, width = {CursorType.INTEGER: (0, 8), CursorType.DATE: (100, 2), CursorType.TIMESTAMP: (1000, 20)}[setting.cursor_type]
    count = max(1, ((source.highest() or 0) - lower) // width + 1)
    first, last = sorted(((x >> 6) % count, (x >> 12) % count))
    if x & 32:
        first, last = max(0, count - 1 - (x >> 6) % 2), count - 1
    return [Window(lower + first * width if first else None, lower + (last + 1) * width if last + 1 < count else None)]


def shortest(setting: Setting, history: list[Operation], rule: Rule) -> list[Operation]:
    """The history with as few operations as possible that still fails."""
    size = len(history) // 2
    while size:
        at = 0
        while at < len(history):
            shorter = history[:at] + history[at + size :]
            if play(setting, shorter, rule):
                history = shorter
            else:
                at += size
        size //= 2
    return history


def explained(seed: int, setting: Setting, history: list[Operation], rule: Rule) -> str:
    short = shortest(setting, history, rule)
    steps = "\n".join(f"  {name} {x}" for name, x in short)
    return f"history {seed} (--seed {seed} --histories 1): {play(setting, short, rule)}\n{setting}\n{steps}"


def wrong_histories(rule: Rule, first: int, count: int, change: Callable[[Setting], Setting] = lambda s: s) -> Iterator[int]:
    for seed in range(first, first + count):
        random = Random(seed)
        if play(change(setting_of(random)), history_of(random), rule):
            yield seed


def test_no_history_loses_or_doubles_a_row(request: pytest.FixtureRequest) -> None:
    """Otherwise a late commit, a killed sync or a restored table may leave the lake for ever without rows that the source has."""
    for seed in wrong_histories(Rule(), int(request.config.getoption("--seed") or 0), int(request.config.getoption("--histories") or 2000)):
        random = Random(seed)
        pytest.fail(explained(seed, setting_of(random), history_of(random), Rule()))


# ---------------------------------------------------------------------- wrong rules, which the histories must find
def to_the_maximum(
    old: int | None,
    pending: tuple[Pending, ...],
    highest: int | None,
    held_by: OpenTransactions,
    now: Activity,
    covered: int | bool | None,
    withheld: int | None,
) -> Advance:
    """Moves the watermark to the maximum, whoever is open, as simple loaders do."""
    moves = highest is not None and (old is None or highest > old) and covered is True
    return Advance(highest if moves else old, (), False)


def one_sync_later(
    old: int | None,
    pending: tuple[Pending, ...],
    highest: int | None,
    held_by: OpenTransactions,
    now: Activity,
    covered: int | bool | None,
    withheld: int | None,
) -> Advance:
    """Moves the watermark to the maximum of the sync before, as if all transactions of then had ended."""
    forgotten = tuple(Pending(p.value, replace(NOBODY, server_started=now.server_started)) for p in pending)
    return advance(old, forgotten, highest, held_by, now, covered, withheld)


def without_the_margin_once_pending(
    old: int | None,
    pending: tuple[Pending, ...],
    highest: int | None,
    held_by: OpenTransactions,
    now: Activity,
    covered: int | bool | None,
    withheld: int | None,
) -> Advance:
    """Takes the value within the margin at the next sync, however soon that comes."""
    return advance(old, tuple(replace(p, by_margin=False) for p in pending), highest, held_by, now, covered, withheld)


def seen_in_one_list(noted: OpenTransactions, now: Activity) -> OpenTransactions:
    """Takes a transaction that is no longer in its list for ended, although it may have been prepared since."""
    return replace(_STILL_OPEN(noted, now), prepared=noted.prepared & now.prepared)


def without_prepared(noted: OpenTransactions, now: Activity) -> OpenTransactions:
    """Leaves out prepared transactions."""
    return replace(_STILL_OPEN(noted, now), prepared=frozenset[str]())


def gone_once_not_in_a_transaction(noted: OpenTransactions, now: Activity) -> OpenTransactions:
    """Takes a session without a transaction for one that commits nothing more, although a transaction may follow in the same message."""
    outside = frozenset(s.identity for s in now.sessions if s.transaction_since is None)
    return _STILL_OPEN(replace(noted, sessions=noted.sessions - outside), now)


_STILL_OPEN = OpenTransactions.still_open


class AboveIt(LagWindow):
    def window(self, watermark: int | None) -> Window:
        return EVERYTHING if watermark is None else Window(watermark - self.lag + 1, None)


class WithoutLag(LagWindow):
    def window(self, watermark: int | None) -> Window:
        return Window(watermark, None)


class FromTheWatermarkOn(LagWindow):
    """Takes a read from the watermark on for one that covers the safety lag, too."""

    def covered_to(self, windows: Iterable[Window], watermark: int | None) -> int | bool | None:
        return covered_from(windows, watermark)


class Always(LagWindow):
    def covered_to(self, windows: Iterable[Window], watermark: int | None) -> int | bool | None:
        return True


PLAIN: dict[str, Any] = {"lag": 0, "nulls": False, "outliers": False, "untidy": False}
CROWD: dict[str, Any] = {**PLAIN, "sessions": 2, "pieces": 1, "settle": 3, "values": "sequence"}
TIMES: dict[str, Any] = {**PLAIN, "sessions": 2, "pieces": 1, "values": "now"}
StillOpen = Callable[[OpenTransactions, Activity], OpenTransactions]
BROKEN: dict[str, tuple[Rule | StillOpen, dict[str, Any]]] = {
    "the maximum, then above it": (Rule(advance=to_the_maximum, lag_window=AboveIt), PLAIN),
    "the maximum, then from it on": (Rule(advance=to_the_maximum), PLAIN),
    "the maximum of the sync before": (Rule(advance=one_sync_later), PLAIN),
    "held back, then above it": (Rule(lag_window=AboveIt), PLAIN),
    "who is open, then the highest": (Rule(order="open, highest, settled, snapshot"), CROWD),
    "the snapshot, then who has ended": (Rule(order="highest, open, snapshot, settled"), CROWD),
    "the prepared first, then the others": (Rule(prepared_last=False), CROWD),
    "gone means ended": (seen_in_one_list, CROWD),
    "virtual ids alone, for times": (Rule(by_session=False), TIMES),
    "a session outside of a transaction has ended": (gone_once_not_in_a_transaction, TIMES),
    "without the margin": (Rule(margin=False), {**TIMES, "margin": 8}),
    "the margin once, and not again": (Rule(advance=without_the_margin_once_pending), {**TIMES, "margin": 8}),
    "prepared ones do not count": (without_prepared, PLAIN),
    "the state before the data": (Rule(data_first=False), PLAIN),
    "the newest event, whatever the table says": (Rule(lower_of_both=False), PLAIN),
    "what was pending, without reading again": (Rule(adopts_without_reading=True), PLAIN),
    "a refresh moves it": (Rule(lag_window=Always), PLAIN),
    "a row dated in the future moves it there": (Rule(cut_to_clock=False), {**PLAIN, "outliers": True}),
    "without the lag": (Rule(lag_window=WithoutLag), {**PLAIN, "lag": 3}),
    "rows without identifier once": (Rule(rereads_nulls=False), {**PLAIN, "nulls": True}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_histories_find_each_wrong_rule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the random histories would pass whatever the rule is."""
    broken, focus = BROKEN[name]
    if not isinstance(broken, Rule):
        monkeypatch.setattr(OpenTransactions, "still_open", broken)
    found = next(wrong_histories(broken if isinstance(broken, Rule) else Rule(), 0, 5000, lambda s: replace(s, **focus)), None)
    assert found is not None, "5,000 histories do not tell this rule from the right one"


def late_rows_met_by_a_refresh(rule: Rule) -> str:
    """How lake and source differ after a row arrived within the safety lag, the newest partition was refreshed, and a sync followed."""
    source = Source(Setting("append", "sequence", lag=3))
    lake = Lake(source, rule)

    def commit(rows: int, back: int = 0) -> None:
        for _ in range(rows):
            source.sequence = key = source.sequence + 1
            source.rows[key] = Row(key, key - back, key)

    commit(10)
    ahead(lake.sync(), 100)
    commit(1, back=3)
    commit(9)
    ahead(lake.sync([Window(9, None)]), 100)
    commit(1)
    with contextlib.suppress(Wrong):
        ahead(lake.sync(), 100)
    return compared(lake.rows, tuple(source.rows.values()))


def test_a_refresh_moves_the_watermark_only_if_it_read_the_safety_lag() -> None:
    """Otherwise *Materialize* on the newest partition moves the watermark past late rows that only a sync would have read."""
    assert late_rows_met_by_a_refresh(Rule()) == ""
    assert late_rows_met_by_a_refresh(Rule(lag_window=FromTheWatermarkOn)), "covering from the watermark on is not enough"


def test_hold_back_for_writers_loses_no_row_where_the_write_makes_the_value(request: pytest.FixtureRequest) -> None:
    """Otherwise ``hold_back: writers`` loses rows where the documentation calls it exact: where the write itself makes the value."""
    for values in ("clock", "sequence"):
        wrong = wrong_histories(
            Rule(), int(request.config.getoption("--seed") or 0), 500, lambda s, v=values: replace(s, writers=True, values=v)
        )
        assert next(wrong, None) is None


@pytest.mark.parametrize("values", ["now", "date"])
def test_hold_back_for_writers_loses_rows_dated_by_their_transaction(values: str) -> None:
    """A transaction may have begun long before it first locks the table, and its ``now()`` with it: the pages must say so."""
    assert next(wrong_histories(Rule(), 0, 5000, lambda s: replace(s, writers=True, values=values)), None) is not None
