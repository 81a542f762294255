"""Random rules over random rows: the condition that this process evaluates marks the rows that Spark's condition marks, and writes them
as Spark does.

Belongs here: the two ways to evaluate the condition of a rule about single rows, and the two ways to write a row, side by side. Does
not belong: what a rule means (``test_rules``).
"""

import datetime
import json
from decimal import Decimal
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Literal, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect import functions

from incremental_assets.core.container import Kind
from incremental_assets.core.rules.sql import RuleNotApplicable, ScannedTable
from incremental_assets.core.rules.values import (
    Between,
    Compare,
    Contains,
    ExpectedValues,
    Length,
    MatchesPattern,
    NotInFuture,
    NotNull,
    Operator,
    RowRule,
    Sign,
)  # fmt: skip
from incremental_assets.core.schema import Column
from incremental_assets.quality.failed_rows import _JSON, _key_in_sql
from incremental_assets.quality.local_conditions import broken_by
from incremental_assets.quality.row_texts import key_texts, row_texts
from incremental_assets.quality.rows import Condition
from incremental_assets.spark.session import open_session

NOW = datetime.datetime(2024, 4, 20, 12, 0, 0, 1, tzinfo=datetime.timezone.utc)
TYPES = {
    "tiny": ("tinyint", pa.int8()), "small": ("smallint", pa.int16()), "whole": ("int", pa.int32()), "big": ("bigint", pa.int64()),
    "other": ("bigint", pa.int64()), "amount": ("decimal(12,2)", pa.decimal128(12, 2)), "cost": ("decimal(12,2)", pa.decimal128(12, 2)),
    "huge": ("decimal(38,10)", pa.decimal128(38, 10)), "share": ("double", pa.float64()), "single": ("float", pa.float32()),
    "note": ("string", pa.string()), "name": ("string", pa.string()), "ok": ("boolean", pa.bool_()), "raw": ("binary", pa.binary()),
    "day": ("date", pa.date32()), "due": ("date", pa.date32()), "at": ("timestamp_ntz", pa.timestamp("us")),
    "seen": ("timestamp", pa.timestamp("us", "UTC")),
}  # fmt: skip
TEXTS = ["", "a", "A", "é", "ß", "🙂", "a\nb", "a\r", "x@y.org", "ann.b+c@mail.example.org", "https://x.org/a?b", "ftp://a", "0", "٣",
         "12.5", "-7", " ", "\u2028", "a b", "O'Brien", "back\\slash", "${x}", "50 %"]  # fmt: skip
PATTERNS = [
    "^[a-z]+$",
    r"\d",
    r"^-?\d+(\.\d+)?$",
    "a|b",
    r"^\w+@\w+",
    "[^a-z]",
    "(?:a|A)b*",
    r"\s",
    "O'B",
    r"\.",
    "^$",
    r"\\",
    "a.b",
    "(?i)a",
    r"\bx",
]


def value_of(chance: Random, name: str) -> Any:
    """A value near those that decide, or NULL."""
    kind, type_ = TYPES[name]
    if chance.random() < 0.15:
        return None
    whole = chance.choice([-1, 0, 1, 5, 7, -7, 100, 127, -128])
    if pa.types.is_integer(type_):
        return chance.choice([whole, 2**63 - 1, -(2**63), 2**53 + 1]) if kind == "bigint" else whole
    if pa.types.is_decimal(type_):
        exact = Decimal(whole) / chance.choice([1, 10, 4])
        return chance.choice([exact, Decimal("1234567890123456789012345678.0123456789")]) if name == "huge" else exact
    if pa.types.is_floating(type_):
        return chance.choice([whole, whole / 10, 0.1, -0.0, float("nan"), float("inf"), float("-inf"), 1e300 if kind == "double" else 1e30])
    if kind == "string":
        return chance.choice(TEXTS)
    if kind == "boolean":
        return chance.random() < 0.5
    if kind == "binary":
        return b"\xff" * chance.randrange(4)
    if kind == "date":
        return datetime.date(2024, 4, 20) + datetime.timedelta(days=chance.randint(-2, 2))
    moment = NOW + datetime.timedelta(microseconds=chance.randint(-2, 2), hours=chance.choice([-2, 0, 0, 0, 2]))
    return moment if kind == "timestamp" else moment.replace(tzinfo=None)


def constant_of(chance: Random, name: str) -> Any:
    """A value as the YAML may have it, at times one that the column cannot be compared with."""
    value = value_of(chance, chance.choice(list(TYPES)) if chance.random() < 0.1 else name)
    if isinstance(value, Decimal):
        return chance.choice([str(value), float(value)])
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float) and chance.random() < 0.3:
        return round(value) if abs(value) < 1e9 else value
    return value.hex() if isinstance(value, bytes) else 1 if value is None else value


