"""What people are shown where a project's YAML cannot be loaded: the file, the line, the attribute and what is wrong with it.

The messages of Dagster, pydantic and PyYAML repeat what the file has there, and that may be a URL with a password. So no text of theirs is
shown that has a value of the file in it.
"""

import os
import re
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

import incremental_assets
from incremental_assets.core.errors import SyncError
from incremental_assets.core.names import nearest
from incremental_assets.core.yaml_text import TEMPLATE
from incremental_assets.project.defs_files import defs_files
from incremental_assets.project.yaml_lines import HAS_PLACE, line_at

_PLACE = re.compile(r"(?P<path>.+) at (?P<place>/.+:\d+)", re.DOTALL)
_PART = re.compile(r"[\w-]+\[[^\]]*\]|[^.]+")
_MODEL = re.compile(r"\b[A-Z]\w*(?:Entry|Model)\w*")
_KINDS = {"str", "int", "float", "bool", "NoneType"}
_TYPE = re.compile(r"""\s*type:\s*["']?(?P<type>[^\s"'#]+)""")
_OF_COMPONENT = re.compile(r"Error while .*? (?P<folder>\S+?)\[(?P<number>\d+)\]:")
_VARIABLE = re.compile(r"""\benv(?:\.|\(\s*["'])([A-Za-z_]\w*)""")
_OURS = Path(incremental_assets.__file__).parent
_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))


def yaml_trouble(error: Exception, folder: Path) -> str:
    """The message about an error while the project was loaded. ``folder``: that of its ``defs``."""
    chain = list(_chain(error))
    own = next((one for one in chain if isinstance(one, SyncError)), None)
    if own is not None:
        return str(own) if HAS_PLACE.match(str(own)) else f"{_component(chain, folder)}{own}"
    invalid = [one for one in chain if isinstance(one, ValidationError)]
    if invalid:
        placed = [one for one in invalid if any(_PLACE.fullmatch(".".join(map(str, each["loc"]))) for each in one.errors())]
        return "\n".join(_of_attributes((placed or invalid)[-1]))
    return _unreadable(folder) or _unknown_component(chain, folder) or f"{_component(chain, folder)}{_of_code(chain)}"


