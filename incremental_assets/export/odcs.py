"""Data contracts of the Open Data Contract Standard v3 (https://bitol-io.github.io/open-data-contract-standard/), one for each table."""

import hashlib
import json
from typing import Any
from urllib.parse import urlsplit

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.names import encode_name, file_name
from incremental_assets.core.rules.keys import Unique, UniqueScope
from incremental_assets.core.rules.table import Freshness
from incremental_assets.export.odcs_quality import quality
from incremental_assets.export.table import ExportedColumn, ExportedTable, Reference, folder_of

Json = dict[str, Any]
API_VERSION = "v3.1.0"
_TYPES = {
    "tinyint": "integer", "smallint": "integer", "int": "integer", "bigint": "integer", "float": "number", "double": "number",
    "decimal": "number", "string": "string", "char": "string", "varchar": "string", "boolean": "boolean", "date": "date",
    "timestamp": "timestamp", "timestamp_ntz": "timestamp", "binary": "string",
}  # fmt: skip
"""The logical type for each atomic type of Spark."""
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def contract_file(folder: str) -> str:
    """The name of the contract of the table with this folder."""
    return file_name((folder,), ".odcs.yaml")


def contract(definition: ContainerDefinition, table: ExportedTable) -> Json:
    """The contract of one table. Its version changes with the schema and the rules, and with nothing else."""
    container, settings = table.container, definition.settings
    body: Json = {
        "schema": [_schema(table)],
        **({"slaProperties": found} if (found := _service_levels(definition)) else {}),
    }
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, default=str).encode()).hexdigest()[:12]
    usage: Json = {"limitations": table.warning} if table.warning else {}
    about = container.comment or f"{container.label}, as it is in the lake."
    owners: Json = {"team": {"name": container.options.owners[0]}} if container.options.owners else {}
    tags = [f"{name}={value}" if value else name for name, value in container.options.tags.items()]
    return {
        "apiVersion": API_VERSION,
        "kind": "DataContract",
        "id": container.label,
        "name": container.label,
        "version": f"1.0.0+{digest}",
        "status": "active",
        "domain": settings.name,
        "description": {"purpose": about, **usage},
        **({"tags": tags} if tags else {}),
        "servers": [_server(table)],
        **owners,
        **body,
        "customProperties": _custom(
            plainParquet=not table.hidden_from_parquet,
            strategy=container.strategy.value,
            incrementalIdentifier=container.signature if container.identifier else None,
            partitionBy=container.partitioning.word if container.partitioning else None,
            owners=list(container.options.owners) or None,
        ),
    }


def _schema(table: ExportedTable) -> Json:
    container = table.container
    axis = {name.lower(): position for position, name in enumerate(container.axis.columns if container.axis else (), start=1)}
    # The windows of a container without partitions are none; files are partitioned by file.
    axis = axis if container.partitioning is not None and not container.partitioning.by_file else {}
    described = [text for text in (container.comment, table.warning) if text]
    composite = [one for one in table.references if len(one.columns) > 1]
    checks = [one for one in map(quality, container.options.checks) if one is not None]
    return {
        "id": table.folder,
        "name": container.name,
        "physicalName": table.url,
        "logicalType": "object",
        "physicalType": "table",
        **({"description": "\n".join(described)} if described else {}),
        "properties": [_property(table, column, axis.get(column.name.lower())) for column in table.columns],
        **({"relationships": [_composite(table, one) for one in composite]} if composite else {}),
        **({"quality": checks} if checks else {}),
    }


