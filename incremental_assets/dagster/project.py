"""Where a project's things are: its root, Dagster's home, the lake, the scratch of Spark.

Belongs here: folders and the environment variables that move them. Does not belong: what is in them.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import yaml
from dagster._core.secrets.env_file import get_env_var_dict
from dagster_shared.utils.config import discover_config_file, load_toml_as_dict

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.delta.private import private

HOME = ".dagster_home"
PROJECT_VARIABLE = "INCREMENTAL_ASSETS_PROJECT"
RELOADS_VARIABLE = "INCREMENTAL_ASSETS_RELOADS"
LAKE_VARIABLE = "INCREMENTAL_ASSETS_LAKE"


_only: ContextVar[frozenset[str] | None] = ContextVar("only_containers", default=None)


@contextlib.contextmanager
def only_containers(labels: Iterable[str] | None) -> Iterator[None]:
    """Within the block, definitions are made of these containers alone: Dagster takes a minute for ten thousand. None: of all."""
    token = _only.set(None if labels is None else frozenset(labels))
    try:
        yield
    finally:
        _only.reset(token)


def is_wanted(label: str) -> bool:
    """Whether definitions of the container are to be made."""
    wanted = _only.get()
    return wanted is None or label in wanted


def find_project(start: Path | None = None) -> Path:
    """The nearest folder upwards that is a dg project. Raises ConfigurationError where there is none."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if _is_project(folder):
            return folder
    raise ConfigurationError(
        f"no project found in {here} or above it (a pyproject.toml with [tool.dg]). Name one with --project DIR, or make one: "
        f"incremental-assets init DIR"
    )


def _is_project(folder: Path) -> bool:
    pyproject = folder / "pyproject.toml"
    return (folder / "dg.toml").exists() or (pyproject.exists() and "[tool.dg" in pyproject.read_text(encoding="utf-8"))


def current_project() -> Path:
    """The project this process serves: the command line's, or the one found upwards from the working directory."""
    named = os.environ.get(PROJECT_VARIABLE)
    return Path(named) if named else find_project()


def serve_project(project: Path) -> None:
    """Makes this process find the project's modules without being installed, and know whose lake, locks and Spark server it uses."""
    os.environ[PROJECT_VARIABLE] = str(project)
    if (project / HOME).is_dir():
        private(project / HOME)  # also where `dagster dev` has made it
    for folder in (project / "src", project):
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


def enter_project(project: Path) -> None:
    """Makes this process, and those it starts, serve the project: its ``.env`` read as Dagster reads it, DAGSTER_HOME set and furnished."""
    serve_project(project)
    os.environ.update(get_env_var_dict(str(project)))
    home = dagster_home(project)
    if home == project / HOME or not home.exists():  # one that somebody named is as open as they made it
        private(home)
    os.environ["DAGSTER_HOME"] = str(home)
    config, target = project / "dagster.yaml", home / "dagster.yaml"
    own = home == project / HOME
    if config.exists() and (own or not target.exists()):  # in a home that somebody else has furnished nothing is changed
        _furnish(config, target)


def _furnish(config: Path, target: Path) -> None:
    """The project's dagster.yaml as it must read in the home itself, whose folders need no naming. Written beside and moved over."""
    data: dict[str, Any] = yaml.safe_load(config.read_text(encoding="utf-8")) or {}
    kept = {name: value for name, value in data.items() if not _is_in_home(value)}
    text = f"# Made from {config.name} of the project by each command: change that one.\n{yaml.safe_dump(kept, sort_keys=False)}"
    if target.exists() and target.read_text(encoding="utf-8") == text:
        return
    with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=target.name, delete=False, encoding="utf-8") as beside:
        beside.write(text)
    os.replace(beside.name, target)


def _is_in_home(value: Any) -> bool:
    """Whether a section of dagster.yaml only says that something is kept in the project's own home."""
    if isinstance(value, dict):
        return any(_is_in_home(v) for v in value.values())
    return isinstance(value, str) and Path(value).parts[:1] == (HOME,)


def dagster_home(project: Path | None = None) -> Path:
    """``$DAGSTER_HOME``, or ``.dagster_home`` in the project, which is also meant by a DAGSTER_HOME that is a project."""
    named = os.environ.get("DAGSTER_HOME")
    if not named:
        return (project or current_project()) / HOME
    home = Path(named).resolve()
    return home / HOME if _is_project(home) else home


def lake_root(project: Path | None = None) -> str:
    """``$INCREMENTAL_ASSETS_LAKE``, or ``lake`` in the project; a relative path is one of the project, wherever it is called from."""
    named = os.environ.get(LAKE_VARIABLE)
    if not named:
        return str((project or current_project()) / "lake")
    return named if "://" in named else str(((project or current_project()) / named).resolve())


def reloads_by_itself() -> bool:
    """Whether `incremental-assets dev` serves this, which reloads the code location when a catalog has changed."""
    return RELOADS_VARIABLE in os.environ


def dg_settings(project: Path) -> Mapping[str, Any]:
    """The project's own section of dg's configuration."""
    config_file = discover_config_file(project)
    config = load_toml_as_dict(config_file) if config_file else {}
    section: Mapping[str, Any] = config if config_file and config_file.name == "dg.toml" else config.get("tool", {}).get("dg", {})
    return section.get("project", {})


def location_name(project: Path) -> str:
    """What the UI calls the project's code location, by dg's rule; workspace.yaml says the same."""
    return str(dg_settings(project).get("code_location_name") or project.name)
