"""What the command line makes of a project: definitions of the containers that it is asked for.

Belongs here: loading a project from its files. Does not belong: which containers a selection names (``test_catalog``).
"""

import importlib
import sys
from collections.abc import Callable, Iterator

import dagster as dg
import pytest

from assets_tests.harness import Project
from incremental_assets.project.folders import enter_project
from incremental_assets.runs.dagster_internals.one_asset_job import implicit_job
from incremental_assets.runs.loading import load_datastores, load_definitions, load_project, select
from incremental_assets.runs.partitions import container_key

OWN = """
import dagster as dg
from dagster.components import definitions
from incremental_assets import build_definitions
from pathlib import Path

@definitions
def defs():
    mine = dg.define_asset_job("mine", selection=[dg.AssetKey(["shop", "b"])])
    return dg.Definitions.merge(build_definitions(Path(__file__).resolve().parent), dg.Definitions(jobs=[mine]))
"""

OWN_COMPONENT = """
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from incremental_assets import ContainerDefinition, PostgresDatastore


@dataclass
class Shop(PostgresDatastore):
    def get_asset_spec(self, container: ContainerDefinition) -> dg.AssetSpec:
        spec = super().get_asset_spec(container)
        return spec.merge_attributes(tags={"team": "sales"}).replace_attributes(group_name="sales")

    def sync(self, context: dg.AssetExecutionContext, container: ContainerDefinition) -> Iterator[dg.Output]:
        Path(__file__).with_name("before").write_text(container.container.label)
        yield from super().sync(context, container)
        Path(__file__).with_name("after").write_text(container.container.label)
"""


@pytest.fixture
def shop(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Three tables, catalogued, in a project of files."""
    made = project()
    made.execute("create table a (id int primary key); create table b (id int primary key); create table c (id int primary key)")
    made.write()
    for name, value in made.variables.items():
        monkeypatch.setenv(name, value)
    made.cli("catalog", "shop", spark=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    forget_modules()
    yield made
    forget_modules()


def forget_modules() -> None:
    """Those of a project before: each project has its own of these names."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("definitions", "defs", "shop_component")]:
        del sys.modules[name]


def containers_of(definitions: dg.Definitions) -> set[str]:
    return {
        key.path[1] for key in definitions.resolve_asset_graph().materializable_asset_keys if key.path[0] == "shop" and len(key.path) == 2
    }


@pytest.mark.long
def test_definitions_are_made_only_for_the_named_containers(shop: Project) -> None:
    """Dagster takes more than a minute for ten thousand containers; who syncs one of them would wait for all."""
    enter_project(shop.path)
    chosen = [definition for _, definition in select(load_datastores(shop.path), ["shop/b"], [])]
    everything = containers_of(load_definitions(shop.path))
    assert {"a", "b", "c"} <= everything
    one = load_definitions(shop.path, chosen)
    assert containers_of(one) == everything - {"a", "c"}
    assert containers_of(load_definitions(shop.path)) == everything, "only while it was asked for"


@pytest.mark.long
def test_a_job_of_the_project_over_another_container_does_not_stop_a_sync(shop: Project) -> None:
    """Otherwise a job that somebody writes over one container makes every other one impossible to sync."""
    (shop.path / "definitions.py").write_text(OWN)
    importlib.invalidate_caches()
    enter_project(shop.path)
    chosen = [definition for _, definition in select(load_datastores(shop.path), ["shop/a"], [])]
    definitions = load_definitions(shop.path, chosen)
    assert containers_of(definitions) == {"a", "catalog"}
    assert implicit_job(definitions, container_key(chosen[0].container)), "jobs that nobody asks for are not made"
    assert load_definitions(shop.path).resolve_job_def("mine")


@pytest.mark.long
def test_what_runs_is_made_of_the_yaml_that_the_command_has_loaded(shop: Project) -> None:
    """A command that loads the YAML twice takes longer, and runs what it has not checked if somebody edits a file in between."""
    enter_project(shop.path)
    loaded = load_project(shop.path)
    chosen = [definition for _, definition in select(loaded.datastores, ["shop/a"], [])]
    yaml = shop.path / "defs" / "shop" / "defs.yaml"
    yaml.write_text(yaml.read_text().replace("name: shop", "name: renamed"))
    assert containers_of(loaded.definitions(chosen)) == {"a", "catalog"}
    assert containers_of(loaded.definitions(chosen)) == set(), "further definitions are of the YAML as it is then"


def own_component(shop: Project, text: str) -> None:
    """Has the project's datastore be of a class that the project defines."""
    (shop.path / "shop_component.py").write_text(text)
    yaml = shop.path / "defs" / "shop" / "defs.yaml"
    yaml.write_text(yaml.read_text().replace("incremental_assets.PostgresDatastore", "shop_component.Shop"))


@pytest.mark.long
def test_a_project_overrides_how_an_asset_looks_and_what_its_run_does(shop: Project) -> None:
    """Otherwise who wants a tag, a group or a message after each sync has to fork the component."""
    own_component(shop, OWN_COMPONENT)
    shop.execute("insert into a values (1)")
    _, lines, _ = shop.cli("sync", "shop/a", "--json")
    assert [line["status"] for line in lines] == ["synced"]
    assert [(shop.path / name).read_text() for name in ("before", "after")] == ["shop/a", "shop/a"]
    assert len(list(shop.path.glob("defs/.local_defs_state/*/state"))) == 1, "it has the catalog of the class before it"
    enter_project(shop.path)
    load_datastores(shop.path)
    spec = load_definitions(shop.path).resolve_asset_graph().get(dg.AssetKey(["shop", "a"]))
    assert (spec.group_name, spec.tags["team"], spec.kinds) == ("sales", "sales", {"postgres", "deltalake", "spark"})


@pytest.mark.long
def test_a_project_that_gives_an_asset_another_key_is_refused(shop: Project) -> None:
    """Otherwise its table would be written under one name, and its watermark and partitions be looked up under another."""
    own_component(shop, OWN_COMPONENT.replace('.replace_attributes(group_name="sales")', '.replace_attributes(key="elsewhere")'))
    code, _, errors = shop.cli("sync", "shop/a", "--json", check=None, spark=False)
    assert code and "shop/a: get_asset_spec gave it the key elsewhere" in errors
