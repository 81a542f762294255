"""Reads CSV and TSV: the columns of each file's header, whether the file belongs to the container at all, and the cells of its lines.

Spark reads whole lines, which are then parsed one by one with a mark appended to each: it has to be the last cell. Where a quote is not
closed, it becomes part of another one. Spark's own CSV source takes such a line for complete and cuts off the rest of the cell. A file that
turns out to have rows of several lines is read again as a copy in which each row is a line (``quoting``).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from incremental_assets.core.errors import ConfigurationError, SourceError
from incremental_assets.core.names import literal
from incremental_assets.core.schema import Column
from incremental_assets.core.shown_text import counted
from incremental_assets.files.readers.beginning import HEAD_BYTES, Beginning
from incremental_assets.files.readers.quoting import Quoting
from incremental_assets.files.readers.reading import (
    LINE,
    NAME,
    NOT_TEXT,
    TAKEN,
    WRONG,
    Group,
    ReadFile,
    Reading,
    refusal,
    reserved,
    shortened,
)
from incremental_assets.files.readers.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

# Spark's column for corrupt records, the mark behind each line, and a separator that hardly occurs in text.
_BAD, _MARK, _UNLIKELY = "_bad", "\ufdd4", "\x01"
# Separators that a file of a single column may really have, with the text that the YAML needs for them.
_OTHER_SEPARATORS = {";": "';'", "\t": '"\\t"', "|": "'|'"}


# ---------------------------------------------------------------- headers
def grouped(
    reading: Reading, files: Sequence[ReadFile], heads: Mapping[str, Beginning], known: Sequence[Column]
) -> tuple[list[Group], dict[str, str]]:
    """Groups the files by header, as files of one header are read together. Returns the groups, and by key why a file is refused.

    ``known``: the data columns of the table; empty: there is no table yet. Files that are empty are in neither.
    """
    refused: dict[str, str] = {}
    headers: dict[tuple[str, ...], list[ReadFile]] = defaultdict(list)
    names = {name.lower(): name for name in (*(column.name for column in known), *reading.valueless)}
    for file in files:
        try:
            found = _header(reading, file, heads[file.key], names)
        except SourceError as error:
            refused[file.key] = str(error)
        else:
            if found is not None:
                headers[found].append(file)
    if reading.header and headers:
        # A file without a single column of the table, or of the most common header, is taken for one of another kind, or without header.
        base = {name.lower() for name in (names.values() or _most_common(headers))}
        for header in [header for header in headers if not {name.lower() for name in header} & base]:
            for file in headers.pop(header):
                whose = "the table" if names else "the other files"
                refused[file.key] = refusal(
                    file,
                    f"its first line ({shortened(', '.join(header))}) has no column of {whose} ({shortened(', '.join(sorted(base)))}). "
                    f"Without a header, say options: {{header: 'false'}}; with another delimiter than {reading.separator!r}, say it as sep",
                )
    groups = _together(reading, _one_spelling(headers, names), names, refused)
    return [part for group in groups for part in _of_one_separator(group, heads)], refused


def _of_one_separator(group: Group, heads: Mapping[str, Beginning]) -> list[Group]:
    """The group's files by the separator that their first lines name."""
    files: dict[str | None, list[ReadFile]] = defaultdict(list)
    for file in group.files:
        files[heads[file.key].separator].append(file)
    return [replace(group, files=tuple(own), separator=separator) for separator, own in files.items()]


def _together(reading: Reading, groups: Sequence[Group], names: Mapping[str, str], refused: dict[str, str]) -> list[Group]:
    """Returns the groups without those that would give the table more columns than it may have; these are added to ``refused``."""
    have, kept = set(names), []
    for group in groups:
        wanted = have | {name.lower() for name in group.names}
        if len(wanted) > max(reading.limits.columns, len(have)):
            reason = reading.limits.too_many(len(wanted), "columns with those of the table and of other files")
            refused |= {file.key: refusal(file, reason) for file in group.files}
        else:
            have = wanted
            kept.append(group)
    return kept


