"""The folders of a project: its root, Dagster's home, and the lake; and how much of it a process loads."""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from dagster._core.secrets.env_file import get_env_var_dict
from dagster_shared.utils.config import discover_config_file, load_toml_as_dict

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.delta.aws_profile import expect_no_profile
from incremental_assets.delta.private import private
from incremental_assets.delta.seen import keep_in
from incremental_assets.spark.embedded.launch import STORES, stores_in

if TYPE_CHECKING:
    import dagster as dg

HOME = ".dagster_home"
"""The folder of a project that is its DAGSTER_HOME where the environment names no other one."""
_SEEN = "seen"
"""The folder in DAGSTER_HOME for what processes have seen of tables on object stores."""
PROJECT_VARIABLE = "INCREMENTAL_ASSETS_PROJECT"
"""The environment variable with the folder of the project that this process and its children serve."""
RELOADS_VARIABLE = "INCREMENTAL_ASSETS_RELOADS"
"""The environment variable that ``incremental-assets dev`` sets for the processes that it starts."""
_VARIABLE = re.compile(r"""\benv(?:\.|\s*[\[(]\s*["'])([A-Za-z_]\w*)""", re.ASCII)
LAKE_VARIABLE = "INCREMENTAL_ASSETS_LAKE"
"""The environment variable with the folder or URL of the lake."""


@dataclass(frozen=True)
class _Limit:
    """The argument of ``only_containers``, and how many containers were left out because of it so far."""

    labels: frozenset[str]
    beyond: int
    left_out: list[str] = field(default_factory=list[str])


_only: ContextVar[_Limit | None] = ContextVar("only_containers", default=None)


@contextlib.contextmanager
def only_containers(labels: Iterable[str], *, beyond: int = 0) -> Iterator[Sequence[str]]:
    """Limits the Dagster definitions that are built within the block to the containers with these labels (``datastore/container``).

    Building the definitions of ten thousand containers takes Dagster minutes, and a process usually needs only a few. Of a datastore with
    at most ``beyond`` containers all are built. The result grows by the labels of those that are left out.
    """
    limit = _Limit(frozenset(labels), beyond)
    token = _only.set(limit)
    try:
        yield limit.left_out
    finally:
        _only.reset(token)


def is_limited() -> bool:
    """Whether ``only_containers`` is in force."""
    return _only.get() is not None


def wanted(labels: Sequence[str]) -> frozenset[str]:
    """Those of a datastore's containers whose definitions are to be built (see ``only_containers``). ``labels``: all that it has."""
    limit = _only.get()
    if limit is None or len(labels) <= limit.beyond:
        return frozenset(labels)
    limit.left_out.extend(label for label in labels if label not in limit.labels)
    return limit.labels & frozenset(labels)


_loaded: ContextVar["list[dg.ComponentTree] | None"] = ContextVar("loaded_components", default=None)


@contextlib.contextmanager
def loaded_components(tree: "dg.ComponentTree | None") -> Iterator[None]:
    """Hands over components that this process has loaded already to the first ``take_components`` within the block; None: nothing."""
    token = _loaded.set([] if tree is None else [tree])
    try:
        yield
    finally:
        _loaded.reset(token)


def take_components(project: Path) -> "dg.ComponentTree":
    """The components of the project, as ``loaded_components`` has handed them over, or else loaded now.

    Definitions are built from a tree once only: it keeps what it has built, for whichever containers that was.
    """
    import dagster as dg

    handed = _loaded.get()
    return handed.pop() if handed else dg.ComponentTree.for_project(project)


