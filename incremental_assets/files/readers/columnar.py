"""Parquet and Avro: files that carry their types. Files of one schema are read together.

Belongs here: schemas, and whether a file's types join the table's. Does not belong: rows.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from incremental_assets.core.errors import SourceError
from incremental_assets.core.files import FileFormat
from incremental_assets.core.schema import Column, widens
from incremental_assets.core.spark_types import UnknownType, names_within, type_text
from incremental_assets.files.listing import FolderAddress
from incremental_assets.files.readers.beginning import Beginning
from incremental_assets.files.readers.reading import RESERVED, Group, ReadFile, Reading, refusal, shortened
from incremental_assets.files.readers.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

_NO_AVRO = (
    "the Spark server has no support for Avro: it lacks the package org.apache.spark:spark-avro_2.13, of Spark's own version. Add it "
    "under spark.jars.packages"
)
_NARROW = {"tinyint": "smallint", "void": "string"}
"""What a lake table does not have, and what carries it exactly."""
_VARIABLE = re.compile(r"\$\{[^}$ ]+\}")
"""Hadoop's settings, in which Spark hands the wanted columns to its Parquet reader, replace this."""


class Schemas:
    """The groups, the columns that they need together with the known ones, and why a file is refused, by key."""

    def __init__(
        self,
        spark: "SparkSession",
        staging: Staging,
        address: FolderAddress,
        reading: Reading,
        files: Sequence[ReadFile],
        heads: Mapping[str, Beginning],
        known: Sequence[Column],
        types: Mapping[str, str],
    ) -> None:
        self.groups: list[tuple[Group, Any]] = []
        self.columns = list(known)
        self.refused: dict[str, str] = {}
        self._spark, self._staging, self._reading, self._types = spark, staging, reading, types
        alike: dict[object, list[ReadFile]] = defaultdict(list)
        for file in files:
            try:
                alike[_look(address, reading, file, heads[file.key])].append(file)
            except SourceError as error:
                self.refused[file.key] = str(error)
        for own in sorted(alike.values(), key=lambda group: (-len(group), min(file.modified for file in group))):
            self._join(own)

    def rows(self, group: Group, schema: Any) -> "DataFrame":
        reader = self._spark.read.format(self._reading.format.value).options(**self._reading.passed_on).schema(schema)
        return self._staging.load(reader, group.files, "*")

    def _join(self, files: Sequence[ReadFile]) -> None:
        from pyspark.errors import AnalysisException

        schema, reason = None, "none of its kind could be read"
        for file in files:  # the first one may have vanished meanwhile
            try:
                reader = self._spark.read.format(self._reading.format.value).options(**self._reading.passed_on)
                schema = self._staging.schema(reader, file)
                break
            except AnalysisException as error:
                text = str(error).strip().split("JVM stacktrace")[0].strip()
                if "avro" in text.lower() and "data source" in text.lower():
                    reason = _NO_AVRO
                    break
                reason = f"Spark cannot read it: {shortened(text, 300)}"
                if "PATH_NOT_FOUND" not in text:
                    break
        reason = reason if schema is None else self._misfit(schema)
        if schema is None or reason is not None:
            self.refused |= {file.key: refusal(file, reason or "") for file in files}
            return
        by_name = {column.name.lower(): i for i, column in enumerate(self.columns)}
        for field in schema:
            type_ = self._type(field)
            at = by_name.get(field.name.lower())
            if at is None:
                self.columns.append(Column(field.name, type_))
            elif widens(self.columns[at].type, type_) and field.name.lower() not in self._types:
                self.columns[at] = Column(self.columns[at].name, type_)
        self.groups.append((Group(tuple(files), tuple(field.name for field in schema)), schema))

    def _type(self, field: Any) -> str:
        return self._types.get(field.name.lower()) or _type_of(field)

    def _misfit(self, schema: Any) -> str | None:
        known = {column.name.lower(): column for column in self.columns}
        names = [field.name.lower() for field in schema]
        if len(set(names)) < len(names):
            return "it has two columns whose names differ in upper and lower case only"
        all_names = {*names, *known}
        if len(all_names) > max(self._reading.limits.columns, len(known)):
            return self._reading.limits.too_many(len(all_names), "columns with those of the table and of other files")
        reserved = (RESERVED | {"_metadata"}) & set(names)
        if reserved:
            return f"it has a column that the table, or Spark, has itself: {', '.join(sorted(reserved))}; rename it"
        for field in schema:
            try:
                found = _type_of(field)
            except UnknownType as error:
                return f"its column {field.name} is {error}, which a table of the lake cannot have"
            filled_in = [name for name in (field.name, *names_within(found)) if _VARIABLE.search(name)]
            if filled_in:
                return (
                    f"its column {shortened(filled_in[0])!r} has the form of a variable; Spark's Parquet reader replaces those within "
                    f"names, and would find no value; rename it in the file"
                )
            wanted = self._types.get(field.name.lower())
            if wanted is not None and wanted != found and not widens(found, wanted):
                return f"its column {field.name} is {found}, and {wanted} under columns; the one does not widen into the other"
            column = known.get(field.name.lower())
            here = wanted or found
            if column is not None and column.type != here and not widens(here, column.type) and not widens(column.type, here):
                return f"its column {field.name} is {found}, and {column.type} in the table; the one does not widen into the other"
        return None


def _type_of(field: Any) -> str:
    found = type_text(field.dataType.jsonValue())
    return _NARROW.get(found, found)


def _look(address: FolderAddress, reading: Reading, file: ReadFile, head: Beginning) -> object:
    """Equal for files of one schema."""
    if head.blank:
        raise SourceError(refusal(file, "it is empty: not even a file without rows is"))
    if reading.format is FileFormat.AVRO:
        return head.schema or file.key
    import pyarrow.parquet as pq

    with address.open(file.path, decompress=False) as stream:
        metadata, limits = pq.read_metadata(stream), reading.limits
        if metadata.num_columns > limits.columns:
            raise SourceError(refusal(file, limits.too_many(metadata.num_columns, "columns")))
        if sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)) > limits.file_bytes:
            raise SourceError(refusal(file, limits.too_large("unpacked, it has")))
        # The first line is an object's address.
        return str(metadata.schema).partition("\n")[2]
