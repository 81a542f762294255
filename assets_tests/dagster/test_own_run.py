"""A process that executes one run loads the containers of that run alone, and all of them where the run needs more.

Belongs here: runs as Dagster's daemon executes them, each in a process that loads the project first. Does not belong: what the command line
loads (``test_loading``).
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Set

import dagster as dg
import pytest
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._grpc.impl import core_execute_run

from assets_tests.dagster.test_loading import forget_modules, own_component
from assets_tests.harness import Project
from incremental_assets.dagster.definitions import FEW
from incremental_assets.project.folders import enter_project
from incremental_assets.runs.loading import load_definitions

TABLES = FEW + 1
COMPONENT = """
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from incremental_assets import ContainerDefinition, PostgresDatastore


@dataclass
class Shop(PostgresDatastore):
    def get_asset_spec(self, container: ContainerDefinition) -> dg.AssetSpec:
        with Path(__file__).with_name("built").open("a") as built:
            built.write(container.container.name + "\\n")
        return super().get_asset_spec(container)
"""
OWN = """
import dagster as dg
from dagster.components import definitions
from incremental_assets import build_definitions
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dg.asset(key=["shop", "report"], deps=[dg.AssetKey(["shop", "t000"])])
def report() -> None: ...


@definitions
def defs():
    whole = build_definitions(HERE)
    {more}
    return dg.Definitions.merge(whole, dg.Definitions([report], jobs=[dg.define_asset_job("mine", [report.key])]))
"""


@pytest.fixture
def shop(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A catalogued datastore of more than a few tables, whose component writes down which assets it builds."""
    made = project(identifiers="auto")
    made.execute("".join(f"create table t{n:03d} (id int primary key); " for n in range(TABLES)))
    made.write()
    own_component(made, COMPONENT)
    (made.path / "definitions.py").write_text(OWN.replace("{more}", ""))
    for name, value in made.variables.items():
        monkeypatch.setenv(name, value)
    made.cli("catalog", "shop", spark=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    forget_modules()
    enter_project(made.path)
    yield made
    forget_modules()


PROFILE_ONE = {"ops": {"shop_profile": {"config": {"container": "t007"}}}}
"""The run config of a profile of one container: it finds no table, and so does without Spark."""


def executed(
    shop: Project, job: str, assets: Set[dg.AssetKey] | None = None, run_config: Mapping[str, object] | None = None
) -> tuple[set[str], bool]:
    """Executes a run as its process does. Returns the containers that were built for it, and whether it has succeeded."""
    importlib.invalidate_caches()
    with shop.instance() as instance:
        # The run is made by another process, which has loaded everything.
        whole = load_definitions(shop.path).get_repository_def().get_job(job)
        chosen = whole.get_subset(asset_selection=assets) if assets else whole
        run = instance.create_run_for_job(chosen, run_config=run_config, asset_selection=assets, tags=whole.run_tags)
        forget_modules()
        (shop.path / "built").write_text("")
        code = ReconstructableRepository.for_file(str(shop.path / "definitions.py"), "defs", str(shop.path))
        list(core_execute_run(code.get_reconstructable_job(job), run, instance, inject_env_vars=False))
        ended = instance.get_run_by_id(run.run_id)
    assert ended is not None
    return set((shop.path / "built").read_text().split()), ended.is_success


@pytest.mark.long
def test_a_run_builds_the_definitions_of_its_container_alone(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each run that a schedule starts in a large project spends minutes on containers that it does not touch."""
    assert executed(shop, "profile_shop", run_config=PROFILE_ONE) == (set(), True)
    assert executed(shop, "catalog_shop") == (set(), True)
    monkeypatch.setenv("SHOP_URL", "postgresql://nobody@127.0.0.1:1/gone")  # a run that fails at once also does without Spark
    built, _ = executed(shop, IMPLICIT_ASSET_JOB_NAME, {dg.AssetKey(["shop", "t003"]), dg.AssetKey(["shop", "t004"])})
    assert built == {"t003", "t004"}, "Materialize in the UI starts Dagster's own job"


@pytest.mark.long
def test_a_run_of_the_projects_own_assets_has_all_containers(shop: Project) -> None:
    """Such an asset may read any container. It may even have a key that looks like that of a container."""
    everything = {f"t{n:03d}" for n in range(TABLES)}
    assert executed(shop, "mine") == (everything, True)
    assert executed(shop, IMPLICIT_ASSET_JOB_NAME, {dg.AssetKey(["shop", "report"])}) == (everything, True)


@pytest.mark.long
def test_a_project_that_needs_other_containers_to_load_gets_them(shop: Project) -> None:
    """Otherwise the runs of all containers would fail because of one line of the project's own."""
    (shop.path / "definitions.py").write_text(OWN.replace("{more}", 'assert whole.resolve_assets_def(["shop", "t100"])'))
    built, succeeded = executed(shop, "profile_shop", run_config=PROFILE_ONE)
    assert succeeded and built == {f"t{n:03d}" for n in range(TABLES)}


@pytest.mark.long
def test_only_for_the_ui_are_the_types_of_components_described(shop: Project) -> None:
    """Dagster imports each component that is installed for that. A run, or a command, would take a third of a second more; and without the
    description the UI has no page of components."""
    assert "plugin_component_types_json" in load_definitions(shop.path).metadata
    assert "plugin_component_types_json" not in load_definitions(shop.path, shop.catalog()[:1]).metadata
