"""Reads JSON and plain text: one record per line, or a whole file that is one JSON array or object."""

import logging
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from incremental_assets.core.files import Limits
from incremental_assets.core.names import literal
from incremental_assets.files.readers import json_texts
from incremental_assets.files.readers.beginning import Beginning
from incremental_assets.files.readers.delimited import refused_option
from incremental_assets.files.readers.json_texts import BIGINT, BOOLEAN, DOUBLE, NESTED, PLAIN, STRING
from incremental_assets.files.readers.json_types import Values
from incremental_assets.files.readers.reading import (
    LINE,
    NAME,
    NOT_TEXT,
    RESERVED,
    TAKEN,
    WRONG,
    Group,
    ReadFile,
    Reading,
    refusal,
    reserved,
)
from incremental_assets.files.readers.staging import Staging
from incremental_assets.spark.python_packages import missing_packages

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

log = logging.getLogger(__name__)

MAP = "_incremental_assets_map"
"""The column of a record's cells by key (``json_texts.Cells``), as ``map<string,string>``."""
_PACKAGES = ("pyarrow",)
"""What Spark's Python workers need to have."""
_IS_BROKEN = "_incremental_assets_is_broken"
_IS_SPLIT = "_incremental_assets_is_split"
"""Whether a text is a record, or an element of an array, and not the whole line or file."""
_NOT_TEXT = f"{_IS_BROKEN} AND instr({LINE}, '\ufffd') > 0"
"""The condition that a record has bytes that are not UTF-8, and not only another one of its file."""
_TEXT = "try_variant_get(v, '$', 'string')"
_SAME = f"regexp_replace({_TEXT}, '[eE].*|[^0-9]', '') = regexp_replace(cast(try_cast({_TEXT} AS double) AS string), '[eE].*|[^0-9]', '')"
_MASK = (
    f"if({_TEXT} RLIKE '^(0|-?[1-9][0-9]{{0,17}})$', {BIGINT}, 0) "
    f"+ if({_TEXT} RLIKE '^(NaN|-?Infinity|-?([.]?[0-9]){{1,15}})$' OR {_SAME}, {DOUBLE}, 0) "
    f"+ if({_TEXT} RLIKE '^-?[0-9]+([.][0-9]+)?$', {PLAIN}, 0)"
)
_CELL = (
    f"CASE WHEN schema_of_variant(v) = 'VOID' THEN NULL WHEN schema_of_variant(v) = 'BOOLEAN' THEN '{BOOLEAN}' || {_TEXT} "
    f"WHEN schema_of_variant(v) LIKE 'STRING%' THEN '{STRING}' || {_TEXT} "
    f"WHEN schema_of_variant(v) LIKE '%<%' THEN '{NESTED}' || {_TEXT} ELSE ({_MASK}) || {_TEXT} END"
)
"""The cell of a variant ``v`` of Spark's own parser: it has the number and not its text."""
_MAY_BE_DECIMAL = f"left(cell, 1) IN ({', '.join(literal(str(mask)) for mask in range(8) if not mask & BIGINT)})"
_DIGITS = {
    "before": "length(regexp_extract(cell, '^.-?0*([0-9]*)', 1))",
    "after": "length(regexp_extract(cell, '[.]([0-9]*?)0*$', 1))",
}
# Options that split a file into records; they do not apply to parsing a single one.
_OPTIONS = frozenset(("multiline", "linesep"))


def json_groups(files: Sequence[ReadFile], heads: Mapping[str, Beginning]) -> list[Group]:
    """Groups files of one record per line, and files that are one JSON value each."""
    by_kind: dict[bool, list[ReadFile]] = defaultdict(list)
    for file in files:
        by_kind[heads[file.key].record].append(file)
    return [Group(tuple(own), whole=whole) for whole, own in by_kind.items()]


