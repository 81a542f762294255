"""Finds the type of a new column of JSON, by what is known of the values of its key.

A column of numbers gets the first of these types that represents all of them exactly: ``bigint``, ``double``, a ``decimal`` as the ladder
makes it of a bigint, text. A column of strings is text: unlike CSV, JSON says what is a number. Nested values stay text, so that no nested
field is ever lost.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from incremental_assets.core.ladder import TEXT, Texts, next_type
from incremental_assets.core.schema import Column
from incremental_assets.files.readers.json_texts import BIGINT, BOOLEAN, DOUBLE, PLAIN


@dataclass(frozen=True)
class Values:
    """What is known of the values of one key. Null is none.

    ``kinds``: of all values. ``before`` and ``after``: the most digits before and after the point, without zeros that say nothing, of those
    numbers that do not fit a bigint.
    """

    kinds: frozenset[str] = frozenset()
    before: int = 0
    after: int = 0

    @classmethod
    def together(cls, some: "Iterable[Values]") -> "Values":
        found = cls()
        for one in some:
            found = cls(found.kinds | one.kinds, max(found.before, one.before), max(found.after, one.after))
        return found

    @property
    def type(self) -> str | None:
        """The type of a new column; None where there is no value."""
        if not self.kinds:
            return None
        if not all(kind.isdigit() for kind in self.kinds):
            return "boolean" if self.kinds == {BOOLEAN} else TEXT
        fits = BIGINT | DOUBLE | PLAIN
        for kind in self.kinds:
            fits &= int(kind)
        if fits & BIGINT:
            return "bigint"
        if fits & DOUBLE:
            return "double"
        return next_type("bigint", Texts(1, bool(fits & PLAIN), self.before, self.after))


def columns_of(
    found: Mapping[str, Values], known: Sequence[Column], types: Mapping[str, str]
) -> tuple[tuple[Column, ...], list[list[str]], frozenset[str], tuple[str, ...]]:
    """The columns of a table with these keys, the spellings of the key of each, the names of new columns whose types are not declared, and
    those of them that have no value, so that they are no columns yet.

    ``known``: the table's columns, which come first. ``types``: those that the YAML sets, by name in lower case. Keys that differ only in
    surrounding white space or in case, which Delta does not tell apart, are one column, called by the first one.
    """
    spellings: dict[str, list[str]] = {}
    for key in found:
        spellings.setdefault((key.strip() or "_c0").lower(), []).append(key)
    have = {column.name.lower() for column in known}
    columns, inferred = list(known), list[str]()
    for name, keys in spellings.items():
        if name not in have:
            type_ = types.get(name) or Values.together(found[key] for key in keys).type
            shown = keys[0].strip() or "_c0"
            if type_ is not None:
                columns.append(Column(shown, type_))
            if name not in types:
                inferred.append(shown)
    own = {column.name for column in columns}
    valueless = tuple(name for name in inferred if name not in own)
    return tuple(columns), [spellings.get(column.name.lower(), []) for column in columns], frozenset(inferred), valueless
