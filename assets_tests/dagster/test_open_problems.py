"""What a person sees of what is open: a rule with a value and a key in the message, and the page that lists all of it in Dagster's UI.

Belongs here: a real container whose rows break rules, and the page. Does not belong: which problems there are (``test_alerts``), and
sending them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets_tests.dagster.test_alerts import ALL, NOTHING, Hook, found, hook
from assets_tests.harness import Folder, Project
from incremental_assets.core.anomalies import State
from incremental_assets.dagster.alerts_sensor import tick
from incremental_assets.dagster.components.alerts import Alerts
from incremental_assets.operations.alerts.current import CurrentProblem
from incremental_assets.operations.alerts.look import look
from incremental_assets.operations.alerts.messages import Urls, news
from incremental_assets.operations.alerts.page import OPEN, page_key, report
from incremental_assets.operations.alerts.problems import Found, Limits, Problem, Severity
from incremental_assets.operations.scans import anomaly_lines

MakeProject = Callable[..., Project]
URLS = Urls("https://dagster.example.com", "https://dagster.example.com/assets/alerts/open_problems")
_ = hook


@pytest.fixture
def shop(project: MakeProject) -> Project:
    checks = [{"rule": "between", "column": "seats", "min": 1, "max": 600}]
    flights = {"partition_by": "month", "checks": checks}
    made = project(incremental=["public.flights:day:date"], containers={"flights": flights, "hidden": {"checks": checks, "samples": False}})
    made.execute("create table flights (id int primary key, day date, seats int); create table hidden (id int primary key, seats int)")
    made.execute("insert into flights values (276, '2026-01-05', 0), (277, '2026-01-06', 0), (3, '2026-02-06', 7)")
    made.execute("insert into hidden values (4711, 0)")
    return made


def looked_at(shop: Project) -> Found:
    chosen = shop.catalog()
    with shop.instance() as instance:
        return look(instance, chosen, Limits(), NOTHING)


def lines_of(found: Found) -> list[str]:
    message, _ = news(None, found, ALL, URLS)
    return [] if message is None else message.body.splitlines()


def test_the_address_of_the_ui_may_end_with_a_slash(hook: Hook) -> None:
    assert Alerts(to=[hook.url], base_url=f"{URLS.base}/").settings().urls == URLS


# ---------------------------------------------------------------------- what is said of a rule
def test_a_broken_rule_is_said_with_a_value_its_key_its_partition_since_when_and_where_to_look(shop: Project) -> None:
    """ "3 open anomalies" sends whoever is woken at night to search the lake for what is wrong."""
    shop.sync()
    broken, hidden, page = lines_of(looked_at(shop))
    text = "failure: shop/flights: between_seats: 2 rows, in 2026-01-01, e.g. seats = 0 (id 276), since 20"
    assert broken.startswith(text) and broken.endswith(
        " https://dagster.example.com/assets/shop/flights?view=checks&checkDetail=between_seats"
    )
    assert page == f"all that is open: {URLS.page}"
    assert hidden.startswith("failure: shop/hidden: between_seats: 1 row, since 20") and "4711" not in hidden, "samples: false"
    records = {(one["container"], one["key"]): one for one in anomaly_lines(shop.catalog(), list(State))}
    assert records["shop/flights", '{"id":"277"}']["value"] == "seats = 0" and records["shop/hidden", '{"id":"4711"}']["value"] is None
    assert description(shop, "flights", "2026-01-01") == "failed: 2 of 2 rows break it, e.g. seats = 0 (id 276)"
    assert description(shop, "flights", "2026-02-01") == "passed: the one row passes"
    assert description(shop, "hidden", None) == "failed: 1 of 1 row breaks it"


def description(shop: Project, container: str, partition: str | None) -> str | None:
    """What the newest evaluation of the rule says in Dagster's UI."""
    key = dg.AssetCheckKey(dg.AssetKey(["shop", container]), "between_seats")
    with shop.instance() as instance:
        records = instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
    events = [one.event.dagster_event for one in records if one.event is not None]
    found = [one.asset_check_evaluation_data for one in events if one is not None]
    return next(one.description for one in found if one.partition == partition)


