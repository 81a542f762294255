"""Reads a set of files as Spark DataFrames: the good rows typed, and the rejected rows with file, line and reason.

Belongs here: the steps of reading a set of files, and going on without those that are broken. Does not belong: deciding which files are
read (``core.files``), listing them (``files.listing``), how a format is read (``delimited``, ``records``, ``columnar``), when a text is a
value of a type (``cells``), or writing rows (``delta``).
"""

import contextlib
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from incremental_assets.core.errors import SourceError, SourceInterrupted, store_remedy
from incremental_assets.core.files import FILE, MODIFIED, FileFormat
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.names import literal
from incremental_assets.core.schema import Column
from incremental_assets.files.listing import FolderAddress
from incremental_assets.files.readers import cells, delimited, records
from incremental_assets.files.readers.beginning import Beginning
from incremental_assets.files.readers.columnar import Schemas
from incremental_assets.files.readers.reading import (
    LINE,
    NAME,
    WRONG,
    Group,
    ReadFile,
    Reading,
    refusal,
    shortened,
)
from incremental_assets.files.readers.staging import Staging
from incremental_assets.files.trouble import passing_remedy_in

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

__all__ = ["FILE", "MODIFIED", "REJECTED_COLUMNS", "FileCount", "FileRows", "ReadFile", "Reading"]

# ``line`` is the text of the row as it stands in the file.
REJECTED_COLUMNS = (FILE, MODIFIED, Column("line", "string"), Column("reason", "string"))
ROUNDS = 3
"""How often all files are read again without the broken ones that Spark's message names; after that, each file is read by itself.

With many broken files, that costs less than reading all other files again for each of them.
"""
_IS = "_incremental_assets_is"
_NOT_TEXT = "it has bytes that are no UTF-8; say options: {encoding: windows-1252}, or whichever it is"


@dataclass(frozen=True)
class FileCount:
    """The numbers of good and of rejected rows of one file."""

    rows: int
    rejected: int


@dataclass(frozen=True)
class _Part:
    """Files that are read alike: ``raw`` reads their rows as they are in the files, ``typed`` converts those into the table's columns."""

    group: Group
    raw: "Callable[[Group], DataFrame]"
    typed: "Callable[[DataFrame], DataFrame]"


