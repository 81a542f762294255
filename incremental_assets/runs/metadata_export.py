"""Writes the documents that describe tables: for the command ``export metadata``, and after a sync (``metadata:`` of the YAML).

The manifest of the Common Data Model lies in the datastore's folder of the lake, as locations of data must be below it. Where documents are
written elsewhere, the locations begin with ``lake:``, a place that the file ``config.json`` beside the manifest names.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import yaml
from filelock import FileLock, Timeout

from incremental_assets.catalog.definition import ContainerDefinition, metadata_settings
from incremental_assets.catalog.state import write_whole
from incremental_assets.core.errors import SyncError
from incremental_assets.core.metadata_documents import MetadataFormat
from incremental_assets.core.names import encode_name
from incremental_assets.delta.folders import METADATA_FOLDER
from incremental_assets.delta.table import LakeTable
from incremental_assets.export import cdm, odcs
from incremental_assets.export.table import ExportedTable, exported_table
from incremental_assets.project.folders import current_project, dagster_home

_LOCK_SECONDS = 60.0
"""How long a run waits for another one that writes the manifest of the same datastore."""
_TROUBLES = (OSError, SyncError, Timeout)


@dataclass(frozen=True)
class Place:
    """Where the documents of one datastore are.

    ``root``: the folder of the manifest; the other documents are in a folder below it. ``lake``: the datastore's folder or URL in the lake.
    """

    root: Path
    lake: str

    @classmethod
    def of(cls, datastore: str, lake: str, output: str | None) -> "Place":
        """The place of a datastore's documents. ``output``: a folder; None: the lake, or Dagster's home where that is no local folder."""
        name, local = encode_name(datastore), urlsplit(lake).scheme in ("", "file")
        below = f"{lake.rstrip('/')}/{name}"
        if output is not None:
            return cls(current_project() / Path(output).expanduser() / name, below)
        if local:
            return cls(Path(below.removeprefix("file://")), below)
        return cls(dagster_home() / "metadata" / name, below)

    @property
    def documents(self) -> Path:
        return self.root / METADATA_FOLDER

    @property
    def is_in_lake(self) -> bool:
        return str(self.root) == self.lake.removeprefix("file://")


def export_lines(
    definitions: Sequence[ContainerDefinition], lake: str, format_: MetadataFormat, output: str | None, whole: frozenset[str]
) -> list[dict[str, Any]]:
    """Writes the documents of these containers, and returns a line for each (docs/json.md).

    ``whole``: the names of datastores of which all containers are given; their manifests are made anew, without what is gone.
    """
    lines: list[dict[str, Any]] = []
    for datastore in dict.fromkeys(one.settings.name for one in definitions):
        of_it = [one for one in definitions if one.settings.name == datastore]
        lines += _write(datastore, of_it, Place.of(datastore, lake, output), lake, format_, datastore in whole)
    return lines


def write_after_sync(context: dg.AssetExecutionContext, definition: ContainerDefinition, lake: str) -> list[str]:
    """Writes what ``metadata:`` asks for, and returns warnings. The rows are committed, so that a failure must not fail the run."""
    settings = metadata_settings(definition)
    if settings is None:
        return []
    lines: list[dict[str, Any]] = []
    label = definition.container.label
    for format_ in settings.formats:
        try:
            lines += export_lines([definition], lake, format_, settings.output, frozenset())
        except Exception as error:
            context.log.debug("a document was not written", exc_info=True)
            lines.append(_line(label, format_, "failed", None, None, f"{type(error).__name__}: {error}"))
    for line in lines:
        if line["status"] == "written":
            context.log.info(f"{label}: wrote {line['path']}")
    return [
        f"the rows are committed, but the document of format {line['format']} that describes the table was not written: "
        f"{line['message']} The next sync tries it again; at once: incremental-assets export metadata {label} --format {line['format']}"
        for line in lines
        if line["status"] == "failed"
    ]


def _write(
    datastore: str, definitions: Sequence[ContainerDefinition], place: Place, lake: str, format_: MetadataFormat, whole: bool
) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    tables: list[ExportedTable] = []
    for definition in definitions:
        label = definition.container.label
        try:
            table = exported_table(definition, LakeTable(lake, *definition.container.key_path))
            if table is None:
                lines.append(
                    _line(label, format_, "skipped", None, None, f"there is no table yet; sync it: incremental-assets sync {label}")
                )
                continue
            if format_ is MetadataFormat.CDM:
                path = place.documents / cdm.entity_file(table.folder)
                _write_json(path, cdm.entity_document(table))
            else:
                path = place.documents / odcs.contract_file(table.folder)
                text = yaml.safe_dump(odcs.contract(definition, table), sort_keys=False, allow_unicode=True, width=120)
                write_whole(path, text.encode())
            tables.append(table)
            lines.append(_line(label, format_, "written", path, not table.hidden_from_parquet, table.warning))
        except _TROUBLES as error:
            lines.append(_line(label, format_, "failed", None, None, _reason(error)))
    if format_ is MetadataFormat.CDM and (tables or whole):
        try:
            _write_manifest(datastore, tables, place, whole)
        except _TROUBLES as error:
            written = {table.container.label for table in tables}
            lines = [{**one, "status": "failed", "message": _reason(error)} if one["container"] in written else one for one in lines]
    return lines


def _write_manifest(datastore: str, tables: Sequence[ExportedTable], place: Place, whole: bool) -> None:
    """Writes the manifest; runs of other containers of the datastore may do so, too, so that it is read and written under a lock."""
    place.documents.mkdir(parents=True, exist_ok=True)
    path = place.root / cdm.MANIFEST
    with FileLock(place.documents / ".manifest.lock", timeout=_LOCK_SECONDS):
        _write_json(place.documents / cdm.TRAITS, cdm.traits_document())
        old = None if whole else _read_manifest(path)
        manifest = old or cdm.manifest_document(datastore, METADATA_FOLDER)
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        data = "" if place.is_in_lake else "lake:/"
        _write_json(path, cdm.with_tables(manifest, tables, METADATA_FOLDER, data, now))
        if not place.is_in_lake and urlsplit(place.lake).scheme in ("", "file"):
            _write_json(place.root / "config.json", _adapters(place))


def _adapters(place: Place) -> dict[str, Any]:
    """The configuration by which the object model of the Common Data Model finds the tables that the manifest names."""
    roots = {"local": str(place.root), "lake": place.lake.removeprefix("file://")}
    adapters = [{"type": "local", "namespace": name, "config": {"root": root}} for name, root in roots.items()]
    return {"defaultNamespace": "local", "adapters": adapters}


def _read_manifest(path: Path) -> dict[str, Any] | None:
    """The manifest that is there; None if there is none, or if it is none that was written here."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("entities"), list) else None


def _write_json(path: Path, document: dict[str, Any]) -> None:
    write_whole(path, (json.dumps(document, indent=2, ensure_ascii=False) + os.linesep).encode())


def _reason(error: Exception) -> str:
    if isinstance(error, Timeout):
        return f"another run has been writing the manifest for {_LOCK_SECONDS:.0f} seconds ({error.lock_file})."
    return f"{error}." if not str(error).endswith(".") else str(error)


def _line(label: str, format_: MetadataFormat, status: str, path: Path | None, plain: bool | None, message: str | None) -> dict[str, Any]:
    return {
        "container": label,
        "format": format_.value,
        "status": status,
        "path": None if path is None else str(path),
        "plain_parquet": plain,
        "message": message,
    }
