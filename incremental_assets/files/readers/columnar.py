"""Reads Parquet and Avro, whose files carry their types. Files of the same schema are read together.

Belongs here: schemas, and whether a file's types fit those of the table. Does not belong: converting rows (``read``).
"""

import contextlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from incremental_assets.core.errors import SourceError, store_remedy
from incremental_assets.core.files import FileFormat
from incremental_assets.core.schema import Column, widens
from incremental_assets.core.spark_types import UnknownType, names_within, type_text
from incremental_assets.files.listing import FolderAddress
from incremental_assets.files.readers.beginning import Beginning
from incremental_assets.files.readers.parquet_columns import unread_types
from incremental_assets.files.readers.reading import RESERVED, Group, ReadFile, Reading, refusal, shortened
from incremental_assets.files.readers.staging import Staging
from incremental_assets.files.trouble import passing_remedy_in

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

_NO_AVRO = (
    "the Spark server has no support for Avro: it lacks the package org.apache.spark:spark-avro_2.13, of Spark's own version. Add it "
    "under spark.jars.packages"
)
_NARROW = {"tinyint": "smallint", "void": "string"}
"""Types that the tables of the lake do not have (see ``core.schema``), each with a type that carries it exactly."""
_VARIABLE = re.compile(r"\$\{[^}$ ]+\}")
"""A variable in Hadoop's configuration. Spark passes the requested columns to its Parquet reader in there, so such names are replaced."""


class Schemas:
    """The schemas of a set of files.

    ``groups``: the files that are read together. ``columns``: the table's columns that are known, widened
    where a file needs it, and the new ones after them. ``refused``: why a file is refused, by key. ``types``: the types that the YAML sets,
    by column name in lower case.
    """

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
        self.groups: list[Group] = []
        self.columns = list(known)
        self.refused: dict[str, str] = {}
        self._spark, self._staging, self._address, self._reading, self._types = spark, staging, address, reading, types
        alike: dict[object, list[ReadFile]] = defaultdict(list)
        for file in files:
            try:
                alike[_schema_key(address, reading, file, heads[file.key])].append(file)
            except SourceError as error:
                self.refused[file.key] = str(error)
        # The most common schema comes first: where schemas contradict each other, the files of the rarer one are refused.
        for own in sorted(alike.values(), key=lambda group: (-len(group), min(file.modified for file in group))):
            self._join(own)

    def rows(self, group: Group) -> "DataFrame":
        """The rows of a group's files, with ``NAME``. They are read with the schema that was found, which is not inferred again."""
        reader = self._spark.read.format(self._reading.format.value).options(**self._reading.passed_on).schema(group.schema)
        return self._staging.load(reader, group.files, "*")

    def _join(self, files: Sequence[ReadFile]) -> None:
        """Adds files of one schema as a group, and its columns to the others; refuses the files where it does not fit."""
        from pyspark.errors import PySparkException

        schema, reason = None, "none of its kind could be read"
        for file in files:  # the schema of one file is enough, but the first file may have vanished meanwhile
            try:
                reader = self._spark.read.format(self._reading.format.value).options(**self._reading.passed_on)
                schema = self._staging.schema(reader, file)
                break
            except PySparkException as error:  # for a type that it does not know, Spark raises errors of several kinds
                self._spark.range(1).collect()  # raises where the server has ended, and the file is not the cause
                text = str(error).strip().split("JVM stacktrace")[0].strip()
                if store_remedy(text) is not None or passing_remedy_in(text) is not None:
                    raise
                if "avro" in text.lower() and "data source" in text.lower():
                    reason = _NO_AVRO
                    break
                reason = self._unread(file) or f"Spark cannot read it: {shortened(text, 300)}"
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
        self.groups.append(Group(tuple(files), tuple(field.name for field in schema), schema=schema))

    def _unread(self, file: ReadFile) -> str | None:
        """Which columns of a Parquet file Spark cannot read; None if that is not known."""
        import pyarrow.parquet as pq

        if self._reading.format is not FileFormat.PARQUET:
            return None
        with contextlib.suppress(SourceError), self._address.open(file.path, decompress=False) as stream:
            return unread_types(pq.read_schema(stream))
        return None

    def _type(self, field: Any) -> str:
        return self._types.get(field.name.lower()) or _type_of(field)

    def _misfit(self, schema: Any) -> str | None:
        """Why a schema does not fit the table, the YAML or Spark; None: it fits."""
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
    """The column type of a Spark field. Raises UnknownType."""
    found = type_text(field.dataType.jsonValue())
    return _NARROW.get(found, found)


def _schema_key(address: FolderAddress, reading: Reading, file: ReadFile, head: Beginning) -> object:
    """Returns a value that is equal for files of the same schema.

    Raises SourceError for a Parquet file beyond the limits; those are checked by its footer, before Spark reads it.
    """
    if head.blank:
        raise SourceError(refusal(file, "it is empty, which a complete file of its format never is, even without rows"))
    if reading.format is FileFormat.AVRO:
        return head.schema or file.key
    import pyarrow.parquet as pq

    with address.open(file.path, decompress=False) as stream:
        metadata, limits = pq.read_metadata(stream), reading.limits
        if metadata.num_columns > limits.columns:
            raise SourceError(refusal(file, limits.too_many(metadata.num_columns, "columns")))
        if sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)) > limits.file_bytes:
            raise SourceError(refusal(file, limits.too_large("unpacked, it has")))
        # The first line of the text is the address of the Python object, which differs between files.
        return str(metadata.schema).partition("\n")[2]
