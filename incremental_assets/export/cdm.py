"""The documents of the Common Data Model (https://learn.microsoft.com/common-data-model/): a manifest, and an entity for each table.

A table that a plain reader of Parquet must not read has one data partition, its folder, in the format Delta Lake; any other table has its
files. There is no pattern of files: it would also match files of older versions, which stay in the folder until VACUUM.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from incremental_assets.core.names import file_name
from incremental_assets.export.table import ExportedColumn, ExportedTable, folder_of

Json = dict[str, Any]
MANIFEST = "default.manifest.cdm.json"
TRAITS = "incremental_assets.cdm.json"
"""The document that defines the traits of this product."""
_DELTA, _COLUMN, _REFERENCE = "is.incrementalAssets.deltaTable", "is.incrementalAssets.column", "is.incrementalAssets.ruleReference"
_VERSIONS: Json = {"$schema": "https://raw.githubusercontent.com/microsoft/CDM/master/schemaDocuments/schema.cdm.json"}
_TYPES = {
    "tinyint": "smallInteger", "smallint": "smallInteger", "int": "integer", "bigint": "bigInteger", "float": "float", "double": "double",
    "decimal": "decimal", "string": "string", "char": "string", "varchar": "string", "binary": "binary", "boolean": "boolean",
    "date": "date", "timestamp": "dateTimeOffset", "timestamp_ntz": "dateTime",
}  # fmt: skip
"""The data type of the Common Data Model for each atomic type of Spark. Nested types and others are ``any``."""


def entity_file(folder: str) -> str:
    """The name of the document of the table with this folder."""
    return file_name((folder,), ".cdm.json")


def entity_path(documents: str, folder: str) -> str:
    """The path by which the manifest names an entity. ``documents``: the folder of the documents, seen from the manifest."""
    return f"{documents}/{entity_file(folder)}/{folder}"


def traits_document() -> Json:
    """The definitions of the traits that entities and attributes have beside those of the Common Data Model."""

    def parameters(*names: str) -> list[Json]:
        return [{"name": name, "dataType": "string"} for name in names]

    return {
        **_VERSIONS,
        "jsonSchemaSemanticVersion": "1.0.0",
        "imports": [{"corpusPath": "cdm:/foundations.cdm.json"}],
        "definitions": [
            {
                "traitName": _DELTA,
                "extendsTrait": "is",
                "explanation": "The data is a table of Delta Lake. plainParquet says whether its files may be read as plain Parquet.",
                "hasParameters": parameters("url", "version", "plainParquet", "warning"),
            },
            {
                "traitName": _COLUMN,
                "extendsTrait": "is",
                "explanation": "The type of the column in the Delta table and in the source.",
                "hasParameters": parameters("deltaType", "sourceType"),
            },
            {
                "traitName": _REFERENCE,
                "extendsTrait": "is",
                "explanation": "The relationship is a rule of quality; the source does not enforce it.",
            },
        ],
    }


def entity_document(table: ExportedTable) -> Json:
    """The document of one table: its entity with an attribute for each column."""
    container = table.container
    described = [text for text in (container.comment, table.warning) if text]
    entity: Json = {
        "entityName": table.folder,
        "displayName": container.name,
        "description": "\n".join(described) or f"{container.label}, as it is in the lake.",
        "exhibitsTraits": [_delta_trait(table)],
        "hasAttributes": [_attribute(table.folder, column) for column in table.columns],
    }
    return {
        **_VERSIONS,
        "jsonSchemaSemanticVersion": "1.0.0",
        "imports": [{"corpusPath": "cdm:/foundations.cdm.json"}, {"corpusPath": TRAITS}],
        "definitions": [entity],
    }


def manifest_document(datastore: str, documents: str) -> Json:
    """A manifest without tables. ``documents``: the folder of the documents, seen from the manifest."""
    return {
        **_VERSIONS,
        "jsonSchemaSemanticVersion": "1.0.0",
        "imports": [{"corpusPath": "cdm:/foundations.cdm.json"}, {"corpusPath": f"{documents}/{TRAITS}"}],
        "manifestName": folder_of(datastore),
        "explanation": f"The tables of the datastore {datastore} in the lake.",
        "entities": [],
        "relationships": [],
    }


def with_tables(manifest: Mapping[str, Any], tables: Sequence[ExportedTable], documents: str, data: str, now: str) -> Json:
    """The manifest with these tables instead of what it said of them.

    ``data``: what precedes the folders of the tables in locations. ``now``: the time of the export (ISO 8601, UTC). A relationship to a
    table that the manifest does not have is left out.
    """
    paths = {entity_path(documents, table.folder) for table in tables}
    entities = [one for one in manifest.get("entities", []) if one.get("entityPath") not in paths]
    entities += [_declaration(table, documents, data, now) for table in tables]
    entities.sort(key=lambda one: one["entityName"])
    known = {one["entityPath"] for one in entities}
    relations = [one for one in manifest.get("relationships", []) if one.get("fromEntity") not in paths]
    relations += [one for table in tables for one in _relationships(table, documents)]
    return {**manifest, "entities": entities, "relationships": [one for one in relations if one.get("toEntity") in known]}


def _declaration(table: ExportedTable, documents: str, data: str, now: str) -> Json:
    if table.hidden_from_parquet:
        format_, locations = "is.partition.format.deltaLake", {table.folder: table.folder}
    else:
        format_, locations = "is.partition.format.parquet", {file: f"{table.folder}/{file}" for file in table.files}
    return {
        "type": "LocalEntity",
        "entityName": table.folder,
        "entityPath": entity_path(documents, table.folder),
        "explanation": table.warning or f"{table.container.label}, version {table.version} of its Delta table.",
        "exhibitsTraits": [_delta_trait(table)],
        "lastFileStatusCheckTime": now,
        "dataPartitions": [
            {"name": name, "location": f"{data}{path}", "exhibitsTraits": [format_], "lastFileStatusCheckTime": now}
            for name, path in locations.items()
        ],
    }


def _relationships(table: ExportedTable, documents: str) -> list[Json]:
    """One for each pair of columns, as the Common Data Model has no relationships of several columns; those of one key share a name."""
    found: list[Json] = []
    for reference in table.references:
        target = folder_of(reference.target)
        for column, other in zip(reference.columns, reference.target_columns, strict=True):
            one: Json = {
                "name": f"{table.folder}({', '.join(reference.columns)}) → {target}",
                "fromEntity": entity_path(documents, table.folder),
                "fromEntityAttribute": column,
                "toEntity": entity_path(documents, target),
                "toEntityAttribute": other,
            }
            found.append(one if reference.is_enforced else {**one, "exhibitsTraits": [_REFERENCE]})
    return found


def _delta_trait(table: ExportedTable) -> Json:
    values = {"url": table.url, "version": str(table.version), "plainParquet": str(not table.hidden_from_parquet).lower()}
    return _trait(_DELTA, **values, **({"warning": table.warning} if table.warning else {}))


def _attribute(entity: str, column: ExportedColumn) -> Json:
    types = {"deltaType": column.type, **({"sourceType": column.source_type} if column.source_type else {})}
    traits = [_trait(_COLUMN, **types)]
    shape = re.fullmatch(r"decimal\((\d+),(\d+)\)", column.type)
    if shape is not None:
        traits.append(_trait("is.dataFormat.numeric.shaped", precision=int(shape[1]), scale=int(shape[2])))
    attribute: Json = {
        "name": column.name,
        "purpose": "identifiedBy" if column.key_position is not None else "hasA",
        "dataType": _TYPES.get(column.type.partition("(")[0], "any"),
        **({"description": column.comment} if column.comment else {}),
        "appliedTraits": traits,
        "isNullable": not column.required,
    }
    return attribute if column.key_position is None else {**attribute, "isPrimaryKey": True}


def _trait(name: str, **arguments: Any) -> Json:
    return {"traitReference": name, "arguments": [{"name": key, "value": value} for key, value in arguments.items()]}
