"""Sets the incremental field of a container in the project's YAML.

Everything is checked before the file is written: the entry, by the code that a sync uses, against the columns that the catalog knows; and
the text. The file is replaced in one step, so that a reader sees the old one or the new one.
"""

import dataclasses
import os
import stat
import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import Any

import dagster as dg
from filelock import FileLock

from incremental_assets.api.payloads import FieldBody
from incremental_assets.api.problems import Problem
from incremental_assets.api.yaml_entry import as_entry, fields_of, is_of, with_entry
from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.container import SourceColumn
from incremental_assets.core.cursor_type import CursorType
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.identifier_types import cursor_type_of
from incremental_assets.core.names import nearest
from incremental_assets.dagster.components.tables import IncrementalEntry, TableDatastore
from incremental_assets.databases.definition import TableDefinition
from incremental_assets.project.defs_files import place_of
from incremental_assets.project.folders import dagster_home
from incremental_assets.runs.loading import Datastore

_TYPES = {
    CursorType.DATE: "date",
    CursorType.INTEGER: "integer",
    CursorType.TIMESTAMP: "timestamp",
    CursorType.TIMESTAMP_NTZ: "timestamp",
}


def set_incremental_field(project: Path, store: Datastore, definition: ContainerDefinition, body: FieldBody, keep: bool) -> Path:
    """Writes the field into the YAML and returns the file. ``keep``: what the body does not say stays as the entry has it.

    Raises ConfigurationError or Problem, and then nothing was written.
    """
    component = store.component
    if not isinstance(component, TableDatastore) or not isinstance(definition, TableDefinition):
        raise Problem(
            HTTPStatus.CONFLICT, f"{definition.container.label}: files follow their time of modification; there is no field to set."
        )
    if not body.model_fields_set:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "the body says nothing; send at least incremental_field.")
    schema, table = definition.settings.schema, definition.table.name
    folder = dg.ComponentTree.for_project(project).defs_module_path
    with FileLock(dagster_home(project) / "defs.lock", timeout=30):
        place = place_of(folder, store.name)
        before = next((one for one in _entries(component) if is_of(one, schema, table)), None)
        entry = _entry(definition, body, fields_of(before, schema) if keep and before is not None else {}, schema, table)
        _expect_it_fits(component, store, definition, entry, schema, table)
        text = with_entry(place, schema, table, entry)
        if text != place.text:
            _replace(place.file, text)
    return place.file


def _entries(component: TableDatastore) -> list[Any]:
    """The entries of ``incremental:``, templates resolved, as text or mapping."""
    return [one if isinstance(one, str) else one.model_dump(exclude_unset=True, mode="json") for one in component.incremental]


def _entry(definition: TableDefinition, body: FieldBody, base: dict[str, Any], schema: str, table: str) -> Any:
    """The entry that the request means; None: the container is to have no identifier. ``base``: what stays of the entry as it is."""
    fields = {name: value for name, value in base.items() if name != "table"}
    if "incremental_field" in body.model_fields_set:
        if body.incremental_field is None:
            return None
        fields["column"] = body.incremental_field
        fields.pop("exclude", None)
        # The type and the first value of another column say nothing of this one.
        if base.get("column") != body.incremental_field:
            fields.pop("type", None)
            fields.pop("start", None)
    if "column" not in fields:
        raise Problem(
            HTTPStatus.UNPROCESSABLE_ENTITY, f"{definition.container.label} has no incremental field yet: send incremental_field."
        )
    for name in ("type", "start", "strategy"):
        if name in body.model_fields_set:
            value = getattr(body, name)
            fields.pop(name, None)
            if value is not None:
                fields[name] = value
    columns = [fields["column"]] if isinstance(fields["column"], str) else list(fields["column"])
    found = [_column(definition, name) for name in columns]
    if "type" not in fields:
        fields["type"] = _type(definition, found[0])
    return as_entry(schema, table, fields)


def _column(definition: TableDefinition, name: str) -> SourceColumn:
    column = definition.table.column(name)
    if column is None:
        near = nearest(name, [one.name for one in definition.table.columns])
        raise ConfigurationError(f"{definition.container.label} has no column {name!r}.{near}")
    return column


def _type(definition: TableDefinition, column: SourceColumn) -> str:
    cursor_type = cursor_type_of(column)
    if cursor_type is None:
        raise ConfigurationError(
            f"{definition.container.label}: {column.name} is {column.type}; an incremental field is a date, timestamp or integer column."
        )
    return _TYPES[cursor_type]


def _expect_it_fits(component: TableDatastore, store: Datastore, definition: TableDefinition, entry: Any, schema: str, table: str) -> None:
    """Raises ConfigurationError where the datastore with this entry would not load, or the container would not take it."""
    assert store.catalog is not None
    kept = [one for one, plain in zip(component.incremental, _entries(component), strict=True) if not is_of(plain, schema, table)]
    new = [] if entry is None else [entry if isinstance(entry, str) else IncrementalEntry(**entry)]
    candidate = dataclasses.replace(component, incremental=[*kept, *new])
    resolved = next(one for one in candidate.definitions(store.catalog) if one.table.name == table).container
    wanted = () if entry is None else fields_of(entry, schema)["column"]
    columns = () if resolved.identifier is None else resolved.identifier.columns
    if entry is not None and list(columns) != ([wanted] if isinstance(wanted, str) else list(wanted)):
        raise ConfigurationError(f"{definition.container.label}: the entry would not make {wanted} its incremental field.")


def _replace(file: Path, text: str) -> None:
    """Replaces the file in one step; its access rights stay."""
    with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=".defs-", delete=False, encoding="utf-8", newline="") as beside:
        try:
            beside.write(text)
            beside.flush()
            os.fsync(beside.fileno())
            os.chmod(beside.name, stat.S_IMODE(file.stat().st_mode))
            os.replace(beside.name, file)
        except BaseException:
            os.unlink(beside.name)
            raise
