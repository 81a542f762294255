"""What the command line makes of a project: definitions of the containers that it is asked for.

Belongs here: loading a project from its files. Does not belong: which containers a selection names (``test_catalog``).
"""

import importlib
import sys
from collections.abc import Callable, Iterator

import dagster as dg
import pytest

from assets_tests.harness import Project
from incremental_assets.dagster.jobs import job_name
from incremental_assets.dagster.loading import load_datastores, load_definitions, select
from incremental_assets.dagster.project import enter_project

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
    monkeypatch.delitem(sys.modules, "definitions", raising=False)
    yield made
    sys.modules.pop("definitions", None)


def containers_of(definitions: dg.Definitions) -> set[str]:
    return {
        key.path[1] for key in definitions.resolve_asset_graph().materializable_asset_keys if key.path[0] == "shop" and len(key.path) == 2
    }


def test_definitions_are_made_of_what_is_asked_for_alone(shop: Project) -> None:
    """Dagster takes more than a minute for ten thousand containers; who syncs one of them would wait for all."""
    enter_project(shop.path)
    chosen = [definition for _, definition in select(load_datastores(shop.path), ["shop/b"], [])]
    everything = containers_of(load_definitions(shop.path))
    assert {"a", "b", "c"} <= everything
    one = load_definitions(shop.path, chosen)
    assert containers_of(one) == everything - {"a", "c"}
    assert containers_of(load_definitions(shop.path)) == everything, "only while it was asked for"


def test_a_job_of_the_project_that_names_another_container_is_no_trouble(shop: Project) -> None:
    """Else a job that somebody writes over one container makes every other one impossible to sync."""
    (shop.path / "definitions.py").write_text(OWN)
    importlib.invalidate_caches()
    enter_project(shop.path)
    chosen = [definition for _, definition in select(load_datastores(shop.path), ["shop/a"], [])]
    definitions = load_definitions(shop.path, chosen)
    assert containers_of(definitions) == {"a", "catalog"}
    assert definitions.resolve_job_def(job_name(chosen[0])), "jobs that nobody asks for are not made"
    assert load_definitions(shop.path).resolve_job_def("mine")
