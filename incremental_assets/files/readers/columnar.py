"""Reads Parquet and Avro, whose files carry their types. Files of the same schema are read together."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from incremental_assets.core.errors import SourceError, SourceInterrupted, store_remedy
from incremental_assets.core.files import FileFormat
from incremental_assets.core.names import backticked
from incremental_assets.core.nested_types import NESTED
from incremental_assets.core.schema import Column
from incremental_assets.core.spark_types import UnknownType, type_text
from incremental_assets.files.listing import FolderAddress
from incremental_assets.files.readers.beginning import Beginning
from incremental_assets.files.readers.file_columns import FileColumns
from incremental_assets.files.readers.parquet_copy import Footer, footer_of, has_values
from incremental_assets.files.readers.reading import Group, ReadFile, Reading, refusal, shortened
from incremental_assets.files.readers.staging import Staging
from incremental_assets.files.trouble import passing_remedy_in

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame
    from pyspark.sql.types import StructType

_NO_AVRO = (
    "the Spark server has no support for Avro: it lacks the package org.apache.spark:spark-avro_2.13, of Spark's own version. Add it "
    "under spark.jars.packages"
)
_Key = TypeVar("_Key")
_NARROW = {"tinyint": "smallint"}
"""Types that the tables of the lake do not have (see ``core.schema``), each with a type that carries it exactly."""


class Schemas:
    """The schemas of a set of files.

    ``groups``: the files that are read together. ``columns``: the table's columns that are known, widened
    where a file needs it, and the new ones after them. ``refused``: why a file is refused, by key. ``types``: the types that the YAML sets,
    by column name in lower case. ``may_rewrite``: whether the table is small enough to be rewritten.
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
        may_rewrite: Callable[[], bool] = lambda: False,
    ) -> None:
        self._all = FileColumns(reading, known, types, may_rewrite)
        self.groups: list[Group] = []
        self.refused: dict[str, str] = {}
        self._spark, self._staging, self._address, self._reading = spark, staging, address, reading
        alike: dict[tuple[object, bool], list[ReadFile]] = defaultdict(list)
        footers: dict[tuple[object, bool], Footer | None] = {}
        for file in files:
            try:
                key, footer = _schema_key(address, reading, file, heads[file.key])
                is_odd = footer is not None and (footer.is_odd or file.key in staging.unread)
                alike[key, is_odd].append(file)
                footers.setdefault((key, is_odd), footer)
            except SourceError as error:
                self.refused[file.key] = str(error)
        for key in commonest_first(alike):
            self._join(alike[key], footers[key], is_odd=key[1])

    @property
    def columns(self) -> list[Column]:
        return self._all.columns

    def rows(self, group: Group) -> "DataFrame":
        """The rows of a group's files, with ``NAME``.

        They are read with the schema that was found, which is not inferred again, but for nested types: Spark finds fields by their names.
        """
        types = {column.name.lower(): column.type for column in self.columns}
        found = {field.name: type_text(field.dataType.jsonValue()) for field in group.schema}
        fields = [
            f"{backticked(name)} {types[name.lower()] if own.startswith(NESTED) and types[name.lower()].startswith(NESTED) else own}"
            for name, own in found.items()
        ]
        reader = self._spark.read.format(self._reading.format.value).options(**self._reading.passed_on).schema(", ".join(fields))
        return self._staging.load(reader, group.files, "*")

    def _join(self, files: Sequence[ReadFile], footer: Footer | None, *, is_odd: bool) -> None:
        """Adds files of one schema as a group, and its columns to the others; refuses the files where it does not fit.

        ``footer``: of a Parquet file. ``is_odd``: Spark does not read such files.
        """
        if footer is not None:  # tables that an earlier version has made have the bytes of intervals
            footer = footer.with_bytes({column.name.lower() for column in self.columns if column.type == "binary"})
        schema, reason = None, ""
        if not is_odd:
            schema, reason = self._schema(files)
        if schema is None and footer is not None:
            files = self._copied(files, footer)
            if files:
                schema, reason = self._schema(files)
        names: list[str] = []
        if schema is not None and footer is not None:
            names = [field.name for field in schema]
            schema = _with_values(schema, [field.type for field in footer.schema])
        reason = reason if schema is None else self._misfit(schema)
        if schema is None or reason is not None:
            self.refused |= {file.key: refusal(file, reason or "") for file in files}
            return
        self._all.add([Column(field.name, type_of(field)) for field in schema], names)
        self.groups.append(Group(tuple(files), tuple(field.name for field in schema), schema=schema))

    def _schema(self, files: Sequence[ReadFile]) -> "tuple[StructType | None, str]":
        """Spark's schema of files that have the same one; else the reason why it cannot read them."""
        from pyspark.errors import PySparkException

        for file in files:  # the schema of one file is enough, but the first file may have vanished meanwhile
            try:
                reader = self._spark.read.format(self._reading.format.value).options(**self._reading.passed_on)
                return self._staging.schema(reader, file), ""
            except PySparkException as error:  # for a type that it does not know, Spark raises errors of several kinds
                self._spark.range(1).collect()  # raises where the server has ended, and the file is not the cause
                text = str(error).strip().split("JVM stacktrace")[0].strip()
                if store_remedy(text) is not None or passing_remedy_in(text) is not None:
                    raise
                if "avro" in text.lower() and "data source" in text.lower():
                    return None, _NO_AVRO
                if "PATH_NOT_FOUND" not in text:
                    return None, f"Spark cannot read it: {shortened(text, 300)}"
        return None, "none of its kind could be read"

    def _copied(self, files: Sequence[ReadFile], footer: Footer) -> list[ReadFile]:
        """Lets pyarrow copy files of one schema into such as Spark reads. Returns those that it could copy; the others are refused."""

        def failure_of(file: ReadFile) -> SourceError | None:
            try:
                self._staging.copy_parquet(file, footer.carried)
            except SourceInterrupted:
                raise
            except SourceError as error:
                return error
            return None

        with ThreadPoolExecutor(4) as pool:
            failures = dict(zip(files, pool.map(failure_of, files), strict=True))
        self.refused |= {file.key: str(error) for file, error in failures.items() if error is not None}
        return [file for file, error in failures.items() if error is None]

    def _misfit(self, schema: Any) -> str | None:
        """Why a schema does not fit the table, the YAML or Spark; None: it fits."""
        found: list[Column] = []
        for field in schema:
            try:
                found.append(Column(field.name, type_of(field)))
            except UnknownType as error:
                return f"its column {field.name} is {error}, which a table of the lake cannot have"
        return self._all.misfit(found)


