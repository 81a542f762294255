"""Reads a set of files as Spark DataFrames: the good rows typed, and the rejected rows with file, line and reason."""

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from incremental_assets.core.errors import SourceError, SourceInterrupted, store_remedy
from incremental_assets.core.files import FILE, MODIFIED
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.schema import Column
from incremental_assets.files.listing import FolderAddress
from incremental_assets.files.readers import cells
from incremental_assets.files.readers.beginning import Beginning
from incremental_assets.files.readers.formats import DelimitedRows, FormatRows, LadderRows, StagedFiles, check_options, format_rows, null
from incremental_assets.files.readers.path_values import IS, PathValues
from incremental_assets.files.readers.quoting import Quoting
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
from incremental_assets.spark.persisted import PersistedRows

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


@dataclass(frozen=True)
class FileCount:
    """The numbers of good and of rejected rows of one file."""

    rows: int
    rejected: int


class FileRows:
    """The rows of a set of files, read once when an instance is made. Spark keeps good and rejected rows cached until ``close``.

    ``known``: the table's columns without ``_file`` and ``_file_modified``; their types stay or are widened. ``columns``: those, and the
    new ones after them. ``as_text``: see ``LadderRows.widen``; None: no inferred column is widened by values. ``held``: likewise.
    ``valueless``: see ``FormatRows``.
    ``refused``: by key, why a file could not be read or does not belong to this container. ``counts``: the row counts of every other file,
    by key. ``staging``: a folder for temporary files.

    Raises ConfigurationError for options and types that Spark refuses, SourceInterrupted where the disk, the machine or the network
    fails, SourceError where the files cannot be read at all, and PySparkException where the Spark server has ended.
    """

    columns: tuple[Column, ...]
    valueless: tuple[str, ...] = ()
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
        as_text: Callable[[], bool] | None = None,
    ) -> None:
        self._as_text = as_text
        self.held: tuple[str, ...] = ()
        self._spark, self._address, self._reading, self._log = spark, address, reading, log
        self._types = cells.resolved_types(spark, reading.types)
        self._known = tuple(Column(c.name, self._types.get(c.name.lower(), c.type)) for c in known)
        check_options(spark, reading)
        self._files = tuple(files)
        self._refused: dict[str, str] = {}
        self._typed: PersistedRows | None = None
        self._rows: FormatRows | None = None
        self.columns = self._known
        self._stage = Staging(address, reading, staging)
        try:
            self._heads = self._take()
            self._read()
        except BaseException:
            self.close()
            raise
        self.refused = self._refused

    def have_types(self, types: Mapping[str, str]) -> bool:
        """Whether all texts of columns of CSV have the form by which a new column gets its type. ``types``: by column name."""
        return not isinstance(self._rows, DelimitedRows) or self._rows.have_types(types)

    def good(self) -> "DataFrame":
        """Returns the typed rows: ``_file``, ``_file_modified``, then ``columns``."""
        given = self._paths.given(self.columns)

        def value(column: Column) -> str:
            if column.name not in given:
                return quote(column.name)
            of_path = self._paths.value(given[column.name])
            own = f"cast({quote(column.name)} AS {column.type}), " if column.name in self._brought else ""
            return f"coalesce({own}{of_path}) AS {quote(column.name)}"

        return self._of_files(f"{WRONG} IS NULL", [value(column) for column in self.columns])

    def bad(self) -> "DataFrame":
        """Returns ``REJECTED_COLUMNS`` of the rejected rows."""
        return self._of_files(f"{WRONG} IS NOT NULL", [f"{LINE} AS line", f"{WRONG} AS reason"])

    def close(self) -> None:
        """Releases the cached rows in Spark, and removes the staging folder."""
        with contextlib.suppress(Exception):  # where the session is gone, so are its cached rows
            self._drop()
        self._stage.close()

    # ------------------------------------------------------------------ the steps of reading
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
                remedy = passing_remedy_in(_full_text(error))
                if remedy is not None:
                    raise SourceInterrupted(
                        f"{self._address.datastore}: Spark could not read the files now: {_message(error)}. {remedy}, then sync again; no "
                        f"file was refused for it."
                    ) from error
                named = self._stage.named_in(_full_text(error), self._left())
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
                    if file.key in broken and not self._stage.read_otherwise(file):
                        why = self._stage.why_broken(file) or refusal(file, f"Spark cannot read it: {broken[file.key]}")
                        self._refused[file.key] = why
                        self._log(f"left out: {why}")

    def _left(self) -> list[ReadFile]:
        return [file for file in self._files if file.key not in self._refused]

    def _build(self) -> None:
        """Determines columns and types, then caches all rows in Spark and counts them."""
        may = self._as_text or (lambda: False)
        staged = StagedFiles(self._spark, self._address, self._reading, self._stage, self._heads, self._known, self._types, may)
        self._paths = paths = PathValues(staged, self._left())
        self._refused |= paths.refused
        if self._as_text is not None:
            paths.widen(self._as_text)
        staged = replace(staged, known=_with_types(staged.known, paths.columns))
        self._rows = rows = format_rows(staged, self._left())
        try:
            rows.infer()
        finally:
            self._refused |= rows.refused
        paths.infer(rows.columns)
        paths.refuse_misfits(self._left())
        self._refused |= paths.refused
        self.counts = self._counted(rows)
        if self._with_parts:
            refused = self._stage.mark(self._with_parts)
            if refused is not None:
                self._refused |= refused
                self._drop()
                self._build()
                return
        # Only where rows are rejected can a column be too narrow. So nothing is asked where all rows fit.
        if self._as_text is not None and isinstance(rows, LadderRows) and any(count.rejected for count in self.counts.values()):
            if rows.widen(self._as_text):
                self._drop()
                paths.columns = _with_types(paths.columns, rows.columns)
                self.counts = self._counted(rows)
            self.held = rows.held
        self.held += paths.held
        self._brought = frozenset(column.name for column in rows.columns)
        self.columns = (*rows.columns, *(column for column in paths.columns if column.name not in self._brought))
        self.valueless = rows.valueless

    def _counted(self, rows: FormatRows) -> dict[str, FileCount]:
        """Caches all rows in Spark, and counts those of each file. ``_with_parts``: the files whose rejected lines may be parts of rows."""
        counts = {file.key: FileCount(0, 0) for file in self._left()}
        given = self._paths.given(rows.columns)
        self._with_parts: list[ReadFile] = []
        if rows.groups:
            # Cached, as the rows are read several times: to be counted, and for the good and the rejected ones.
            frames = [rows.typed(group) for group in rows.groups]
            frame = frames[0]
            for other in frames[1:]:
                frame = frame.union(other)
            self._typed = PersistedRows(self._spark, frame)
            parts = Quoting(self._reading).may_be_part_of_row if isinstance(rows, DelimitedRows) else "false"
            others = [f"{quote(name)} IS NOT NULL AND NOT ({quote(name)} <=> {self._paths.value(i)})" for name, i in given.items()]
            all_rows = self._with_files(self._typed.frame) if others else self._typed.frame
            found = all_rows.groupBy(NAME).agg(*_counting(parts, " OR ".join(others) or "false")).collect()
            own = {file.key: file for file in self._left()}
            for row in found:
                key = self._stage.names[row[NAME]]
                counts[key] = FileCount(row["all"] - row["wrong"], row["wrong"])
                if row["parts"]:
                    self._with_parts.append(own[key])
                if row["others"]:
                    why = f"its rows have other values of {' and '.join(given)} than its folders say. Put it into the right folder"
                    self._refused[key] = refusal(own[key], why)
                    del counts[key]
        return counts

    def _each_by_itself(self) -> dict[str, str]:
        """Reads each file by itself, and returns by key what Spark says of those that it cannot read."""
        from pyspark.errors import PySparkException

        rows = self._rows
        if rows is None:
            return {}

        def failure_of(one: tuple[Group, ReadFile]) -> tuple[str, str] | None:
            group, file = one
            try:
                rows.raw(replace(group, files=(file,))).write.format("noop").mode("overwrite").save()
            except PySparkException as error:
                return file.key, _message(error)
            return None

        with ThreadPoolExecutor(4) as pool:
            return dict(filter(None, pool.map(failure_of, [(group, file) for group in rows.groups for file in group.files])))

    def _of_files(self, where: str, columns: Sequence[str]) -> "DataFrame":
        """The cached rows that fulfil a condition: key and modification time of their file, then the given expressions."""
        if self._typed is None:
            # There are no rows, but the expressions need all columns to exist.
            nothing = [f"cast(NULL AS string) AS {name}" for name in (NAME, LINE, WRONG)]
            rows = self._spark.range(0).selectExpr(*nothing, *map(null, self.columns))
        else:
            rows = self._typed.frame.where(where)
        carried = [f"{IS}.key AS {quote(FILE.name)}", f"timestamp_micros({IS}.modified) AS {quote(MODIFIED.name)}"]
        return self._with_files(rows).selectExpr(*carried, *columns)

    def _with_files(self, rows: "DataFrame") -> "DataFrame":
        """The rows of files that are not refused, each with its file: key, time, and the texts that its folders say."""
        from pyspark.sql import functions as F

        modified, texts = {file.key: file.modified for file in self._files}, self._paths.texts
        # They travel in one struct of a reserved name, as the files may have columns of any name.
        named = [(name, key, modified[key], texts.get(key)) for name, key in self._stage.names.items() if key not in self._refused]
        names = self._spark.createDataFrame(named, "name string, key string, modified bigint, texts array<string>")
        names = names.selectExpr(f"name AS {NAME}_of", f"struct(key, modified, texts) AS {IS}")
        return rows.join(names.hint("broadcast"), F.col(NAME) == F.col(f"{NAME}_of"))

    def _drop(self) -> None:
        if self._typed is not None:
            typed, self._typed = self._typed, None
            typed.release()


