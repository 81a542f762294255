"""Makes the rows of files of each format: which columns the files bring, and their rows as values of the table's columns."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from incremental_assets.core.files import FileFormat
from incremental_assets.core.ladder import TEXT, Texts, next_type
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.names import literal
from incremental_assets.core.nested_types import NESTED
from incremental_assets.core.schema import Column, widens
from incremental_assets.delta.as_text import text_of
from incremental_assets.files.listing import FolderAddress
from incremental_assets.files.readers import cells, delimited, records
from incremental_assets.files.readers.beginning import Beginning
from incremental_assets.files.readers.columnar import Schemas, type_of
from incremental_assets.files.readers.file_columns import has_text
from incremental_assets.files.readers.json_types import Values, columns_of
from incremental_assets.files.readers.reading import LINE, NAME, WRONG, Group, ReadFile, Reading
from incremental_assets.files.readers.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

ROWS_OF_A_SAMPLE = 1000
"""How many rows are looked at to rule out types of new columns, before all rows are."""


@dataclass(frozen=True)
class StagedFiles:
    """What the rows of every format are made from.

    ``heads``: how each file begins, by key. ``known``: the table's columns. ``types``: those that the YAML sets, by column name in lower
    case. ``may_rewrite``: whether the table is small enough to be rewritten for a type.
    """

    spark: "SparkSession"
    address: FolderAddress
    reading: Reading
    staging: Staging
    heads: Mapping[str, Beginning]
    known: tuple[Column, ...]
    types: Mapping[str, str]
    may_rewrite: Callable[[], bool] = lambda: False


class FormatRows(Protocol):
    """The rows of files of one format.

    ``groups``: the files that are read alike. ``columns``: the known ones, and the new ones after them; complete after ``infer``.
    ``refused``: why a file does not belong to this container, by key. ``valueless``: names of further ones that have no value.
    """

    groups: list[Group]
    columns: tuple[Column, ...]
    refused: dict[str, str]
    valueless: tuple[str, ...]

    def infer(self) -> None:
        """Determines the columns. Raises PySparkException where Spark cannot read a file; ``groups`` says then which were read."""
        ...

    def raw(self, group: Group) -> "DataFrame":
        """The rows of a group's files as they are in the files, with ``NAME``."""
        ...

    def typed(self, group: Group) -> "DataFrame":
        """The same rows as ``NAME``, ``LINE``, ``WRONG`` and the values of all columns. A line is kept only where the row is rejected."""
        ...


def format_rows(staged: StagedFiles, files: Sequence[ReadFile]) -> FormatRows:
    """Groups the files by what their format says. Text files without any text have no rows, and are in no group."""
    if staged.reading.format in (FileFormat.PARQUET, FileFormat.AVRO):
        return _ColumnarRows(staged, files)
    full = [file for file in files if not (staged.heads[file.key].whole and staged.heads[file.key].blank)]
    match staged.reading.format:
        case FileFormat.JSON:
            return _JsonRows(staged, full)
        case FileFormat.TEXT:
            return _TextRows(staged, full)
        case _:
            return DelimitedRows(staged, full)


def check_options(spark: "SparkSession", reading: Reading) -> None:
    """Raises ConfigurationError for options that Spark refuses. Otherwise each file would be reported as broken."""
    if not reading.options:
        return
    if reading.format in (FileFormat.CSV, FileFormat.TSV):
        delimited.check_options(spark, reading)
    elif reading.format is FileFormat.JSON:
        records.check_options(spark, reading)