def _one_spelling(headers: Mapping[tuple[str, ...], list[ReadFile]], names: Mapping[str, str]) -> list[Group]:
    """Merges headers that differ in case only: a column is spelled as in the table, else as in the most common header."""
    spelled = dict(names)
    groups: dict[tuple[str, ...], list[ReadFile]] = defaultdict(list)
    for header, files in sorted(headers.items(), key=lambda item: (-len(item[1]), min(file.modified for file in item[1]))):
        groups[tuple(spelled.setdefault(name.lower(), name) for name in header)] += files
    return [Group(tuple(files), header) for header, files in groups.items()]


def _most_common(headers: Mapping[tuple[str, ...], list[ReadFile]]) -> tuple[str, ...]:
    """The header of the most files, in lower case; of several such headers that of the oldest file."""
    counts: Counter[tuple[str, ...]] = Counter()
    oldest: dict[tuple[str, ...], tuple[int, str]] = {}
    for header, files in headers.items():
        lowered = tuple(name.lower() for name in header)
        counts[lowered] += len(files)
        oldest[lowered] = min([(file.modified, file.path) for file in files] + ([oldest[lowered]] if lowered in oldest else []))
    return min(counts, key=lambda header: (-counts[header], oldest[header]))


def _header(reading: Reading, file: ReadFile, head: Beginning, known: Mapping[str, str]) -> tuple[str, ...] | None:
    """Returns the columns of a file; None where it is empty. Raises SourceError where it cannot belong to this container.

    ``known``: the table's column names by their lower case. A column without a name is called ``_c<position>``. Files without header have
    the table's columns in order, or ``c0``, ``c1``, … where there is no table.
    """
    if head.blank:
        if not head.whole:
            raise SourceError(refusal(file, f"its first {HEAD_BYTES} bytes are white space"))
        return None
    if head.trouble is not None:
        raise SourceError(refusal(file, head.trouble))
    if not head.lines:
        return None
    first = head.first
    if head.lines == 1 and not head.whole:
        raise SourceError(refusal(file, f"its first line is longer than {HEAD_BYTES} bytes; is it CSV?"))
    if not reading.header:
        if known and len(first) > len(known):
            raise SourceError(refusal(file, f"its first line has {len(first)} cells, and the table {counted(len(known), 'column')}"))
        return tuple(known.values())[: len(first)] if known else tuple(f"c{i}" for i in range(len(first)))
    names = tuple(known.get(name.strip().lower(), name.strip()) or f"_c{i}" for i, name in enumerate(first))
    twice = [name for name, count in Counter(name.lower() for name in names).items() if count > 1]
    if twice:
        raise SourceError(
            refusal(
                file,
                f"its header names {twice[0]} twice: {shortened(', '.join(first))}. If it is none, say options: {{header: 'false'}}",
            )
        )
    taken = reserved(names, known)
    if taken:
        raise SourceError(refusal(file, f"its header has a name {TAKEN}: {' and '.join(taken)}"))
    if head.title and reading.header and not reading.skip_lines and not all(name.lower() in known for name in names):
        raise SourceError(
            refusal(
                file,
                f"its first line ({shortened(', '.join(first))}) is no header of the lines below, as they have another number of cells. If "
                f"the header is in line {head.title + 1}, say options: {{skip_lines: {head.title}}}",
            )
        )
    if not known and len(first) == 1 and reading.option("sep", "delimiter") is None:
        for separator, written in _OTHER_SEPARATORS.items():
            if separator in first[0]:
                raise SourceError(refusal(file, f"its only column is {shortened(first[0])!r}; say options: {{sep: {written}}}"))
    if reading.option("header") is None and head.data and not all(name.lower() in known for name in names):
        raise SourceError(
            refusal(
                file,
                f"its first line looks like data ({shortened(', '.join(first))}). Without a header, say options: {{header: 'false'}}; "
                f"if that is one, say options: {{header: 'true'}}",
            )
        )
    return names


