"""``incremental-assets init --deploy``: the files with which a project is put on a machine, for that project.

All that a project has a say in is checked before it stands in a file that a shell, systemd or a container engine reads.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dagster.components.utils.project_paths import get_local_defs_state_dir

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.yaml_text import comment_text
from incremental_assets.project.folders import LAKE_VARIABLE, defs_texts, dg_settings, location_name, named_variables
from incremental_assets.project.requirements import Requirements, requirements_of
from incremental_assets.project.templates import render
from incremental_assets.spark.embedded.launch import stores

FILES: Mapping[str, str] = {
    "DEPLOY.md": "deployment/DEPLOY.md",
    ".env.example": "deployment/env.example",
    "Dockerfile": "deployment/Dockerfile",
    ".dockerignore": "deployment/dockerignore",
    "compose.yaml": "deployment/compose.yaml",
    "deploy/dagster.yaml": "dagster.yaml",
    "deploy/workspace.yaml": "deployment/workspace.yaml",
    "deploy/requirements.txt": "deployment/requirements.txt",
    "deploy/constraints.txt": "deployment/constraints.txt",
    "deploy/{slug}-code.service": "deployment/code.service",
    "deploy/{slug}-daemon.service": "deployment/daemon.service",
    "deploy/{slug}-webserver.service": "deployment/webserver.service",
    ".github/workflows/{slug}.yml": "deployment/workflow.yml",
}
"""The files by their paths in the project, and the template of each. A file without text is not written."""
OWN = frozenset(
    ("DAGSTER_HOME", "DAGSTER_PG_URL", "POSTGRES_PASSWORD", "DAGSTER_CODE_HOST", "DAGSTER_CODE_PORT", "DAGSTER_WEBSERVER_PORT",
     "DAGSTER_WEBSERVER_READ_ONLY", "INCREMENTAL_ASSETS_UI_HOSTS", LAKE_VARIABLE)
)  # fmt: skip
"""The variables of ``.env.example`` that every project has."""
_NAME = re.compile(r"(?=.{1,30}$)[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)*")
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_LAKE = re.compile(r"(?:[a-z][a-z0-9]*:/)?/[\w./@=+-]+", re.ASCII)


@dataclass(frozen=True)
class Deployment:
    """What the files say of a project.

    ``name``: of the code location; ``slug``: the same for units, a user and images, which have no capitals. ``module``: with the
    definitions. ``folder``: where the project is on the machine; ``state``: the folder of what it keeps there, with ``home``, Dagster's
    home. ``lake``: folder or URL. ``catalogs``: the folder of the stored catalogs, within the project. ``variables``: those that the YAML
    names, each with the files that name it. ``stores``: the object stores that Spark needs connectors for, separated by commas.
    ``python``: its version here, for which the versions of the packages are.
    """

    name: str
    slug: str
    module: str
    folder: str
    state: str
    home: str
    lake: str
    catalogs: str
    variables: Mapping[str, str]
    stores: str
    python: str
    requirements: Requirements

    @property
    def lake_is_folder(self) -> bool:
        return "://" not in self.lake


@dataclass(frozen=True)
class Written:
    """``written``: the files that are new or were overwritten. ``kept``: those that were there and say something else."""

    written: Sequence[Path]
    kept: Sequence[Path]


def deployment_of(project: Path) -> Deployment:
    """Looks at the project, which this process has entered. Raises ConfigurationError for a name or a lake that no file may have."""
    name = _checked(
        location_name(project),
        _NAME,
        "code_location_name",
        "letters and digits with single - or _ between them, a letter first, at most 30",
    )
    module = str(dg_settings(project).get("code_location_target_module") or f"{dg_settings(project).get('root_module')}.definitions")
    slug = name.lower()
    state = f"/var/lib/{slug}"
    return Deployment(
        name=name,
        slug=slug,
        module=_checked(module, _MODULE, "code_location_target_module", "a Python module"),
        folder=f"/opt/{slug}",
        state=state,
        home=f"{state}/home",
        lake=_lake(f"{state}/lake"),
        catalogs=get_local_defs_state_dir(project).relative_to(project).as_posix(),
        variables=_variables(project),
        stores=",".join(stores()),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        requirements=requirements_of(project, "\n".join(defs_texts(project).values())),
    )


def write_deployment(project: Path, deployment: Deployment, *, force: bool) -> Written:
    """Writes the files into the project. ``force``: also those that are there and say something else."""
    values = asdict(deployment) | {"deployed": True, "lake_is_folder": deployment.lake_is_folder}
    texts = {project / path.format(slug=deployment.slug): render(template, **values) for path, template in FILES.items()}
    written: list[Path] = []
    kept: list[Path] = []
    for path, text in texts.items():
        if not text or (path.exists() and path.read_text(encoding="utf-8", errors="replace") == text):
            continue
        if path.exists() and not force:
            kept.append(path)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return Written(written, kept)


def _variables(project: Path) -> Mapping[str, str]:
    found: dict[str, list[str]] = {}
    for file, text in defs_texts(project).items():
        for name in named_variables(text):
            if name not in OWN:
                found.setdefault(name, []).append(comment_text(file.relative_to(project).as_posix()))
    return {name: ", ".join(files) for name, files in found.items()}


def _lake(usual: str) -> str:
    """The lake on the machine: the URL or the absolute path that is set here, and a folder of the machine where none is."""
    named = os.environ.get(LAKE_VARIABLE, "")
    if "://" not in named and not named.startswith("/"):
        return usual
    return _checked(named, _LAKE, LAKE_VARIABLE, "a path or a URL of letters, digits and . / _ - @ = +")


def _checked(value: str, pattern: re.Pattern[str], what: str, allowed: str) -> str:
    """Raises ConfigurationError unless the whole value fits: it becomes part of commands and names of units."""
    if pattern.fullmatch(value):
        return value
    raise ConfigurationError(f"{what} is {value!r}, and the files of a deployment take {allowed}. Nothing was written; change it first.")
