"""What a document says of one table, in words that belong to no format."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.container import Container
from incremental_assets.core.names import encode_name
from incremental_assets.core.rules.keys import ExistsIn
from incremental_assets.delta.table import Head, LakeTable

_VECTORS = "deletion vectors"
_MAPPED = "column mapping"


@dataclass(frozen=True)
class ExportedColumn:
    """A column as readers of the Delta table see it.

    ``type``: its Spark type. ``source_type``: the type in the source; None where the source does not have it (any more). ``required``: the
    source rules out NULL. ``key_position``: its place in the primary key, from 1 on; None if it is no part of it. ``comment``: as
    the table has it.
    """

    name: str
    type: str
    source_type: str | None
    required: bool
    key_position: int | None
    comment: str | None


@dataclass(frozen=True)
class Reference:
    """A relationship: the values of ``columns`` are among those of ``target_columns`` of another container of the same datastore.

    ``is_enforced``: the source guarantees it by a foreign key; otherwise a rule of quality says so.
    """

    columns: tuple[str, ...]
    target: str
    target_columns: tuple[str, ...]
    is_enforced: bool


@dataclass(frozen=True)
class ExportedTable:
    """A table of the lake.

    ``url``: where it is. ``files``: the Parquet files of this version by their paths within the table's folder, in order; empty where a
    plain reader of Parquet must not be used. ``hidden_from_parquet``: why it must not be: what of the table it does not know.
    """

    container: Container
    url: str
    version: int
    columns: tuple[ExportedColumn, ...]
    references: tuple[Reference, ...]
    files: tuple[str, ...]
    hidden_from_parquet: tuple[str, ...]

    @property
    def folder(self) -> str:
        """The name of its folder in the lake, which is safe as a name of files and in paths."""
        return self.container.key_path[1]

    @property
    def warning(self) -> str | None:
        """What a person has to know before using the files; None if plain readers of Parquet are right for this version."""
        wrong = {
            _VECTORS: "they would return rows that are deleted or were updated",
            _MAPPED: "they would find columns under other names",
        }
        if not self.hidden_from_parquet:
            return None
        reasons = " and ".join(self.hidden_from_parquet)
        return (
            f"Plain readers of Parquet must not read the files of this table, as it has {reasons}: "
            f"{', and '.join(wrong[reason] for reason in self.hidden_from_parquet)}. Use a reader of Delta Lake."
        )


def exported_table(definition: ContainerDefinition, table: LakeTable) -> ExportedTable | None:
    """What is known of the container's table; None if there is no table yet. Raises LakeError."""
    delta, head = table.opened(), table.head()
    if delta is None or head is None:
        return None
    container = definition.container
    hidden = _hidden(head, delta.protocol().reader_features or ())
    address = table.address.rstrip("/") + "/"
    files = () if hidden else tuple(sorted(_relative(uri, address) for uri in delta.file_uris()))
    return ExportedTable(
        container=container,
        url=table.url,
        version=delta.version(),
        columns=_columns(container, head),
        references=_references(definition),
        files=files,
        hidden_from_parquet=hidden,
    )


def _hidden(head: Head, features: Sequence[str]) -> tuple[str, ...]:
    """What the table has that plain readers of Parquet do not know. A feature that is not used yet may be used by the next sync."""
    vectors = head.properties.get("delta.enableDeletionVectors", "false").lower() == "true" or "deletionVectors" in features
    return (*((_VECTORS,) if vectors else ()), *((_MAPPED,) if head.is_mapped else ()))


def _relative(uri: str, address: str) -> str:
    return unquote(uri.removeprefix("file://")).removeprefix(address)


def _columns(container: Container, head: Head) -> tuple[ExportedColumn, ...]:
    # Delta compares names of columns without regard to case.
    source = {column.name.lower(): column for column in container.columns}
    key = {name.lower(): position for position, name in enumerate(container.primary_key, start=1)}
    found: list[ExportedColumn] = []
    for column in head.columns:
        known, position = source.get(column.name.lower()), key.get(column.name.lower())
        required = position is not None or (known is not None and known.not_null)
        found.append(ExportedColumn(column.name, column.type, known.type if known else None, required, position, column.comment))
    return tuple(found)


def _references(definition: ContainerDefinition) -> tuple[Reference, ...]:
    """The foreign keys of the source, and what rules say of single columns."""
    container = definition.container
    found = [Reference(key.columns, key.table, key.referenced, True) for key in definition.table.foreign_keys]
    for rule in container.options.checks:
        if isinstance(rule, ExistsIn) and not rule.is_broken_if_found:
            store, _, name = rule.container.rpartition("/")
            declared = Reference((rule.column,), name, (rule.field,), False)
            known = any((one.columns, one.target) == (declared.columns, declared.target) for one in found)
            if store in ("", container.datastore) and not known:
                found.append(declared)
    return tuple(found)


def folder_of(name: str) -> str:
    """The name of the folder of another container of the datastore."""
    return encode_name(name)
