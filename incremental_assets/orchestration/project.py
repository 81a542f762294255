"""Where a project's things are: its root, Dagster's home, the lake, the scratch of Spark.

Belongs here: folders and the environment variables that move them. Does not belong: what is in them.
"""

import os
import shutil
from pathlib import Path

from incremental_assets.model.errors import ConfigurationError

PROJECT_VARIABLE = "INCREMENTAL_ASSETS_PROJECT"
LAKE_VARIABLE = "INCREMENTAL_ASSETS_LAKE"


def find_project(start: Path | None = None) -> Path:
    """The nearest folder upwards that is a dg project. Raises ConfigurationError where there is none."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        pyproject, dg_toml = folder / "pyproject.toml", folder / "dg.toml"
        if dg_toml.exists() or (pyproject.exists() and "[tool.dg" in pyproject.read_text(encoding="utf-8")):
            return folder
    raise ConfigurationError(
        f"no project found in {here} or above it (a pyproject.toml with [tool.dg]). Name one with --project DIR, or make one: "
        f"incremental-assets init DIR"
    )


def current_project() -> Path:
    """The project this process serves: the command line's, or the one found upwards from the working directory."""
    named = os.environ.get(PROJECT_VARIABLE)
    return Path(named) if named else find_project()


def enter_project(project: Path) -> None:
    """Makes this process, and those it starts, serve the project: DAGSTER_HOME set and furnished."""
    os.environ[PROJECT_VARIABLE] = str(project)
    home = dagster_home(project)
    home.mkdir(parents=True, exist_ok=True)
    os.environ["DAGSTER_HOME"] = str(home)
    config = project / "dagster.yaml"
    target = home / "dagster.yaml"
    if config.exists() and home != project and (not target.exists() or target.read_bytes() != config.read_bytes()):
        shutil.copyfile(config, target)


def dagster_home(project: Path | None = None) -> Path:
    """``$DAGSTER_HOME``, or ``.dagster_home`` in the project."""
    named = os.environ.get("DAGSTER_HOME")
    return Path(named).resolve() if named else (project or current_project()) / ".dagster_home"


def lake_root(project: Path | None = None) -> str:
    """``$INCREMENTAL_ASSETS_LAKE``, or ``lake`` in the project; a path without scheme is made absolute."""
    named = os.environ.get(LAKE_VARIABLE)
    if not named:
        return str((project or current_project()) / "lake")
    return named if "://" in named else str(Path(named).resolve())
