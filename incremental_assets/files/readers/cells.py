"""Converts texts into values: whether a cell's text is a value of a type without loss, and which type the texts of a new column have.

In all functions ``cell`` is an SQL expression of a text, and ``type_`` a Spark type as ``core.spark_types`` writes it.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.files import FileFormat
from incremental_assets.core.ladder import is_on_ladder
from incremental_assets.core.names import literal
from incremental_assets.core.nested_types import NESTED
from incremental_assets.core.spark_types import type_text
from incremental_assets.files.readers.reading import Reading

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_DAY, _TIME = "[0-9]{4}-[0-9]{2}-[0-9]{2}", "[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
# The types that a new column may get, in order of preference, each with its one canonical form. A column gets a type only if all its texts
# have that form: ``007`` is no integer. The order is also that of the bits in ``mask``.
INFERRED = {
    "boolean": "^(true|false)$",
    # At most 18 digits, as a bigint does not hold all numbers of 19 digits.
    "bigint": "^(0|-?[1-9][0-9]{0,17})$",
    # At most 15 digits, as a double holds each decimal number of so many digits exactly enough to give the same text back.
    "double": "^-?(?=([.]?[0-9]){1,15}$)(0|[1-9][0-9]*)([.][0-9]+)?$",
    "date": f"^{_DAY}$",
    "timestamp_ntz": f"^{_DAY}{_TIME}$",
    "timestamp": f"^{_DAY}{_TIME}(Z|[+-][0-9]{{2}}:[0-9]{{2}})$",
}
# What a cell of a column of known type may look like. It is wider than the canonical forms above, and has no more than microseconds.
_LOOSE_TIME = "([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6}0*)?)?"
_ZONE = " ?(Z|UTC|GMT|[+-][0-9]{2}(:?[0-9]{2})?)"
_NUMBER = "([0-9]+([.][0-9]*)?|[.][0-9]+)"
_UNPADDED = "(?![+-]?0[0-9])"
"""What a number begins with that has no zeros before its first digit: those of ``007`` say something, as in postal codes.

So does the plus of ``+491234``."""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "double", "float")
_BAD = "_bad"


def resolved_types(spark: "SparkSession", types: Mapping[str, str]) -> dict[str, str]:
    """Returns the types as Spark spells them, by column name in lower case. Raises ConfigurationError for a text that is no type."""
    if not types:
        return {}
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    def resolve(some: Mapping[str, str]) -> list[str]:
        # Each text is parsed by itself as a type, so that it cannot smuggle further SQL into an expression.
        found = spark.range(0).select(*(F.lit(None).cast(type_).alias(f"c{i}") for i, type_ in enumerate(some.values()))).schema
        return [type_text(field.dataType.jsonValue()) for field in found]

    try:
        return dict(zip((name.lower() for name in types), resolve(types), strict=True))
    except PySparkException:
        for name, type_ in types.items():
            try:
                resolve({name: type_})
            except PySparkException:
                raise ConfigurationError(
                    f"columns: {type_!r} of column {name!r} is no type of Spark's. Write bigint, decimal(12,2), date, string, …"
                ) from None
        raise


def value(cell: str, type_: str, reading: Reading) -> str:
    """Returns the expression of the value of a cell's text; it is NULL where the text is no such value."""
    pattern = _pattern_option(type_, reading)
    if type_ == "string":
        return cell
    cell = _plain(cell, type_, reading)
    if type_ == "variant":
        return f"try_parse_json({cell})"
    if type_.startswith(NESTED):
        return f"{_nested(cell, type_)}.v"
    if pattern is not None and type_ == "date":
        return f"try_to_date({cell}, {literal(pattern)})"
    if pattern is not None:
        return f"cast(try_to_timestamp({cell}, {literal(pattern)}) AS {type_})"
    return f"try_cast({cell} AS {type_})"


def fits(cell: str, type_: str, reading: Reading, *, is_declared: bool) -> str:
    """Returns the condition that a cell is NULL, or that its text becomes a value of the type without loss.

    ``is_declared``: the YAML sets the type of the column. Then a ``timestamp`` may lack a zone, and a number or a truth value may have any
    form that Spark takes for one. An inferred column of the ladder has only texts that it represents as they are: it would rather widen.
    """
    if type_ in ("string", "binary"):
        return "true"
    if type_.startswith(NESTED):
        return f"({cell} IS NULL OR {_nested(cell, type_)}.{_BAD} IS NULL)"
    tests = [f"{value(cell, type_, reading)} IS NOT NULL"]
    if _pattern_option(type_, reading) is None:
        is_whole = not is_declared and (on_ladder(type_, reading) or _is_double_of_json(type_, reading))
        tests += _exact(_plain(cell, type_, reading), type_, is_declared, is_whole)
    return f"({cell} IS NULL OR ({' AND '.join(tests)}))"


