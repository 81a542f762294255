"""Knows the names of options: which have an effect here, which are Spark's and have none, and which do not exist."""

import re
from collections.abc import Iterable, Mapping

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.files import FileFormat
from incremental_assets.core.names import nearest

_TIMES = ("dateFormat", "timestampFormat", "timestampNTZFormat")
_DELIMITED = (
    *(
        "header",
        "sep",
        "delimiter",
        "quote",
        "escape",
        "charToEscapeQuoteEscaping",
        "unescapedQuoteHandling",
        "comment",
        "encoding",
        "charset",
    ),
    *(
        "nullValue",
        "emptyValue",
        "lineSep",
        "maxColumns",
        "maxCharsPerColumn",
        "ignoreLeadingWhiteSpace",
        "ignoreTrailingWhiteSpace",
        *_TIMES,
    ),
    *("skip_lines", "skip_footer", "true_values", "false_values", "decimal", "thousands"),
)
_REBASE = ("datetimeRebaseMode", "int96RebaseMode")
_EFFECTIVE: Mapping[FileFormat, tuple[str, ...]] = {
    FileFormat.CSV: _DELIMITED,
    FileFormat.TSV: _DELIMITED,
    FileFormat.JSON: (
        *("encoding", "charset", "lineSep", "multiLine", "allowComments", "allowUnquotedFieldNames", "allowSingleQuotes", *_TIMES),
        *("allowNumericLeadingZeros", "allowBackslashEscapingAnyCharacter", "allowUnquotedControlChars", "allowNonNumericNumbers"),
        *("maxNestingDepth", "maxNumLen", "maxStringLen"),
    ),
    FileFormat.TEXT: ("encoding", "charset", "lineSep"),
    FileFormat.PARQUET: _REBASE,
    FileFormat.AVRO: ("avroSchema", "datetimeRebaseMode", "positionalFieldMatching", "recursiveFieldMaxDepth"),
}
_TYPES = "the types of columns are always inferred; columns: sets them"
_NUMBERS = "say decimal and thousands, or dateFormat"
_OTHERS = {
    "locale": _NUMBERS,
    "multiLine": "cells of several lines are always read",
    **dict.fromkeys(
        ("inferSchema", "preferDate", "prefersDecimal", "samplingRatio", "primitivesAsString", "schema", "enforceSchema"), _TYPES
    ),
    **dict.fromkeys(("mode", "columnNameOfCorruptRecord"), "rows that cannot be read are always kept, with the reason"),
    **dict.fromkeys(("nanValue", "positiveInf", "negativeInf"), "such numbers are NaN, Infinity and -Infinity"),
    "compression": "the file's name says it",
    "mergeSchema": "columns of all files are always taken",
    **dict.fromkeys(
        ("timeZone", "enableDateTimeParsingFallback", "dropFieldIfAllNull", "header", "ignoreNullFields", "escapeQuotes", "quoteAll"), ""
    ),
    **dict.fromkeys(("inputBufferSize", "columnPruning", "ignoreExtension", "extension"), ""),
}
"""Options of Spark without effect here, each with what has one."""
_ONE_CHARACTER = ("decimal", "thousands")


def expect_options(format: FileFormat, options: Mapping[str, str], refused: Iterable[str]) -> None:
    """Raises ConfigurationError for an option that neither Spark nor this product knows, and for a value that is none."""
    known = {name.lower(): name for name in (*_EFFECTIVE[format], *_OTHERS, *refused)}
    for name, value in options.items():
        if name.lower() not in known:
            raise ConfigurationError(f"options: there is no {name} for {format.value}.{nearest(name, _EFFECTIVE[format])}")
        if name.lower() in ("skip_lines", "skip_footer") and not re.fullmatch("[0-9]+", str(value)):
            raise ConfigurationError(f"options: {name} is {value!r}; it is a number of lines.")
        if name.lower() in _ONE_CHARACTER and len(str(value)) != 1:
            raise ConfigurationError(f"options: {name} is {value!r}; it is one character.")
    own = {name.lower(): value for name, value in options.items()}
    if own.get("thousands", "") == own.get("decimal", ".") and "thousands" in own:
        raise ConfigurationError(f"options: thousands and decimal are both {own['thousands']!r}; say decimal: ',' where it is a comma.")


def without_effect(format: FileFormat, options: Mapping[str, str]) -> list[str]:
    """A sentence for each option of Spark that has no effect here."""
    effective, others = {name.lower() for name in _EFFECTIVE[format]}, {name.lower(): why for name, why in _OTHERS.items()}
    unused = [name for name in options if name.lower() not in effective]
    hints = {name: others.get(name.lower(), "") for name in unused}
    return [f"options: {name} has no effect for {format.value}{f': {why}' if why else ''}; take it out" for name, why in hints.items()]
