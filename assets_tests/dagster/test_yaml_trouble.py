"""What is shown of a project whose YAML cannot be loaded: the place and what to do, and nothing of what the file has there.

Belongs here: mistakes in a ``defs.yaml``. Does not belong: what a datastore refuses of attributes that are well formed (``catalog``).
"""

import subprocess
import sys
from pathlib import Path

import pytest

from assets_tests.harness import long
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.dagster.components.alerts import Alerts
from incremental_assets.project.folders import enter_project
from incremental_assets.project.scaffold import write_project
from incremental_assets.runs.loading import load_datastores, load_definitions, load_project

SECRET = "postgresql://shop:Tr0ub4dor@localhost/shop"
SHOP = 'type: incremental_assets.PostgresDatastore\nattributes:\n  name: shop\n  url: "{{ env.SHOP_URL }}"\n'
ALERTS = "type: incremental_assets.Alerts\nattributes:\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a datastore's ``defs.yaml`` in a new project, which is the current one."""
    for name in ("definitions", "defs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("SHOP_URL", SECRET)
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_project(tmp_path / "p")
    enter_project(tmp_path / "p")
    made = tmp_path / "p" / "defs" / "shop"
    made.mkdir()
    return made


def trouble(folder: Path, text: str) -> str:
    """The message about the project with this text as a ``defs.yaml``, wherever it is raised."""
    (folder / "defs.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as raised:
        loaded = load_project(folder.parent.parent)
        loaded.components_of(Alerts)
        load_definitions(folder.parent.parent)
    message = str(raised.value)
    assert "Tr0ub4dor" not in message and "input_value" not in message, message
    return message


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (SHOP.replace("url:", "urll:"), 4, "there is no attribute 'urll'. Nearest: url."),
        (SHOP.replace('"{{ env.SHOP_URL }}"', f"[{SECRET}]"), 4, "url: input should be a valid string."),
        (SHOP + f"  password: {SECRET}\n", 5, "there is no attribute 'password'."),
        (SHOP + "  containers: {orders: {partitionby: month}}\n", 5, "'containers.orders.partitionby'. Nearest: partition_by."),
        (SHOP.replace('"{{ env.SHOP_URL }}"', "{{ env.SHOP_URL }}"), 4, 'A template stands in quotes: "{{ env.NAME }}".'),
        (SHOP + "  incremental: [{table: t, column: at, type: date, deletes: sweep}]\n", 5, "attribute 'incremental.0.deletes'. Known: "),
        (SHOP + f"   more: {SECRET}\n", 5, "it is not valid YAML: "),
        (SHOP.replace("Datastore", "Datstore"), 1, "Nearest: incremental_assets.PostgresDatastore"),
        (SHOP.replace("incremental_assets", "incremental-assets"), 1, "there is no component 'incremental-assets.PostgresDatastore'"),
        (SHOP.replace("incremental_assets", "incremental_asset"), 1, "there is no component 'incremental_asset.PostgresDatastore'"),
        (SHOP.replace("type:", "typ:"), 1, "type is missing."),
        ("", None, "it is empty."),
        (f"{ALERTS}  too: [{SECRET}]\n", 3, "there is no attribute 'too'. Nearest: to."),
        (f"{ALERTS}  to: [[{SECRET}]]\n", 3, "to.0: input should be a valid string."),
        (f'{ALERTS}  to: "{{{{ env.SHOP_URL }}}}"\n', None, "to is a list"),
        (f'{ALERTS}  to: ["{{{{ env.NOWHERE }}}}"]\n', None, "is the environment variable set"),
        (f"{ALERTS}  to: [{SECRET}]\n  on: [failure]\n", 4, "write such a name in quotes."),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_without_what_the_file_has_there(
    folder: Path, text: str, line: int | None, what: str
) -> None:
    """A first user has a mistake in the first file, and reads this message next. A URL with its password would be in the logs."""
    place = f"{folder / 'defs.yaml'}:{'' if line is None else line}"
    message = trouble(folder, text)
    assert place in message and what in message, message


def test_a_variable_that_is_not_set_is_named(folder: Path) -> None:
    (folder / "defs.yaml").write_text(SHOP.replace("SHOP_URL", "SHOPP_URL"), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="Not set here: SHOPP_URL"):
        load_datastores(folder.parent.parent)


def test_a_fault_in_code_of_the_project_is_named_with_its_line(folder: Path) -> None:
    (folder.parent / "own.py").write_text("import dagster as dg\n\nx = nowhere\n", encoding="utf-8")
    assert f"{folder.parent / 'own.py'}:3: NameError: name 'nowhere' is not defined" in trouble(folder, SHOP)


@pytest.mark.parametrize("command", ["sync", *long("alerts", "status")])
def test_no_command_shows_a_stack_trace_of_a_broken_defs_yaml(folder: Path, command: str) -> None:
    (folder / "defs.yaml").write_text(f"{ALERTS}  too: [{SECRET}]\n", encoding="utf-8")
    (folder.parent / "db").mkdir()
    (folder.parent / "db" / "defs.yaml").write_text(SHOP, encoding="utf-8")
    arguments = [sys.executable, "-m", "incremental_assets.cli", "--project", str(folder.parent.parent), command]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr and "Tr0ub4dor" not in done.stdout + done.stderr, done.stderr
    assert command != "alerts" or (done.returncode == 2 and "there is no attribute 'too'. Nearest: to." in done.stderr), done.stderr
