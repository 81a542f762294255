"""The walks of CONTRIBUTING.md are what a real sync calls, in that order.

Belongs here: each numbered list of a walk compared with the calls of a real run. Does not belong: whether a name on the page exists at all
(``test_docs``).
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from assets_tests.calls import RecordedCalls
from assets_tests.harness import Folder, Project
from incremental_assets.dagster.sensors import tick
from incremental_assets.files.definition import FileDefinition

CONTRIBUTING = Path(__file__).resolve().parent.parent / "CONTRIBUTING.md"


def _steps(number: int) -> list[str]:
    """The functions that the numbered list of a walk names, in its order. The text around the list may name others."""
    section = re.search(rf"^## Walk {number}:.*?(?=^## )", CONTRIBUTING.read_text(encoding="utf-8"), re.M | re.S)
    assert section is not None
    steps = re.findall(r"^\d+\. .*(?:\n   .*)*", section[0], re.M)
    return [name for step in steps for name in re.findall(r"`([\w/]+\.py::[\w.]+)`", step)]


def _expect_in_order(steps: list[str], calls: list[str]) -> None:
    """Fails at the first step that was not called after the one before it."""
    position = 0
    for before, step in zip(["the beginning", *steps], steps, strict=False):
        assert step in calls[position:], f"{step} was not called after {before}" if step in calls else f"{step} was not called"
        position = calls.index(step, position) + 1


def _recorded(project: Project, tmp_path: Path, *arguments: str) -> list[str]:
    """The calls of a command of the product, which runs in a process of its own."""
    file = tmp_path / "calls.json"
    command = [sys.executable, "-m", "assets_tests.calls", str(file), "--project", str(project.path), *arguments]
    done = subprocess.run(command, env=project.environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.long
def test_the_walk_of_a_table_is_what_a_sync_calls(project: Callable[..., Project], tmp_path: Path) -> None:
    """A newcomer follows the walk to understand the code; a step that a sync does not take, or takes earlier, leads them astray."""
    made = project(incremental=["public.t:id:integer"])
    made.execute("create table t (id int generated always as identity primary key); insert into t select from generate_series(1, 5)")
    made.write()
    made.cli("sync", "shop/t")
    made.execute("insert into t default values")
    _expect_in_order(_steps(1), _recorded(made, tmp_path, "sync", "shop/t"))


@pytest.mark.long
def test_the_walk_of_a_file_is_what_a_tick_and_its_run_call(folder: Callable[..., Folder]) -> None:
    made = folder(containers={"sales": {"glob": "sales/*.csv"}})
    made.put("sales/1.csv", "id\n1\n")
    os.environ["INCREMENTAL_ASSETS_LAKE"] = made.lake
    [definition] = made.catalog()
    assert isinstance(definition, FileDefinition)
    code = made.dagster([definition])
    with made.instance() as instance, RecordedCalls() as calls:
        [request] = tick(instance, definition, None).run_requests or []
        job = code.resolve_job_def("sync_landing__sales")
        assert job.execute_in_process(instance=instance, run_config=dict(request.run_config or {}), tags=dict(request.tags)).success
    _expect_in_order(_steps(2), calls.names)


@pytest.mark.long
def test_the_walk_of_a_rule_is_what_a_sync_calls(project: Callable[..., Project], tmp_path: Path) -> None:
    made = project(containers={"t": {"checks": [{"rule": "not_null", "columns": ["name"]}]}})
    made.execute("create table t (id int primary key, name text); insert into t values (1, null)")
    made.write()
    _expect_in_order(_steps(3), _recorded(made, tmp_path, "sync", "shop/t"))