ALL_TYPES = (1 << len(INFERRED)) - 1
"""The mask of all types in INFERRED."""


def mask(cell: str, reading: Reading, possible: int = ALL_TYPES) -> str:
    """Returns the aggregate of the types in INFERRED that fit all texts of a column, as bits; NULL where the column has no text.

    ``possible``: the types that are looked at, as bits. Each costs a regular expression for each text.
    """
    plain = {type_: _plain(cell, type_, reading) for type_ in INFERRED}
    bits = [
        f"if({plain[type_]} RLIKE {literal(pattern)} AND try_cast({plain[type_]} AS {type_}) IS NOT NULL, {1 << i}, 0)"
        for i, (type_, pattern) in enumerate(INFERRED.items())
        if possible >> i & 1
    ]
    return f"bit_and(if({cell} IS NULL, NULL, {' | '.join(bits) or '0'}))"


def type_of_mask(bits: int | None) -> str:
    """The first type in INFERRED whose bit is set; ``string`` where none is."""
    return next((type_ for i, type_ in enumerate(INFERRED) if (bits or 0) >> i & 1), "string")


def on_ladder(type_: str, reading: Reading) -> bool:
    """Whether an inferred column of this type widens. A double of JSON stays, and so does one that is read by a pattern of the YAML."""
    return (
        reading.format is not FileFormat.TEXT
        and not _is_double_of_json(type_, reading)
        and is_on_ladder(type_)
        and _pattern_option(type_, reading) is None
        and _pattern_option("timestamp_ntz", reading) is None
    )


def _is_double_of_json(type_: str, reading: Reading) -> bool:
    """Whether it is a double for numbers of JSON: programs write doubles there, and a column that is one does not become text."""
    return reading.format is FileFormat.JSON and type_ in ("double", "float")


def texts_of(cell: str, type_: str, reading: Reading) -> str:
    """Returns the aggregate of what the ladder asks of the texts of an inferred column (``core.ladder.Texts``), as a struct."""
    number = _plain(cell, "double", reading)
    plain, digits = f"coalesce({_like(number, f'{_UNPADDED}-?{_NUMBER}')}, {cell} IS NULL)", r"^\s*-?0*([0-9]*)"
    after = r"[.]([0-9]*?)0*\s*$"
    parts = {
        "misfits": f"count(CASE WHEN NOT {fits(cell, type_, reading, is_declared=False)} THEN 1 END)",
        "numbers": f"coalesce(bool_and({plain}), true)",
        "before": f"coalesce(max(length(regexp_extract({number}, {literal(digits)}, 1))), 0)",
        "after": f"coalesce(max(length(regexp_extract({number}, {literal(after)}, 1))), 0)",
        "times": f"coalesce(bool_and({fits(cell, 'timestamp_ntz', reading, is_declared=False)}), true)",
    }
    return f"struct({', '.join(f'{expression} AS {part}' for part, expression in parts.items())})"


def _exact(cell: str, type_: str, is_declared: bool, is_whole: bool) -> list[str]:
    """Returns the conditions under which a cast loses nothing, beyond its success.

    Spark's casts truncate and round, and accept texts that are numbers nowhere else (``1d``). ``is_whole``: the value must say all that the
    text says: whether a first file has ``1`` and ``0`` or ``true`` and ``false``, ``12345``, ``01234`` or ``+491234``, is chance.
    """
    sign = f"{_UNPADDED}-?" if is_whole else "[+-]?"
    if type_ == "boolean":
        return [_like(cell, "(?i)(true|false)")] if is_whole else []
    if type_ in ("tinyint", "smallint", "int", "bigint"):
        return [_like(cell, f"{sign}[0-9]+")]
    if type_ in ("double", "float"):
        # A text of more digits than the type surely holds is accepted only if the value is the same integer as that of the text.
        longest = 15 if type_ == "double" else 7
        long = f"[+-]?[0-9]{{{longest + 1},}}"
        same = f"try_cast(try_cast({cell} AS {type_}) AS decimal(38,0)) <=> try_cast({cell} AS decimal(38,0))"
        finite = f"abs(try_cast({cell} AS {type_})) < cast('Infinity' AS double)"
        number = f"({_like(cell, f'{sign}{_NUMBER}([eE][+-]?[0-9]+)?')} AND {finite})"
        tests = [f"({number} OR {_like(cell, '(?i)[+-]?(nan|infinity)')})", f"(NOT {_like(cell, long)} OR {same})"]
        if is_whole:
            # A number of more digits is taken if its double has the very same ones, as those have that programs write in full.
            many = "[+-]?([.]?[0-9]){16,}[.]?([eE].*)?"
            tests.append(f"(NOT {_like(cell, many)} OR {_digits(cell)} = {_digits(f'cast(try_cast({cell} AS double) AS string)')})")
        return tests
    decimal = _DECIMAL.fullmatch(type_)
    if decimal is not None:
        # Digits beyond the scale may only be zeros. Of a number with exponent, the digits cannot be counted: its value is compared instead,
        # as a double, which tells all numbers of 15 digits apart.
        plain = _like(cell, f"{sign}[0-9]*([.][0-9]{{0,{decimal[2]}}}0*)?")
        scientific = _like(cell, f"(?=[+-]?([.]?[0-9]){{1,15}}[.]?[eE]){sign}{_NUMBER}[eE][+-]?[0-9]+")
        same = f"cast(try_cast({cell} AS {type_}) AS double) = try_cast({cell} AS double)"
        return [f"({plain} OR ({scientific} AND {same}))"]
    if type_ == "date":
        return [_like(cell, _DAY)]
    if type_ == "timestamp_ntz":
        return [_like(cell, f"{_DAY}{_LOOSE_TIME})?")]
    if type_ == "timestamp":
        # A time without zone is no instant, unless the YAML sets the type: it is taken for UTC then, the time zone of all sessions.
        return [_like(cell, f"{_DAY}{_LOOSE_TIME}({_ZONE})?)?" if is_declared else f"{_DAY}{_LOOSE_TIME}{_ZONE})")]
    return []


