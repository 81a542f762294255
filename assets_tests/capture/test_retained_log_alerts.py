"""Alerts of the log that a source keeps for a replication slot, which grows until the source's disk is full.

Belongs here: what is a problem, by a real slot. Does not belong: the asset check ``retained_log`` (``test_retained_log``), and sending
(``test_alerts``).
"""

import time
from collections.abc import Callable, Iterator

import dagster as dg
import pytest

from assets_tests.capture.test_capture import SLOT, TABLE, set_up
from assets_tests.harness import Project
from incremental_assets.operations.alerts.messages import news
from incremental_assets.operations.alerts.problems import Found, Limits, Severity
from incremental_assets.operations.alerts.replication_slots import LEAST_BYTES, slot_problems

MakeProject = Callable[..., Project]
HOUR = 3600.0
LONG = Limits(retained_seconds=int(HOUR), retained_bytes=1 << 40)


@pytest.fixture
def shop(project: MakeProject) -> Iterator[Project]:
    made = project(capture="log")
    made.execute(TABLE)
    set_up(made, "orders")
    yield made


def looked(shop: Project, instance: dg.DagsterInstance, limits: Limits, now: float) -> Found:
    return Found({}, frozenset(), {}).with_more(*slot_problems(instance, shop.catalog(), limits, now))


def text_of(found: Found) -> str:
    """The text of the one problem; empty without one."""
    return "".join(one.text for one in found.problems.values())


def write_log(shop: Project, size: int) -> None:
    """Fills the source's log, file by file of 16 MB."""
    shop.execute("create table if not exists noise (n int)")
    for _ in range(size // (16 << 20) + 1):
        shop.execute("insert into noise values (1)")
        shop.execute("select pg_switch_wal()")


def test_more_log_than_the_limit_is_a_problem_until_a_sync_has_read_it(shop: Project) -> None:
    """The syncs have stopped, so that none of them says how the source's disk fills up."""
    limits = Limits(retained_bytes=40 << 20)
    shop.one("orders")
    with shop.instance() as instance:
        now = time.time()
        assert looked(shop, instance, limits, now).problems == {}
        write_log(shop, 48 << 20)
        first = looked(shop, instance, limits, now)
        message, known = news(None, first, frozenset({Severity.WARNING}))
        assert message is not None
        assert f"for the replication slot {SLOT}; shop/orders has read it up to " in message.body, message.body
        assert "incremental-assets capture status shop" in message.body
        assert news(known, looked(shop, instance, limits, now), frozenset({Severity.WARNING}))[0] is None, "once"
        assert looked(shop, instance, Limits(), now).problems == {}, "by default the datastore's capture_warning_bytes count"
        shop.configure(capture_warning_bytes=1 << 20)
        assert "MB" in text_of(looked(shop, instance, Limits(), now))
        for number in (1, 2):  # the server gives log free up to a checkpoint that the slot has passed
            shop.execute("checkpoint")
            shop.execute(f"update orders set note = 'changed' where id = {number}")
            shop.one("orders")
        message, _ = news(known, looked(shop, instance, limits, now), frozenset({Severity.WARNING}))
        assert message is not None and message.body.startswith("over: shop: its server keeps"), message


def test_log_from_the_same_place_on_for_long_is_a_problem_and_a_source_without_changes_is_none(shop: Project) -> None:
    """A slow source may need days until its log exceeds a limit of bytes. And an idle one must not be reported each day."""
    with shop.instance() as instance:
        now = time.time()
        assert looked(shop, instance, LONG, now).problems == {}
        assert looked(shop, instance, LONG, now + 9 * HOUR).problems == {}, "nothing was written"
        write_log(shop, LEAST_BYTES)
        found = text_of(looked(shop, instance, LONG, now + 9 * HOUR))
        assert "from the same place on for 9 h (" in found and "shop/orders was not loaded yet" in found
        assert looked(shop, instance, LONG, now + HOUR / 2).problems == {}, "not for long enough"
        assert looked(shop, instance, Limits(retained_seconds=None), now + 9 * HOUR).problems == {}


def test_a_lost_slot_is_a_failure_and_a_source_that_does_not_answer_decides_nothing(shop: Project) -> None:
    """That the source is away must not read as the end of the problem."""
    shop.catalog()
    known = shop.catalog_as_known()
    with shop.instance() as instance:
        url, shop.url = shop.url, shop.url.replace(shop.url.rsplit("/", 1)[1], "no_such_database")
        problems, undecided = slot_problems(instance, known(), LONG, time.time())
        shop.url = url
        assert problems == {} and undecided == {"shop log"}