def type_of(field: Any) -> str:
    """The column type of a Spark field. Raises UnknownType."""
    found = type_text(field.dataType.jsonValue())
    return _NARROW.get(found, found)


def _with_values(schema: "StructType", types: Sequence[pa.DataType]) -> "StructType":
    """Spark's schema of a Parquet file without the columns that have no type, as they have no value. Spark takes them for whole numbers.

    ``types``: those of pyarrow, in the same order.
    """
    if len(schema.fields) != len(types):
        return schema
    return type(schema)([field for field, own in zip(schema.fields, types, strict=True) if has_values(own)])


def _schema_key(address: FolderAddress, reading: Reading, file: ReadFile, head: Beginning) -> tuple[object, Footer | None]:
    """Returns a value that is equal for files of the same schema, and what the footer of a Parquet file tells.

    Raises SourceError for a Parquet file beyond the limits; those are checked by its footer, before Spark reads it.
    """
    expect_some(file, head.blank)
    if reading.format is FileFormat.AVRO:
        return head.schema or file.key, None
    with address.open(file.path, decompress=False) as stream:
        metadata, footer = footer_within(stream, file, reading)
        return schema_text(metadata), footer


def expect_some(file: ReadFile, blank: bool) -> None:
    """Raises SourceError for an empty file."""
    if blank:
        raise SourceError(refusal(file, "it is empty, which a complete file of its format never is, even without rows"))


def footer_within(stream: IO[bytes], file: ReadFile, reading: Reading) -> tuple[Any, Footer]:
    """The same as ``footer_of``. Raises SourceError for a file beyond the limits."""
    (metadata, footer), limits = footer_of(stream), reading.limits
    if metadata.num_columns > limits.columns:
        raise SourceError(refusal(file, limits.too_many(metadata.num_columns, "columns")))
    if sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)) > limits.file_bytes:
        raise SourceError(refusal(file, limits.too_large("unpacked, it has")))
    return metadata, footer


def schema_text(metadata: Any) -> str:
    """The text of a Parquet schema."""
    # The first line of the text is the address of the Python object, which differs between files.
    return str(metadata.schema).partition("\n")[2]


def commonest_first(alike: Mapping[_Key, Sequence[ReadFile]]) -> Sequence[_Key]:
    """The keys in the order in which their files join: where schemas contradict each other, the files of the rarer one are refused."""
    return sorted(alike, key=lambda key: (-len(alike[key]), min(file.modified for file in alike[key])))
