"""The attribute ``metadata`` of the YAML: which documents that describe a table are written after its syncs."""

from typing import Literal

import dagster as dg
from pydantic import Field

from incremental_assets.core.metadata_documents import MetadataFormat, MetadataSettings


class MetadataEntry(dg.Model):
    """The attributes under ``metadata:``, of a container or of all containers of a datastore."""

    format: Literal["cdm", "odcs"] | list[Literal["cdm", "odcs"]] = Field(description="cdm, odcs, or a list of both")
    output: str | None = Field(default=None, description="a folder, relative to the project; default: the datastore's folder of the lake")


def metadata_settings_of(entry: MetadataEntry | None) -> MetadataSettings | None:
    """The attributes as settings."""
    if entry is None:
        return None
    words = [entry.format] if isinstance(entry.format, str) else entry.format
    return MetadataSettings(tuple(MetadataFormat(word) for word in dict.fromkeys(words)), entry.output)


METADATA_RESOLVER = dg.Resolver(
    lambda context, value: None if value is None else MetadataEntry(**context.resolve_value(value.model_dump())),
    model_field_type=MetadataEntry | None,
)