def rule_of(chance: Random, name: str) -> RowRule:
    column = chance.choice(list(TYPES))
    words: dict[str, Any] = {"name": name, "column": column}
    least, most = constant_of(chance, column), constant_of(chance, column)
    match chance.randrange(10):
        case 0:
            return NotNull(name=name, columns=tuple(chance.sample(list(TYPES), chance.randint(1, 3))))
        case 1 | 2:
            bounds = {"min": {"min": least}, "max": {"max": most}, "between": {"min": least, "max": most}}
            rules: list[Literal["min", "max", "between"]] = ["min", "max", "between"]
            rule = chance.choice(rules)
            return Between(rule=rule, **words, **bounds[rule])
        case 3:
            return Compare(**words, operator=chance.choice(list(Operator)), value=least)
        case 4:
            same = [other for other, (kind, _) in TYPES.items() if kind == TYPES[column][0] or chance.random() < 0.1]
            return Compare(**words, operator=chance.choice(list(Operator)), field=chance.choice(same))
        case 5:
            return Length(**{**words, "column": chance.choice(["note", "raw", column])}, min=chance.randint(0, 2), max=chance.randint(2, 9))
        case 6:
            return ExpectedValues(**words, values=tuple(constant_of(chance, column) for _ in range(chance.randint(1, 4))))
        case 7:
            return Sign(rule=chance.choice(["positive", "not_negative"]), **words)
        case 8:
            return NotInFuture(**words)
        case _:
            text = {**words, "column": chance.choice(["note", "name"])}
            contains = Contains(rule=chance.choice(["contains_email", "contains_url"]), **text)
            return chance.choice([contains, MatchesPattern(**text, pattern=chance.choice(PATTERNS))])


def test_this_process_marks_the_rows_that_spark_marks(spark_home: Path, pytestconfig: pytest.Config) -> None:
    """Otherwise a bad row passes, or a good one is reported, only because few rows were written at once."""
    chance = Random(int(str(pytestconfig.getoption("--seed") or 0)))
    columns = {name: pa.array([value_of(chance, name) for _ in range(120)], type_) for name, (_, type_) in TYPES.items()}
    rows = pa.table({"id": pa.array(range(120), pa.int64()), **columns})
    zone = chance.choice(["UTC", "Europe/Berlin", "America/New_York"])
    table = ScannedTable([Column(name, kind) for name, (kind, _) in TYPES.items()], NOW, zone)
    conditions: dict[str, Any] = {}
    here: dict[str, list[int]] = {}
    for number in range(400):
        name = f"rule_{number}"
        try:
            rule = rule_of(chance, name)
            broken, condition = broken_by(rule, table), rule.condition(table)
            if broken is not None:
                marked = broken(rows)
                assert marked.null_count == 0 and len(marked) == rows.num_rows, rule
                here[name] = [at for at, one in enumerate(marked.to_pylist()) if one]
                conditions[name] = (rule, Condition(condition, holds=False))
        except (RuleNotApplicable, ValueError, pa.ArrowInvalid):
            continue  # no rule, or one that Spark has to measure
    assert len(here) > 150 and sum(map(bool, here.values())) > 75
    with open_session(spark_home, name="test_local_conditions") as spark:
        frame = spark.createDataFrame(rows)
        marks = [
            functions.collect_list(functions.when(condition.column(), functions.col("id"))).alias(name)
            for name, (_, condition) in conditions.items()
        ]
        try:
            by_spark = frame.agg(*marks).collect()[0].asDict()
        except PySparkException as error:
            pytest.fail(f"Spark refuses a condition that this process evaluates: {error}")
    wrong = [
        f"{conditions[name][0]}: here {here[name]}, Spark {sorted(found)}"
        for name, found in by_spark.items()
        if sorted(found) != here[name]
    ]
    assert not wrong, "\n".join(wrong)


def test_failed_rows_are_written_as_spark_writes_them(spark_home: Path, pytestconfig: pytest.Config) -> None:
    """Anomalies are known by the text of their row's key: another text would be another anomaly, and the old one would stay open."""
    chance = Random(int(str(pytestconfig.getoption("--seed") or 0)))
    written = {name: kind for name, (kind, _) in TYPES.items() if kind != "float"}
    texts = [*(chr(code) for code in range(33)), *TEXTS, "\x7f", "\u2029", "/", "</a>"]
    table = pa.table({"Text": texts, **{name: pa.array([value_of(chance, name) for _ in texts], TYPES[name][1]) for name in written}})
    columns = [Column("Text", "string"), *(Column(name, kind) for name, kind in written.items())]
    keys = [column for column in columns if column.type in ("string", "bigint", "int", "smallint", "tinyint", "boolean", "binary", "date")]
    lowered = table.rename_columns([name.lower() for name in table.column_names])
    here = list(zip(key_texts(lowered, keys) or (), row_texts(lowered, columns) or (), strict=True))
    container = SimpleNamespace(kind=Kind.TABLE, primary_key=tuple(column.name for column in keys))
    in_sql = ScannedTable(columns, NOW, "UTC")
    with open_session(spark_home, name="test_local_conditions") as spark:
        frame = spark.createDataFrame(table).withColumn("at", functions.col("at").cast("timestamp_ntz"))
        found = frame.selectExpr(_key_in_sql(cast("Any", container), in_sql), f"to_json(struct({', '.join(table.column_names)}), {_JSON})")
        by_spark = [tuple(row) for row in found.collect()]
    assert [key for key, _ in here] == [key for key, _ in by_spark]
    assert [json.loads(row, parse_float=Decimal) for _, row in here] == [json.loads(row, parse_float=Decimal) for _, row in by_spark]


@pytest.mark.parametrize("kind", ["float", "array<int>", "struct<a:int>", "variant", "interval day to second"])
def test_rows_of_other_types_are_written_by_spark(kind: str) -> None:
    rows = pa.table({"a": [None]})
    assert row_texts(rows, [Column("a", kind)]) is None and key_texts(rows, [Column("a", kind)]) is None
    assert key_texts(rows, [Column("a", "double")]) is None, "digits are written otherwise"