def _with_types(columns: Sequence[Column], others: Sequence[Column]) -> tuple[Column, ...]:
    """The columns with the types that the others have, where there are such."""
    types = {column.name: column.type for column in others}
    return tuple(Column(column.name, types.get(column.name, column.type)) for column in columns)


def _counting(parts: str, others: str) -> list:
    """The aggregates that count all rows of a file, the rejected ones, those of them that may be ``parts`` of rows, and good ``others``."""
    from pyspark.sql import functions as F

    return [
        F.count("*").alias("all"),
        F.count(WRONG).alias("wrong"),
        F.expr(f"count_if({WRONG} IS NOT NULL AND {parts})").alias("parts"),
        F.expr(f"count_if({WRONG} IS NULL AND ({others}))").alias("others"),
    ]


def _full_text(error: Exception) -> str:
    """Returns the text of an error with its parameters, which name paths that the text may lack."""
    parameters = getattr(error, "getMessageParameters", dict)() or {}
    return "\n".join([str(error), *map(str, parameters.values())])


def _message(error: Exception) -> str:
    """Returns the part of Spark's message that is of use to a person: its first line, and the innermost cause."""
    text, _, stack = str(error).strip().partition("JVM stacktrace")
    causes = re.findall(r"^Caused by: (.*)$", stack, re.MULTILINE)
    first = re.sub(r"\s*SQLSTATE: \w+", "", text.strip().partition("\n")[0]).strip()
    return shortened(f"{causes[-1]} ({first})" if causes else first, 400)
