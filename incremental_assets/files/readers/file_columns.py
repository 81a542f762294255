"""The columns of a table beside those of files that carry their types: whether these fit, and which columns come of both."""

import re
from collections.abc import Callable, Mapping, Sequence

from incremental_assets.core.ladder import TEXT, is_on_ladder
from incremental_assets.core.nested_types import NESTED, grown, only_adds_fields
from incremental_assets.core.schema import Column, widens
from incremental_assets.core.spark_types import names_within
from incremental_assets.files.readers.reading import RESERVED, TAKEN, Reading, shortened

_VARIABLE = re.compile(r"\$\{[^}$ ]+\}")
"""A variable in Hadoop's configuration. Spark passes the requested columns to its Parquet reader in there, so such names are replaced."""


class FileColumns:
    """The columns of a table, widened where a file needs it, and the new ones of files after them: ``columns``.

    ``known``: the table's columns. ``types``: those that the YAML sets, by column name in lower case. ``may_rewrite``: whether the table is
    small enough to be rewritten.
    """

    def __init__(
        self, reading: Reading, known: Sequence[Column], types: Mapping[str, str], may_rewrite: Callable[[], bool] = lambda: False
    ) -> None:
        self._reading, self._types, self._may_rewrite = reading, types, may_rewrite
        self.columns = list(known)

    def add(self, found: Sequence[Column], names: Sequence[str]) -> None:
        """Adds the columns of a file that fit. ``names``: all of the file, also of columns without a type, which the YAML may set."""
        declared = [Column(name, self._types[name.lower()]) for name in names if name.lower() in self._types]
        by_name = {column.name.lower(): i for i, column in enumerate(self.columns)}
        for column in (*declared, *found):
            at = by_name.get(column.name.lower())
            if at is None:
                by_name[column.name.lower()] = len(self.columns)
                self.columns.append(column)
            elif column.name.lower() not in self._types:
                self.columns[at] = Column(self.columns[at].name, _wider(self.columns[at].type, column.type))

    def misfit(self, found: Sequence[Column]) -> str | None:
        """Why the columns of a file do not fit the table, the YAML or Spark; None: they fit."""
        known = {column.name.lower(): column for column in self.columns}
        names = [column.name.lower() for column in found]
        if len(set(names)) < len(names):
            return "it has two columns whose names differ in upper and lower case only"
        all_names = {*names, *known}
        if len(all_names) > max(self._reading.limits.columns, len(known)):
            return self._reading.limits.too_many(len(all_names), "columns with those of the table and of other files")
        taken = RESERVED & set(names)
        if taken:
            return f"it has a column {TAKEN}: {', '.join(sorted(taken))}"
        for name, type_ in ((column.name, column.type) for column in found):
            filled_in = [one for one in (name, *names_within(type_)) if _VARIABLE.search(one)]
            if filled_in:
                return (
                    f"its column {shortened(filled_in[0])!r} has the form of a variable; Spark's Parquet reader replaces those within "
                    f"names, and would find no value; rename it in the file"
                )
            wanted = self._types.get(name.lower())
            if wanted is not None and wanted != type_ and not widens(type_, wanted) and not has_text(type_, wanted):
                return f"its column {name} is {type_}, and {wanted} under columns; the one does not widen into the other"
            column = known.get(name.lower())
            if wanted is None and column is not None and not self._fits(type_, column.type):
                return (
                    f"its column {name} is {type_}, and {column.type} in the table; the one does not widen into the other. To have "
                    f"both as text, say columns: {{{name}: string}}, and read all files again with --reset-watermarks"
                )
        return None

    def _fits(self, found: str, type_: str) -> bool:
        """Whether a column of a file fits a column of the table, or may do so by its values or by a wider column."""
        if found == type_ or widens(found, type_) or widens(type_, found) or has_text(found, type_):
            return True
        both = grown(type_, found, widens)
        return both is not None and (only_adds_fields(type_, both) or self._may_rewrite())


def has_text(found: str, type_: str) -> bool:
    """Whether the values of a column of a file can become those of another type by their texts."""
    if type_ == TEXT and found.startswith(NESTED):
        return True
    return (is_on_ladder(found) or found == TEXT) and (is_on_ladder(type_) or type_ == TEXT)


def _wider(type_: str, found: str) -> str:
    """The type of a column of the table that has every value of another type, too, or else by the values."""
    return found if widens(type_, found) else grown(type_, found, widens) or type_
