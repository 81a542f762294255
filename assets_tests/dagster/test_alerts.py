"""Alerts: each problem is one message to each destination, and its end another one, whatever cannot be reached meanwhile."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import dagster as dg
import psycopg
import pytest
from aiosmtpd.controller import Controller
from hypothesis import given
from hypothesis import strategies as st

from assets_tests.harness import Folder, Project, Workspace
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.looks import Look
from incremental_assets.dagster.alerts_sensor import tick
from incremental_assets.dagster.components.alerts import Alerts
from incremental_assets.operations import status
from incremental_assets.operations.alerts.look import look
from incremental_assets.operations.alerts.messages import news
from incremental_assets.operations.alerts.problems import Found, Limits, Problem, Severity, found_in
from incremental_assets.operations.alerts.settings import Settings
from incremental_assets.operations.alerts.ticks import Expected
from incremental_assets.operations.status import status_lines
from incremental_assets.runs.records.looks import remember
from incremental_assets.runs.records.watermarks import held_back_since, newest_event

MakeProject = Callable[..., Project]
ALL = frozenset(Severity)
NOTHING = Expected({}, {})
PLAIN = "plain_of_alerts"
LIMITS = Limits(lag_seconds=100, held_back_seconds=100)
HOLDER = {"pid": 7, "user": "app", "application": "import", "since": "2026-03-01T10:00:00+00:00"}
RECORD = {
    "container": "shop/orders", "result": "success", "run_id": "r1", "message": "read", "audit": None, "lag_seconds": 5,
    "looked_at": "2026-03-01T10:00:00+00:00", "watermark": "2026-03-01", "held_back_seconds": 5, "held_back_by": [HOLDER],
    "blocked_by": None, "failing_since": None, "missed_changes": 0, "synced_at": None, "audited_at": None,
}  # fmt: skip


@dataclass
class Hook:
    """A web hook on this machine. ``status``: what it answers. ``got``: the messages that it has taken."""

    status: int = 200
    got: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    url: str = ""


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if made.status == 200:
                made.got.append(body)
            self.send_response(made.status)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    made.url = f"json://127.0.0.1:{server.server_port}"
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


def found(*texts: str, severity: Severity = Severity.FAILURE, undecided: tuple[str, ...] = ()) -> Found:
    return Found({text: Problem(severity, text) for text in texts}, frozenset(undecided), {})


# ---------------------------------------------------------------------- what is a problem, and what is new
@pytest.mark.parametrize(
    ("changed", "key", "severity"),
    [
        ({"result": "failure", "message": "the source\nis gone"}, "shop/orders sync", Severity.FAILURE),
        ({"result": "missing"}, "shop/orders sync", Severity.FAILURE),
        ({"audit": "different"}, "shop/orders audit", Severity.FAILURE),
        ({"audit": "different", "result": "warning", "message": "audit: source and lake differ"}, "shop/orders audit", Severity.FAILURE),
        ({"lag_seconds": 101}, "shop/orders lag", Severity.WARNING),
        ({"held_back_seconds": 101}, "shop/orders held back", Severity.WARNING),
    ],
)
def test_each_kind_of_problem_is_one(changed: dict[str, Any], key: str, severity: Severity) -> None:
    seen = found_in([{**RECORD, **changed}], LIMITS)
    assert {name: one.severity for name, one in seen.problems.items()} == {key: severity}
    assert all("\n" not in one.text and one.text.startswith("shop/orders: ") for one in seen.problems.values())
    assert not found_in([RECORD], LIMITS).problems


def late(*lags: int | None, **changed: Any) -> Found:
    """What is found of containers that are so far behind."""
    return found_in([{**RECORD, "container": f"shop/t{n}", "lag_seconds": lag, **changed} for n, lag in enumerate(lags)], LIMITS)


def test_containers_that_are_all_late_are_one_problem() -> None:
    """A dead schedule has one cause. A message for each of hundreds of containers hides what else is wrong."""
    assert late(101, 5000, 101).problems.keys() == {"shop lag"}
    assert late(101, None, 101).problems.keys() == {"shop lag"}, "one that was never synced is not late"
    assert late(101, 5, 101).problems.keys() == {"shop/t0 lag", "shop/t2 lag"} and late(101).problems.keys() == {"shop/t0 lag"}
    assert late(101, 101, result="missing").problems.keys() == {"shop/t0 sync", "shop/t1 sync"}
    two = found_in([{**RECORD, "container": f"{store}/t", "lag_seconds": 101} for store in ("shop", "books")], LIMITS)
    assert two.problems.keys() == {"shop/t lag", "books/t lag"}


def test_a_container_is_not_said_to_be_well_because_the_others_are_late_too() -> None:
    """The containers of a datastore become late one after the other. "over" would mean that somebody need not look any more."""
    first, known = news(None, late(101, 5), ALL)
    assert first is not None and first.body.startswith(
        "warning: shop/t0: the lake is 1 min 41 s behind the source, which was last looked at "
    )
    then, known = news(known, late(200, 101), ALL)
    assert then is not None and then.body.startswith("warning: shop: all of its 2 containers are behind") and "over: " not in then.body
    assert news(known, late(300, 201), ALL)[0] is None
    well, known = news(known, late(5, 5), ALL)
    assert well is not None and well.body.count("over: ") == 2 and not known.problems


def test_a_retry_does_not_end_a_problem() -> None:
    """While a sync runs again, nobody knows whether it will fail. To say that the problem is over would be a false relief each time."""
    _, known = news(None, found_in([{**RECORD, "result": "failure"}], LIMITS), ALL)
    for result in ("queued", "running", "aborted"):
        message, known = news(known, found_in([{**RECORD, "result": result}], LIMITS), ALL)
        assert message is None and "shop/orders sync" in known.problems
    message, _ = news(known, found_in([RECORD], LIMITS), ALL)
    assert message is not None and message.body.startswith("over: shop/orders: the last sync has failed") and "synced: " in message.body


def test_success_is_reported_once_for_each_sync_and_only_if_asked_for() -> None:
    _, known = news(None, found_in([RECORD], LIMITS), ALL)
    assert news(known, found_in([RECORD], LIMITS), ALL)[0] is None
    after = found_in([{**RECORD, "run_id": "r2"}], LIMITS)
    assert news(known, after, frozenset({Severity.FAILURE}))[0] is None
    message, _ = news(known, after, ALL)
    assert message is not None and (message.severity, message.body) == (Severity.SUCCESS, "synced: shop/orders: read")


def test_a_warning_that_becomes_a_failure_is_new() -> None:
    _, known = news(None, found("a", severity=Severity.WARNING), ALL)
    message, known = news(known, found("a"), ALL)
    assert message is not None and message.severity is Severity.FAILURE
    assert news(known, found("a"), ALL)[0] is None


@given(st.lists(st.frozensets(st.sampled_from("abc")), max_size=12))
def test_each_problem_has_one_message_when_it_begins_and_one_when_it_is_over(looks: list[frozenset[str]]) -> None:
    """One message too few is a night without sleep; one too many, and nobody reads them."""
    known, before = None, frozenset[str]()
    for now in looks:
        message, known = news(known, found(*sorted(now)), ALL)
        lines = [] if message is None else message.body.splitlines()
        assert lines == [*(f"failure: {one}" for one in sorted(now - before)), *(f"over: {one}" for one in sorted(before - now))]
        before = now


# ---------------------------------------------------------------------- sending
def test_a_destination_that_cannot_be_reached_gets_its_message_later_and_the_others_not_twice(hook: Hook) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        settings = Settings("alerts", (hook.url, f"json://127.0.0.1:{closed.getsockname()[1]}"), ALL)
        first = tick(settings, None, found("a"))
        assert "could not be reached" in str(first.skip_reason) and len(hook.got) == 1
    with pytest.raises(dg.Failure, match="nothing could be sent by json"):
        tick(settings, first.cursor, found("a"))
    assert len(hook.got) == 1
    both = Settings("alerts", (hook.url, hook.url + "/second"), ALL)
    assert "1 new problem" in str(tick(both, first.cursor, found("a")).skip_reason) and len(hook.got) == 2


def test_a_message_that_was_refused_is_sent_by_the_next_tick(hook: Hook) -> None:
    hook.status = 500
    settings = Settings("alerts", (hook.url,), ALL)
    with pytest.raises(dg.Failure):
        tick(settings, None, found("a"))
    hook.status = 200
    result = tick(settings, None, found("a"))
    assert [one["message"] for one in hook.got] == ["failure: a"] and hook.got[0]["type"] == "failure"
    assert "127.0.0.1" not in str(result.cursor), "a URL has passwords, and everybody can read a cursor"


def mailed(found: Found) -> tuple[Any, EmailMessage]:
    """The mail that a real SMTP server gets of what was found, as its envelope and as its content."""
    mails: list[Any] = []

    class Handler:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            mails.append(envelope)
            return "250 OK"

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    controller = Controller(Handler(), hostname="127.0.0.1", port=port)
    controller.start()
    try:
        url = f"mailto://127.0.0.1:{port}/?from=lake@example.com&to=team@example.com&mode=insecure"
        tick(Settings("alerts", (url,), ALL), None, found)
    finally:
        controller.stop()
    [mail] = mails
    return mail, BytesParser(policy=default).parsebytes(mail.content)


def test_mail_arrives() -> None:
    envelope, mail = mailed(found("shop/orders: the last sync has failed", "shop/lines: it is gone"))
    assert envelope.rcpt_tos == ["team@example.com"] and mail["Subject"] == "incremental-assets: 2 new problems"
    assert mail.get_content().splitlines() == ["failure: shop/lines: it is gone", "failure: shop/orders: the last sync has failed"]


def test_names_of_a_source_are_neither_markup_nor_lines_of_a_message(hook: Hook) -> None:
    """Anybody who can connect to the source, or name a table, could send the team a link or a problem that looks like ours."""
    holder = {**HOLDER, "application": '<a href="http://evil.example">sign in</a>\nover: all is well\r\nBcc: evil@example.com'}
    seen = found_in(
        [{**RECORD, "container": "shop/a\nfailure: \x1b[2Jb\u202ec", "held_back_seconds": 500, "held_back_by": [holder]}], LIMITS
    )
    tick(Settings("alerts", (hook.url,), ALL), None, seen)
    envelope, mail = mailed(seen)
    assert mail.get_content_type() == "text/plain" and envelope.rcpt_tos == ["team@example.com"]
    for text in (hook.got[0]["message"], mail.get_content().strip()):
        assert len(text.splitlines()) == 1 and text.startswith("warning: shop/a\\nfailure: \\x1b[2Jb\\u202ec: its watermark"), text
        assert '<a href="http://evil.example">' in text, "plain text shows it as it is"


# ---------------------------------------------------------------------- a real project
@dataclass
class Looks:
    """Looks at the container ``orders`` once with each call, and returns the messages that the look has sent to the web hook."""

    project: Workspace
    hook: Hook
    cursor: str | None = None

    def __call__(self, limits: Limits | None = None) -> str:
        limits = limits or Limits()
        settings = Settings("alerts", (self.hook.url,), frozenset({Severity.FAILURE, Severity.WARNING}), limits)
        self.hook.got.clear()
        with self.project.instance() as instance:
            found = look(instance, [self.project.definition("orders")], limits, NOTHING)
            self.cursor = tick(settings, self.cursor, found).cursor
        return "; ".join(one["message"] for one in self.hook.got)


@pytest.fixture
def shop(project: MakeProject) -> Project:
    rule = {"rule": "min", "column": "total", "min": 0, "severity": "warn"}
    orders = {"partition_by": "month", "checks": [rule], "auto_resolve": True}
    made = project(incremental=["public.orders:day:date"], containers={"orders": orders})
    made.execute("create table orders (id int primary key, day date, total int); insert into orders values (1, '2026-01-05', 5)")
    return made


@pytest.mark.long
def test_an_anomaly_and_a_failed_sync_are_reported_and_their_end_too(shop: Project, hook: Hook) -> None:
    looked = Looks(shop, hook)
    shop.one("orders")
    assert looked() == ""
    shop.execute("insert into orders values (2, '2026-01-06', -1)")
    shop.one("orders")
    assert looked().startswith("warning: shop/orders: min_total: 1 row, in 2026-01-01, e.g. total = -1 (id 2), since 2") and looked() == ""
    shop.execute("alter table orders rename to hidden")
    shop.one("orders", ok=False, stale=True)
    assert looked().startswith("failure: shop/orders: it is gone from the source") and looked() == ""
    shop.execute("alter table hidden rename to orders; update orders set total = 1, day = '2026-01-07' where id = 2")
    shop.one("orders", stale=True)
    assert sorted(line.partition(":")[0] for line in looked().splitlines()) == ["over", "over"]


def test_a_sync_that_warns_is_reported_and_its_end_too(folder: Callable[..., Folder], hook: Hook) -> None:
    """Rows that are rejected each night are missing in the lake, and the run is green: nobody would look."""
    made = folder(containers={"orders": {"glob": "orders/*.csv", "columns": {"n": "int"}}})
    looked = Looks(made, hook)
    made.put("orders/1.csv", "n\n1\nx\n")
    made.one("orders")
    assert looked().startswith("warning: landing/orders: the last sync warns: 1 row") and looked() == ""
    made.put("orders/2.csv", "n\n2\n")
    made.one("orders")
    assert looked().startswith("over: landing/orders: the last sync warns")


@pytest.mark.long
def test_the_component_of_the_yaml_sends(shop: Project, hook: Hook) -> None:
    """The whole way: from defs.yaml through Dagster's own sensor to the web hook."""
    shop.write()
    shop.cli("catalog")
    shop.execute("drop table orders")
    shop.cli("sync", check=1)
    folder = shop.path / "defs" / "alerts"
    folder.mkdir()
    (folder / "defs.yaml").write_text('type: incremental_assets.Alerts\nattributes: {to: ["{{ env.ALERTS_URL }}"], send: [failure]}\n')
    own = {"DAGSTER_HOME": str(shop.home), "INCREMENTAL_ASSETS_PROJECT": str(shop.path), "INCREMENTAL_ASSETS_LAKE": str(shop.lake_root)}
    command = [sys.executable, "-m", "dagster", "sensor", "preview", "alerts", "-m", "definitions", "-d", "."]
    environment = {**os.environ, **shop.environment(), **own, "ALERTS_URL": hook.url}
    done = subprocess.run(command, cwd=shop.path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [one["title"] for one in hook.got] == ["incremental-assets: 1 new problem"], done.stdout + done.stderr


# ---------------------------------------------------------------------- a watermark that is held back
@pytest.mark.long
def test_a_watermark_that_is_held_back_is_reported_with_who_does_it_and_its_end(shop: Project, hook: Hook) -> None:
    """A forgotten session in the source would make each sync read more and more rows again, and nobody would know why."""
    looked, strict = Looks(shop, hook), Limits(held_back_seconds=-1)  # any time is longer than that
    shop.one("orders")
    with psycopg.connect(shop.url, application_name="import") as session:
        session.execute("insert into orders values (2, current_date, 5)")
        shop.execute("insert into orders values (3, current_date, 5)")
        shop.one("orders")
        assert looked() == "", "it is not held back for longer than the limit"
        shop.execute("insert into orders values (4, current_date, 5)")
        shop.one("orders")
        message = looked(strict)
        assert message.startswith("warning: shop/orders: its watermark has been held back at 2026-01-05 for "), message
        assert f"pid {session.info.backend_pid} (user postgres, application import, open since 2" in message and "end it" in message
        assert looked(strict) == "", "once"
    shop.one("orders")
    assert looked(strict).startswith("over: shop/orders: its watermark has been held back") and looked(strict) == ""


@pytest.mark.long
def test_a_tick_with_nothing_to_do_counts_as_a_look_at_who_is_open(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a quiet table no sync records that the session is still open. And a sync at night does not know that it was open all day."""
    with psycopg.connect(shop.url) as session:
        session.execute("select 1")
        assert shop.one("orders")["watermark"]["new"] is None
        now = time.time()
        monkeypatch.setattr(status, "time", SimpleNamespace(time=lambda: now))

        def held() -> Any:
            with shop.instance() as instance:
                [record] = status_lines(instance, [shop.definition("orders")], datetime.fromtimestamp(now, timezone.utc))
            return record["held_back_seconds"]

        first = held()
        now += 3600
        assert held() == first, "nobody has looked since the sync"
        shop.configure(schedule="* * * * *")
        assert shop.one("orders")["status"] == "skipped"
        with shop.instance() as instance:
            assert held() < first + 600, "it has no tick yet"
            remember(instance, {"shop/orders": Look(int(now))})
        assert held() >= first + 3599, "looks are whole seconds"
    assert "moves to" in shop.one("orders")["message"] and held() is None


@pytest.mark.long
def test_what_the_role_may_not_see_is_held_back_since_the_first_sync_in_a_row(shop: Project) -> None:
    """PostgreSQL hides the beginning of other users' transactions from a plain role. Without a time there would never be a message."""
    shop.execute(f"create role {PLAIN} login password 'x'; grant select on orders to {PLAIN}")
    url = shop.url.replace(shop.url.split("//")[1].split("@")[0], f"{PLAIN}:x")
    plain = Project(shop.path, url, shop.spark_home, **shop.attributes)
    shop.one("orders")
    container = plain.definition("orders").container
    looks: list[tuple[float, float]] = []
    with psycopg.connect(shop.url) as session:
        session.execute("select 1")
        for number in (2, 3):
            begun = time.time()
            shop.execute(f"insert into orders values ({number}, current_date, 5)")
            line = plain.one("orders")
            assert line["watermark"]["held_back_by"][0]["since"] is None, line
            with shop.instance() as instance:
                event = newest_event(instance, container)
                since = held_back_since(instance, container, event) if event is not None else None
            assert since is not None
            looks.append((begun, since))
    (first, since), (second, still) = looks
    assert first < since < second and still == since


# ---------------------------------------------------------------------- the YAML
@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"to": ["slak://secret@x"]}, r"URL 1 of to \(slak\)"),
        ({"to": []}, "cannot be empty"),
        ({"to": ["json://localhost"], "send": []}, "cannot be empty"),
        ({"to": ["json://localhost"], "every_seconds": 1}, "every_seconds is at least"),
        ({"to": ["json://localhost"], "max_held_back_seconds": -1}, "max_held_back_seconds cannot be negative"),
        ({"to": ["json://localhost"], "name": "a b"}, "in the name of a sensor"),
        ({"to": ["json://localhost"], "base_url": "dagster.example.com"}, "base_url is 'dagster.example.com'; write an address"),
    ],
)
def test_what_cannot_work_is_refused_when_the_project_loads(wrong: dict[str, Any], what: str) -> None:
    """Alerts that never arrive look exactly like a night without problems. And no message shows a URL, which has passwords."""
    with pytest.raises(ConfigurationError, match=what) as refused:
        Alerts(**wrong).settings()
    assert "secret" not in str(refused.value)