def check_options(spark: "SparkSession", reading: Reading) -> None:
    """Raises ConfigurationError for an option that Spark refuses, before any file is refused because of it."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    try:
        spark.range(1).select(F.from_json(F.lit("{}"), "a string", _parsing(reading))).collect()
    except PySparkException as error:
        raise refused_option(reading, error) from None


def text_cells(spark: "SparkSession", staging: Staging, reading: Reading, group: Group) -> "DataFrame":
    """Returns a frame of ``NAME``, ``LINE``, ``WRONG``, and the line as ``v0``."""
    lines = _lines(spark, staging, reading, group)
    return lines.selectExpr(NAME, LINE, f"CASE WHEN {_NOT_TEXT} THEN {literal(NOT_TEXT)} END AS {WRONG}", f"{LINE} AS v0")


def json_records(spark: "SparkSession", staging: Staging, reading: Reading, group: Group, known: Container[str]) -> "DataFrame":
    """Returns a frame of ``NAME``, ``LINE``, ``WRONG``, and the record's cells by key in ``MAP``. Blank lines are left out.

    ``known``: the table's columns, in lower case.
    """
    from pyspark.sql import functions as F

    texts = _lines(spark, staging, reading, group).where(f"trim(both from regexp_replace({LINE}, '\\\\s+', ' ')) <> ''")
    split = _split(spark, reading, texts.select(NAME, LINE, _IS_BROKEN))
    # What is no JSON by its standard may be JSON by the options. It is parsed within brackets: from_json() drops what follows the first
    # value without an error, an array shows it.
    inner = F.concat(F.lit("["), F.col(LINE), F.lit("]"))
    parsed = F.when(F.col(MAP).isNull(), F.from_json(inner, "array<variant>", _parsing(reading)))
    values = split.select(NAME, LINE, _IS_BROKEN, _IS_SPLIT, MAP, parsed.alias("found"))
    values = values.selectExpr(NAME, LINE, _IS_BROKEN, _IS_SPLIT, MAP, "if(size(found) = 1, found[0], NULL) AS found")
    if group.whole:
        is_array = f"NOT {_IS_SPLIT} AND schema_of_variant(found) LIKE 'ARRAY<%'"
        elements = f"if({is_array}, try_variant_get(found, '$', 'array<variant>'), array(found))"
        values = values.selectExpr(NAME, _IS_BROKEN, _IS_SPLIT, MAP, f"{LINE} AS whole", f"explode({elements}) AS found")
        line = f"if({_IS_SPLIT}, whole, coalesce(try_variant_get(found, '$', 'string'), whole)) AS {LINE}"
        values = values.selectExpr(NAME, line, _IS_BROKEN, MAP, "found")
    own = f"transform_values(try_variant_get(found, '$', 'map<string,variant>'), (k, v) -> {_CELL})"
    mapped = values.selectExpr(NAME, LINE, _IS_BROKEN, f"coalesce({MAP}, {own}) AS {MAP}")
    keys = f"transform(map_keys({MAP}), k -> lower(k))"
    taken = reserved(RESERVED, known)
    wrong = [
        f"CASE WHEN {MAP} IS NULL THEN 'it is no JSON object, or it has a key twice' END",
        f"CASE WHEN size(array_distinct({keys})) < size({MAP}) THEN 'it has two keys that differ in upper and lower case only' END",
        f"CASE WHEN arrays_overlap({keys}, array({', '.join(map(literal, taken))})) THEN "
        f"{literal(f'it has a key {TAKEN}: ' + ' or '.join(taken))} END",
        f"CASE WHEN {_NOT_TEXT} THEN {literal(NOT_TEXT)} END",
    ]
    return mapped.selectExpr(NAME, LINE, f"coalesce({', '.join(wrong)}) AS {WRONG}", MAP)


def keys_of(records: "Iterable[DataFrame]", most: int) -> dict[str, Values] | None:
    """Returns each key of the records with what is known of its values, or None for more than ``most`` keys.

    Keys are ordered by name without regard to case; of several spellings the most frequent one comes first.
    """
    from pyspark.sql import functions as F

    found: dict[str, list[Values]] = defaultdict(list)
    counts: Counter[str] = Counter()
    for frame in records:
        cells = frame.where(f"{WRONG} IS NULL").selectExpr(f"explode({MAP}) AS (name, cell)")
        each = cells.groupBy("name").agg(
            F.expr("collect_set(left(cell, 1))").alias("kinds"),
            *(F.expr(f"coalesce(max(CASE WHEN {_MAY_BE_DECIMAL} THEN {n} END), 0)").alias(name) for name, n in _DIGITS.items()),
            F.count("*").alias("rows"),
        )
        for row in each.limit(most + 1).collect():
            found[row["name"]].append(Values(frozenset(row["kinds"]), row["before"], row["after"]))
            counts[row["name"]] += row["rows"]
        if len(found) > most:
            return None
    return {name: Values.together(found[name]) for name in sorted(found, key=lambda name: (name.lower(), -counts[name], name))}


def too_many_keys(
    records: "Iterable[DataFrame]", files: Sequence[tuple[str, ReadFile]], known: Iterable[str], limits: Limits
) -> dict[str, str]:
    """Returns by key which files have too many JSON keys, and why.

    First, files that have too many by themselves; where there are none, files that have too many together with the table and with the
    files before them, the oldest first. ``files``: with Spark's name of each. ``known``: the table's columns in lower case.
    """
    from pyspark.sql import functions as F

    counts: Counter[str] = Counter()
    pairs: list[DataFrame] = []
    have, own = set(known), defaultdict[str, set[str]](set)
    for frame in records:
        pairs.append(frame.where(f"{WRONG} IS NULL").selectExpr(NAME, f"explode(map_keys({MAP})) AS name"))
        for row in pairs[-1].groupBy(NAME).agg(F.count_distinct(F.col("name")).alias("keys")).collect():
            counts[row[NAME]] += row["keys"]
    reason = {name: limits.too_many(count, "keys") for name, count in counts.items() if count > limits.columns}
    if not reason:
        for frame in pairs:
            for row in frame.groupBy(NAME).agg(F.collect_set("name").alias("names")).collect():
                own[row[NAME]] |= {name.lower() if name.lower() in have else name for name in row["names"]}
        for name, _ in sorted(files, key=lambda one: (one[1].modified, one[1].path)):
            wanted = have | own[name]
            if len(wanted) > max(limits.columns, len(have)):
                reason[name] = limits.too_many(len(wanted), "keys with those of the table and of other files")
            else:
                have = wanted
    return {file.key: refusal(file, reason[name]) for name, file in files if name in reason}


def json_cells(frame: "DataFrame", spellings: Sequence[Sequence[str]]) -> "DataFrame":
    """Returns a frame of text cells ``v0``, ``v1``, …, one per column, and of their kinds ``k0``, ``k1``, … (``json_texts``).

    ``spellings``: for each column the spellings of its key.
    """
    cells = [", ".join(f"{MAP}[{literal(name)}]" for name in names) for names in spellings]
    found = [f"{f'coalesce({own})' if own else 'cast(NULL AS string)'} AS c{i}" for i, own in enumerate(cells)]
    texts = [expression for i in range(len(cells)) for expression in (f"substr(c{i}, 2) AS v{i}", f"left(c{i}, 1) AS k{i}")]
    return frame.selectExpr(NAME, LINE, WRONG, *found).selectExpr(NAME, LINE, WRONG, *texts)


def is_double(cell_kind: str) -> str:
    """The condition that a cell is a number and that a double gives back the very same one. ``cell_kind``: an expression."""
    return f"{cell_kind} IN ({', '.join(literal(str(mask)) for mask in range(8) if mask & DOUBLE)})"


def _split(spark: "SparkSession", reading: Reading, texts: "DataFrame") -> "DataFrame":
    """The records of the texts with their cells in ``MAP``; NULL where they are no JSON by its standard, or no objects.

    So are all of them where Spark's Python workers cannot run our functions.
    """
    why = missing_packages(spark, _PACKAGES)
    if why is not None:
        log.debug("JSON is parsed by Spark: %s", why)
        return texts.selectExpr("*", f"false AS {_IS_SPLIT}", f"cast(NULL AS map<string,string>) AS {MAP}")
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(json_texts)
    constants = (reading.option("allownonnumericnumbers") or "true").lower() == "true"
    split = json_texts.split_records(NAME, LINE, _IS_BROKEN, _IS_SPLIT, MAP, constants)
    schema = f"{NAME} string, {LINE} string, {_IS_BROKEN} boolean, {_IS_SPLIT} boolean, {MAP} map<string,string>"
    found = texts.mapInArrow(split, schema)
    # A function's result has the type ``string collate UTF8_BINARY``, with which delta-rs does not read a table.
    return found.selectExpr(NAME, f"cast({LINE} AS string) AS {LINE}", _IS_BROKEN, _IS_SPLIT, f"cast({MAP} AS map<string,string>) AS {MAP}")


def _parsing(reading: Reading) -> dict[str, str]:
    return {**{name: value for name, value in reading.passed_on.items() if name not in _OPTIONS}, "mode": "PERMISSIVE"}


def _lines(spark: "SparkSession", staging: Staging, reading: Reading, group: Group) -> "DataFrame":
    """The lines of the files, or each whole file, as ``LINE``, and whether it has bytes that are not UTF-8.

    Spark's text source does not check that. ``make_valid_utf8`` replaces them by U+FFFD.
    """
    options = {name: value for name, value in reading.passed_on.items() if name == "linesep" and not group.whole}
    reader = spark.read.format("text").options(**options, wholetext=str(group.whole).lower())
    return staging.load(reader, group.files, f"make_valid_utf8(value) AS {LINE}", f"NOT is_valid_utf8(value) AS {_IS_BROKEN}")
