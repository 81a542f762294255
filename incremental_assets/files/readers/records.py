"""Reads JSON and plain text: one record per line, or a whole file that is one JSON array or object.

Belongs here: splitting files into records, and records into cells of text by key. Does not belong: converting a cell's text into a value
(``cells``).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from incremental_assets.core.files import Limits
from incremental_assets.core.names import literal
from incremental_assets.files.readers.beginning import Beginning
from incremental_assets.files.readers.delimited import refused_option
from incremental_assets.files.readers.reading import LINE, NAME, NOT_TEXT, RESERVED, WRONG, Group, ReadFile, Reading, refusal
from incremental_assets.files.readers.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

_MAP = "_incremental_assets_map"
"""The column of a record's values by key, as ``map<string,variant>``."""
_IS_BROKEN = "_incremental_assets_is_broken"
_NOT_TEXT = f"{_IS_BROKEN} AND instr({LINE}, '\ufffd') > 0"
"""The condition that a record has bytes that are not UTF-8, and not only another one of its file."""
_INTEGER = re.compile(r"DECIMAL\((\d+),(0)\)|(BIGINT|INT|SMALLINT|TINYINT)")
_OTHERS = {"BOOLEAN": "boolean", "DOUBLE": "double", "FLOAT": "double"}
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


def json_records(spark: "SparkSession", staging: Staging, reading: Reading, group: Group) -> "DataFrame":
    """Returns a frame of ``NAME``, ``LINE``, ``WRONG``, and the record's values by key in ``_MAP``. Blank lines are left out."""
    from pyspark.sql import functions as F

    texts = _lines(spark, staging, reading, group).where(f"trim(both from regexp_replace({LINE}, '\\\\s+', ' ')) <> ''")
    # The line is parsed within brackets: from_json() drops what follows the first value without an error, an array shows it.
    inner = F.concat(F.lit("["), F.col(LINE), F.lit("]"))
    values = texts.select(NAME, LINE, _IS_BROKEN, F.from_json(inner, "array<variant>", _parsing(reading)).alias("found"))
    values = values.selectExpr(NAME, LINE, _IS_BROKEN, "if(size(found) = 1, found[0], NULL) AS found")
    if group.whole:
        elements = "if(schema_of_variant(found) LIKE 'ARRAY<%', try_variant_get(found, '$', 'array<variant>'), array(found))"
        values = values.selectExpr(NAME, _IS_BROKEN, f"{LINE} AS whole", f"explode({elements}) AS found")
        values = values.selectExpr(NAME, _IS_BROKEN, f"coalesce(try_variant_get(found, '$', 'string'), whole) AS {LINE}", "found")
    mapped = values.selectExpr(NAME, LINE, _IS_BROKEN, f"try_variant_get(found, '$', 'map<string,variant>') AS {_MAP}")
    keys = f"transform(map_keys({_MAP}), k -> lower(k))"
    wrong = [
        f"CASE WHEN {_MAP} IS NULL THEN 'it is not one JSON object, or it has a key twice' END",
        f"CASE WHEN size(array_distinct({keys})) < size({_MAP}) THEN 'it has two keys that differ in upper and lower case only' END",
        f"CASE WHEN arrays_overlap({keys}, array({', '.join(map(literal, sorted(RESERVED)))})) THEN "
        f"'it has a key that the table has itself: {' or '.join(sorted(RESERVED))}' END",
        f"CASE WHEN {_NOT_TEXT} THEN {literal(NOT_TEXT)} END",
    ]
    return mapped.selectExpr(NAME, LINE, f"coalesce({', '.join(wrong)}) AS {WRONG}", _MAP)


def keys_of(records: "Iterable[DataFrame]", most: int) -> dict[str, str | None] | None:
    """Returns each key of the records with the type of its values (None: they are all null), or None for more than ``most`` keys.

    Keys are ordered by name without regard to case; of several spellings the most frequent one comes first.
    """
    from pyspark.sql import functions as F

    found: dict[str, set[str]] = defaultdict(set)
    counts: Counter[str] = Counter()
    for frame in records:
        good = frame.where(f"{WRONG} IS NULL").selectExpr(f"explode({_MAP}) AS (name, value)")
        each = good.groupBy("name").agg(F.expr("schema_of_variant_agg(value)").alias("type"), F.count("*").alias("rows"))
        for row in each.limit(most + 1).collect():
            found[row["name"]].add(row["type"])
            counts[row["name"]] += row["rows"]
        if len(found) > most:
            return None
    return {name: _merged(found[name]) for name in sorted(found, key=lambda name: (name.lower(), -counts[name], name))}


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
        pairs.append(frame.where(f"{WRONG} IS NULL").selectExpr(NAME, f"explode(map_keys({_MAP})) AS name"))
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
    """Returns a frame of text cells ``v0``, ``v1``, …, one per column. ``spellings``: for each column the spellings of its key."""
    cells: list[str] = []
    for i, names in enumerate(spellings):
        texts = ", ".join(f"try_variant_get({_MAP}[{literal(name)}], '$', 'string')" for name in names)
        cells.append(f"{f'coalesce({texts})' if texts else 'cast(NULL AS string)'} AS v{i}")
    return frame.selectExpr(NAME, LINE, WRONG, *cells)


def _merged(types: set[str]) -> str | None:
    """The column type for the types that ``schema_of_variant_agg`` found in several frames: numbers are joined, all else is a string.

    Nested values are strings: they stay JSON text, so that no new nested field is ever lost.
    """
    types = types - {"VOID"}
    if not types:
        return None
    integers = [_INTEGER.fullmatch(type_) for type_ in types]
    if all(integers):
        # A bigint holds every integer of up to 18 digits, and not every one of 19.
        return "decimal(38,0)" if any(found and found[1] and int(found[1]) > 18 for found in integers) else "bigint"
    simple = {"double" if type_.startswith("DECIMAL") or _INTEGER.fullmatch(type_) else _OTHERS.get(type_, "string") for type_ in types}
    return simple.pop() if len(simple) == 1 else "string"


def _parsing(reading: Reading) -> dict[str, str]:
    return {**{name: value for name, value in reading.passed_on.items() if name not in _OPTIONS}, "mode": "PERMISSIVE"}


def _lines(spark: "SparkSession", staging: Staging, reading: Reading, group: Group) -> "DataFrame":
    """The lines of the files, or each whole file, as ``LINE``, and whether it has bytes that are not UTF-8.

    Spark's text source does not check that. ``make_valid_utf8`` replaces them by U+FFFD.
    """
    options = {name: value for name, value in reading.passed_on.items() if name == "linesep" and not group.whole}
    reader = spark.read.format("text").options(**options, wholetext=str(group.whole).lower())
    return staging.load(reader, group.files, f"make_valid_utf8(value) AS {LINE}", f"NOT is_valid_utf8(value) AS {_IS_BROKEN}")