class LadderRows(ABC):
    """Rows whose inferred columns widen by their values, as ``core.ladder`` says.

    ``held``: columns of the table that would be text, if that were allowed.
    """

    columns: tuple[Column, ...]
    held: tuple[str, ...] = ()
    valueless: tuple[str, ...] = ()
    _staged: StagedFiles

    @abstractmethod
    def _widening(self) -> Sequence[Column]:
        """The columns that may widen, of those that are inferred and on the ladder."""

    @abstractmethod
    def _texts(self, names: Sequence[str]) -> "DataFrame | None":
        """The texts in columns of these names, of all files that have one of them; None if no file has."""

    def widen(self, as_text: Callable[[], bool]) -> bool:
        """Widens those inferred columns that have values of another form. Returns whether any has.

        ``as_text``: whether a column of the table may become text, for which it has to be rewritten. It is asked only if one would; where
        it may not, the column stays, and is in ``held``.
        """
        asked = {
            column.name: column.type
            for column in self._widening()
            if column.name.lower() not in self._staged.types and cells.on_ladder(column.type, self._staged.reading)
        }
        frame = self._texts(list(asked))
        if frame is None:
            return False
        asked = {name: type_ for name, type_ in asked.items() if name in frame.columns}
        measured = [cells.texts_of(quote(name), type_, self._staged.reading) for name, type_ in asked.items()]
        found = frame.selectExpr(*(f"{expression} AS s{i}" for i, expression in enumerate(measured))).collect()[0]
        texts = [Texts(**one.asDict()) for one in found]
        new = {name: next_type(type_, one) for (name, type_), one in zip(asked.items(), texts, strict=True)}
        changed = {name: type_ for name, type_ in new.items() if type_ != asked[name]}
        known = {column.name.lower() for column in self._staged.known}
        rewritten = [name for name, type_ in changed.items() if type_ == TEXT and name.lower() in known]
        if rewritten and not as_text():
            self.held = tuple(rewritten)
            changed = {name: type_ for name, type_ in changed.items() if name not in rewritten}
        self.columns = tuple(Column(column.name, changed.get(column.name, column.type)) for column in self.columns)
        return bool(changed)

    def _inferred(self, names: Sequence[str]) -> dict[str, str | None]:
        """Returns by name the type that fits all texts of a new column, in all files; None where it has none."""
        frame = self._texts(names)
        if frame is None:
            return {}
        # Most types are ruled out by a few rows already, and need not be tried on all of them.
        some = self._masks(frame.limit(ROWS_OF_A_SAMPLE), dict.fromkeys(names, cells.ALL_TYPES))
        possible = {name: cells.ALL_TYPES if some[name] is None else some[name] for name in names}
        found = possible | self._masks(frame, {name: bits for name, bits in possible.items() if bits})
        return {name: None if found[name] is None else cells.type_of_mask(found[name]) for name in names}

    def _masks(self, frame: "DataFrame", possible: Mapping[str, int]) -> dict[str, int | None]:
        """The mask of each column (``cells.mask``). ``possible``: the types that are looked at, by column."""
        if not possible:
            return {}
        masks = [f"{cells.mask(quote(name), self._staged.reading, bits)} AS m{i}" for i, (name, bits) in enumerate(possible.items())]
        return dict(zip(possible, frame.selectExpr(*masks).collect()[0], strict=True))


class DelimitedRows(LadderRows):
    """CSV and TSV: the files of one header are read together."""

    def __init__(self, staged: StagedFiles, files: Sequence[ReadFile]) -> None:
        self._staged, self.columns = staged, staged.known
        self.groups, self.refused = delimited.grouped(staged.reading, files, staged.heads, staged.known)

    def infer(self) -> None:
        have, types = {column.name.lower() for column in self.columns}, self._staged.types
        new = list(dict.fromkeys(name for group in self.groups for name in group.names if name.lower() not in have))
        inferred = self._inferred([name for name in new if name.lower() not in types])
        found = {name: types.get(name.lower()) or inferred.get(name) for name in new}
        self.valueless = tuple(name for name, type_ in found.items() if type_ is None)
        self.columns += tuple(Column(name, type_) for name, type_ in found.items() if type_ is not None)

    def raw(self, group: Group) -> "DataFrame":
        return delimited.cells(self._staged.spark, self._staged.staging, self._staged.reading, group)

    def typed(self, group: Group) -> "DataFrame":
        return _typed(self._staged, self.raw(group), group.names, self.columns)

    def have_types(self, types: Mapping[str, str]) -> bool:
        """Whether all texts of columns have the form by which a new column gets its type. ``types``: by column name."""
        frame = self._texts(list(types))
        if frame is None:
            return True
        bits = {name: 1 << list(cells.INFERRED).index(type_) for name, type_ in types.items() if name in frame.columns}
        return all(found is None or found for found in self._masks(frame, bits).values())

    def _widening(self) -> Sequence[Column]:
        known = {column.name.lower() for column in self._staged.known}
        return [column for column in self.columns if column.name.lower() in known]

    def _texts(self, names: Sequence[str]) -> "DataFrame | None":
        frames: list[DataFrame] = []
        for group in self.groups:
            own = [f"v{i} AS {quote(name)}" for i, name in enumerate(group.names) if name in names]
            if own:
                frames.append(self.raw(group).where(f"{WRONG} IS NULL").selectExpr(*own))
        return _together(frames)


