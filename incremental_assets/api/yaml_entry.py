"""Changes one entry under ``incremental:`` of a ``defs.yaml``, with comments, quotes and order of the file kept.

The file is read and written by ruamel.yaml, and then read once more by the library that Dagster uses: nothing but the one entry may have
changed, or the text is refused.
"""

import copy
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.grammar import parse_incremental
from incremental_assets.core.yaml_text import TEMPLATE
from incremental_assets.project.defs_files import YamlPlace

_PLAIN = re.compile(r"[A-Za-z0-9_]+")
_PLAIN_START = re.compile(r"[A-Za-z0-9_.+-][A-Za-z0-9_.+: -]*")


def is_of(entry: Any, schema: str, table: str) -> bool:
    """Whether an entry of ``incremental:`` is about this table. Raises ConfigurationError for one of which that cannot be seen."""
    if isinstance(entry, str):
        if TEMPLATE.search(entry):
            raise ConfigurationError("incremental: has an entry that is a template, so that it cannot be changed here; do it by hand.")
        spec = parse_incremental(entry, schema)
        return (spec.schema in (None, schema)) and spec.table == table
    return str(entry["table"]) in (f"{schema}.{table}", table)


def fields_of(entry: Any, schema: str) -> dict[str, Any]:
    """The entry as a mapping, as the YAML could have it instead of the short text. ``schema``: the datastore's."""
    if not isinstance(entry, str):
        return dict(entry)
    spec = parse_incremental(entry, schema)
    fields: dict[str, Any] = {"column": spec.columns[0], "type": spec.type.value, "start": spec.start, "strategy": spec.strategy.value}
    return {name: value for name, value in fields.items() if value is not None} | ({"exclude": True} if spec.excluded else {})


def as_entry(schema: str, table: str, fields: Mapping[str, Any]) -> str | dict[str, Any]:
    """The entry as the short text where that can express it, else as a mapping. Raises ConfigurationError for a template."""
    column, start, upsert = fields["column"], fields.get("start"), fields.get("strategy") == "upsert"
    for text in (schema, table, *([column] if isinstance(column, str) else column), str(start)):
        if TEMPLATE.search(text):
            raise ConfigurationError(f"{text!r} would be read as a template by Dagster, so that it cannot be written into the YAML.")
    short = isinstance(column, str) and all(_PLAIN.fullmatch(text) for text in (schema, table, column))
    if short and set(fields) <= {"table", "column", "type", "start", "strategy"} and (start is None or _PLAIN_START.fullmatch(str(start))):
        return f"{schema}.{table}:{column}:{fields['type']}{'' if start is None else f'@{start}'}{'!upsert' if upsert else ''}"
    return {"table": f"{schema}.{table}", **{name: value for name, value in fields.items() if name != "table"}}


def with_entry(place: YamlPlace, schema: str, table: str, entry: str | Mapping[str, Any] | None) -> str:
    """The text of the file with the table's entry replaced or added; None: without it. Raises ConfigurationError."""
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.comments import CommentedSeq
        from ruamel.yaml.error import YAMLError
        from ruamel.yaml.util import load_yaml_guess_indent
    except ImportError:
        raise ConfigurationError("setting a field needs one more package: pip install 'incremental-assets[api]'") from None

    editor = YAML(typ="rt")
    editor.preserve_quotes, editor.width, editor.allow_unicode = True, 1 << 20, True
    editor.explicit_start = place.text.lstrip().startswith("---")
    try:
        _, mapping, offset = load_yaml_guess_indent(place.text)
        editor.indent(mapping=2, sequence=mapping or 4, offset=offset if offset is not None else 2)
        documents = list(editor.load_all(place.text))
    except YAMLError as error:
        raise ConfigurationError(f"{place.file.name} cannot be changed: {error}") from error
    attributes = documents[place.document]["attributes"]
    sequence = attributes.get("incremental")
    if sequence is None:
        sequence = attributes["incremental"] = CommentedSeq()
    _change(sequence, schema, table, None if entry is None else _quoted(entry))
    text = io.StringIO()
    editor.dump_all(documents, text)
    _expect_only_that(place, text.getvalue(), schema, table, entry)
    return text.getvalue()


def _change(entries: Any, schema: str, table: str, entry: Any) -> None:
    """Replaces, adds or removes the table's entry in the list, in its place."""
    at = [number for number, one in enumerate(entries) if is_of(one, schema, table)]
    if len(at) > 1:
        raise ConfigurationError(f"incremental: has {len(at)} entries for {table}; take out all but one.")
    if not at and entry is not None:
        if hasattr(entries, "fa") and not entries:
            entries.fa.set_block_style()  # an empty list is written as [], in flow style
        entries.append(entry)
    elif entry is not None:
        entries[at[0]] = entry
    elif at:
        del entries[at[0]]


def _quoted(entry: Any) -> Any:
    """The entry with its texts in double quotes, which mean the same to every YAML library, whatever is in them."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(entry, str):
        return DoubleQuotedScalarString(entry)
    if isinstance(entry, Mapping):
        found = CommentedMap({str(name): _quoted(value) for name, value in entry.items()})
        found.fa.set_flow_style()
        return found
    if isinstance(entry, Sequence):
        return CommentedSeq([_quoted(one) for one in entry])
    return entry


def _expect_only_that(place: YamlPlace, text: str, schema: str, table: str, entry: Any) -> None:
    """Raises ConfigurationError where the new text does not say the same as the old one, but for the entry."""
    expected: list[Any] = copy.deepcopy(list(yaml.safe_load_all(place.text)))
    attributes = expected[place.document]["attributes"]
    entries = list(attributes.get("incremental") or [])
    _change(entries, schema, table, entry)
    attributes["incremental"] = entries
    try:
        found = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{place.file.name} cannot be changed by this service; do it by hand. {error}") from error
    if found != expected:
        raise ConfigurationError(
            f"{place.file.name} has something, such as an anchor, for which more than the one entry would change; change it by hand."
        )