def test_a_sync_that_a_blocking_rule_has_failed_is_the_problem_of_the_rule(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row is wrong, and that was three problems: the anomaly, the sync, and later the lag. If the rule has no open anomaly, as it could
    not be evaluated, the sync is all that says so."""
    flights = shop.attributes["containers"]["flights"]
    shop.configure(containers={"flights": {**flights, "checks": [{**flights["checks"][0], "blocking": True}]}})
    assert shop.one("flights", ok=False)["status"] == "failed"
    chosen = [shop.definition("flights")]
    with shop.instance() as instance:
        (problem,) = look(instance, chosen, Limits(lag_seconds=-1), NOTHING).problems.values()
        said = "between_seats (blocking: the sync has written its rows, and what is downstream has not run): 2 rows"
        assert problem.text == f"shop/flights: {said}, in 2026-01-01"
        monkeypatch.setattr("incremental_assets.operations.alerts.look.open_anomalies", lambda _: [])
        (problem,) = look(instance, chosen, Limits(lag_seconds=-1), NOTHING).problems.values()
    assert problem.text.startswith("shop/flights: the last sync has failed: blocking rules are broken: between_seats in 2026-01-01.")


def test_rows_without_a_key_are_said_with_a_value(folder: Callable[..., Folder]) -> None:
    """Files have no key, and a value says as much as one can."""
    made = folder(containers={"orders": {"glob": "*.csv", "columns": {"n": "int"}, "checks": [{"rule": "positive", "column": "n"}]}})
    made.put("1.csv", "n\n-5\n7\n")
    made.one("orders")
    with made.instance() as instance:
        (problem,) = look(instance, made.catalog(), Limits(), NOTHING).problems.values()
    assert problem.in_words.startswith("landing/orders: positive_n: 1 row, in 1.csv, e.g. n = -5, since 20")


def test_values_are_not_sent_any_more_once_samples_are_switched_off(shop: Project) -> None:
    """The anomaly is older than the decision that values of this container must not leave the lake."""
    shop.sync("flights")
    hidden = {**shop.attributes["containers"]["flights"], "samples": False}
    shop.configure(containers={"flights": hidden})
    (broken, _) = lines_of(looked_at(shop))
    assert broken.startswith("failure: shop/flights: between_seats: 2 rows, in 2026-01-01, since 20")


@pytest.mark.long
def test_alerts_without_samples_send_no_value_and_no_key_of_any_container(shop: Project, hook: Hook) -> None:
    """A chat is read by people who may not see the rows. Each container by itself would have to be thought of, and the next one is not."""
    shop.sync("flights")
    shop.write()
    shop.cli("catalog", spark=False)
    folder = shop.path / "defs" / "alerts"
    folder.mkdir()
    own = {"DAGSTER_HOME": str(shop.home), "INCREMENTAL_ASSETS_PROJECT": str(shop.path), "INCREMENTAL_ASSETS_LAKE": str(shop.lake_root)}
    command = [sys.executable, "-m", "dagster", "sensor", "preview", "alerts", "-m", "definitions", "-d", "."]
    said: list[str] = []
    for more in ("", ", samples: false"):
        (folder / "defs.yaml").write_text(f"type: incremental_assets.Alerts\nattributes: {{to: ['{hook.url}']{more}}}\n")
        subprocess.run(command, cwd=shop.path, env={**os.environ, **shop.environment(), **own}, capture_output=True, check=True)
        _, problems, _ = shop.cli("alerts", "--json", spark=False, check=1)
        said.append(hook.got[-1]["message"] + str(problems))
    with_samples, without = said
    assert with_samples.count("seats = 0 (id 276)") == 2
    assert without.count("flights: between_seats: 2 rows") == 2 and "seats = 0" not in without and "276" not in without


def test_a_second_rule_that_breaks_is_a_message_of_its_own(shop: Project) -> None:
    """Somebody is at work on the first one, and nobody knows of the second."""
    shop.sync("flights")
    _, known = news(None, looked_at(shop), ALL, URLS)
    checks = [*shop.attributes["containers"]["flights"]["checks"], {"rule": "max", "column": "id", "max": 276}]
    shop.configure(containers={"flights": {**shop.attributes["containers"]["flights"], "checks": checks}})
    shop.scan("flights")
    message, _ = news(known, looked_at(shop), ALL, URLS)
    assert message is not None and message.body.startswith("failure: shop/flights: max_id: 1 row, in 2026-01-01, e.g. id = 277 (id 277)")


def test_the_command_line_says_since_when_and_where_to_look() -> None:
    one = CurrentProblem("a", Problem(Severity.FAILURE, "a: it is wrong.", "Mend it.", "/assets/a", 0.0), URLS.base)
    assert one.line == "failure: a: it is wrong, since 1970-01-01 00:00:00 UTC. Mend it. https://dagster.example.com/assets/a"
    assert replace(one, base_url=None).record["link"] is None


# ---------------------------------------------------------------------- the page
def pages(instance: dg.DagsterInstance) -> list[Any]:
    """The pages of all events, the newest first."""
    records = instance.fetch_materializations(page_key("alerts"), limit=50).records
    return [one.asset_materialization.metadata[OPEN].value for one in records if one.asset_materialization is not None]


def test_the_page_lists_what_is_open_now_and_stores_an_event_only_where_that_has_changed(shop: Project) -> None:
    """The page is looked at each minute by the sensor: an event each time would be half a million a year."""
    with shop.instance() as instance:
        report(instance, "alerts", {}, "")
        shop.sync("flights")
        open_now = looked_at(shop).problems
        for _ in range(3):
            report(instance, "alerts", open_now, URLS.base)
        report(instance, "alerts", {key: replace(one, text="5 min") for key, one in open_now.items()}, URLS.base)
        report(instance, "alerts", {}, "")
        over, listed, before = pages(instance)
    assert over == before == "Nothing is wrong."
    text = r"- **failure**: shop/flights: between\_seats: 2 rows, in 2026-01-01, since 20"
    link = " [look](https://dagster.example.com/assets/shop/flights?view=checks&checkDetail=between_seats)"
    assert listed.startswith(text) and listed.endswith(link) and len(listed.splitlines()) == 1, listed


def test_what_a_look_leaves_in_the_storage_of_dagster_has_no_value_and_no_key_of_a_row(shop: Project, hook: Hook) -> None:
    """The row is corrected and deleted, and `keep_days` has passed: the events of the page are in no run, and nothing deletes them."""
    shop.sync("flights")
    seen = looked_at(shop)
    ticked = tick(Alerts(to=[hook.url]).settings(), None, seen)
    assert "seats = 0 (id 276)" in hook.got[0]["message"]
    with shop.instance() as instance:
        report(instance, "alerts", seen.problems, URLS.base)
        (event,) = instance.fetch_materializations(page_key("alerts"), limit=1).records
    for kept in (str(event), str(ticked.cursor)):
        assert "seats: 2 rows" in kept.replace("\\", "") and "seats = 0" not in kept and "276" not in kept, kept


def test_names_of_a_source_are_no_markup_of_the_page(shop: Project) -> None:
    """Anybody who can name a table, or write a row, could show a link or a row that looks like ours."""
    with shop.instance() as instance:
        report(instance, "alerts", found("a\n- **failure**: <img src=x> [sign in](http://evil.example) `x` | |").problems, "")
        (page,) = pages(instance)
    assert page == r"- **failure**: a\\n- \*\*failure\*\*: \<img src=x\> \[sign in\](http://evil.example) \`x\` \| \|"


# ---------------------------------------------------------------------- without apprise
def test_without_apprise_a_tick_fails_with_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alerts that nobody sends look like a night without problems; and a project that does not load for it is a night without syncs."""
    monkeypatch.setitem(sys.modules, "apprise", None)  # as Python has it of a module that cannot be imported
    settings = Alerts(to=["json://localhost"]).settings()
    with pytest.raises(dg.Failure, match=r"apprise is not installed. Run: pip install 'incremental-assets\[alerts\]'"):
        tick(settings, None, found("a"))


@pytest.mark.long
def test_without_apprise_no_message_is_sent_and_all_else_works(shop: Project, tmp_path: Path) -> None:
    """Somebody has installed the package without its extra: the lake must not stand still because nobody can be told about it."""
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "apprise.py").write_text('raise ModuleNotFoundError("No module named \'apprise\'", name="apprise")\n')
    shop.write()
    (shop.path / "defs" / "alerts").mkdir()
    (shop.path / "defs" / "alerts" / "defs.yaml").write_text("type: incremental_assets.Alerts\nattributes: {to: ['json://localhost']}\n")
    own = {"DAGSTER_HOME": str(shop.home), "INCREMENTAL_ASSETS_PROJECT": str(shop.path), "INCREMENTAL_ASSETS_LAKE": str(shop.lake_root)}
    path = os.pathsep.join([str(blocked), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **shop.environment(), **own, "PYTHONPATH": path}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", *command], cwd=shop.path, env=environment, capture_output=True, text=True, check=False)

    cli = ("incremental_assets.cli", "--project", str(shop.path))
    checked = run(*cli, "check", "--json")
    message = next(one["message"] for one in map(json.loads, checked.stdout.splitlines()) if one["kind"] == "Alerts")
    sentence = "no message is sent, as apprise is not installed. Run: pip install 'incremental-assets[alerts]'"
    assert (checked.returncode, message) == (0, sentence), checked.stderr
    synced = run(*cli, "sync", "shop/flights")
    assert synced.returncode == 0 and len(shop.rows("flights")) == 3, synced.stderr
    ticked = run("dagster", "sensor", "preview", "alerts", "-m", "definitions", "-d", ".")
    assert sentence in ticked.stdout + ticked.stderr
    with shop.instance() as instance:
        (page,) = pages(instance)
    assert r"shop/flights: between\_seats: 2 rows" in page, "the page is there all the same"
