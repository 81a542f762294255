"""What happens to the shop's database in a day, as steps that syncs can run between.

Belongs here: changes as applications make them: inserts, updates, deletes, a late row, a transaction that stays open, new columns, a
correction of old rows. Does not belong: what the database looks like before (``source``), and what a sync makes of it. Nothing here knows
the lake, so that the changes cannot be arranged to suit it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import psycopg

from incremental_assets.demo.source import LATE_EVENT_ID


@dataclass(frozen=True)
class Change:
    """What one statement changed: ``rows`` rows of the table ``container``."""

    container: str
    what: str
    rows: int


@dataclass(frozen=True)
class Correction:
    """Changes that no incremental sync notices: updates outside the lag window, and deletions.

    Only a refresh of their partitions brings them to the lake. ``deleted``: the number of rows that are gone from the source.
    """

    container: str
    changes: list[Change]
    deleted: int


class OpenTransaction:
    """A checkout that has written its rows and has not committed them. ``pid`` is its PostgreSQL backend's process id."""

    def __init__(self, connection: psycopg.Connection, changes: list[Change]) -> None:
        self._connection = connection
        self.changes = changes
        self.pid = connection.info.backend_pid

    def commit(self) -> None:
        self._connection.commit()


class BusinessDay:
    """One day of the shop. Each method is a step, to be called once and in the order of their definition. Each step commits its changes."""

    def __init__(self, url: str) -> None:
        self._url = url
        with self._connect() as connection:
            last, orders = _row(connection, "SELECT max(o_orderdate), count(*) FROM orders")
            (last_shipped,) = _row(connection, "SELECT max(l_shipdate) FROM lineitem")
        # Orders and shipments of the day are dated after all that exist.
        self.today: date = max(last, last_shipped) + timedelta(days=1)
        self._before = last
        # TPC-H has as many orders a day: its order dates span some 2,400 days.
        self._few = max(20, orders // 2500)

    # ------------------------------------------------------------------ the steps
    def morning(self) -> list[Change]:
        """Insert rows, update rows, and delete rows from a table that is synced as a whole."""
        with self._connect() as connection:
            return [
                *self._new_orders(connection, self.today, self._few),
                _change(
                    connection,
                    "orders",
                    f"of {self._before} are now in progress",
                    "UPDATE orders SET o_orderstatus = 'P', o_comment = 'in progress' WHERE o_orderdate = %(day)s",
                    {"day": self._before},
                ),
                self._events(connection, 500),
                self._profiles(connection, "segment = 'gold'", "customer_id %% 97 = 0"),
                _change(
                    connection,
                    "customer_profile",
                    "new",
                    "INSERT INTO customer_profile (customer_id, name, email, segment, updated_at) "
                    "SELECT m + n, 'New customer ' || n, NULL, 'new', clock_timestamp() "
                    "FROM (SELECT max(customer_id) AS m FROM customer_profile) AS q, generate_series(1, %(few)s) AS n",
                    {"few": self._few},
                ),
                _change(
                    connection,
                    "part",
                    "got another price",
                    "UPDATE part SET p_retailprice = p_retailprice + 0.01 WHERE p_size = 7",
                ),
                _change(connection, "partsupp", "deleted", "DELETE FROM partsupp WHERE ps_availqty <= 20"),
            ]

    @contextmanager
    def open_transaction(self) -> Iterator[OpenTransaction]:
        """Write the rows of a checkout, dated the next day, and leave the transaction open.

        The transaction is rolled back at the end of the block unless it was committed.
        """
        with self._connect("shop checkout") as connection:
            changes = [
                *self._new_orders(connection, self.today + timedelta(days=1), 3),
                self._events(connection, 5),
                self._profiles(connection, "segment = 'regular'", "customer_id %% 211 = 0"),
            ]
            try:
                yield OpenTransaction(connection, changes)
            finally:
                connection.rollback()

    def overtake(self) -> list[Change]:
        """Commit rows with later dates and higher ids than those of the transaction that is still open."""
        with self._connect() as connection:
            return [
                *self._new_orders(connection, self.today + timedelta(days=2), self._few),
                self._events(connection, 50),
                self._profiles(connection, "segment = 'gold'", "customer_id %% 211 = 1"),
            ]

    def late_rows(self) -> list[Change]:
        """Insert rows below the highest values seen so far: an order entered a day late, and an event whose id was drawn long before."""
        with self._connect() as connection:
            return [
                *self._new_orders(connection, self.today + timedelta(days=1), 2, ship=self.today + timedelta(days=2)),
                _change(
                    connection,
                    "events",
                    f"late, with the id {LATE_EVENT_ID}",
                    "INSERT INTO events (id, kind, payload) VALUES (%(id)s, 'return', '{\"late\": true}')",
                    {"id": LATE_EVENT_ID},
                ),
            ]

    def add_columns(self) -> list[Change]:
        """Add a column without a default, and one with a default, which appears in old rows without rewriting them."""
        with self._connect() as connection:
            connection.execute("ALTER TABLE orders ADD COLUMN o_channel text")
            connection.execute("ALTER TABLE customer_profile ADD COLUMN points integer NOT NULL DEFAULT 100")
            return [
                Change("orders", "new column o_channel text", 0),
                Change("customer_profile", "new column points integer NOT NULL DEFAULT 100", 0),
                *self._new_orders(connection, self.today + timedelta(days=3), self._few, channel="web"),
                self._profiles(connection, "points = customer_id %% 1000", "customer_id %% 307 = 0"),
            ]

    def bad_rows(self) -> list[Change]:
        """Make rows that the rules in the YAML forbid: prices below zero, an unknown customer, and texts that are no e-mail address."""
        with self._connect() as connection:
            last = self.today + timedelta(days=3)
            newest = "SELECT max(o_orderkey) FROM orders WHERE o_orderdate = %(day)s"
            return [
                _change(
                    connection,
                    "orders",
                    "with a price below zero",
                    "UPDATE orders SET o_totalprice = -o_totalprice WHERE o_orderdate = %(day)s AND o_orderkey %% 7 = 3",
                    {"day": last},
                ),
                _change(
                    connection,
                    "orders",
                    "of a customer who is not there",
                    f"UPDATE orders SET o_custkey = 999999999 WHERE o_orderkey = ({newest})",
                    {"day": last},
                ),
                self._profiles(connection, "email = 'to be filled in'", "customer_id %% 499 = 1"),
            ]

    def mend_bad_rows(self) -> list[Change]:
        """Correct these rows."""
        with self._connect() as connection:
            return [
                _change(
                    connection, "orders", "with their price again", "UPDATE orders SET o_totalprice = -o_totalprice WHERE o_totalprice < 0"
                ),
                _change(connection, "orders", "of a customer who is there", "UPDATE orders SET o_custkey = 1 WHERE o_custkey = 999999999"),
                self._profiles(connection, "email = 'customer' || customer_id || '@shop.example'", "email = 'to be filled in'"),
            ]

    def correct_old_rows(self) -> list[Correction]:
        """Delete and update old rows without any trace in their identifiers, as a person with a database client does."""
        with self._connect() as connection:
            june = "l_shipdate >= '1997-06-01' AND l_shipdate < '1997-07-01'"
            lineitem = [
                _change(connection, "lineitem", "of June 1997 deleted", f"DELETE FROM lineitem WHERE {june} AND l_orderkey %% 97 = 1"),
                _change(
                    connection,
                    "lineitem",
                    "of June 1997 corrected",
                    f"UPDATE lineitem SET l_tax = l_tax + 0.01 WHERE {june} AND l_orderkey %% 89 = 2",
                ),
            ]
            profiles = [
                _change(connection, "customer_profile", "deleted", "DELETE FROM customer_profile WHERE customer_id %% 401 = 0"),
            ]
        return [Correction("lineitem", lineitem, lineitem[0].rows), Correction("customer_profile", profiles, profiles[0].rows)]

    def customers(self) -> list[Change]:
        """Insert, update and delete customers, whose table has no column that would say so. Those who are deleted have no orders."""
        new = """INSERT INTO customer
            SELECT (SELECT max(c_custkey) FROM customer) + 1000 + n, 'Customer#new', 'here', 1, '11-111', 0, 'BUILDING', 'new'
            FROM generate_series(1, 10) AS n"""
        changed = "UPDATE customer SET c_acctbal = c_acctbal + 1 WHERE c_custkey %% 100 = 1 AND c_comment <> 'new'"
        deleted = (
            "DELETE FROM customer WHERE c_custkey %% 90 = 0 AND NOT EXISTS (SELECT FROM orders WHERE o_custkey = c_custkey) "
            "AND c_comment <> 'new'"
        )
        with self._connect() as connection:
            return [
                _change(connection, "customer", what, statement)
                for what, statement in (("new", new), ("changed", changed), ("deleted", deleted))
            ]

    # ------------------------------------------------------------------ how
    def _connect(self, application: str = "shop") -> psycopg.Connection:
        return psycopg.connect(self._url, application_name=application)

    def _new_orders(
        self, connection: psycopg.Connection, day: date, count: int, *, ship: date | None = None, channel: str | None = None
    ) -> list[Change]:
        """Insert orders of one day, with one to seven items each."""
        with_channel = channel is not None
        (first,) = _row(connection, "SELECT max(o_orderkey) FROM orders")
        # The keys of the open transaction are not visible to others, so each day has a range of keys of its own.
        first += 1_000_000 * (1 + abs((day - self.today).days))
        values = {"first": first, "day": day, "ship": ship or day, "count": count, "channel": channel}
        return [
            _change(
                connection,
                "orders",
                f"new, dated {day}",
                f"""INSERT INTO orders (o_orderkey, o_custkey, o_orderstatus, o_totalprice, o_orderdate, o_orderpriority, o_clerk,
                       o_shippriority, o_comment{", o_channel" if with_channel else ""})
                    SELECT %(first)s + n, 1 + n * 7919 %% (SELECT max(c_custkey) FROM customer), 'O', n * 1234.56, %(day)s,
                       '3-MEDIUM', 'Clerk#000000001', 0, 'new'{", %(channel)s::text" if with_channel else ""}
                    FROM generate_series(1, %(count)s) AS n""",
                values,
            ),
            _change(
                connection,
                "lineitem",
                f"new, shipped {values['ship']}",
                """INSERT INTO lineitem
                    SELECT %(first)s + n, 1 + n * 31 %% (SELECT max(p_partkey) FROM part),
                       1 + n * 17 %% (SELECT max(s_suppkey) FROM supplier), line, 1 + n %% 50, n * 99.99, 0.05, 0.02, 'N', 'O',
                       %(ship)s, %(ship)s + 30, %(ship)s + 7, 'DELIVER IN PERSON', 'TRUCK', 'new'
                    FROM generate_series(1, %(count)s) AS n, generate_series(1, 1 + n %% 7) AS line""",
                values,
            ),
        ]

    def _profiles(self, connection: psycopg.Connection, values: str, which: str) -> Change:
        statement = f"UPDATE customer_profile SET {values}, updated_at = clock_timestamp() WHERE {which}"
        return _change(connection, "customer_profile", "changed", statement)

    def _events(self, connection: psycopg.Connection, count: int) -> Change:
        return _change(
            connection,
            "events",
            "new",
            "INSERT INTO events (kind, payload) SELECT 'order', jsonb_build_object('n', n) FROM generate_series(1, %(count)s) AS n",
            {"count": count},
        )


def _change(connection: psycopg.Connection, container: str, what: str, statement: str, values: dict[str, object] | None = None) -> Change:
    return Change(container, what, connection.execute(statement.encode(), values or {}).rowcount)


def _row(connection: psycopg.Connection, statement: str) -> tuple[Any, ...]:
    found = connection.execute(statement.encode()).fetchone()
    assert found is not None, statement
    return found
