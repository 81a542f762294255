"""Says whether a project is well formed: the records of ``incremental-assets check``.

No source is asked, Spark is not started, and nothing is written. The variables of addresses need not be set: what stands in for them
(``stand_ins`` of a component) leads nowhere.
"""

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from dagster.components.core.decl import ComponentDecl, build_component_decl_from_yaml_document
from dagster.components.core.defs_module import ComponentPath
from dagster_shared.yaml_utils import parse_yamls_with_source_position

from incremental_assets.catalog.state import Catalog
from incremental_assets.core.errors import ConfigurationError, refused_to
from incremental_assets.core.yaml_text import TEMPLATE
from incremental_assets.operations.alerts.send import NO_APPRISE, can_send
from incremental_assets.operations.alerts.settings import AlertsComponent
from incremental_assets.project.catalog_store import read_from_a_copy
from incremental_assets.project.catalogued import CataloguedComponent
from incremental_assets.project.defs_files import YamlPlace, defs_files
from incremental_assets.project.yaml_lines import HAS_PLACE, placed, schema_in
from incremental_assets.project.yaml_trouble import unset_in, yaml_trouble
from incremental_assets.runs.collisions import collisions
from incremental_assets.runs.loading import component_tree, expect_own_names, load_definitions

_ANOTHER = re.compile(r"\n(?=[^\n]*?\.ya?ml(?::\d+)?: )")
"""Between the messages of one error."""
_IN_AN_ADDRESS = "1"
"""What stands for a variable that is a part of an address: it can be a user, a password, a host, and a port."""


@dataclasses.dataclass
class _Checked:
    """One component of a ``defs.yaml``, or the file where it could not be loaded.

    ``unset``: the variables of its address that are not set. ``problems``: messages, with their place before them if they have one.
    ``containers``: the names of those that it has by its catalog; None without a catalog.
    """

    file: Path | None = None
    kind: str | None = None
    component: dg.Component | None = None
    unset: Sequence[str] = ()
    problems: list[str] = dataclasses.field(default_factory=list[str])
    catalog: Catalog | None = None
    containers: list[str] | None = None
    place: YamlPlace | None = None

    def refuse(self, error: ConfigurationError) -> None:
        """Adds the message of an error, with its place."""
        name = getattr(self.component, "name", None)
        text = str(error) if self.place is None or name is None else placed(str(error), self.place, name)
        if text not in self.problems:
            self.problems.append(text)


def check_lines(project: Path) -> list[dict[str, Any]]:
    """One record for each component of the project, with the fields of ``check --json``, and one without file if the project as a whole
    cannot be loaded.

    Raises ConfigurationError if the project's own code cannot be imported.
    """
    with _environment_kept():
        tree = component_tree(project)
        with read_from_a_copy(project):
            return [_record(one, project) for one in _checked(tree, project)]


def _checked(tree: dg.ComponentTree, project: Path) -> list[_Checked]:
    """All components, with what is wrong with them; one without file at the end if the project as a whole cannot be loaded."""
    found = [one for file in defs_files(tree.defs_module_path) for one in _components(tree, file)]
    for one in found:
        _check(one, project)
    _check_together([one for one in found if isinstance(one.component, CataloguedComponent)])
    if not any(one.problems for one in found):
        whole = _Checked()
        with refused_to(whole.refuse):
            load_definitions(project)
        found += [whole] if whole.problems else []
    return found


@contextlib.contextmanager
def _environment_kept() -> Iterator[None]:
    """Sets the environment variables back at the end of the block."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


# ---------------------------------------------------------------------- loading
def _components(tree: dg.ComponentTree, file: Path) -> Iterator[_Checked]:
    """The components of a file, each loaded by itself."""
    try:
        text = file.read_text(encoding="utf-8")
        documents = parse_yamls_with_source_position(text, str(file))
        if not documents:
            raise ValueError("No components found in YAML file")
    except Exception as error:  # noqa: BLE001 whatever it is, it becomes a message
        yield _unloadable(error, file)
        return
    for number, document in enumerate(documents):
        path = ComponentPath.from_path(file.parent, number)
        try:
            context = tree.decl_load_context.for_component_loc(path)
            declared = build_component_decl_from_yaml_document(context=context, source_tree=document, path=path)
            kind, unset = declared.component_type, _stand_in(declared)
            component = declared._load_component()
        except Exception as error:  # noqa: BLE001 likewise
            yield _unloadable(error, file)
        else:
            yield _Checked(file, kind.__name__, component, unset, place=YamlPlace(file, text, number, len(documents)))


def _unloadable(error: Exception, file: Path) -> _Checked:
    return _Checked(file, problems=_ANOTHER.split(yaml_trouble(error, file.parent)))


def _stand_in(declared: ComponentDecl[Any]) -> list[str]:
    """Sets what stands for the variables of the component's address that are not set. Returns their names."""
    attributes = getattr(declared, "component_file_model").attributes or {}  # noqa: B009 of YAML's declarations only
    names: list[str] = []
    for attribute, address in getattr(declared.component_type, "stand_ins", {}).items():
        value = attributes.get(attribute)
        for text in map(str, value if isinstance(value, list) else [value]):
            unset = unset_in(text)
            alone = len(unset) == 1 and TEMPLATE.match(text) is not None and text.count("{{") == 1 and text.rstrip().endswith("}}")
            stands = address.format(schema=schema_in(attributes) or "nowhere") if alone else _IN_AN_ADDRESS
            os.environ.update(dict.fromkeys(unset, stands))
            names += unset
    return names


