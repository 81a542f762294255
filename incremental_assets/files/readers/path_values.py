"""The columns that the folders of a path name (``year=2026/month=01``): their types, and their values for the rows of each file.

Their texts are those of cells of CSV, and get their types by the same rules. A table that was loaded without them stays without them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from incremental_assets.core.files import FileFormat, path_columns
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.schema import Column
from incremental_assets.files.readers import cells
from incremental_assets.files.readers.formats import LadderRows, StagedFiles
from incremental_assets.files.readers.reading import TAKEN, ReadFile, Reading, refusal, reserved

if TYPE_CHECKING:
    from pyspark.sql.dataframe import DataFrame

IS = "_incremental_assets_is"
"""The struct with which rows travel: the key and time of their file, and the texts that its folders say."""


def names_of(files: Iterable[ReadFile], always: str | None = None) -> tuple[str, ...]:
    """The columns that the folders of files name, and the one that is there ``always``. Folders that cannot be understood are left out."""
    found: dict[str, str] = {}
    for file in files:
        try:
            names = path_columns(file.path)
        except ValueError:
            continue
        for name in names:
            found.setdefault(name.lower(), name)
    if always is not None:
        found.setdefault(always.lower(), always)
    return tuple(found.values())


def are_columns(files: Iterable[ReadFile], known: Sequence[Column], always: str | None) -> bool:
    """Whether the folders' names become columns. ``known``: those of the table; none: it is loaded for the first time, or anew."""
    names = {name.lower() for name in names_of(files, always)}
    return bool(names) and (not known or any(column.name.lower() in names for column in known))


class PathValues(LadderRows):
    """The values that the folders of files name.

    ``names``: the columns, in the order of the folders. ``columns``: their types. ``refused``: by key, why a file cannot be read.
    ``texts``: by key, the text of each column's value.
    """

    def __init__(self, staged: StagedFiles, files: Sequence[ReadFile]) -> None:
        self._staged = replace(staged, reading=Reading(FileFormat.CSV, {}, staged.types))
        self.refused: dict[str, str] = {}
        self.texts: dict[str, list[str | None]] = {}
        known = {column.name.lower(): column for column in staged.known}
        always = staged.reading.folders
        self.names = names_of(files, always) if are_columns(files, staged.known, always) else ()
        for file in files if self.names else ():
            try:
                own = {name.lower(): text for name, text in path_columns(file.path).items()}
            except ValueError as error:
                self.refused[file.key] = refusal(file, f"{error}. Rename the folders")
                continue
            taken = reserved(own, known)
            if taken:
                self.refused[file.key] = refusal(file, f"its folders name a column {TAKEN}: {' and '.join(taken)}")
                continue
            self.texts[file.key] = [own.get(name.lower()) for name in self.names]
        self.columns = tuple(known[name.lower()] for name in self.names if name.lower() in known)

    def infer(self, brought: Sequence[Column]) -> None:
        """Determines the types. ``brought``: all columns of the table and of the files; what is not among them gets its type here."""
        types = {column.name.lower(): column for column in brought}
        new = [name for name in self.names if name.lower() not in types]
        inferred = self._inferred([name for name in new if name.lower() not in self._staged.types])
        made = {name: Column(name, self._staged.types.get(name.lower()) or inferred[name] or "string") for name in new}
        self.columns = tuple(types.get(name.lower()) or made[name] for name in self.names)

    def refuse_misfits(self, files: Sequence[ReadFile]) -> None:
        """Refuses files whose folders have a text that is no value of its column's type."""
        frame = self._frame()
        if frame is None:
            return
        fits = [
            cells.fits(f"texts[{i}]", column.type, self._staged.reading, is_declared=self._is_declared(column))
            for i, column in enumerate(self.columns)
        ]
        own = {file.key: file for file in files}
        for key, *found in frame.selectExpr("key", *(f"{one} AS f{i}" for i, one in enumerate(fits))).collect():
            wrong = next((i for i, one in enumerate(found) if not one), None)
            if wrong is not None and key in own:
                column, text = self.columns[wrong], self.texts[key][wrong]
                remedy = f"if that is right, say columns: {{{column.name}: string}}"
                why = f"its folders say {column.name}={text}, which is no {column.type}; {remedy}"
                self.refused[key] = refusal(own[key], why)

    def value(self, number: int) -> str:
        """The expression of the value of a column, by its number, for rows that have a struct ``IS`` with the ``texts`` of their file."""
        column = self.columns[number]
        return f"cast({cells.value(f'{IS}.texts[{number}]', column.type, self._staged.reading)} AS {column.type})"

    def given(self, columns: Sequence[Column]) -> Mapping[str, int]:
        """The number of each of these columns that the folders name, by its name."""
        numbers = {name.lower(): i for i, name in enumerate(self.names)}
        return {column.name: numbers[column.name.lower()] for column in columns if column.name.lower() in numbers}

    def _is_declared(self, column: Column) -> bool:
        return column.name.lower() in self._staged.types

    def _widening(self) -> Sequence[Column]:
        return self.columns

    def _texts(self, names: Sequence[str]) -> "DataFrame | None":
        frame = self._frame() if names else None
        if frame is None:
            return None
        wanted = {name.lower(): name for name in names}
        return frame.selectExpr(*(f"texts[{i}] AS {quote(wanted[n.lower()])}" for i, n in enumerate(self.names) if n.lower() in wanted))

    def _frame(self) -> "DataFrame | None":
        if not self.texts:
            return None
        return self._staged.spark.createDataFrame(list(self.texts.items()), "key string, texts array<string>")
