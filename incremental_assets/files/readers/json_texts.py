"""Splits JSON into records, and each record into its values: their texts as they stand in the file, and of which kind they are.

This module is also executed by Spark's Python workers, on machines where this project need not be installed: it is sent there as it is
(pickled by value), so it imports only the standard library and pyarrow.

Python's parser says what JSON is. It hands the text of a number on, and where a nested value ends, so that nothing is rounded or rewritten.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal, InvalidOperation
from json.decoder import scanstring  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any

import pyarrow as pa

STRING, BOOLEAN, NESTED = "s", "b", "j"
"""The kinds of values that are no numbers. The kind of a number is the digit of a mask."""
BIGINT, DOUBLE, PLAIN = 1, 2, 4
"""The bits of that mask: it is whole and has at most 18 digits; a double gives back the very same number; it has no exponent."""
_SURELY_DOUBLE = 15
"""A double gives back each number of so many digits."""
_BIGINT_DIGITS = 18
_SPACE = re.compile(r"[ \t\n\r]*")
_MARK = "\ufeff"


class _Number(str):
    """The text of a number, which tells it from a string."""

    __slots__ = ()


Cells = dict[str, str | None]
"""The values of a record by key: their kind and their text in one; None: null."""
Record = tuple[str, Cells | None]
"""The text of a record and its cells; None: it is no object, or has a key twice, or half a character."""


class Splitter:
    """Splits texts into records. It is made where it is used, as its parser does not travel.

    ``constants``: ``NaN`` and ``Infinity``, which programs write though the standard has no such values, are numbers.
    """

    def __init__(self, constants: bool = True) -> None:
        on_constant = _Number if constants else _refuse
        decoder = json.JSONDecoder(object_pairs_hook=list, parse_float=_Number, parse_int=_Number, parse_constant=on_constant)
        self._decode = decoder.raw_decode

    def records(self, text: str) -> list[Record] | None:
        """The records of a line or a file: objects one after the other, and those within an array. None: it is nothing like that."""
        found: list[Record] = []
        try:
            at = _after_space(text, 1 if text.startswith(_MARK) else 0)
            while at < len(text):
                if text[at] == "{":
                    value, end = self._decode(text, at)
                    found.append((text[at:end], self._cells(text, at, end, value)))
                elif text[at] == "[":
                    end = self._elements(text, at, found)
                else:
                    return None
                at = _after_space(text, end)
        except (ValueError, IndexError, RecursionError):
            return None
        return found

    def _elements(self, text: str, at: int, found: list[Record]) -> int:
        """Adds the elements of an array to ``found``. Returns where it ends."""
        at = _after_space(text, at + 1)
        if text[at] == "]":
            return at + 1
        while True:
            value, end = self._decode(text, at)
            found.append((text[at:end], self._cells(text, at, end, value) if text[at] == "{" else None))
            at = _after_space(text, end)
            if text[at] == "]":
                return at + 1
            if text[at] != ",":
                raise ValueError
            at = _after_space(text, at + 1)

    def _cells(self, text: str, at: int, end: int, pairs: list[tuple[str, Any]]) -> Cells | None:
        """The cells of the object that ``text`` has from ``at`` to ``end``."""
        nested = self._values(text, at) if any(type(value) is list for _, value in pairs) else None
        found: Cells = {}
        for number, (key, value) in enumerate(pairs):
            kind = type(value)
            if kind is str:
                found[key] = STRING + value
            elif kind is _Number:
                found[key] = f"{mask_of(value)}{value}"
            elif value is None:
                found[key] = None
            elif nested is not None and kind is list:
                found[key] = NESTED + nested[number]
            else:
                found[key] = f"{BOOLEAN}{'true' if value else 'false'}"
        if len(found) < len(pairs) or (text.find("\\u", at, end) >= 0 and not _is_text(found)):
            return None
        return found

    def _values(self, text: str, at: int) -> list[str]:
        """The texts of the values of an object, which begins there."""
        found: list[str] = []
        at = _after_space(text, at + 1)
        while True:
            _, at = scanstring(text, at + 1, True)
            begin = _after_space(text, _after_space(text, at) + 1)
            _, end = self._decode(text, begin)
            found.append(text[begin:end])
            at = _after_space(text, end)
            if text[at] == "}":
                return found
            at = _after_space(text, at + 1)


def mask_of(number: str) -> int:
    """What fits the text of a JSON number."""
    is_plain = "e" not in number and "E" not in number and number[-1] not in "Ny"
    is_whole = is_plain and "." not in number
    if is_plain and len(number) <= _SURELY_DOUBLE:
        return PLAIN | DOUBLE | (BIGINT if is_whole and number != "-0" else 0)
    is_bigint = is_whole and len(number.removeprefix("-")) <= _BIGINT_DIGITS
    # The double of a whole number with more digits than a bigint has may be the same one by chance.
    is_double = (is_bigint or not is_whole) and _is_double(number)
    return (PLAIN if is_plain else 0) | (DOUBLE if is_double else 0) | (BIGINT if is_bigint else 0)


def split_records(
    name: str, line: str, broken: str, split: str, found: str, constants: bool
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` that makes rows of records of rows of lines.

    ``name``, ``line``, ``broken``: the columns of the file, of the text, which is that of the record afterwards, and one that is carried.
    ``split``: of the result, whether the text was split. ``found``: of the result, the cells as a map; NULL where the text is no record.
    ``constants``: see ``Splitter``.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        splitter = Splitter(constants)
        for batch in batches:
            rows: list[int] = []
            texts: list[str] = []
            were_split: list[bool] = []
            cells: list[list[tuple[str, str | None]] | None] = []
            for row, text in enumerate(batch.column(line).to_pylist()):
                records = splitter.records(text)
                for own, values in [(text, None)] if records is None else records:
                    rows.append(row)
                    texts.append(own)
                    were_split.append(records is not None)
                    cells.append(None if values is None else list(values.items()))
            names, are_broken = (batch.column(column).take(pa.array(rows, pa.int64())) for column in (name, broken))
            maps = pa.array(cells, pa.map_(pa.string(), pa.string()))
            columns = [names, pa.array(texts, pa.string()), are_broken, pa.array(were_split, pa.bool_()), maps]
            yield pa.RecordBatch.from_arrays(columns, names=[name, line, broken, split, found])

    return run


def _after_space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # pyright: ignore[reportOptionalMemberAccess]


def _is_text(cells: Cells) -> bool:
    """Whether there is no half of a character in it, as ``\\ud83d`` is one."""
    try:
        for key, value in cells.items():
            key.encode()
            (value or "").encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_double(number: str) -> bool:
    value = float(number)
    if repr(value) == number or number[-1] in "Ny":
        return True
    try:
        return abs(value) != float("inf") and Decimal(repr(value)) == Decimal(number)
    except InvalidOperation:
        return False


def _refuse(name: str) -> None:
    raise ValueError(name)
