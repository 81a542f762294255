"""Converts texts into values in this process: of each type only the plain forms, of which it is sure that Spark reads them as the same
value.

The texts are Arrow arrays of strings in which an empty cell is NULL.
"""

import re

import pyarrow as pa
import pyarrow.compute as pc

from incremental_assets.files.readers.cells import INFERRED

_LEAP = "(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)"
_DAY = (
    f"(?:[1-9][0-9]{{3}}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)|{_LEAP}-02-29)"
)
"""The days of the years 1000 to 9999, without those that no calendar has."""
_TIME = "[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,6})?"
_ZONE = "(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])"
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_PLAIN_NUMBER = "^-?(?:0|[1-9][0-9]*)(?:[.][0-9]+)?$"
_SURE = {
    "boolean": "^(?:true|false)$",
    "double": _PLAIN_NUMBER,
    "date": f"^{_DAY}$",
    "timestamp_ntz": f"^{_DAY}{_TIME}$",
    "timestamp": f"^{_DAY}{_TIME}{_ZONE}$",
}
"""The forms that are surely values of a type, but for whole numbers and decimals, and for doubles with many digits."""
_DIGITS = {"smallint": 4, "int": 9, "bigint": 18}
"""Whole numbers of so many digits are surely values of the type."""
_INFERRED = {**_SURE, "bigint": "^(?:0|-?[1-9][0-9]{0,17})$"}
"""The same for new columns. Each has fewer forms than in ``cells.INFERRED`` or the same ones."""
_ARROW = {
    "boolean": pa.bool_(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "double": pa.float64(), "string": pa.string(),
    "date": pa.date32(), "timestamp_ntz": pa.timestamp("us"), "timestamp": pa.timestamp("us", "UTC"),
}  # fmt: skip
_MOST_PRECISION = 38
_MOST_DIGITS = 15
"""The most digits of a double (``cells``)."""
_UNSURE = {
    # Years before 1000, and zones of 18 hours and more.
    "date": "^0[0-9]{3}-[0-9]{2}-[0-9]{2}$",
    "timestamp_ntz": "^0[0-9]{3}-[0-9]{2}-[0-9]{2}[T ]",
    "timestamp": "^0[0-9]{3}-[0-9]{2}-[0-9]{2}[T ]|[+-](?:1[89]|[2-9][0-9]):[0-9]{2}$",
}
"""Texts of which it is not known here whether they are values of a new column's type."""


class Unsure(Exception):
    """What stands in the files is not surely read here as Spark reads it."""


def arrow_type(type_: str) -> pa.DataType | None:
    """The Arrow type of a Spark type; None if its values are not made here."""
    decimal = _DECIMAL.fullmatch(type_)
    if decimal is None:
        return _ARROW.get(type_)
    precision, scale = int(decimal[1]), int(decimal[2])
    return pa.decimal128(precision, scale) if 0 < precision <= _MOST_PRECISION and scale <= precision else None


def possible_types(texts: pa.Array, possible: int) -> int:
    """Those of the possible types of ``cells.INFERRED`` that fit all texts, as bits. Raises Unsure where that is not known here."""
    for i, type_ in enumerate(INFERRED):
        if possible >> i & 1:
            if type_ in _UNSURE and _any(pc.match_substring_regex(texts, _UNSURE[type_])):  # pyright: ignore[reportAttributeAccessIssue]
                raise Unsure
            if not _all(_fits(texts, type_, _INFERRED[type_])):
                possible &= ~(1 << i)
    return possible


def is_of_type(texts: pa.Array, type_: str) -> bool:
    """Whether all texts of a new column have the canonical form of a type of ``cells.INFERRED``."""
    return _all(_fits(texts, type_, _INFERRED[type_]))


def values(texts: pa.Array, type_: str, *, is_declared: bool = False) -> tuple[pa.Array, pa.Array | None]:
    """The values of texts, and which texts are not surely values of the type; None: all are. Raises ArrowInvalid, which is not expected.

    Where a text is not surely a value, the value is NULL. ``is_declared``: the YAML sets the type of the column. Then a ``timestamp`` that
    lacks a zone is one of UTC, and a number may have zeros before its first digit.
    """
    if type_ == "string":
        return texts, None
    if type_ == "timestamp" and is_declared and _all(_fits(texts, "timestamp_ntz", _SURE["timestamp_ntz"])):
        return texts.cast(pa.timestamp("us")).view(pa.timestamp("us", "UTC")), None
    sure = _fits(texts, type_, _pattern(type_, is_declared))
    doubtful = None
    if not _all(sure):
        doubtful = pc.fill_null(pc.invert(sure), False)  # pyright: ignore[reportAttributeAccessIssue]
        texts = pc.if_else(sure, texts, None)  # pyright: ignore[reportAttributeAccessIssue]
    if type_ == "boolean":
        return pc.equal(texts, "true"), doubtful  # pyright: ignore[reportAttributeAccessIssue]
    return texts.cast(arrow_type(type_)), doubtful


def _pattern(type_: str, is_declared: bool) -> str:
    """The sure forms of a type. Those of numbers of an inferred column have no zeros before their first digit (``cells.fits``)."""
    decimal = _DECIMAL.fullmatch(type_)
    if decimal is None and type_ not in _DIGITS:
        return _SURE[type_]
    before, after = (int(decimal[1]) - int(decimal[2]), int(decimal[2])) if decimal is not None else (_DIGITS[type_], 0)
    fraction = f"(?:[.][0-9]{{1,{after}}})?" if after else ""
    if before and is_declared:
        return f"^-?[0-9]{{1,{before}}}{fraction}$"
    return f"^-?(?:0|[1-9][0-9]{{0,{before - 1}}}){fraction}$" if before else f"^-?0{fraction}$"


def _fits(texts: pa.Array, type_: str, pattern: str) -> pa.Array:
    fits = pc.match_substring_regex(texts, pattern)  # pyright: ignore[reportAttributeAccessIssue]
    if type_ != "double":
        return fits
    length = pc.binary_length(texts)  # pyright: ignore[reportAttributeAccessIssue]
    if not pc.max(length).as_py() or pc.max(length).as_py() <= _MOST_DIGITS:  # pyright: ignore[reportAttributeAccessIssue]
        return fits
    others = pc.add(pc.starts_with(texts, "-").cast(pa.int32()), pc.match_substring(texts, ".").cast(pa.int32()))  # pyright: ignore[reportAttributeAccessIssue]
    return pc.and_(fits, pc.less_equal(pc.subtract(length, others), _MOST_DIGITS))  # pyright: ignore[reportAttributeAccessIssue]


def _all(fits: pa.Array) -> bool:
    return pc.all(fits).as_py() is not False  # pyright: ignore[reportAttributeAccessIssue]


def _any(fits: pa.Array) -> bool:
    return pc.any(fits).as_py() is True  # pyright: ignore[reportAttributeAccessIssue]