class _JsonRows(LadderRows):
    """JSON: the files with one record per line are read together, and so are those that are one value each. A key is a column."""

    def __init__(self, staged: StagedFiles, files: Sequence[ReadFile]) -> None:
        self._staged, self._files, self.columns = staged, files, staged.known
        self.groups: list[Group] = records.json_groups(files, staged.heads)
        self.refused: dict[str, str] = {}
        self._spellings: Sequence[Sequence[str]] = ()

    def infer(self) -> None:
        self.columns, self._spellings, _, self.valueless = columns_of(self._keys(), self.columns, self._staged.types)

    def raw(self, group: Group) -> "DataFrame":
        known = {column.name.lower() for column in self._staged.known}
        return records.json_records(self._staged.spark, self._staged.staging, self._staged.reading, group, known)

    def typed(self, group: Group) -> "DataFrame":
        sure = {column.name.lower(): records.is_double(f"k{i}") for i, column in enumerate(self.columns) if column.type == "double"}
        return _typed(self._staged, self._cells(group), [column.name for column in self.columns], self.columns, sure=sure)

    def _cells(self, group: Group) -> "DataFrame":
        return records.json_cells(self.raw(group), self._spellings)

    def _widening(self) -> Sequence[Column]:
        known = {column.name.lower() for column in self._staged.known}
        return [column for column in self.columns if column.name.lower() in known]

    def _texts(self, names: Sequence[str]) -> "DataFrame | None":
        own = [f"v{i} AS {quote(column.name)}" for i, column in enumerate(self.columns) if column.name in names and self._spellings[i]]
        return _together([self._cells(group).where(f"{WRONG} IS NULL").selectExpr(*own) for group in self.groups] if own else [])

    def _keys(self) -> Mapping[str, Values]:
        """Returns the keys of all records, with their values. Files that would bring too many are refused, and the others asked again."""
        limits, known = self._staged.reading.limits, self._staged.known
        have, files = {column.name.lower() for column in self.columns}, self._files
        while True:
            self.groups = records.json_groups(files, self._staged.heads)
            frames = [self.raw(group) for group in self.groups]
            keys = records.keys_of(frames, max(limits.columns, len(known)))
            if keys is not None and len(have | {key.lower() for key in keys}) <= max(limits.columns, len(have)):
                return keys
            own = {file.key: file for file in files}
            named = [(name, own[key]) for name, key in self._staged.staging.names.items() if key in own]
            too_many = records.too_many_keys(frames, named, have, limits)
            self.refused |= too_many
            files = [file for file in files if file.key not in too_many]


class _TextRows:
    """Plain text: each line is a row with the one column ``value``."""

    def __init__(self, staged: StagedFiles, files: Sequence[ReadFile]) -> None:
        self._staged, self.columns = staged, staged.known
        self.groups: list[Group] = [Group(tuple(files))] if files else []
        self.refused: dict[str, str] = {}
        self.valueless: tuple[str, ...] = ()

    def infer(self) -> None:
        if "value" not in {column.name.lower() for column in self.columns}:
            self.columns += (Column("value", self._staged.types.get("value", "string")),)

    def raw(self, group: Group) -> "DataFrame":
        return records.text_cells(self._staged.spark, self._staged.staging, self._staged.reading, group)

    def typed(self, group: Group) -> "DataFrame":
        return _typed(self._staged, self.raw(group), ("value",), self.columns)


