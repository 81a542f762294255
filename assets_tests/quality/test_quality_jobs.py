"""Scans and profiles by themselves: the schedules of the YAML, and the jobs over a whole datastore."""

import subprocess
import sys
from collections.abc import Callable

import dagster as dg
import pytest
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME

from assets_tests.harness import Project
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.dagster.components.quality import ScanEntry
from incremental_assets.runs.records.run_tags import CONTAINER_TAG

MakeProject = Callable[..., Project]
NIGHTLY = {"schedule": "0 4 * * *"}
RULE = {"rule": "min", "column": "total", "min": 0}


@pytest.fixture
def shop(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Two containers: ``orders`` has an identifier and a rule, ``region`` has neither."""
    orders = {"partition_by": "month", "checks": [RULE], "scan": NIGHTLY, "profile": {**NIGHTLY, "looks": "full"}}
    made = project(incremental=["public.orders:day:date"], containers={"orders": orders})
    made.execute("create table orders (id int primary key, day date, total int)")
    made.execute("insert into orders values (1, '2026-01-05', 5), (2, '2026-02-05', 5)")
    made.execute("create table region (id int primary key, name text); insert into region values (1, 'north')")
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DAGSTER_HOME", str(made.home))
    monkeypatch.setenv("INCREMENTAL_ASSETS_LAKE", str(made.lake_root))
    monkeypatch.setenv("INCREMENTAL_ASSETS_PROJECT", str(made.path))
    made.write()
    made.cli("catalog")
    return made


def run(shop: Project, job: str, ok: bool = True) -> str:
    """Runs a job in a process of its own, as Dagster's daemon does. Returns what it has printed."""
    command = [sys.executable, "-m", "dagster", "job", "execute", "-m", "definitions", "-d", ".", "-j", job]
    done = subprocess.run(command, cwd=shop.path, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is ok, (done.stdout + done.stderr)[-4000:]
    return done.stdout + done.stderr


def started(shop: Project, since: int) -> list[tuple[str, str | None]]:
    """The jobs of the runs since then, in their order, and their containers."""
    with shop.instance() as instance:
        return [(one.job_name, one.tags.get(CONTAINER_TAG)) for one in reversed(instance.get_runs())][since:]


def test_a_check_begins_with_a_sentence(shop: Project) -> None:
    """A person who looks at the list of checks in the UI sees the beginning of each description. What was JSON says nothing to them."""
    graph = shop.dagster().get_repository_def().asset_graph
    spec = graph.get_check_spec(dg.AssetCheckKey(dg.AssetKey(["shop", "orders"]), "min_total"))
    assert spec.description == 'Each value of `total` is at least 0.\n\nmin: {"column": "total", "min": 0}'


def test_the_schedules_of_the_yaml_start_the_jobs_with_what_it_says(shop: Project) -> None:
    """They run by default: a schedule that has to be switched on by hand is one that nobody has."""
    repository = shop.dagster().get_repository_def()
    found = {one.name: one for one in repository.schedule_defs}
    looks = {
        name: (one.evaluate_tick(dg.build_schedule_context()).run_requests or [])[0].run_config["ops"]
        for name, one in found.items()
        if name.startswith(("scan_", "profile_"))
    }
    assert looks == {
        "scan_shop__orders_schedule": {"shop__orders__scan": {"config": {"looks": "incremental"}}},
        "profile_shop__orders_schedule": {"shop__orders__profile": {"config": {"looks": "full"}}},
    }
    chosen = [found[name] for name in looks]
    assert all(one.default_status is dg.DefaultScheduleStatus.RUNNING and one.cron_schedule == "0 4 * * *" for one in chosen)


@pytest.mark.long
def test_a_datastore_has_schedules_of_all_its_containers(shop: Project) -> None:
    shop.attributes |= {"scan": ScanEntry(schedule="0 4 * * *"), "profile": ScanEntry(schedule="0 5 * * 0", looks="full")}
    found = {one.name: one.cron_schedule for one in shop.dagster().get_repository_def().schedule_defs}
    assert (found["scan_shop_schedule"], found["profile_shop_schedule"]) == ("0 4 * * *", "0 5 * * 0")


@pytest.mark.long
def test_one_job_syncs_profiles_and_scans_in_this_order(shop: Project) -> None:
    """What was profiled or scanned before the sync would be yesterday's rows."""
    with shop.instance() as instance:
        before = len(instance.get_runs())
    run(shop, "sync_profile_scan_shop")
    first, *others = started(shop, before)
    assert first == ("sync_profile_scan_shop", None)
    syncs = {(IMPLICIT_ASSET_JOB_NAME, "shop/orders"), (IMPLICIT_ASSET_JOB_NAME, "shop/region")}
    profiles = {("profile_shop", "shop/orders"), ("profile_shop", "shop/region")}
    assert (set(others[:2]), set(others[2:4]), others[4:]) == (syncs, profiles, [("scan_shop", "shop/orders")])


@pytest.mark.long
def test_the_job_of_a_datastore_fails_where_a_rule_is_broken_and_looks_at_the_others(shop: Project) -> None:
    shop.sync()
    shop.execute("insert into orders values (3, '2026-03-01', -1)")
    shop.one("orders")
    assert "broken: min_total" in run(shop, "scan_shop", ok=False)
    run(shop, "profile_shop")


def test_scans_without_rules_are_refused(project: MakeProject) -> None:
    """The schedule would start runs that look at nothing, and everybody would believe that the rows are fine."""
    made = project(containers={"orders": {"scan": NIGHTLY}})
    with pytest.raises(ConfigurationError, match="shop/orders: scan evaluates the rules"):
        made.component.settings()
