"""Implements the protocol of a source's log (``databases.change_log``) for PostgreSQL."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence

import psycopg
import pyarrow as pa
from psycopg import sql

from incremental_assets.core.capture import Shape, lsn_text, parse_lsn
from incremental_assets.core.container import HoldBack
from incremental_assets.core.errors import SourceError
from incremental_assets.databases.change_log import Key, LogState, Peeked, Since
from incremental_assets.databases.postgres.capture.log import Captured, Look, SnapshotIds, count, look
from incremental_assets.databases.postgres.capture.lookup import keys_of_part, rows_and_keys
from incremental_assets.databases.postgres.capture.slot import SlotQueries
from incremental_assets.databases.postgres.capture.slot_session import SLOT_LOCK, slot_session
from incremental_assets.databases.postgres.connection import ask
from incremental_assets.databases.postgres.extract import carried_columns
from incremental_assets.databases.postgres.failures import source_errors
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.postgres.transactions import Transactions

FLUSH_SECONDS = 1.0
"""How long a sync waits until the log has reached the disk that belongs to its snapshot. Transactions with ``synchronous_commit = off``
become visible up to 0.6 s before that, and no others."""


class PostgresChangeLog:
    """The ``ChangeLog`` of one container in PostgreSQL. ``slot``: the name of the slot and of the publication."""

    def __init__(self, reader: PostgresReader, slot: str) -> None:
        self._reader, self._slot = reader, slot

    def state(self) -> LogState:
        container = self._reader.container
        with self._errors():
            return SlotQueries(self._reader.live, self._slot, container.datastore).state(container)

    def changed(self, asked: Mapping[str, Since]) -> Mapping[str, Peeked]:
        until = parse_lsn(self._one("select pg_current_wal_flush_lsn()::text"))
        with self._errors():
            return count(self._reader.address, self._slot, asked, until)

    def point(self, confirmed: int) -> Peeked:
        captured = self._captured(confirmed, ())
        captured.close()
        return captured.found

    def captured(self, since: int, before: Shape, now: Shape) -> Captured:
        captured = self._captured(since, sorted({*before.parts, *now.parts}))
        for part in before.new_parts(now):
            for key in keys_of_part(self._reader, part):
                captured.keys.add(key)
        return captured

    def _captured(self, since: int, parts: Sequence[int]) -> Captured:
        """What has changed from ``since`` on up to the snapshot that is held."""
        seen, inserted = self._two("select txid_current_snapshot()::text, pg_current_wal_insert_lsn()::text")
        end = self._flushed(parse_lsn(inserted))
        with self._errors():
            return look(self._reader.address, self._look(since, end, parts, SnapshotIds.parse(seen)))

    def _flushed(self, inserted: int) -> int:
        """The end of the log on the disk, once it has come to ``inserted``, or after a moment: a transaction that is still open does not
        let its part of the log be written."""
        deadline = time.monotonic() + FLUSH_SECONDS
        while True:
            flushed = parse_lsn(self._one("select pg_current_wal_flush_lsn()::text"))
            if flushed >= inserted or time.monotonic() > deadline:
                return flushed
            time.sleep(0.02)

    def _look(self, since: int, until: int, parts: Sequence[int], snapshot: SnapshotIds | None = None) -> Look:
        container = self._reader.container
        return Look(self._slot, since, until, parts, container.primary_key, snapshot, not container.options.exclude_columns)

    def rows(self, text_columns: Sequence[str], keys: Sequence[Key], most_bytes: int) -> tuple[pa.Table, pa.Table] | None:
        carried = carried_columns(self._reader.container, text_columns, self._reader.server.version)
        return rows_and_keys(self._reader, carried, keys, most_bytes)

    def settle(self, seconds: float) -> None:
        reader, container = self._reader, self._reader.container
        relation = sql.Identifier(container.schema, container.name).as_string(None)
        writers = Transactions(reader.rows, relation, HoldBack.WRITERS, reader.server.started, False)
        left, _ = writers.settle(0, seconds)
        if left:
            who = ", ".join(
                f"{'pid ' + str(holder.pid) if holder.pid else holder.application} (user {holder.user}, open since {holder.since})"
                for holder in writers.holders(left)
            )
            raise SourceError(
                f"{container.label}: a load waits for transactions that have written to the table, as they may have begun before its "
                f"changes were captured, and after {seconds:g} s these were still open: {who}. End them, or sync again later."
            )

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        with self._errors(), contextlib.closing(self._reader.address.opened()) as connection:
            connection.execute("select pg_advisory_lock_shared(%s, hashtext(%s) # 1)", [SLOT_LOCK, self._slot])
            yield

    def advance(self, to: int) -> bool:
        with self._errors(), slot_session(self._reader.address, self._slot) as connection:
            alone = connection.execute("select pg_try_advisory_xact_lock(%s, hashtext(%s) # 1)", [SLOT_LOCK, self._slot]).fetchone()
            if alone is None or not alone[0]:
                return False
            connection.execute(
                "select pg_replication_slot_advance(slot_name, %s::pg_lsn) from pg_replication_slots"
                " where slot_name = %s and confirmed_flush_lsn < %s::pg_lsn",
                [lsn_text(to), self._slot, lsn_text(to)],
            )
            return True

    # ------------------------------------------------------------------
    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        label = self._reader.container.label
        try:
            with source_errors(label, self._reader.address):
                yield
        except SourceError as error:
            cause = error.__cause__
            if isinstance(cause, psycopg.errors.ObjectInUse):
                what = "another program reads it; a slot has one reader. Name one of its own: capture_slot"
            elif isinstance(cause, psycopg.errors.InsufficientPrivilege):
                what = f"this role may not read it. Run: incremental-assets capture setup {self._reader.container.datastore}"
            elif isinstance(cause, psycopg.errors.UndefinedObject):
                datastore = self._reader.container.datastore
                what = (
                    "its log has changes from before the publication was made, so that it cannot be read. To make both anew: "
                    f"incremental-assets capture drop {datastore} && incremental-assets capture setup {datastore}; the next sync then "
                    "loads its containers anew."
                )
            else:
                raise
            raise SourceError(f"{label}: the replication slot {self._slot!r}: {what}") from error

    def _two(self, query: str) -> tuple[str, str]:
        with self._errors():
            return ask(self._reader.live, query)[0]

    def _one(self, query: str) -> str:
        with self._errors():
            return ask(self._reader.live, query)[0][0]