def _property(table: ExportedTable, column: ExportedColumn, partition_position: int | None) -> Json:
    key = column.key_position
    key_words: Json = {} if key is None else {"primaryKey": True, "primaryKeyPosition": key}
    partition: Json = {} if partition_position is None else {"partitioned": True, "partitionKeyPosition": partition_position}
    references = [one for one in table.references if tuple(name.lower() for name in one.columns) == (column.name.lower(),)]
    related: Json = {"relationships": [_single(one) for one in references]} if references else {}
    return {
        "id": encode_name(column.name),
        "name": column.name,
        "logicalType": _logical(column.type),
        "physicalType": column.type,
        **({"description": column.comment} if column.comment else {}),
        "required": column.required,
        "unique": _is_unique(table, column),
        **key_words,
        **partition,
        **related,
        **_items(column.type),
        **({"customProperties": _custom(sourceType=column.source_type)} if column.source_type else {}),
    }


def _is_unique(table: ExportedTable, column: ExportedColumn) -> bool:
    """Whether the source or a rule says that no value occurs twice in the table."""
    alone = column.key_position is not None and len(table.container.primary_key) == 1
    rules = [one for one in table.container.options.checks if isinstance(one, Unique) and one.scope is UniqueScope.TABLE]
    return alone or any(rule.columns == (column.name,) and rule.filter is None for rule in rules)


def _logical(type_: str) -> str:
    if type_.startswith("array<"):
        return "array"
    return _TYPES.get(type_.partition("(")[0], "object")


def _items(type_: str) -> Json:
    """What an array has to say of its elements."""
    if not type_.startswith("array<"):
        return {}
    inner = type_.removeprefix("array<").removesuffix(">")
    return {"items": {"logicalType": _logical(inner), "physicalType": inner, **_items(inner)}}


def _single(reference: Reference) -> Json:
    return {"to": _address(reference.target, reference.target_columns[0]), **_origin(reference)}


def _composite(table: ExportedTable, reference: Reference) -> Json:
    return {
        "from": [f"schema/{table.folder}/properties/{encode_name(name)}" for name in reference.columns],
        "to": [_address(reference.target, name) for name in reference.target_columns],
        **_origin(reference),
    }


def _address(target: str, column: str) -> str:
    """A column of another contract in the same folder, by ids: names of a source need not be valid in a reference."""
    folder = folder_of(target)
    return f"{contract_file(folder)}#/schema/{folder}/properties/{encode_name(column)}"


def _origin(reference: Reference) -> Json:
    return {"type": "foreignKey", "customProperties": _custom(isEnforcedBySource=reference.is_enforced)}


def _service_levels(definition: ContainerDefinition) -> list[Json]:
    """How fresh the rows are, by the rules ``freshness``, and how often they are synced, by the schedules."""
    container, found = definition.container, list[Json]()
    for rule in container.options.checks:
        if isinstance(rule, Freshness):
            columns = (rule.column,) if rule.column is not None else container.identifier.columns if container.identifier else ()
            unit, size = next((name, size) for name, size in _UNITS if rule.seconds % size == 0)
            about = f"The newest row is not older than {rule.max_age}."
            element = ",".join(f"{container.name}.{name}" for name in columns)
            words: Json = {"property": "latency", "value": rule.seconds // size, "unit": unit, "description": rule.description or about}
            found.append({**words, **({"element": element} if element else {})})
    for schedule in dict.fromkeys((container.options.schedule, definition.settings.schedule)):
        if schedule is not None:
            words = {"property": "frequency", "value": schedule, "scheduler": "cron", "schedule": schedule}
            found.append({**words, "description": "When the table is synced, in UTC."})
    return found


def _server(table: ExportedTable) -> Json:
    scheme = urlsplit(table.url).scheme
    words: Json = {"server": "lake", "description": "A table of Delta Lake."}
    if scheme in ("", "file"):
        return {**words, "type": "local", "path": table.url, "format": "delta"}
    if scheme in ("s3", "s3a"):
        return {**words, "type": "s3", "location": table.url.replace("s3a://", "s3://", 1), "format": "delta"}
    return {**words, "type": "custom", "customProperties": _custom(location=table.url, format="delta")}


def _custom(**values: Any) -> list[Json]:
    return [{"property": name, "value": value} for name, value in values.items() if value is not None]