# ---------------------------------------------------------------------- checks
def _check(one: _Checked, project: Path) -> None:
    """Collects what is wrong with a component that has been loaded."""
    component = one.component
    if isinstance(component, AlertsComponent):
        with refused_to(one.refuse):
            component.settings()
    if not isinstance(component, CataloguedComponent):
        return
    for part in _parts(component):
        with refused_to(one.refuse):
            part.settings()
    store = component.store(project)
    with refused_to(one.refuse):
        one.catalog = None if store.is_versioned else store.load(None)
        if one.catalog is not None and not one.problems:
            one.containers = [definition.container.name for definition in component.definitions(one.catalog, one.refuse)]


def _parts(component: CataloguedComponent) -> Iterator[CataloguedComponent]:
    """The datastore with each of its attributes alone, and of lists and mappings with each entry alone, and last as it is: so that one
    mistake hides no other. The schema stays, as entries name it."""
    whole: Any = component
    of_yaml = {one.name: getattr(whole, one.name) for one in dataclasses.fields(whole) if _has_default(one) and one.name != "schema"}
    defaults = {one.name: _default(one) for one in dataclasses.fields(whole) if one.name in of_yaml}
    for name, value in of_yaml.items():
        for part in _each(value):
            if part != defaults[name]:
                yield dataclasses.replace(whole, **{**defaults, name: part})
    yield dataclasses.replace(whole)


def _has_default(one: dataclasses.Field[Any]) -> bool:
    return one.default is not dataclasses.MISSING or one.default_factory is not dataclasses.MISSING


def _default(one: dataclasses.Field[Any]) -> Any:
    return one.default if one.default_factory is dataclasses.MISSING else one.default_factory()


def _each(value: Any) -> Iterator[Any]:
    """The entries of a list or mapping, each as one of its kind; anything else as it is."""
    if isinstance(value, Mapping):
        yield from ({key: entry} for key, entry in value.items())
    elif isinstance(value, list):
        yield from ([entry] for entry in value)
    else:
        yield value


def _check_together(found: Sequence[_Checked]) -> None:
    """Collects datastores and containers whose names collide."""
    components = [one.component for one in found if isinstance(one.component, CataloguedComponent)]
    containers = {one.component.name: one.containers or [] for one in found if isinstance(one.component, CataloguedComponent)}
    for one, component in zip(found, components, strict=True):
        with refused_to(one.refuse):
            expect_own_names([other.name for other in components], [component.name])
        for error in collisions(component, components, lambda other: containers[other.name]).values():
            one.refuse(error)


# ---------------------------------------------------------------------- records
def _record(one: _Checked, project: Path) -> dict[str, Any]:
    component, store = one.component, isinstance(one.component, CataloguedComponent)
    return {
        "file": None if one.file is None else _relative(str(one.file), project),
        "kind": one.kind,
        "name": getattr(component, "name", None),
        "catalogued_at": None if one.catalog is None else one.catalog.found_at,
        "containers": None if one.containers is None else len(one.containers),
        "rules": sum(len(entry.checks) for entry in getattr(component, "containers").values()) if store else None,  # noqa: B009
        "message": _message(one, project),
        "problems": [_problem(text, one.file, project) for text in one.problems],
    }


def _message(one: _Checked, project: Path) -> str:
    """What was not looked at, and what to do about it."""
    parts: list[str] = [NO_APPRISE] if isinstance(one.component, AlertsComponent) and not can_send() else []
    if isinstance(one.component, CataloguedComponent) and one.catalog is None:
        if one.component.store(project).is_versioned:
            parts.append("its catalog is in Dagster's versioned storage, which is not opened; names were not compared with it")
        elif not one.problems:
            parts.append(f"no catalog yet, so names were not compared with it. Run: incremental-assets catalog {one.component.name}")
    if one.unset:
        parts.append(f"its address was not looked at, as {', '.join(dict.fromkeys(one.unset))} is not set")
    return "; ".join(parts)


def _problem(text: str, file: Path | None, project: Path) -> dict[str, Any]:
    """``file``: that of the component; a message about a rule has only the end of its path."""
    found = HAS_PLACE.match(text)
    named = None if found is None else str(file) if file is not None and str(file).endswith(found["file"]) else found["file"]
    return {
        "file": None if named is None else _relative(named, project),
        "line": None if found is None or found["line"] is None else int(found["line"]),
        "text": text if found is None else text[found.end() :],
    }


def _relative(file: str, project: Path) -> str:
    return file.removeprefix(f"{project}{os.sep}")
