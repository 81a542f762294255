"""The wheel: what `pip install incremental-assets` brings works in an environment that has nothing else.

Belongs here: what only an installed package can lack. Does not belong: what its commands do.
"""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import psycopg
import pytest

from incremental_assets.spark.embedded.java_home import tools_folder
from incremental_assets.spark.session import stop_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "incremental_assets"
_OURS = ("DAGSTER_", "INCREMENTAL_ASSETS_", "SPARK_", "PYTHON", "VIRTUAL_ENV")


def run(*command: str | Path, cwd: Path, environment: Mapping[str, str] | None = None) -> str:
    """Executes a command, and returns what it prints."""
    words = list(map(str, command))
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_each_file_of_the_package(wheel: Path) -> None:
    """A template, a page or `py.typed` that is missing there is found in each checkout, so that only users would miss it."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith(f"{PACKAGE}/")}
    here = {path.relative_to(ROOT).as_posix() for path in (ROOT / PACKAGE).rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert f"{PACKAGE}/py.typed" in here
    assert {name for name in here if not Path(name).name.startswith(".")} - packed == set()


def test_a_project_is_made_and_synced_where_only_the_wheel_is_installed(wheel: Path, tmp_path: Path, database: str) -> None:
    """Otherwise a dependency, or a file that the commands of the README need, is only there where the product is developed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path, environment=environment)
    programs = tmp_path / "venv" / "bin"
    install = (programs / "python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel)
    run(*install, cwd=tmp_path, environment=environment)
    environment |= {"PATH": f"{programs}{os.pathsep}{environment['PATH']}", "SHOP_URL": database}
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("""create table orders (id bigint generated always as identity primary key, note text);
            insert into orders (note) select 'note ' || n from generate_series(1, 500) n""")

    def ours(*words: str, cwd: Path) -> str:
        return run(programs / "incremental-assets", *words, cwd=cwd, environment=environment)

    assert ours("--version", cwd=tmp_path).strip() == wheel.name.split("-")[1]
    ours("init", "lake", "--url", "SHOP_URL", "--name", "shop", cwd=tmp_path)
    project = tmp_path / "lake"
    ours("init", "--deploy", cwd=project)
    ours("check", cwd=project)
    synced = json.loads(ours("sync", "--json", cwd=project))
    assert (synced["container"], synced["status"], synced["rows_read"]) == ("shop/orders", "synced", 500)
    assert not (tmp_path / ".jars").exists() and not (project / ".jars").exists()  # nothing was fetched for Spark
    (row,) = ours("show", "shop/orders", "--sql", "select note from orders where id = 500", "--json", cwd=project).splitlines()
    assert json.loads(row) == {"note": "note 500"}
    environment["INCREMENTAL_ASSETS_TOOLS"] = str(tools_folder())  # Java and Spark's JARs, which are there
    try:
        profiled = json.loads(ours("profile", "shop/orders", "--json", cwd=project))
    finally:
        stop_server(project / ".dagster_home")
    assert profiled["rows_profiled"] == 500 and Path(profiled["page"]).exists()
    assert profiled["message"].endswith("run: pip install 'incremental-assets[profiles]'")