class FileRows:
    """The rows of a set of files, read once when an instance is made. Spark keeps good and rejected rows cached until ``close``.

    ``known``: the table's columns without ``_file`` and ``_file_modified``; their types stay or are widened. ``columns``: those, and the
    new ones after them. ``refused``: by key, why a file could not be read or does not belong to this container. ``counts``: the row
    counts of every other file, by key. ``staging``: a folder for temporary files.

    Raises ConfigurationError for options and types that Spark refuses, SourceInterrupted where the disk, the machine or the network
    fails, SourceError where the files cannot be read at all, and PySparkException where the Spark server has ended.
    """

    columns: tuple[Column, ...]
    refused: Mapping[str, str]
    counts: Mapping[str, FileCount]

    def __init__(
        self,
        spark: "SparkSession",
        address: FolderAddress,
        reading: Reading,
        files: Sequence[ReadFile],
        known: Sequence[Column],
        staging: Path,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._spark, self._address, self._reading, self._log = spark, address, reading, log
        self._types = cells.resolved_types(spark, reading.types)
        self._known = tuple(Column(c.name, self._types.get(c.name.lower(), c.type)) for c in known)
        self._check_options()
        self._files = tuple(files)
        self._refused: dict[str, str] = {}
        self._view = f"_incremental_assets_{uuid.uuid4().hex}"
        self._frame: DataFrame | None = None
        self._parts: list[_Part] = []
        self.columns = self._known
        self._stage = Staging(address, reading, staging)
        try:
            self._heads = self._take()
            self._read()
        except BaseException:
            self.close()
            raise
        self.refused = self._refused

    def good(self) -> "DataFrame":
        """Returns the typed rows: ``_file``, ``_file_modified``, then ``columns``."""
        return self._of_files(f"{WRONG} IS NULL", [quote(column.name) for column in self.columns])

    def bad(self) -> "DataFrame":
        """Returns ``REJECTED_COLUMNS`` of the rejected rows."""
        return self._of_files(f"{WRONG} IS NOT NULL", [f"{LINE} AS line", f"{WRONG} AS reason"])

    def close(self) -> None:
        """Releases the cached rows in Spark, and removes the staging folder."""
        with contextlib.suppress(Exception):  # where the session is gone, so are its cached rows
            self._drop()
        self._stage.close()

    # ------------------------------------------------------------------ the steps of reading
    def _check_options(self) -> None:
        """Raises ConfigurationError for options that Spark refuses. Otherwise each file would be reported as broken."""
        if not self._reading.options:
            return
        if self._reading.format in (FileFormat.CSV, FileFormat.TSV):
            delimited.check_options(self._spark, self._reading)
        elif self._reading.format is FileFormat.JSON:
            records.check_options(self._spark, self._reading)

    def _take(self) -> dict[str, Beginning]:
        """Stages the files. Returns by key how each one begins; those that cannot be read are refused."""
        heads: dict[str, Beginning] = {}
        for key, head in self._stage.take(self._files).items():
            if isinstance(head, SourceError):
                self._refused[key] = str(head)
            else:
                heads[key] = head
        return heads

    def _read(self) -> None:
        """Builds and counts all rows, again without the broken files as long as Spark finds some."""
        from pyspark.errors import AnalysisException, PySparkException

        for attempt in range(ROUNDS + 3):
            try:
                self._build()
                return
            except PySparkException as error:
                self._drop()
                self._spark.range(1).collect()  # raises where the server has ended, and the files are not the cause
                remedy = store_remedy(str(error))
                if remedy is not None:
                    raise SourceError(f"{self._address.datastore}: {self._address.display} cannot be read. {remedy}") from error
                remedy = passing_remedy_in(_told(error))
                if remedy is not None:
                    raise SourceInterrupted(
                        f"{self._address.datastore}: Spark could not read the files now: {_message(error)}. {remedy}, then sync again; no "
                        f"file was refused for it."
                    ) from error
                named = self._stage.named_in(_told(error), self._left())
                # An analysis error that names no file is one of the query, not of a file: reading the files one by one would not help.
                if not named and isinstance(error, AnalysisException):
                    raise SourceError(f"{self._address.datastore}: Spark cannot read these files: {_message(error)}") from error
                if attempt < ROUNDS and named:
                    broken = {file.key: _message(error) for file in named}
                elif attempt < ROUNDS + 2:
                    self._log(f"files are broken; each of {len(self._left())} is looked at by itself")
                    broken = self._each_by_itself()
                    if not broken:
                        raise SourceError(f"{self._address.datastore}: the files cannot be read: {_message(error)}") from error
                else:
                    raise SourceError(f"{self._address.datastore}: the files cannot be read: {_message(error)}") from error
                for file in self._files:
                    if file.key in broken:
                        why = self._stage.why_broken(file) or refusal(file, f"Spark cannot read it: {broken[file.key]}")
                        self._refused[file.key] = why
                        self._log(f"left out: {why}")

    def _left(self) -> list[ReadFile]:
        return [file for file in self._files if file.key not in self._refused]

    def _build(self) -> None:
        """Determines columns and types, then caches all rows in Spark and counts them."""
        self.columns = self._known
        left = self._left()
        if self._reading.format in (FileFormat.PARQUET, FileFormat.AVRO):
            self._parts = self._columnar(left)
        else:
            empty = {file.key for file in left if self._heads[file.key].whole and self._heads[file.key].blank}
            left = [file for file in left if file.key not in empty]
            match self._reading.format:
                case FileFormat.JSON:
                    self._parts = self._json(left)
                case FileFormat.TEXT:
                    self._parts = self._text(left)
                case _:
                    self._parts = self._delimited(left)
        counts = {file.key: FileCount(0, 0) for file in self._left()}
        if self._parts:
            # Cached, as the rows are read several times: to be counted, and for the good and the rejected ones.
            frames = [part.typed(part.raw(part.group)) for part in self._parts]
            frame = frames[0]
            for other in frames[1:]:
                frame = frame.union(other)
            self._frame = frame.persist()
            self._frame.createOrReplaceTempView(self._view)
            found = self._spark.table(self._view).groupBy(NAME).agg(*_counting()).collect()
            for row in found:
                counts[self._stage.names[row[NAME]]] = FileCount(row["all"] - row["wrong"], row["wrong"])
        self.counts = counts

    def _each_by_itself(self) -> dict[str, str]:
        """Reads each file by itself, and returns by key what Spark says of those that it cannot read."""
        from pyspark.errors import PySparkException

        def look(one: tuple[_Part, ReadFile]) -> tuple[str, str] | None:
            part, file = one
            try:
                part.raw(replace(part.group, files=(file,))).write.format("noop").mode("overwrite").save()
            except PySparkException as error:
                return file.key, _message(error)
            return None

        with ThreadPoolExecutor(4) as pool:
            return dict(filter(None, pool.map(look, [(part, file) for part in self._parts for file in part.group.files])))

    def _of_files(self, where: str, columns: Sequence[str]) -> "DataFrame":
        """The cached rows that fulfil a condition: key and modification time of their file, then the given expressions."""
        from pyspark.sql import functions as F

        if self._frame is None:
            # There are no rows, but the expressions need all columns to exist.
            nothing = [f"cast(NULL AS string) AS {name}" for name in (NAME, LINE, WRONG)]
            rows = self._spark.range(0).selectExpr(*nothing, *map(_null, self.columns))
        else:
            rows = self._spark.table(self._view).where(where)
        modified = {file.key: file.modified for file in self._files}
        # Key and time travel in one struct of a reserved name, as the files may have columns of any name.
        named = [(name, key, modified[key]) for name, key in self._stage.names.items()]
        names = self._spark.createDataFrame(named, "name string, key string, modified bigint")
        names = names.selectExpr(f"name AS {NAME}_of", f"struct(key, modified) AS {_IS}")
        joined = rows.join(names.hint("broadcast"), F.col(NAME) == F.col(f"{NAME}_of"))
        carried = [f"{_IS}.key AS {quote(FILE.name)}", f"timestamp_micros({_IS}.modified) AS {quote(MODIFIED.name)}"]
        return joined.selectExpr(*carried, *columns)

    def _drop(self) -> None:
        if self._frame is not None:
            frame, self._frame = self._frame, None
            frame.unpersist()
            self._spark.catalog.dropTempView(self._view)

    # ------------------------------------------------------------------ formats
    def _delimited(self, files: Sequence[ReadFile]) -> list[_Part]:
        """Makes a part for each header of CSV and TSV files, and adds new columns to ``columns``."""
        groups, refused = delimited.grouped(self._reading, files, self._heads, self._known)
        self._refused |= refused

        def raw(group: Group) -> "DataFrame":
            return delimited.cells(self._spark, self._stage, self._reading, group)

        # Set before the types are inferred: where that fails, ``_each_by_itself`` needs the parts.
        self._parts = [_Part(group, raw, lambda frame: frame) for group in groups]
        have = {column.name.lower() for column in self.columns}
        new = list(dict.fromkeys(name for group in groups for name in group.names if name.lower() not in have))
        inferred = self._inferred([name for name in new if name.lower() not in self._types], groups, raw)
        self.columns += tuple(Column(name, self._types.get(name.lower()) or inferred[name]) for name in new)
        return [replace(part, typed=self._typed(part.group.names)) for part in self._parts]

    def _inferred(self, names: Sequence[str], groups: Sequence[Group], raw: "Callable[[Group], DataFrame]") -> dict[str, str]:
        """Returns by name the type that fits all texts of a new column, in all files."""
        frames: list[DataFrame] = []
        for group in groups:
            own = [f"v{i} AS {quote(name)}" for i, name in enumerate(group.names) if name in names]
            if own:
                frames.append(raw(group).where(f"{WRONG} IS NULL AND {_is_text()}").selectExpr(*own))
        if not frames:
            return {}
        frame = frames[0]
        for other in frames[1:]:
            frame = frame.unionByName(other, allowMissingColumns=True)
        found = frame.selectExpr(*(f"{cells.mask(quote(name))} AS m{i}" for i, name in enumerate(names))).collect()[0]
        return {name: cells.type_of_mask(found[f"m{i}"]) for i, name in enumerate(names)}

    def _json(self, files: Sequence[ReadFile]) -> list[_Part]:
        """Makes a part of the JSON files with one record per line, and one of the others; adds new keys to ``columns``."""

        def found(group: Group) -> "DataFrame":
            return records.json_records(self._spark, self._stage, self._reading, group)

        # Files that would bring too many keys are refused, and the keys of the others are collected again.
        limits = self._reading.limits
        while True:
            groups = records.json_groups(files, self._heads)
            self._parts = [_Part(group, found, lambda frame: frame) for group in groups]  # as in ``_delimited``
            frames = [found(group) for group in groups]
            keys = records.keys_of(frames, max(limits.columns, len(self._known)))
            have = {column.name.lower() for column in self.columns}
            if keys is not None and len(have | {key.lower() for key in keys}) <= max(limits.columns, len(have)):
                break
            own = {file.key: file for file in files}
            named = [(name, own[key]) for name, key in self._stage.names.items() if key in own]
            too_many = records.too_many_keys(frames, named, have, limits)
            self._refused |= too_many
            files = [file for file in files if file.key not in too_many]
        # Keys that differ only in surrounding white space or in case, which Delta does not tell apart, are one column.
        spellings: dict[str, list[str]] = {}
        types: dict[str, str | None] = {}
        for key, type_ in keys.items():
            name = (key.strip() or "_c0").lower()
            spellings.setdefault(name, []).append(key)
            # None is a key whose values are all null, which fits every type. Spellings of different types become a string.
            types[name] = type_ if types.get(name, type_) in (type_, None) else (types[name] if type_ is None else "string")
        new = [name for name in spellings if name not in have]
        self.columns += tuple(Column(spellings[n][0].strip() or "_c0", self._types.get(n) or types[n] or "string") for n in new)
        spelled = [spellings.get(column.name.lower(), []) for column in self.columns]
        typed = self._typed([column.name for column in self.columns])
        return [replace(part, typed=lambda frame: typed(records.json_cells(frame, spelled))) for part in self._parts]

    def _text(self, files: Sequence[ReadFile]) -> list[_Part]:
        """Makes one part of plain text files: each line is a row with the one column ``value``."""

        def raw(group: Group) -> "DataFrame":
            return records.text_cells(self._spark, self._stage, self._reading, group)

        if "value" not in {column.name.lower() for column in self.columns}:
            self.columns += (Column("value", self._types.get("value", "string")),)
        return [_Part(Group(tuple(files)), raw, self._typed(("value",)))] if files else []

    def _columnar(self, files: Sequence[ReadFile]) -> list[_Part]:
        """Makes a part for each schema of Parquet and Avro files. Their rows are typed already, so that none is rejected."""
        looked = Schemas(self._spark, self._stage, self._address, self._reading, files, self._heads, self._known, self._types)
        self._refused |= looked.refused
        self.columns = tuple(looked.columns)

        def part(group: Group, schema: object) -> _Part:
            have = {name.lower(): name for name in group.names}
            own = [
                f"cast({quote(have[c.name.lower()])} AS {c.type}) AS {quote(c.name)}" if c.name.lower() in have else _null(c)
                for c in self.columns
            ]
            first = [NAME, f"cast(NULL AS string) AS {LINE}", f"cast(NULL AS string) AS {WRONG}"]
            return _Part(group, lambda some: looked.rows(some, schema), lambda frame: frame.selectExpr(*first, *own))

        return [part(group, schema) for group, schema in looked.groups]

    def _typed(self, names: Sequence[str]) -> "Callable[[DataFrame], DataFrame]":
        """Returns the function that converts a frame of text cells into one of ``NAME``, ``LINE``, ``WRONG`` and the values of all columns.

        ``names``: of the cells ``v0``, ``v1``, …, in this order. A row gets the first reason to reject it; its line is kept only then.
        """
        at = {name.lower(): f"v{i}" for i, name in enumerate(names)}
        reasons = [WRONG, f"CASE WHEN NOT {_is_text()} THEN {literal(_NOT_TEXT)} END"]
        values: list[str] = []
        for column in self.columns:
            cell = at.get(column.name.lower())
            if cell is None:
                values.append(_null(column))
                continue
            fits = cells.fits(cell, column.type, self._reading, said=column.name.lower() in self._types)
            if fits != "true":
                reasons.append(f"CASE WHEN NOT {fits} THEN {literal(f'{column.name} is no {column.type}: ')} || left({cell}, 100) END")
            values.append(f"cast({cells.value(cell, column.type, self._reading)} AS {column.type}) AS {quote(column.name)}")
        columns = [quote(column.name) for column in self.columns]

        def typed(frame: "DataFrame") -> "DataFrame":
            judged = frame.selectExpr(NAME, LINE, f"coalesce({', '.join(reasons)}) AS {WRONG}", *values)
            return judged.selectExpr(NAME, f"CASE WHEN {WRONG} IS NOT NULL THEN {LINE} END AS {LINE}", WRONG, *columns)

        return typed


def _counting() -> list:
    """The aggregates that count all rows of a file, and the rejected ones."""
    from pyspark.sql import functions as F

    return [F.count("*").alias("all"), F.count(WRONG).alias("wrong")]


def _is_text() -> str:
    """The condition that a line has only valid text: bytes that are not UTF-8 arrive as U+FFFD."""
    return f"instr({LINE}, '\\uFFFD') = 0"


def _null(column: Column) -> str:
    return f"cast(NULL AS {column.type}) AS {quote(column.name)}"


def _told(error: Exception) -> str:
    """Returns the text of an error with its parameters, which name paths that the text may lack."""
    parameters = getattr(error, "getMessageParameters", dict)() or {}
    return "\n".join([str(error), *map(str, parameters.values())])


def _message(error: Exception) -> str:
    """Returns the part of Spark's message that is of use to a person: its first line, and the innermost cause."""
    text, _, stack = str(error).strip().partition("JVM stacktrace")
    causes = re.findall(r"^Caused by: (.*)$", stack, re.MULTILINE)
    first = re.sub(r"\s*SQLSTATE: \w+", "", text.strip().partition("\n")[0]).strip()
    return shortened(f"{causes[-1]} ({first})" if causes else first, 400)