# ---------------------------------------------------------------- lines
def options_of(reading: Reading) -> dict[str, str]:
    """Returns the options for Spark's CSV parser.

    A quote within quotes is written twice, as RFC 4180 has it; by default Spark expects a backslash before it. The options of the YAML
    override this.
    """
    quote = reading.option("quote")
    return {
        "escape": quote if quote else '"',
        "maxcolumns": str(max(20480, reading.limits.columns + 2)),
        **reading.passed_on,
        "sep": reading.separator,
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _BAD,
    }


def check_options(spark: "SparkSession", reading: Reading) -> None:
    """Raises ConfigurationError for an option that Spark refuses, before any file is refused because of it."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    try:
        spark.range(1).select(F.from_csv(F.lit("a"), "c0 string", options_of(reading))).collect()
    except PySparkException as error:
        raise refused_option(reading, error) from None


def refused_option(reading: Reading, error: Exception) -> ConfigurationError:
    """The error for options that Spark refuses. It names the option that Spark's message mentions, or all of them."""
    text = str(error).strip().split("JVM stacktrace")[0].strip()
    named = [
        name for name, given in reading.options.items() if re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE) or str(given) in text
    ]
    which = f"{named[0]}: {reading.options[named[0]]}" if named else ", ".join(reading.options)
    return ConfigurationError(f"options: Spark does not take {which}. It says: {shortened(text, 400)}")


def cells(spark: "SparkSession", staging: Staging, reading: Reading, group: Group) -> "DataFrame":
    """Returns a frame of ``NAME``, ``LINE``, ``WRONG``, and the cells as ``v0``, ``v1``, …; a cell without text is NULL.

    ``group``: files of the same header, whose columns are ``group.names``.
    """
    from pyspark.sql import functions as F

    reading = reading.separated_by(group.separator)
    count, quoting = len(group.names), Quoting(reading)
    names = [f"v{i}" for i in range(count)]
    options = options_of(reading)
    nulls = ", ".join(map(literal, ("", *reading.texts("nullvalue"))))
    full = [f"if({name} IN ({nulls}), NULL, {quoting.original(name)}) AS {name}" for name in names]
    schema = ", ".join(f"{name} string" for name in names)
    number = f"the line has not {count} cell{'s' if count > 1 else ''}"
    reasons = [
        quoting.why_unusual,
        f"CASE WHEN {_BAD} IS NOT NULL OR NOT mark <=> {literal(_MARK)} THEN {literal(number)} END",
        f"CASE WHEN instr({LINE}, '\ufffd') > 0 THEN {literal(NOT_TEXT)} END",
    ]
    # Spark's CSV source reads whole lines as one cell each: it skips headers and comments, which its text source does not. Where the
    # unlikely separator does occur, the line has two cells and arrives in the column for corrupt records.
    as_lines = {"sep": _UNLIKELY, "quote": "", "escape": "", "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    kept = {name: options[name] for name in ("linesep", "comment") if name in options}
    reader = spark.read.format("csv").options(header=str(reading.header).lower(), **kept, **as_lines).schema(f"line string, {_BAD} string")
    lines = staging.load(reader, group.files, f"coalesce({_BAD}, line) AS {LINE}")
    marked = F.concat(F.col(LINE), F.lit(reading.separator + _MARK))
    parsed = lines.select(NAME, LINE, F.from_csv(marked, f"{schema}, mark string, {_BAD} string", options).alias("cells"))
    wrong = f"coalesce({', '.join(reasons)}) AS {WRONG}"
    return parsed.selectExpr(NAME, LINE, "cells.*").selectExpr(NAME, f"{quoting.original(LINE)} AS {LINE}", wrong, *full)
