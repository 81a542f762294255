"""Chooses the source adapter of a container."""

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.databases.definition import TableDefinition
from incremental_assets.files.definition import FileDefinition
from incremental_assets.runs.adapters.file_adapter import FileAdapter
from incremental_assets.runs.adapters.source_adapter import SourceAdapter
from incremental_assets.runs.adapters.table_adapter import TableAdapter


def adapter_of(definition: ContainerDefinition) -> SourceAdapter:
    """Returns the source adapter of the container. Raises TypeError for a definition of an unknown class."""
    if isinstance(definition, FileDefinition):
        return FileAdapter(definition)
    if isinstance(definition, TableDefinition):
        return TableAdapter(definition)
    raise TypeError(f"no source adapter is known for {type(definition).__name__}")