def find_project(start: Path | None = None) -> Path:
    """Returns the nearest folder that is a dg project, searching upwards from ``start`` (None: the working directory).

    Raises ConfigurationError where there is none.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if is_project(folder):
            return folder
    raise ConfigurationError(
        f"no project found in {here} or above it (a pyproject.toml with [tool.dg]). Name one with --project DIR, or make one: "
        f"incremental-assets init DIR"
    )


def is_project(folder: Path) -> bool:
    """Whether the folder is itself the root of a dg project."""
    pyproject = folder / "pyproject.toml"
    return (folder / "dg.toml").exists() or (pyproject.exists() and "[tool.dg" in pyproject.read_text(encoding="utf-8"))


def current_project() -> Path:
    """The project that this process serves: the one that the command line has set, or else the nearest one above the working directory.

    Raises ConfigurationError where there is none.
    """
    named = os.environ.get(PROJECT_VARIABLE)
    return Path(named) if named else find_project()


def serve_project(project: Path) -> None:
    """Prepares this process for the project: its modules can be imported without being installed, and ``current_project`` returns it.

    The folders of the lake, the locks and the Spark server follow from ``current_project``.
    """
    os.environ[PROJECT_VARIABLE] = str(project)
    _note_stores(project)
    if (project / HOME).is_dir():
        # Also here, and not only in `enter_project`: `dagster dev` may have made the folder with the usual rights.
        private(project / HOME)
    for folder in (project / "src", project):
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


def read_project(project: Path) -> None:
    """Prepares this process to read the project's YAML, with its ``.env`` by Dagster's own rules. Nothing is written."""
    serve_project(project)
    os.environ.update(get_env_var_dict(str(project)))


def enter_project(project: Path) -> None:
    """Prepares this process, and those that it starts, for the project.

    It does what ``read_project`` does, sets DAGSTER_HOME, and writes a ``dagster.yaml`` into that folder.
    """
    read_project(project)
    home = dagster_home(project)
    # A DAGSTER_HOME that a user has made elsewhere keeps its access rights.
    if home == project / HOME or not home.exists():
        private(home)
    os.environ["DAGSTER_HOME"] = str(home)
    _note_stores(project)
    config, target = project / "dagster.yaml", home / "dagster.yaml"
    own = home == project / HOME
    # A `dagster.yaml` in a home that the environment names is the user's own and is never overwritten.
    if config.exists() and (own or not target.exists()):
        _furnish(config, target)


def _note_stores(project: Path) -> None:
    """Where tables on object stores are remembered, and for which stores Spark's server needs a connector.

    All processes of a project need the same server, also those that load none of the datastores on a store. So the texts of all
    ``defs.yaml`` count, with the variables that they name.
    """
    keep_in(dagster_home(project) / _SEEN)
    found = {kind for kind in os.environ.get(STORES, "").split(",") if kind}
    for text in defs_texts(project).values():
        found.update(stores_in("\n".join([text, *(os.environ.get(name, "") for name in named_variables(text))])))
    if found:
        os.environ[STORES] = ",".join(sorted(found))


def defs_texts(project: Path) -> Mapping[Path, str]:
    """The texts of all ``defs.yaml`` of the project, without comments. A file that cannot be read is left out: who loads it says so."""
    found: dict[Path, str] = {}
    for folder in (project / "defs", project / "src"):
        for file in sorted(folder.glob("**/defs.yaml")):
            with contextlib.suppress(OSError):
                found[file] = re.sub(r"(?m)(^|\s)#.*", "", file.read_text(encoding="utf-8", errors="replace"))
    return found


def named_variables(text: str) -> Sequence[str]:
    """The environment variables that a YAML file refers to: ``{{ env.X }}``, ``{{ env["X"] }}`` or ``{{ env("X", …) }}``."""
    return list(dict.fromkeys(_VARIABLE.findall(text)))


def _furnish(config: Path, target: Path) -> None:
    """Writes the project's ``dagster.yaml`` into DAGSTER_HOME as ``target``.

    Sections that only name a folder of the project's own home are left out: that home is Dagster's default for them. The file is written
    under another name and renamed, so that another process never reads half of it.
    """
    data: dict[str, Any] = yaml.safe_load(config.read_text(encoding="utf-8")) or {}
    kept = {name: value for name, value in data.items() if not _is_in_home(value)}
    text = f"# Made from {config.name} of the project by each command: change that one.\n{yaml.safe_dump(kept, sort_keys=False)}"
    if target.exists() and target.read_text(encoding="utf-8") == text:
        return
    with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=target.name, delete=False, encoding="utf-8") as beside:
        beside.write(text)
    os.replace(beside.name, target)


def _is_in_home(value: Any) -> bool:
    """Whether a section of ``dagster.yaml`` only says that something is stored in the project's own home."""
    if isinstance(value, dict):
        return any(_is_in_home(v) for v in value.values())
    return isinstance(value, str) and Path(value).parts[:1] == (HOME,)


def dagster_home(project: Path | None = None) -> Path:
    """The folder of Dagster's instance: ``$DAGSTER_HOME``, or ``.dagster_home`` in the project.

    Where DAGSTER_HOME is itself the folder of a project, as ``incremental-assets dev`` sets it, ``.dagster_home`` in that folder is meant.
    ``project``: None means the current project.
    """
    named = os.environ.get("DAGSTER_HOME")
    if not named:
        return (project or current_project()) / HOME
    home = Path(named).resolve()
    return home / HOME if is_project(home) else home


def lake_root(project: Path | None = None) -> str:
    """The folder or URL of the lake: ``$INCREMENTAL_ASSETS_LAKE``, or ``lake`` in the project.

    A relative path is relative to the project, whatever the working directory is. ``project``: None means the current project. Raises
    ConfigurationError for a lake that is reached by a profile of AWS.
    """
    named = os.environ.get(LAKE_VARIABLE)
    if not named:
        return str((project or current_project()) / "lake")
    expect_no_profile(named)
    return named if "://" in named else str(((project or current_project()) / named).resolve())


def reloads_by_itself() -> bool:
    """Whether ``incremental-assets dev`` has started this process; its webserver reloads the code location when a catalog has changed."""
    return RELOADS_VARIABLE in os.environ


def dg_settings(project: Path) -> Mapping[str, Any]:
    """The section ``project`` of the project's dg configuration; empty where there is none.

    It is in ``dg.toml``, or under ``[tool.dg]`` in ``pyproject.toml``.
    """
    config_file = discover_config_file(project)
    config = load_toml_as_dict(config_file) if config_file else {}
    section: Mapping[str, Any] = config if config_file and config_file.name == "dg.toml" else config.get("tool", {}).get("dg", {})
    return section.get("project", {})


@lru_cache
def location_name(project: Path) -> str:
    """The name of the project's code location in the UI, by dg's own rule: ``code_location_name`` of its settings, or the folder's name.

    ``workspace.yaml`` must say the same, because a run names its code location. A process reads it once: each of its runs asks for it.
    """
    return str(dg_settings(project).get("code_location_name") or project.name)
