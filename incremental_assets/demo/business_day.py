"""What happens in the shop in a day, as steps that syncs can run between.

Nothing here knows the lake, so that the changes cannot be arranged to suit it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone

from incremental_assets.demo.shop import Session, Shop
from incremental_assets.demo.source import BUSINESS_DAYS, LATE_EVENT_ID


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
    ``month``: the first day of the month whose rows were corrected; None if they are all over the table.
    """

    container: str
    changes: list[Change]
    deleted: int
    month: date | None = None


class OpenTransaction:
    """A checkout that has written its rows and has not committed them. ``pid``: see ``Session``."""

    def __init__(self, session: Session, changes: list[Change]) -> None:
        self._session = session
        self.changes = changes
        self.pid = session.pid

    def commit(self) -> None:
        self._session.commit()


class BusinessDay:
    """One day of the shop. Each method is a step, to be called once and in the order of their definition. Each step commits its changes."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        with shop.session() as session:
            ((last, orders),) = session.rows("SELECT max(o_orderdate), count(*) FROM orders")
            ((last_shipped,),) = session.rows("SELECT max(l_shipdate) FROM lineitem")
        # Orders and shipments of the day are dated after all that exist.
        begin = datetime.now(timezone.utc).date() - BUSINESS_DAYS
        self.today: date = max(last + timedelta(days=1), last_shipped + timedelta(days=1), begin)
        self._before = last
        # TPC-H has as many orders a day: its order dates span some 2,400 days.
        self._few = max(20, orders // 2500)

    # ------------------------------------------------------------------ the steps
    def morning(self) -> list[Change]:
        """Insert rows, update rows, and delete rows from a table that is synced as a whole."""
        with self._shop.session() as session:
            return [
                *self._new_orders(session, self.today, self._few),
                _change(
                    session,
                    "orders",
                    f"of {self._before} are now in progress",
                    "UPDATE orders SET o_orderstatus = 'P', o_comment = 'in progress' WHERE o_orderdate = %(day)s",
                    {"day": self._before},
                ),
                self._events(session, 500),
                self._profiles(session, "segment = 'gold'", "customer_id %% 97 = 0"),
                _change(
                    session,
                    "customer_profile",
                    "new",
                    "INSERT INTO customer_profile (customer_id, name, email, segment, updated_at) "
                    f"SELECT m + n, 'New customer ' || n, NULL, 'new', clock_timestamp() "
                    f"FROM (SELECT max(customer_id) AS m FROM customer_profile) AS q, generate_series(1, {self._few}) AS n",
                ),
                _change(
                    session,
                    "part",
                    "got another price",
                    "UPDATE part SET p_retailprice = p_retailprice + 0.01 WHERE p_size = 7",
                ),
                _change(session, "partsupp", "deleted", "DELETE FROM partsupp WHERE ps_availqty <= 20"),
            ]

    @contextmanager
    def open_transaction(self) -> Iterator[OpenTransaction]:
        """Write the rows of a checkout, dated the next day, and leave the transaction open.

        The transaction is rolled back at the end of the block unless it was committed.
        """
        with self._shop.session("shop checkout") as session:
            changes = [
                *self._new_orders(session, self.today + timedelta(days=1), 3),
                self._events(session, 5),
                self._profiles(session, "segment = 'regular'", "customer_id %% 211 = 0"),
            ]
            try:
                yield OpenTransaction(session, changes)
            finally:
                session.rollback()

    def overtake(self) -> list[Change]:
        """Commit rows with later dates and higher ids than those of the transaction that is still open."""
        with self._shop.session() as session:
            return [
                *self._new_orders(session, self.today + timedelta(days=2), self._few),
                self._events(session, 50),
                self._profiles(session, "segment = 'gold'", "customer_id %% 211 = 1"),
            ]

    def late_rows(self) -> list[Change]:
        """Insert rows below the highest values seen so far: an order entered a day late, and an event whose id was drawn long before."""
        with self._shop.session() as session:
            return [
                *self._new_orders(session, self.today + timedelta(days=1), 2, ship=self.today + timedelta(days=2)),
                _change(
                    session,
                    "events",
                    f"late, with the id {LATE_EVENT_ID}",
                    "INSERT INTO events (id, kind, payload) VALUES (%(id)s, 'return', '{\"late\": true}')",
                    {"id": LATE_EVENT_ID},
                ),
            ]

    def add_columns(self) -> list[Change]:
        """Add a column without a default, and one with a default, which appears in old rows without rewriting them."""
        with self._shop.session() as session:
            session.change("ALTER TABLE orders ADD COLUMN o_channel text")
            session.change("ALTER TABLE customer_profile ADD COLUMN points integer NOT NULL DEFAULT 100")
            return [
                Change("orders", "new column o_channel text", 0),
                Change("customer_profile", "new column points integer NOT NULL DEFAULT 100", 0),
                *self._new_orders(session, self.today + timedelta(days=3), self._few, channel="web"),
                self._profiles(session, "points = customer_id %% 1000", "customer_id %% 307 = 0"),
            ]

    def bad_rows(self) -> list[Change]:
        """Make rows that the rules in the YAML forbid: prices below zero, an unknown customer, and texts that are no e-mail address."""
        with self._shop.session() as session:
            last = self.today + timedelta(days=3)
            newest = "SELECT max(o_orderkey) FROM orders WHERE o_orderdate = %(day)s"
            return [
                _change(
                    session,
                    "orders",
                    "with a price below zero",
                    "UPDATE orders SET o_totalprice = -o_totalprice WHERE o_orderdate = %(day)s AND o_orderkey %% 7 = 3",
                    {"day": last},
                ),
                _change(
                    session,
                    "orders",
                    "of a customer who is not there",
                    f"UPDATE orders SET o_custkey = 999999999 WHERE o_orderkey = ({newest})",
                    {"day": last},
                ),
                self._profiles(session, "email = 'to be filled in'", "customer_id %% 499 = 1"),
            ]

    def mend_bad_rows(self) -> list[Change]:
        """Correct these rows."""
        with self._shop.session() as session:
            return [
                _change(
                    session, "orders", "with their price again", "UPDATE orders SET o_totalprice = -o_totalprice WHERE o_totalprice < 0"
                ),
                _change(session, "orders", "of a customer who is there", "UPDATE orders SET o_custkey = 1 WHERE o_custkey = 999999999"),
                self._profiles(session, "email = 'customer' || customer_id || '@shop.example'", "email = 'to be filled in'"),
            ]

    def correct_old_rows(self) -> list[Correction]:
        """Delete and update old rows without any trace in their identifiers, as a person with a database client does."""
        with self._shop.session() as session:
            month = (self.today - timedelta(days=550)).replace(day=1)
            days: dict[str, object] = {"first": month, "next": (month + timedelta(days=31)).replace(day=1)}
            of_month = "l_shipdate >= %(first)s AND l_shipdate < %(next)s"
            lineitem = [
                _change(
                    session,
                    "lineitem",
                    f"of {month:%B %Y} deleted",
                    f"DELETE FROM lineitem WHERE {of_month} AND l_orderkey %% 97 = 1",
                    days,
                ),
                _change(
                    session,
                    "lineitem",
                    f"of {month:%B %Y} corrected",
                    f"UPDATE lineitem SET l_tax = l_tax + 0.01 WHERE {of_month} AND l_orderkey %% 89 = 2",
                    days,
                ),
            ]
            profiles = [
                _change(session, "customer_profile", "deleted", "DELETE FROM customer_profile WHERE customer_id %% 401 = 0"),
            ]
        return [Correction("lineitem", lineitem, lineitem[0].rows, month), Correction("customer_profile", profiles, profiles[0].rows)]

    def customers(self) -> list[Change]:
        """Insert, update and delete customers, whose table has no column that would say so. Those who are deleted have no orders."""
        new = """INSERT INTO customer
            SELECT (SELECT max(c_custkey) FROM customer) + 1000 + n, 'Customer#new', 'here', 1, '11-111', 0, 'BUILDING', 'new'
            FROM generate_series(1, 10) AS n"""
        changed = "UPDATE customer SET c_acctbal = c_acctbal + 1 WHERE c_custkey %% 100 = 1 AND c_comment <> 'new'"
        deleted = (
            "DELETE FROM customer WHERE c_custkey %% 90 = 0 AND NOT EXISTS (SELECT 1 FROM orders WHERE o_custkey = c_custkey) "
            "AND c_comment <> 'new'"
        )
        with self._shop.session() as session:
            return [
                _change(session, "customer", what, statement)
                for what, statement in (("new", new), ("changed", changed), ("deleted", deleted))
            ]

    # ------------------------------------------------------------------ how
    def _new_orders(self, session: Session, day: date, count: int, *, ship: date | None = None, channel: str | None = None) -> list[Change]:
        """Insert orders of one day, with one to seven items each."""
        with_channel = channel is not None
        ((first,),) = session.rows("SELECT max(o_orderkey) FROM orders")
        # The keys of the open transaction are not visible to others, so each day has a range of keys of its own.
        first += 1_000_000 * (1 + abs((day - self.today).days))
        shipped = ship or day
        commit, receipt = shipped + timedelta(days=30), shipped + timedelta(days=7)
        values = {"first": first, "day": day, "ship": shipped, "commit": commit, "receipt": receipt, "channel": channel}
        numbers = f"generate_series(1, {count}) AS n"
        return [
            _change(
                session,
                "orders",
                f"new, dated {day}",
                f"""INSERT INTO orders (o_orderkey, o_custkey, o_orderstatus, o_totalprice, o_orderdate, o_orderpriority, o_clerk,
                       o_shippriority, o_comment{", o_channel" if with_channel else ""})
                    SELECT %(first)s + n, 1 + n * 7919 %% (SELECT max(c_custkey) FROM customer), 'O', n * 1234.56, %(day)s,
                       '3-MEDIUM', 'Clerk#000000001', 0, 'new'{", CAST(%(channel)s AS char(3))" if with_channel else ""}
                    FROM {numbers}""",
                values,
            ),
            _change(
                session,
                "lineitem",
                f"new, shipped {shipped}",
                f"""INSERT INTO lineitem
                    SELECT %(first)s + n, 1 + n * 31 %% (SELECT max(p_partkey) FROM part),
                       1 + n * 17 %% (SELECT max(s_suppkey) FROM supplier), line, 1 + n %% 50, n * 99.99, 0.05, 0.02, 'N', 'O',
                       %(ship)s, %(commit)s, %(receipt)s, 'DELIVER IN PERSON', 'TRUCK', 'new'
                    FROM {numbers}, generate_series(1, 7) AS line WHERE line <= 1 + n %% 7""",
                values,
            ),
        ]

    def _profiles(self, session: Session, values: str, which: str) -> Change:
        statement = f"UPDATE customer_profile SET {values}, updated_at = clock_timestamp() WHERE {which}"
        return _change(session, "customer_profile", "changed", statement)

    def _events(self, session: Session, count: int) -> Change:
        return _change(
            session,
            "events",
            "new",
            f"INSERT INTO events (kind, payload) SELECT 'order', jsonb_build_object('n', n) FROM generate_series(1, {count}) AS n",
        )


def _change(session: Session, container: str, what: str, statement: str, values: dict[str, object] | None = None) -> Change:
    return Change(container, what, session.change(statement, values))
