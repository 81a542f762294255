"""Changes of large rows arrive, in bounded memory, and a look waits for another one for as long as that takes.

Belongs here: messages of several pieces, the limit of one change, and waiting for the slot. Does not belong: the format of the messages
(``test_pgoutput``).
"""

import logging
import threading
from collections.abc import Callable

import psycopg
import pytest
from psycopg import sql

from assets_tests.capture.test_capture import SLOT, set_up
from assets_tests.harness import Project, long, wait_for
from incremental_assets.databases.postgres.capture import log, slot_session

MakeProject = Callable[..., Project]
KEY_LAST = "create table t (note text, id int primary key); alter table t replica identity full"


@pytest.fixture
def shop(project: MakeProject) -> Project:
    made = project(capture="log")
    made.execute(f"{KEY_LAST}; insert into t values ('a', 1), ('b', 2)")
    set_up(made, "t")
    made.one("t")
    return made


# The change of an insert has 26 bytes beside the text of ``note`` and the digits of the key.
@pytest.mark.long
@pytest.mark.parametrize("piece", [32, *long(31, 100)])
def test_the_key_may_be_in_any_piece_of_a_change(shop: Project, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    """The change would be lost, or taken for that of another row: where a piece ends depends on the values before the key."""
    monkeypatch.setattr(log, "_PIECE", piece)
    shop.execute("insert into t select repeat('x', n), n from generate_series(10, 150) n")
    shop.execute("update t set note = note || 'y' where id % 3 = 0; delete from t where id % 5 = 0; update t set id = -id where id = 11")
    shop.one("t")
    shop.assert_equal("t")


@pytest.mark.long
def test_a_change_that_would_take_too_much_memory_is_refused(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system would end the process instead, at each sync."""
    monkeypatch.setattr(log, "MOST_BYTES", 1 << 20)
    shop.execute("insert into t values (repeat('x', 900000), 3)")
    assert shop.one("t")["rows_inserted"] == 1
    shop.execute("insert into t values (repeat('x', 1100000), 4)")
    refused = shop.one("t", ok=False)
    assert refused["status"] == "failed" and "a row of more than 1 MB" in refused["message"], refused
    assert "--reset-watermarks" in refused["message"] and "exclude_columns" in refused["message"]
    shop.one("t", reset=True)
    shop.assert_equal("t")
    shop.execute("insert into t values ('small', 5)")
    assert shop.one("t")["rows_inserted"] == 1, "the large change is behind the position of the table now"


def test_a_look_waits_for_another_one_and_says_so(shop: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A transaction of millions of rows takes another sync longer than any limit on a slow machine, so that each sync would fail."""
    monkeypatch.setattr(slot_session, "_SECONDS_BETWEEN_WORDS", 0.1)
    shop.execute("update t set note = 'changed' where id = 1")
    with psycopg.connect(shop.url) as other, caplog.at_level(logging.WARNING, slot_session.__name__):
        taken = sql.SQL("select pg_advisory_xact_lock({}, hashtext({}))").format(slot_session.SLOT_LOCK, SLOT)
        other.execute(taken)
        done: list[dict[str, object]] = []
        syncs = threading.Thread(target=lambda: done.append(shop.one("t")))
        syncs.start()
        wait_for(lambda: len(caplog.messages) > 2, "words about the wait")
        assert f"waits for the replication slot '{SLOT}', which pid {other.info.backend_pid} has been reading" in caplog.messages[0]
        other.rollback()
        syncs.join()
    assert done[0]["rows_updated"] == 1, done
    shop.assert_equal("t")