def remedy(cell: str, type_: str, reading: Reading) -> str:
    """The expression of what to say for a text that is a number in another way of writing; else an empty text."""
    if not reading.is_plain_number or reading.format not in (FileFormat.CSV, FileFormat.TSV):
        return "''"
    if type_ not in _NUMBERS and not _DECIMAL.fullmatch(type_):
        return "''"
    forms = {
        "-?[0-9]{1,3}([.][0-9]{3})*,[0-9]+|-?[0-9]+,[0-9]+": "; where it is a number, say options: {decimal: ',', thousands: '.'}",
        "-?[0-9]{1,3}(,[0-9]{3})+[.][0-9]*": "; where it is a number, say options: {thousands: ','}",
    }
    return f"CASE {' '.join(f'WHEN {_like(cell, form)} THEN {literal(said)}' for form, said in forms.items())} ELSE '' END"


def _plain(cell: str, type_: str, reading: Reading) -> str:
    """The text of a cell as Spark takes it for a value of the type, where options say that it is written in another way.

    A number has no separators of thousands, and a point before its fraction; a text that is no number by these options is NULL.
    """
    if type_ == "boolean":
        for truth in ("true", "false"):
            ones = ", ".join(literal(one.lower()) for one in reading.texts(f"{truth}_values"))
            cell = f"CASE WHEN lower(trim({cell})) IN ({ones}) THEN '{truth}' ELSE {cell} END" if ones else cell
        return f"({cell})"
    if reading.is_plain_number or not (type_ in _NUMBERS or _DECIMAL.fullmatch(type_)):
        return cell
    decimal, thousands = (re.escape(reading.option(name) or default) for name, default in (("decimal", "."), ("thousands", "")))
    grouped = f"|[0-9]{{1,3}}({thousands}[0-9]{{2,3}})*{thousands}[0-9]{{3}}" if thousands else ""
    form = f"[+-]?(([0-9]+{grouped})({decimal}[0-9]*)?|{decimal}[0-9]+)([eE][+-]?[0-9]+)?"
    without = f"replace({cell}, {literal(reading.option('thousands') or '')}, '')" if thousands else cell
    return f"CASE WHEN {_like(cell, form)} THEN replace({without}, {literal(reading.option('decimal') or '.')}, '.') END"


def _digits(number: str) -> str:
    """The expression of the digits of a number's text, without its exponent and the zeros at both ends."""
    return f"trim(BOTH '0' FROM regexp_replace({number}, '[eE].*|[^0-9]', ''))"


def _like(cell: str, pattern: str) -> str:
    """The condition that the whole text, but for surrounding white space, matches a pattern."""
    whole = rf"^\s*(?:{pattern})\s*$"
    return f"{cell} RLIKE {literal(whole)}"


def _nested(cell: str, type_: str) -> str:
    """The expression that parses the text as JSON: a struct of the value ``v``, and of the text where it does not fit the type.

    The text is wrapped into an object, as from_json() has a column for corrupt records only where the schema is a struct.
    """
    schema = f"v {type_}, {_BAD} string"
    return f"""from_json('{{"v":' || {cell} || '}}', {literal(schema)}, map('columnNameOfCorruptRecord', '{_BAD}'))"""


def _pattern_option(type_: str, reading: Reading) -> str | None:
    """Spark's datetime pattern for a type, if the YAML sets the option; else None."""
    names = {"date": "dateformat", "timestamp": "timestampformat", "timestamp_ntz": "timestampntzformat"}
    return reading.option(names[type_]) if type_ in names else None