def unset_variables(file: Path) -> list[str]:
    """The environment variables that the YAML refers to, and that are not set."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    return unset_in(text)


def unset_in(text: str) -> list[str]:
    """The environment variables that templates in the text refer to, and that are not set."""
    return [name for name in dict.fromkeys(_VARIABLE.findall(text)) if not os.environ.get(name)]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it comes from, the innermost last."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _of_attributes(error: ValidationError) -> Iterator[str]:
    """A line for each attribute that is wrong."""
    found: dict[tuple[str, str], str] = {}
    for one in error.errors(include_url=False, include_context=False, include_input=False):
        loc = ".".join(str(part) for part in one["loc"])
        placed = _PLACE.fullmatch(loc)
        path = loc if placed is None else placed["path"]
        models = _MODEL.findall(path)
        # Where an attribute takes several kinds of values, pydantic names the kind as a part of the path.
        parts = [part for part in _PART.findall(path) if part not in _KINDS and not {"[", "]"} & set(part) and part not in models]
        parts = parts[1:] if parts[0] == "attributes" else parts
        name = ".".join(parts)
        place = "" if placed is None else _placed(placed["place"], parts)
        if one["type"] == "missing":
            what = f"{name} is missing."
        elif one["type"] == "extra_forbidden":
            what = f"there is no attribute {name!r}.{nearest(parts[-1], _attributes(error.title, models[-1:]))}"
        elif path.endswith(".[key]"):
            what = "a name is no text. YAML reads on, off, yes and no as true and false: write such a name in quotes."
        else:
            what = f"{name}: {one['msg'][:1].lower()}{one['msg'][1:]}."
        found.setdefault((place, name), f"{place}{what}")
    # That a list is no text, which would be a template, says nothing beside what is wrong within the list.
    yield from (line for (_, name), line in found.items() if not any(other.startswith(f"{name}.") for _, other in found))


def _placed(place: str, path: Sequence[str]) -> str:
    """The beginning of a message. ``place``: file and line as Dagster knows them, which is no deeper than an attribute of the component."""
    file, _, line = place.rpartition(":")
    return f"{file}:{line_at(Path(file), int(line), path)}: "


def _attributes(model: str, nested: Sequence[str]) -> list[str]:
    """The names of the attributes of one of our components, or of an entry in it. ``model``: the name of its pydantic model."""
    if model == "ComponentFileModel":
        return ["type", "attributes"]
    component = getattr(incremental_assets, model.removesuffix("Model"), None)
    if component is None or not hasattr(component, "model"):
        return []
    fields = _fields(component.model())
    return fields.get(nested[0] if nested else model, [])


def _fields(model: type[BaseModel]) -> dict[str, list[str]]:
    """The names of the fields of a model, and of those that its fields have, by the names of the models."""
    found: dict[str, list[str]] = {}
    waiting: list[Any] = [model]
    while waiting:
        one = waiting.pop()
        waiting += get_args(one)
        if isinstance(one, type) and issubclass(one, BaseModel) and one.__name__ not in found:
            found[one.__name__] = list(one.model_fields)
            waiting += [field.annotation for field in one.model_fields.values()]
    return found


def _unreadable(folder: Path) -> str | None:
    """What is wrong with the first file that is no YAML; None: they all are."""
    for file in defs_files(folder):
        try:
            list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            return f"{file}: it is not UTF-8."
        except OSError as error:
            return f"{file}: it cannot be read: {error.strerror}."
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = "" if mark is None else f":{mark.line + 1}"
            hint = ""
            if mark is not None and TEMPLATE.search(_line(file, mark.line)):
                hint = ' A template stands in quotes: "{{ env.NAME }}".'
            return f"{file}{line}: it is not valid YAML: {getattr(error, 'problem', None) or 'it cannot be read'}.{hint}"
    return None


def _line(file: Path, number: int) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    return lines[number] if number < len(lines) else ""


def _unknown_component(chain: Sequence[BaseException], folder: Path) -> str | None:
    """What is wrong if ``type`` names no component; else None."""
    missing = next((one.name or "" for one in chain if isinstance(one, ModuleNotFoundError)), None)
    for file in defs_files(folder):
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            named = _TYPE.match(line)
            if named is None:
                continue
            module, _, name = named["type"].rpartition(".")
            is_wrong = missing is not None and module.split(".")[: missing.count(".") + 1] == missing.split(".")
            if is_wrong or any(
                f"Module `{module}` has no attribute `{name}`" in str(one) or f"`{named['type']}`" in str(one) for one in chain
            ):
                known = [f"{incremental_assets.__name__}.{one}" for one in incremental_assets.__all__]
                return f"{file}:{number}: there is no component {named['type']!r}.{nearest(named['type'], known)}"
        if "No components found in YAML file" in str(chain[-1]) and not any(yaml.safe_load_all(file.read_text(encoding="utf-8"))):
            return f"{file}: it is empty. Delete it, or begin it with a line such as type: incremental_assets.PostgresDatastore."
    return None


def _component(chain: Sequence[BaseException], folder: Path) -> str:
    """The file of the component that could not be loaded, as the beginning of a message; empty if none is known."""
    for one in chain:
        found = _OF_COMPONENT.match(str(one))
        if found is not None:
            file = next((path for path in defs_files(folder) if path.parent == folder / found["folder"]), None)
            return "" if file is None else f"{file}: "
    return ""


def _of_code(chain: Sequence[BaseException]) -> str:
    """The message of the innermost error, with the place in the project's own code that has raised it."""
    error = chain[-1]
    message = str(error).strip() or type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    deepest = next((frame for frame in reversed(frames) if not frame.filename.startswith((*_INSTALLED, "<"))), None)
    if deepest is None or Path(deepest.filename).is_relative_to(_OURS):
        return message
    return f"{deepest.filename}:{deepest.lineno}: {type(error).__name__}: {message}"