class _ColumnarRows(LadderRows):
    """Parquet and Avro: the files of one schema are read together.

    Their values are typed already. Those of a column with values that the table's type has not go by their texts, as cells of CSV do.
    """

    def __init__(self, staged: StagedFiles, files: Sequence[ReadFile]) -> None:
        self._staged = staged
        self._schemas = Schemas(
            staged.spark,
            staged.staging,
            staged.address,
            staged.reading,
            files,
            staged.heads,
            staged.known,
            staged.types,
            staged.may_rewrite,
        )
        self.groups, self.refused, self.columns = self._schemas.groups, self._schemas.refused, tuple(self._schemas.columns)

    def infer(self) -> None:
        """Does nothing: the schemas have told all columns."""

    def raw(self, group: Group) -> "DataFrame":
        return self._schemas.rows(group)

    def typed(self, group: Group) -> "DataFrame":
        texts = self._as_texts(group)
        values = [texts.get(name.lower(), quote(name)) for name in group.names]
        line = f"to_json(struct({', '.join(map(quote, group.names))}))" if texts else "cast(NULL AS string)"
        frame = self.raw(group).selectExpr(
            NAME, f"{line} AS {LINE}", f"cast(NULL AS string) AS {WRONG}", *(f"{expression} AS v{i}" for i, expression in enumerate(values))
        )
        return _typed(self._staged, frame, group.names, self.columns, frozenset(texts))

    def _widening(self) -> Sequence[Column]:
        return self.columns

    def _texts(self, names: Sequence[str]) -> "DataFrame | None":
        frames: list[DataFrame] = []
        spelt = {name.lower(): name for name in names}
        for group in self.groups:
            own = [f"{text} AS {quote(spelt[name])}" for name, text in self._as_texts(group).items() if name in spelt]
            if own:
                frames.append(self.raw(group).selectExpr(*own))
        return _together(frames)

    def _as_texts(self, group: Group) -> Mapping[str, str]:
        """The texts of columns whose values are not of the table's type: expressions by name in lower case."""
        types = {column.name.lower(): column.type for column in self.columns}
        found = {field.name: type_of(field) for field in group.schema}
        return {
            name.lower(): f"to_json({quote(name)})" if type_.startswith(NESTED) else text_of(quote(name), type_)
            for name, type_ in found.items()
            if type_ != types[name.lower()] and not widens(type_, types[name.lower()]) and has_text(type_, types[name.lower()])
        }


def _together(frames: "Sequence[DataFrame]") -> "DataFrame | None":
    """The rows of all frames, whose columns go by their names; None if there is none."""
    if not frames:
        return None
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.unionByName(other, allowMissingColumns=True)
    return frame


def _typed(
    staged: StagedFiles,
    frame: "DataFrame",
    names: Sequence[str],
    columns: Sequence[Column],
    texts: frozenset[str] | None = None,
    sure: Mapping[str, str] | None = None,
) -> "DataFrame":
    """Converts text cells into the values of all columns.

    ``names``: of the cells ``v0``, ``v1``, …, in this order. ``texts``: which of them are texts, in lower case, where the others are
    values; None: all. ``sure``: by column in lower case, a condition under which its cell fits in any case. A row gets the first reason to
    reject it; its line is kept only then.
    """
    at = {name.lower(): f"v{i}" for i, name in enumerate(names)}
    reasons = [WRONG]
    values: list[str] = []
    for column in columns:
        cell = at.get(column.name.lower())
        if cell is None:
            values.append(null(column))
            continue
        if texts is not None and column.name.lower() not in texts:
            values.append(f"cast({cell} AS {column.type}) AS {quote(column.name)}")
            continue
        fits = cells.fits(cell, column.type, staged.reading, is_declared=column.name.lower() in staged.types)
        if sure is not None and column.name.lower() in sure:
            fits = f"(coalesce({sure[column.name.lower()]}, false) OR {fits})"
        if fits != "true":
            remedy = cells.remedy(cell, column.type, staged.reading)
            said = f"{literal(f'{column.name} is no {column.type}: ')} || left({cell}, 100) || {remedy}"
            reasons.append(f"CASE WHEN NOT {fits} THEN {said} END")
        values.append(f"cast({cells.value(cell, column.type, staged.reading)} AS {column.type}) AS {quote(column.name)}")
    judged = frame.selectExpr(NAME, LINE, f"coalesce({', '.join(reasons)}) AS {WRONG}", *values)
    kept = [quote(column.name) for column in columns]
    return judged.selectExpr(NAME, f"CASE WHEN {WRONG} IS NOT NULL THEN {LINE} END AS {LINE}", WRONG, *kept)


def null(column: Column) -> str:
    """The expression of a column without any value."""
    return f"cast(NULL AS {column.type}) AS {quote(column.name)}"
