"""The settings under ``metadata:`` in the YAML: which documents that describe a table are written after its syncs, and where."""

from dataclasses import dataclass
from enum import Enum


class MetadataFormat(str, Enum):
    """The formats of documents.

    ``CDM``: a manifest of the Common Data Model, with an entity for each table. ``ODCS``: a contract of the Open Data Contract Standard.
    """

    CDM = "cdm"
    ODCS = "odcs"


@dataclass(frozen=True)
class MetadataSettings:
    """The attribute ``metadata`` of the YAML, of a container or of all containers of a datastore.

    ``formats``: the documents that are written. ``output``: the folder that they are written to; None: the default one in the lake.
    """

    formats: tuple[MetadataFormat, ...]
    output: str | None = None
