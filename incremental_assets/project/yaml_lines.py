"""Finds the line of a ``defs.yaml`` that a message is about.

Messages of the components begin with the datastore or the container (``shop/orders: …``) and name the attribute that is wrong. By these
words the entry is found, and within it the attribute. Dagster knows lines, too, but no deeper than an attribute of the datastore.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.grammar import parse_incremental
from incremental_assets.project.defs_files import YamlPlace

HAS_PLACE = re.compile(r"(?P<file>[^\n]*?\.ya?ml)(?::(?P<line>\d+))?: ")
"""The beginning of a message that names its file already."""


def placed(message: str, place: YamlPlace, datastore: str) -> str:
    """The message about the datastore, with file and line before it unless it has them already."""
    if HAS_PLACE.match(message):
        return message
    return f"{place.file}:{line_of(place, datastore, message)}: {message}"


def line_of(place: YamlPlace, datastore: str, message: str) -> int:
    """The line that a message about the datastore is about; at least that where its attributes begin."""
    document = _documents(place.text)[place.document]
    attributes = _value(document, "attributes")
    if attributes is None:
        return _line(document)
    own = {key.value: (key, value) for key, value in _items(_value(attributes, "containers"))}
    specs = {table: node for node in _sequence(_value(attributes, "incremental")) if (table := _table(node)) is not None}
    labels = [name for name in {**own, **specs} if message.startswith(f"{datastore}/{name}: ")]
    if not labels:
        return _mentioned(attributes, message.removeprefix(f"{datastore}: ")) or _line(attributes)
    name = max(labels, key=len)
    rest = message.removeprefix(f"{datastore}/{name}: ")
    within = _mentioned(own[name][1], rest) if name in own and not rest.startswith("incremental: ") else None
    return within or _line(specs[name] if name in specs else own[name][0])


def line_at(file: Path, near: int, path: Sequence[str]) -> int:
    """The line of what stands deepest on a path of keys and indices below ``attributes``, in the document that has the line ``near``.

    Parts that are not found are skipped.
    """
    line = near
    for document in _documents(file.read_text(encoding="utf-8")):
        if _line(document) > near:
            break
        node, line = _value(document, "attributes") or document, near
        for part in path:
            for key, value in _items(node) if isinstance(node, yaml.MappingNode) else _numbered(node):
                if key == part or getattr(key, "value", None) == part:
                    node, line = value, _line(key if isinstance(key, yaml.Node) else value)
                    break
    return line


def schema_in(attributes: Mapping[str, Any]) -> str | None:
    """The schema that the first entry of ``incremental`` names; None if it names none. ``attributes``: a datastore's, as in the file."""
    for entry in attributes.get("incremental") or ():
        table = str(entry.get("table", "") if isinstance(entry, dict) else entry).partition(":")[0]
        if "." in table:
            return table.partition(".")[0]
    return None


def _documents(text: str) -> list[yaml.Node]:
    return list(yaml.compose_all(text, Loader=yaml.SafeLoader))


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


def _items(node: yaml.Node | None) -> Sequence[tuple[yaml.Node, yaml.Node]]:
    return node.value if isinstance(node, yaml.MappingNode) else ()


def _sequence(node: yaml.Node | None) -> Sequence[yaml.Node]:
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def _numbered(node: yaml.Node) -> Iterator[tuple[str, yaml.Node]]:
    yield from ((str(number), one) for number, one in enumerate(_sequence(node)))


def _value(node: yaml.Node, name: str) -> yaml.Node | None:
    return next((value for key, value in _items(node) if key.value == name), None)


def _table(entry: yaml.Node) -> str | None:
    """The table of an entry of ``incremental``, as text or mapping; None where it has none that can be read."""
    table = _value(entry, "table")
    if table is not None:
        return str(table.value).rpartition(".")[2]
    if isinstance(entry, yaml.ScalarNode):
        with contextlib.suppress(ConfigurationError):
            return parse_incremental(entry.value).table
    return None


def _mentioned(node: yaml.Node, message: str) -> int | None:
    """The line of the attribute of the node that the message mentions first, or of what it mentions within that attribute; else None."""
    for entry in _sequence(node):
        if (isinstance(entry, yaml.ScalarNode) and entry.value in message) or repr(_table(entry)) in message:
            return _line(entry)
    found = [(at.start(), key, value) for key, value in _items(node) if (at := _word(str(key.value)).search(message)) is not None]
    if not found:
        return None
    start, key, value = min(found, key=lambda one: one[0])
    return _mentioned(value, message[start + len(key.value) :]) or _line(key)


def _word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
