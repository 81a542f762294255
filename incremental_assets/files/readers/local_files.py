"""What the readers of this process are given, and what their rows look like whatever the format."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from incremental_assets.core.files import FILE, MODIFIED
from incremental_assets.core.schema import Column
from incremental_assets.files.listing import FolderAddress
from incremental_assets.files.readers.reading import ReadFile, Reading

REJECTED_ROWS = pa.schema([(FILE.name, pa.string()), (MODIFIED.name, pa.timestamp("us", "UTC")), ("line", pa.string())])
"""What an audit compares of rejected rows."""


@dataclass(frozen=True)
class LocalFiles:
    """The files of one read. ``known``: the table's columns without ``_file`` and ``_file_modified``. ``types``: those of
    ``local.declared_types``. ``folder``: where the rows are written to, as Parquet. ``indexed``: how many of all columns get statistics.
    """

    address: FolderAddress
    reading: Reading
    files: Sequence[ReadFile]
    known: Sequence[Column]
    types: Mapping[str, str]
    folder: Path
    indexed: int

    @property
    def columns(self) -> tuple[Column, ...]:
        """The table's columns, with the types that the YAML sets."""
        return tuple(Column(column.name, self.types.get(column.name.lower(), column.type)) for column in self.known)


def rows_schema(columns: Sequence[Column], types: Sequence[pa.DataType | None]) -> pa.Schema:
    """The schema of the rows: the file's key and time, then the columns, with these types."""
    fields = [(FILE.name, pa.string()), (MODIFIED.name, pa.timestamp("us", "UTC"))]
    return pa.schema([*fields, *zip((column.name for column in columns), types, strict=True)])
