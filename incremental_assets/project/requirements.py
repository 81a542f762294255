"""The packages that a project needs where it is deployed, and their versions: those of this environment, with which it was tried."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from dagster_shared.utils.config import load_toml_as_dict
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from incremental_assets.core.errors import ConfigurationError

OURS = "incremental-assets"
OF_YAML = {
    r"\bincremental_assets\.MySQLDatastore\b": "mysql",
    r"\bincremental_assets\.SQLServerDatastore\b": "sqlserver",
    r"\bincremental_assets\.Alerts\b": "alerts",
    r"^\s+profile:": "profiles",
}
"""What in a ``defs.yaml`` needs an extra, and which one."""
CONSTRAINTS = "constraints.txt"
"""A file of this name beside the project's ``pyproject.toml`` says all versions itself."""


@dataclass(frozen=True)
class Requirements:
    """``packages``: what is installed. ``pinned``: the version of each package that comes with them, as ``name==version``. ``missing``:
    packages that are not installed here, so that their versions are not known. ``own``: whether the project has constraints of its own.
    """

    packages: Sequence[str]
    pinned: Sequence[str]
    missing: Sequence[str]
    own: bool


def requirements_of(project: Path, yaml: str) -> Requirements:
    """What a project needs. ``yaml``: the texts of its ``defs.yaml``. Raises ConfigurationError for a dependency that is none."""
    extras = {"deploy", *(extra for pattern, extra in OF_YAML.items() if re.search(pattern, yaml, re.MULTILINE))}
    ours = f"{OURS}[{','.join(sorted(extras))}]=={metadata.version(OURS)}"
    packages = [ours, *map(str, _of_project(project))]
    found = _closure(packages)
    return Requirements(
        packages=packages,
        pinned=[f"{name}=={version}" for name, version in sorted(found.items()) if version is not None and name != OURS],
        missing=sorted(name for name, version in found.items() if version is None),
        own=(project / CONSTRAINTS).is_file(),
    )


def _of_project(project: Path) -> Iterator[Requirement]:
    """The dependencies in the project's ``pyproject.toml``, but for this package."""
    file = project / "pyproject.toml"
    listed = load_toml_as_dict(file).get("project", {}).get("dependencies", []) if file.is_file() else []
    for text in listed:
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise ConfigurationError(f"{file} lists {text!r} as a dependency: {error}") from error
        if canonicalize_name(requirement.name) != OURS:
            yield requirement


def _closure(packages: Sequence[str]) -> dict[str, str | None]:
    """The installed version of each package, and of all that they need here; None for those that are not installed."""
    found: dict[str, str | None] = {}
    seen: set[tuple[str, str]] = set()
    queue = [(Requirement(text), "") for text in packages]
    while queue:
        requirement, extra = queue.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in {"", *requirement.extras}:
            if (name, wanted) in seen:
                continue
            seen.add((name, wanted))
            try:
                found[name], needs = metadata.version(name), metadata.requires(name) or []
            except metadata.PackageNotFoundError:
                found[name], needs = None, []
            queue += [(Requirement(text), wanted) for text in needs]
    return found
