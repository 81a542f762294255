"""Each rule is compared with the same question in plain SQL, in the PostgreSQL table from which the lake's table was made.

Belongs here: what a rule says of rows, partitions and tables; its words; what is refused before anything runs. Does not belong: runs, the
command line (``test_scans``), anomalies (``test_anomalies``), what is kept of a scan (``test_quality_records``).

One table, one sync, two scans; each case then only compares. Beside each case stands its question: what a bad row is in SQL, or the
number. What cannot be asked here, PostgreSQL has to refuse as well.
"""

import datetime
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.sql import quote
from pydantic import TypeAdapter, ValidationError
from pyspark.errors import PySparkException
from pyspark.sql.connect.client import SparkConnectClient

from assets_tests.harness import Project
from incremental_assets.core.anomalies import Anomaly, State
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.rules.checks import AnyRule, check_rules
from incremental_assets.core.rules.numbers import within
from incremental_assets.core.rules.rule import Rule, Severity, Status, Verdict
from incremental_assets.core.rules.sql import RuleNotApplicable, ScannedTable, constant
from incremental_assets.core.rules.values import EMAIL, RowRule
from incremental_assets.core.schema import Column
from incremental_assets.databases.definition import TableDefinition
from incremental_assets.delta import local_rows
from incremental_assets.delta.scope import LakeScope
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.quality import failed_rows, local_measures, rows
from incremental_assets.quality.groups import Grouping, groupings
from incremental_assets.quality.numbers import by_filter
from incremental_assets.quality.records import OperationResult, Records, ScanOperation
from incremental_assets.quality.rows import Aggregate, Condition, Rows, named_by
from incremental_assets.quality.scan import ScanResult, scan
from incremental_assets.runs.quality.request import ScanMode, ScanRequest, requested_scope

ADAPTER: TypeAdapter[Rule] = TypeAdapter(AnyRule)
NOW = datetime.datetime(2024, 4, 20, 12, tzinfo=datetime.timezone.utc)
JANUARY, FEBRUARY, MARCH, APRIL = KEYS = ("2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01")
PLACES = (*KEYS, None)
SOURCE = r"""
create table customers (id bigint primary key, name text, born date, code int);
insert into customers values (1, 'plain', '2024-01-05', 1), (2, 'O''Brien', '2024-01-06', null), (3, 'back\slash', '0044-03-15 BC', 2),
  (4, '🙂🙂', null, 3), (5, null, '2024-02-29', 4), (6, '', '12000-01-01', 5);
create table mixed (
  id bigint primary key, day date, i int, big bigint, amount numeric(12,2), huge numeric(38,10), loose numeric, dbl double precision,
  note text, code text, status text, day2 date, at timestamp, seen timestamptz, ok boolean, raw bytea, customer int, buyer numeric(10,0),
  tag text, n int, pct int, "Odd Name" int, "tick`s" int, "a.b" int, rules_broken text, row int, key text, DELTA_X int);
insert into mixed select g,
  case when g <= 100 then date '2024-01-01' + g % 31 when g <= 140 then date '2024-03-01' + g % 31
    when g <= 150 then date '2024-04-01' + g % 19 end,
  case when g % 11 > 0 then g % 50 - 5 end,
  case g when 7 then 9223372036854775807 when 9 then 9223372036854775806 else g * 1000000007::bigint end,
  case when g % 7 > 0 then g * 0.11 end,
  case g when 3 then 1234567890123456789012345678.0123456789 else -g * 0.0000000001 end,
  g * 0.5,
  case when g = 13 then 'NaN' when g = 27 then 'Infinity' when g % 9 = 0 then null else (g % 10) / 10.0 end,
  (array[null, '', 'plain', 'O''Brien', 'back\slash', '"quoted"', '🙂🙂', 'mail ann.b+c@mail.example.org now', 'see https://example.com/a?b=1',
    'ftp://x.example', 'not@mail', '${spark.sql.session.timeZone}', E'two\nlines', '50 % of_', '''; drop table mixed; --'])[g % 15 + 1],
  (array['12', ' 7', 'x', '', null, '-3.50', '2024-02-30', '2024-02-29', 'true', '1e5', '12345678'])[g % 11 + 1],
  (array['A', 'B', null])[g % 3 + 1],
  case g when 5 then '0044-03-15 BC' when 6 then '12000-01-01' else date '2024-01-01' + g - (g % 4) end,
  timestamp '2024-01-01 00:00:00.000001' + g * interval '18 hours',
  case when g % 10 > 0 then timestamptz '2024-01-01 00:00:00.000001+00' + g * interval '18 hours' end,
  case g % 3 when 0 then true when 1 then false end,
  case when g % 4 > 0 then decode(repeat('ff', g % 4), 'hex') end,
  case when g % 13 > 0 then g % 8 end, g % 9,
  case when g % 17 > 0 then 'tag' || g % 120 end, g / 2,
  case when g <= 29 then -1 else 1 end, g % 5 - 1, g % 6 - 1, g % 7 - 1, 'mine', g, 'k' || g, 1
from generate_series(1, 155) g;
create table odd as select * from mixed;
alter table odd add primary key (id);
set timezone = 'UTC';
"""
ODD_NAMES = ("Odd Name", "tick`s", "a.b")

# ---------------------------------------------------------------- cases
ROWS, NUMBERS, TROUBLE, TABLE = "rows", "numbers", "trouble", "table"


@dataclass(frozen=True)
class Case:
    """``kind``: what is compared. ``sql``: of ROWS, what a bad row is; of NUMBERS and TABLE, a number ``v`` (of ``mixed``); of TROUBLE, a
    query that PostgreSQL refuses. ``keep``: the filter. ``good``: of ``failed`` and ``asserted``, or of ``v``. ``says``: in the message.
    """

    kind: str
    rule: Rule
    sql: str
    keep: str = "true"
    good: str = "failed = 0"
    says: str = ""

    @property
    def name(self) -> str:
        return self.rule.id


def made(name: str, rule: str, words: Mapping[str, Any]) -> Rule:
    return ADAPTER.validate_python({"rule": rule, "name": name, **words})


def bad(name: str, rule: str, sql: str, keep: str = "true", good: str = "failed = 0", **words: Any) -> Case:
    return Case(ROWS, made(name, rule, words), sql, keep, good)


def value(name: str, rule: str, sql: str, good: str, keep: str = "true", **words: Any) -> Case:
    return Case(NUMBERS, made(name, rule, words), sql, keep, good)


def trouble(name: str, rule: str, says: str, sql: str, **words: Any) -> Case:
    return Case(TROUBLE, made(name, rule, words), sql, says=says)


def table(name: str, rule: str, sql: str, good: str, **words: Any) -> Case:
    return Case(TABLE, made(name, rule, words), sql, good=good)


def repeated(columns: str, place: str = "date_trunc('month', day), ", keep: str = "true") -> str:
    """Rows whose values are there again; PostgreSQL compares NULLs as equal here, so they are left out."""
    present = f"({columns}) is not null" if "," in columns else f"{columns} is not null"  # of a row: each of them
    counted = f"select id, count(*) over (partition by {place}{columns}) c from mixed where {present} and {keep}"
    return f"id in (select id from ({counted}) s where c > 1)"


IN, OUT = "not exists (select from {0} c where c.{1} = mixed.{2})", "exists (select from {0} c where c.{1} = mixed.{2})"
NAMES = ("plain", "O'Brien", "back\\slash", "🙂🙂", "", "${spark.sql.session.timeZone}", "'; drop table mixed; --")
MANY = "failed <= 1000"  # counted, but not captured: that costs a second each
MAIL, URLS = "'mail ann.b+c@mail.example.org now'", "'see https://example.com/a?b=1', 'ftp://x.example'"

WHOLE: list[Case] = [
    # each row
    bad("null_one", "not_null", "i is null", columns=["i"]),
    bad("null_some", "not_null", "i is null or note is null", columns=["I", "NOTE"]),
    bad("null_never", "not_null", "id is null", columns=["id"]),
    bad("null_filtered", "not_null", "i is null", "status = 'A'", columns=["i"], filter="status = 'A'"),
    bad("null_of_none", "not_null", "i is null", "status = 'Z'", columns=["i"], filter="status = 'Z'"),
    bad("null_unfiltered", "not_null", "i is null", "null::boolean", columns=["i"], filter="cast(NULL AS boolean)"),
    bad("int_in_bounds", "between", "i < 0 or i > 40", column="i", min=0, max=40),
    bad("int_far_bounds", "between", "false", column="i", min=-(10**12), max=10**30),
    bad("big_to_the_last", "max", "big > 9223372036854775806", column="big", max=9223372036854775806),
    bad("big_least", "min", "false", column="big", min=-(2**63)),
    bad("double_tenths", "between", "dbl < 0.1 or dbl > 0.3", column="dbl", min=0.1, max=0.3),
    bad("double_large", "max", "dbl > 1e300", column="dbl", max=1e300),
    bad("double_infinite", "max", "dbl > 'Infinity'", column="dbl", max=math.inf),
    bad("amount_tenth", "min", "amount < 0.11", column="Amount", min=0.11),
    bad("amount_float", "max", "amount > 11.22", column="amount", max=11.22),
    bad("all_digits", "max", "huge > 1234567890123456789012345678.0123456788", column="huge",
        max="1234567890123456789012345678.0123456788"),
    bad("all_digits_kept", "max", "huge > 1234567890123456789012345678.0123456789", column="huge",
        max="1234567890123456789012345678.0123456789"),
    bad("days", "between", "day2 < '2024-01-15' or day2 > '2024-03-10'", column="day2", min="2024-01-15", max="2024-03-10"),
    bad("times", "min", "at < '2024-01-19 00:00:00.000002'", column="at", min="2024-01-19 00:00:00.000002"),
    bad("instants", "max", "seen > '2024-03-01 12:00:00+02:00'", column="seen", max="2024-03-01 12:00:00+02:00"),
    bad("texts", "min", "note collate \"C\" < 'a'", column="note", min="a"),
    bad("field_of_other_type", "compare", "not i < amount", column="i", operator="<", field="amount"),
    bad("field_time", "compare", "at <> seen", column="at", operator="=", field="seen"),
    bad("field_day", "compare", "not day >= day2", column="DAY", operator=">=", field="Day2"),
    bad("value_true", "compare", "not ok", column="ok", operator="=", value=True),
    bad("value_quote", "compare", "note = 'O''Brien'", column="note", operator="!=", value="O'Brien"),
    bad("value_backslash", "compare", r"note <> 'back\slash'", column="note", operator="=", value="back\\slash"),
    bad("value_number", "compare", "not i > 10", column="i", operator=">", value=10),
    bad("value_at_most", "compare", "not amount <= 1.1", column="amount", operator="<=", value=1.1),
    bad("length", "length", "char_length(note) not between 1 and 8", column="note", min=1, max=8),
    bad("length_least", "length", "char_length(note) < 3", column="note", min=3),
    bad("length_of_wide", "length", "char_length(note) <> 2", column="note", min=2, max=2),
    bad("length_of_bytes", "length", "octet_length(raw) > 2", column="raw", max=2),
    bad("length_of_number", "length", "char_length(i::text) > 1", column="i", max=1),
    bad("pattern", "matches_pattern", "note !~ '^[a-z]+$'", column="note", pattern="^[a-z]+$"),
    bad("pattern_digits", "matches_pattern", r"code !~ '^-?\d+(\.\d+)?$'", column="code", pattern=r"^-?\d+(\.\d+)?$"),
    bad("pattern_quote", "matches_pattern", r"note !~ '[''\\]'", column="note", pattern=r"['\\]"),
    bad("values", "expected_values", f"note not in ({', '.join(quote(n) for n in NAMES)})", column="note", values=[*NAMES]),
    bad("values_int", "expected_values", "i not in (1, 2, 3)", column="i", values=[1, 2, 3]),
    bad("values_double", "expected_values", "dbl not in (0.1, 0.7)", column="dbl", values=[0.1, 0.7]),
    bad("values_decimal", "expected_values", "amount not in (0.11, 0.22)", column="amount", values=[0.11, 0.22]),
    bad("values_boolean", "expected_values", "ok not in (true, false)", column="ok", values=[True, False]),
    bad("values_days", "expected_values", "day2 not in ('2024-01-01', '2024-01-05')", column="day2", values=["2024-01-01", "2024-01-05"]),
    bad("type_int", "is_type", "not pg_input_is_valid(code, 'integer')", column="code", type="int"),
    bad("type_decimal", "is_type", "not pg_input_is_valid(code, 'numeric(5,2)')", column="code", type="decimal(5,2)"),
    bad("type_date", "is_type", "not pg_input_is_valid(code, 'date')", column="code", type="date"),
    bad("type_boolean", "is_type", "not pg_input_is_valid(code, 'boolean')", column="code", type="boolean"),
    bad("future_time", "not_in_future", "at > '2024-04-20 12:00'", column="at"),
    bad("future_instant", "not_in_future", "seen > '2024-04-20 12:00+00'", column="seen"),
    bad("future_day", "not_in_future", "day2 > '2024-04-20'", column="day2"),
    bad("positive", "positive", "i <= 0", column="i"),
    bad("positive_nan", "positive", "dbl <= 0", column="dbl"),
    bad("not_negative", "not_negative", "huge < 0", column="huge"),
    bad("mail", "contains_email", f"note not in ({MAIL})", column="note"),
    bad("url", "contains_url", f"note not in ({URLS})", column="note"),
    bad("expression", "expression", "not amount > i", expression="amount > i"),
    bad("expression_or", "expression", "not (i > 0 or ok)", "status = 'A' or i = 3", expression="i > 0 OR ok",
        filter="status = 'A' OR i = 3"),
    bad("expression_comment", "expression", "not i > 0", expression="i > 0 -- above zero"),
    bad("expression_lines", "expression", "not i > 0", expression="\n  i\n  > 0\n"),
    bad("expression_guarded", "expression", "case when i <> 0 then not 100.0 / i > 4 end", "i <> 0", expression="100 / i > 4",
        filter="i <> 0"),
    bad("name_like_a_message", "expression", "not delta_x < 1", expression="DELTA_X < 1"),
    # tolerances: 29 of the 100 rows of January are bad
    bad("share_reached", "positive", "pct <= 0", good="failed <= 0.29 * asserted", column="pct", tolerance=0.29),
    bad("share_passed", "positive", "pct <= 0", good="failed <= 0.28 * asserted", column="pct", tolerance=0.28),
    bad("share_of_the_filtered", "positive", "pct <= 0", "id <= 50", "failed <= 0.58 * asserted", column="pct", filter="id <= 50",
        tolerance=0.58),
    bad("count_reached", "positive", "pct <= 0", good="failed <= 29", column="pct", tolerance=29),
    bad("count_passed", "positive", "pct <= 0", good="failed <= 28", column="pct", tolerance=28),
    # groups
    bad("unique_tag", "unique", repeated("tag"), good=MANY, tolerance=1000, columns=["tag"]),
    bad("unique_tag_in_table", "unique", repeated("tag", ""), columns=["TAG"], scope="table"),
    bad("unique_called_n", "unique", repeated("n"), good=MANY, tolerance=1000, columns=["n"]),
    bad("unique_pair", "unique", repeated("i, status"), good=MANY, tolerance=1000, columns=["status", "i"]),
    bad("unique_filtered", "unique", repeated("n", keep="status = 'A'"), "status = 'A'", good=MANY, tolerance=1000, columns=["n"],
        filter="status = 'A'"),
    bad("known_customer", "exists_in", f"customer is not null and {IN.format('customers', 'id', 'customer')}", column="customer",
        container="customers", field="ID"),
    bad("known_name", "exists_in", f"note is not null and {IN.format('customers', 'name', 'note')}", "status = 'A'", MANY, tolerance=1000,
        filter="status = 'A'", column="note", container="customers", field="name"),
    bad("known_day", "exists_in", IN.format("customers", "born", "day2"), good=MANY, tolerance=1000, column="day2", container="customers",
        field="born"),
    bad("unknown_code", "not_exists_in", OUT.format("customers", "code", "customer"), good=MANY, tolerance=1000, column="customer",
        container="customers", field="code"),
    # numbers
    value("sum", "sum", "coalesce(sum(i), 0)", "v between 0 and 1000", column="i", min=0, max=1000),
    value("sum_none", "sum", "coalesce(sum(i), 0)", "v >= 1", "status = 'Z'", column="i", min=1, filter="status = 'Z'"),
    value("sum_big", "sum", "coalesce(sum(big), 0)", "v <= 18446744073709551614", "id in (7, 9)", column="big", max=18446744073709551614,
        filter="id IN (7, 9)"),
    value("sum_decimal", "sum", "coalesce(sum(amount), 0)", "v <= 467.39", column="amount", max=467.39),
    value("sum_double", "sum", "coalesce(sum(dbl), 0)", "v <= 20", column="dbl", max=20),
    value("distinct", "distinct_count", "count(distinct status)", "v between 2 and 3", columns=["status"], min=2, max=3),
    value("distinct_pairs", "distinct_count", "count(distinct (i, status)) filter (where (i, status) is not null)", "v <= 30",
        columns=["i", "status"], max=30),
    value("distinct_filtered", "distinct_count", "count(distinct n)", "v >= 10", "status = 'A'", columns=["N"], min=10,
        filter="status = 'A'"),
    value("metric", "metric", "avg(amount)", "v between 1 and 14", expression="avg(amount)", min=1, max=14),
    value("metric_filtered", "metric", "avg(amount)", "v <= 5", "status = 'A'", expression="avg(amount)", max=5, filter="status = 'A'"),
    value("metric_of_null", "metric", "avg(amount)", "v > 0", "status = 'Z'", expression="avg(amount)", min=1, filter="status = 'Z'"),
    value("metric_of_none", "metric", "count(*)", "v >= 1", "status = 'Z'", expression="count(*)", min=1, filter="status = 'Z'"),
    value("metric_count", "metric", "count(*)", "v >= 20", expression="count(*)", min=20),
    value("metric_share", "metric", "(count(*) filter (where i > 0))::float / nullif(count(*), 0)", "v >= 0.85",
        expression="count_if(i > 0) / count(*)", min=0.85),
    value("metric_big", "metric", "max(big)", "v <= 9223372036854775806", expression="max(big)", max=9223372036854775806),
    value("metric_nan", "metric", "max(dbl)", "v <= 1", expression="max(dbl)", max=1),
    # the table
    table("stale", "freshness", "extract(epoch from timestamptz '2024-04-20 12:00+00' - max(seen) filter (where id < 100))",
        "v <= 36 * 3600", max_age="36 hours", column="seen", filter="id < 100"),
    table("fresh_local", "freshness",
        "greatest(0, extract(epoch from timestamp '2024-04-20 12:00' - max(at) filter (where at <= '2024-04-20 12:05')))", "v <= 60",
        max_age="1 minute", column="AT"),
    table("fresh_identifier", "freshness", "(date '2024-04-20' - max(day)) * 86400", "v <= 7 * 86400", max_age="1 week"),
    table("fresh_by_the_hour", "freshness", "(date '2024-04-20' - max(day)) * 86400", "v <= 13 * 3600", max_age="13 hours", column="day"),
    table("fresh_far_ahead", "freshness", "(date '2024-04-20' - max(day2) filter (where day2 <= '2024-04-20')) * 86400::bigint", "v <= 60",
        max_age="1 minute", column="day2"),
    table("columns", "expected_schema", "0", "v = 0", types={"ID": "long", "amount": "numeric(12, 2)", "note": None}),
    table("columns_wrong", "expected_schema", "2", "v = 0", types={"id": "int", "amount": "DECIMAL(12,2)", "nope": None}),
    table("columns_only", "expected_schema", "(select count(*) - 4 from information_schema.columns where table_name = 'mixed')", "v = 0",
        types={"id": None}, only=True),
    # what cannot be asked, by the types alone
    trouble("no_column", "positive", "no column 'nope'", "select nope > 0 from mixed", column="nope"),
    trouble("text_positive", "positive", "'note' is string", "select note > 0 from mixed", column="note"),
    trouble("text_sum", "sum", "'code' is string", "select sum(code) from mixed", column="code", min=0),
    trouble("text_in_numbers", "between", "write it in quotes", "select note between 1 and 5 from mixed", column="note", min=1, max=5),
    trouble("number_as_text", "compare", "'i' is int", "select i = 'many' from mixed", column="i", operator="=", value="many"),
    trouble("boolean_bounds", "max", "'ok' is boolean", "select ok <= 1 from mixed", column="ok", max=1),
    trouble("values_mixed", "expected_values", "is a number", "select note in ('a', 1) from mixed", column="note", values=["a", 1]),
    trouble("future_int", "not_in_future", "no dates or times", "select i <= timestamp '2024-04-20' from mixed", column="i"),
    trouble("future_text", "not_in_future", "no dates or times", "select code <= timestamp '2024-04-20' from mixed", column="code"),
    trouble("field_text", "compare", "'note' is string", "select i < note from mixed", column="i", operator="<", field="note"),
    trouble("field_missing", "compare", "no column 'nope'", "select i < nope from mixed", column="i", operator="<", field="nope"),
    trouble("unique_nope", "unique", "no column 'nope'", "select nope from mixed group by nope", columns=["id", "nope"]),
    trouble("no_container", "exists_in", "'strangers' has no table", "select 1 from strangers", column="customer", container="strangers",
        field="id"),
    trouble("no_field", "exists_in", "no column 'nope'", "select nope from customers", column="customer", container="customers",
        field="nope"),
    trouble("field_of_text", "exists_in", "is string", f"select 1 from mixed where {IN.format('customers', 'name', 'customer')}",
        column="customer", container="customers", field="name"),
    trouble("stale_int", "freshness", "no dates or times", "select now() - max(i) from mixed", max_age="1 day", column="i"),
]  # fmt: skip

# Of a table whose names need Delta's column mapping, so that Spark alone reads it.
ODD: list[Case] = [
    bad("name_space", "positive", "\"Odd Name\" <= 0", column="odd name"),
    bad("name_tick", "positive", "\"tick`s\" <= 0", column="tick`s"),
    bad("name_dot", "positive", '"a.b" <= 0', column="a.b"),
    bad("name_dot_in_sql", "expression", 'not "a.b" > 0', expression="`a.b` > 0"),
    bad("odd_day", "not_null", "day is null", columns=["day"]),
]  # fmt: skip

CHANGES: list[Case] = [
    value("rows_halved", "volumetric", "count(*)", "-0.5 1.0 2", min_change=-0.5, max_change=1.0, over=2),
    value("rows_far_back", "volumetric", "count(*)", "-0.7 null 14", min_change=-0.7, over=14),
    value("rows_above", "volumetric", "count(*)", "null -0.8 1", max_change=-0.8, over=1),
    value("rows_filtered", "volumetric", "count(*)", "-0.3 0.3 3", "status = 'A'", min_change=-0.3, max_change=0.3, over=3,
        filter="status = 'A'"),
    value("mean_changed", "metric_change", "avg(amount)", "-0.5 0.5 2", expression="avg(amount)", min_change=-0.5, max_change=0.5, over=2),
    value("none_of_march", "metric_change", "count(*) + 1", "-0.6 null 3", "id in (7, 9)", expression="count(*) + 1", min_change=-0.6,
        over=3, filter="id IN (7, 9)"),
]  # fmt: skip

# Of March alone: other partitions are elsewhere. Two rows of a rule and partition are captured, and those with an open anomaly.
PART: list[Case] = [
    bad("part_bad", "max", "i > 10", column="i", max=10),
    bad("part_text", "expression", "status = 'B' and pct = 1", expression="status != 'B' OR pct <> 1"),
    bad("part_tag", "unique", repeated("tag", ""), columns=["tag"], scope="table"),
    bad("part_filtered", "unique", repeated("tag", "", "status = 'A'"), "status = 'A'", good=MANY, tolerance=1000, columns=["tag"],
        scope="table", filter="status = 'A'"),
    value("part_counted", "volumetric", "count(*)", "-0.5 0.5 2", min_change=-0.5, max_change=0.5, over=2),
    value("part_counted_filtered", "volumetric", "count(*)", "-0.5 0.5 2", "id > 100", min_change=-0.5, max_change=0.5, over=2,
        filter="id > 100"),
    # what cannot be asked, as Spark finds out
    trouble("sql_no_column", "expression", "nope", "select nope > 0 from mixed", expression="nope > 0"),
    trouble("sql_no_sql", "expression", "PARSE_SYNTAX_ERROR", "select i > > 0 from mixed", expression="i > > 0"),
    trouble("sql_closes", "expression", "PARSE_SYNTAX_ERROR", "select not i > 0) from mixed", expression="i > 0) OR (true"),
    trouble("sql_number", "expression", "DATATYPE_MISMATCH", "select not (i + 1) from mixed", expression="i + 1"),
    trouble("sql_zero", "expression", "DIVIDE_BY_ZERO", "select 100.0 / (id - 120) > 0 from mixed", expression="100 / (id - 120) > 0"),
    # Spark quotes the SQL, in which there are words that its own troubles have
    trouble("sql_zero_quoted", "expression", "DIVIDE_BY_ZERO", "select 100.0 / (delta_x - 1) > 0 from mixed",
        expression="note = 'UNAVAILABLE' OR 100 / (DELTA_X - 1) > 0"),
    trouble("sql_filter", "not_null", "nope", "select 1 from mixed where nope > 0", columns=["i"], filter="nope > 0"),
    trouble("sql_filter_zero", "not_null", "DIVIDE_BY_ZERO", "select 1 from mixed where 100.0 / (id - 122) > 0", columns=["i"],
        filter="100 / (id - 122) > 0"),
    trouble("number_filter", "metric", "nope", "select 1 from mixed where nope > 0", expression="count(*)", min=0, filter="nope > 0"),
    trouble("number_filter_zero", "metric", "DIVIDE_BY_ZERO", "select 1 from mixed where 100.0 / (id - 124) > 0", expression="count(*)",
        min=0, filter="100 / (id - 124) > 0"),
    trouble("change_filter_zero", "volumetric", "DIVIDE_BY_ZERO", "select 1 from mixed where 100.0 / (id - 124) > 0", min_change=0,
        filter="100 / (id - 124) > 0"),
    trouble("number_zero", "metric", "DIVIDE_BY_ZERO", "select avg(100.0 / (id - 125)) from mixed", expression="avg(100 / (id - 125))",
        min=0),
    trouble("number_date", "metric", "date and not a number", "select max(day2) > 0 from mixed", expression="max(day2)", min=0),
    trouble("number_text", "metric_change", "string and not a number", "select max(note) / avg(i) from mixed", expression="max(note)",
        max_change=1),
    trouble("number_boolean", "metric", "boolean and not a number", "select (sum(i) > 5) >= 1 from mixed", expression="sum(i) > 5", min=1),
    trouble("number_of_a_row", "metric", "MISSING_AGGREGATION|MISSING_GROUP_BY", "select day, id from mixed group by day",
        expression="id", min=1),
    trouble("day_no_day", "min", "2024-02-31", "select day2 >= '2024-02-31' from mixed", column="day2", min="2024-02-31"),
    trouble("type_no_type", "is_type", "(?i)precision", "select code::numeric(5000,2) from mixed", column="code", type="decimal(50,2)"),
    trouble("pattern_no_pattern", "matches_pattern", "PatternSyntaxException|VALUE.PATTERN", "select note ~ '[' from mixed",
        column="note", pattern="["),
    trouble("fresh_filter", "freshness", "nope", "select 1 from mixed where nope > 0", max_age="9 weeks", column="at", filter="nope > 0"),
    trouble("fresh_filter_zero", "freshness", "DIVIDE_BY_ZERO", "select 1 from mixed where 100.0 / (id - 126) > 0", max_age="9 weeks",
        column="at", filter="100 / (id - 126) > 0"),
]  # fmt: skip

PASSING: list[Rule] = [
    made("p1", "not_null", {"columns": ["id"]}),
    made("p2", "expression", {"expression": "pct < 2", "filter": "status = 'A'"}),
    made("p3", "metric", {"expression": "avg(i)", "min": -1000}),
    made("p4", "sum", {"column": "i", "min": -1000}),
    made("p5", "distinct_count", {"columns": ["id", "key"], "min": 0}),
    made("p6", "unique", {"columns": ["KEY", "id"]}),
    made("p7", "unique", {"columns": ["key", "ID"], "scope": "table"}),
    made("p8", "unique", {"columns": ["key"]}),
    made("p9", "volumetric", {"max_change": 9}),
]
STORED = made("stored", "volumetric", {"max_change": 0.5, "over": 2})
OPEN = [
    Anomaly(f"{rule} {id}", "shop/mixed", rule, MARCH, f'{{"id":"{id}"}}', 1, "", Severity.ERROR, State.ACTIVE, 0, 0, "scan earlier")
    for rule, id in (("part_bad", 134), ("part_bad", 140), ("part_bad", 1), ("part_tag", 118))
]


SPARK_ALONE = {"double_infinite", "double_large", "field_of_other_type", "field_time", "instants", "int_far_bounds", "length_of_number",
               "times", "values_double"}  # fmt: skip
"""Plain rules without a filter that Spark has to measure: for comparisons of other types, and of floating-point numbers with a list."""


# ---------------------------------------------------------------- the scans
@dataclass(frozen=True)
class Scanned:
    """``by_spark``: the same scans, where this process has neither measured a rule nor read a row. ``asked``: for which rules and
    partitions earlier scans' numbers were wanted."""

    source: psycopg.Connection
    whole: ScanResult
    part: ScanResult
    odd: ScanResult
    by_spark: tuple[ScanResult, ScanResult]
    asked: list[tuple[list[str], list[str | None]]] = field(repr=False)

    def result(self, case: Case) -> ScanResult:
        return self.part if case in PART else self.odd if case in ODD else self.whole

    def verdicts(self, case: Case) -> dict[str | None, Verdict]:
        return {verdict.partition: verdict for verdict in self.result(case).verdicts if verdict.rule == case.name}


class NotedRecords(Records):
    """The records of scans, which note for which rules and partitions their verdicts are asked for."""

    def __init__(self, lake: str, datastore_key: str) -> None:
        super().__init__(lake, datastore_key)
        self.asked: list[tuple[list[str], list[str | None]]] = []

    def metrics(self, container: str, rules: Any, partitions: Any, statuses: Any = ()) -> Any:
        self.asked.append(([*rules], [*partitions]))
        return super().metrics(container, rules, partitions, statuses)


@dataclass
class Scanning:
    """The container that one sync has filled without rules, and scans of it."""

    project: Project
    records: NotedRecords
    lake: LakeScope
    container: str

    def of(self, container: str) -> "Scanning":
        return replace(self, container=container)

    @cached_property
    def definition(self) -> TableDefinition:
        return self.project.definition(self.container)

    @cached_property
    def head(self) -> Any:
        return self.project.table(self.container).head()

    def scope(self, request: ScanRequest) -> Any:
        with self.project.instance() as instance:
            return requested_scope(self.definition, instance, request, self.head, None)

    def scan(self, rules: Sequence[Rule], keys: tuple[str, ...], nulls: bool, opened: Sequence[Anomaly] = ()) -> ScanResult:
        scope = self.scope(ScanRequest(ScanMode.partitions, keys, nulls))
        return scan(self.lake, self.head, scope, rules, now=NOW, timezone="UTC", earlier=self.records, anomalies=opened)


@pytest.fixture(scope="module")
def scanning(postgres: EmbeddedPostgres, spark_home: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scanning]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT"):
            patch.delenv(name, raising=False)
        project = Project(
            tmp_path_factory.mktemp("rules"), postgres.create_database("rules", drop=True), spark_home,
            incremental=["public.mixed:day:date", "public.odd:day:date"],
            containers={"mixed": {"partition_by": "month", "exclude_columns": [*ODD_NAMES]}, "odd": {"partition_by": "month"}},
        )  # fmt: skip
        project.execute(SOURCE)
        assert {line["status"] for line in project.sync().values()} == {"synced"}
        records, lake = NotedRecords(project.lake, "shop"), LakeScope(project.lake, spark_home, "test_rules", print)
        with lake.stack:
            # Of few rows, planning anew between the stages of a query costs more than it brings.
            lake.spark.conf.set("spark.sql.adaptive.enabled", "false")
            yield Scanning(project, records, lake, "mixed")
        project.source.close()


@pytest.fixture(scope="module")
def scanned(scanning: Scanning) -> Scanned:
    """Two scans of what was synced, each by both engines."""

    def of_all() -> ScanResult:
        return scanning.scan([case.rule for case in (*WHOLE, *CHANGES)], KEYS, True)

    def of_march() -> ScanResult:
        return scanning.scan([*(case.rule for case in PART), STORED], (MARCH,), False, OPEN)

    whole, odd = of_all(), scanning.of("odd").scan([case.rule for case in ODD], KEYS, True)
    asks = scanning.scope(ScanRequest()).question_digest(STORED)
    january = Verdict("stored", JANUARY, Status.PASSED, rows=7, value=7.0, asks=asks)
    february = Verdict("stored", FEBRUARY, Status.UNASSERTED, rows=0, value=0.0, asks=asks)
    scanning.records.record(ScanOperation("earlier", "shop/mixed", 0, 1, OperationResult.SUCCESS), [january, february], (), ())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failed_rows, "MOST_ROWS", 2)
        part, asked = of_march(), [*scanning.records.asked]
        patch.setattr(local_measures, "MOST_ROWS", -1)
        patch.setattr(local_rows, "FEW_ROWS", -1)
        by_spark = of_march()
        patch.undo()
        patch.setattr(local_measures, "MOST_ROWS", -1)
        patch.setattr(local_rows, "FEW_ROWS", -1)
        return Scanned(scanning.project.source, whole, part, odd, (of_all(), by_spark), asked)


# ---------------------------------------------------------------- the same questions in PostgreSQL
_PLACES = ", ".join(f"({quote(key)})" for key in KEYS) + ", (null)"
_WHERE = "to_char(date_trunc('month', day), 'YYYY-MM-DD') is not distinct from place"


def answers(source: psycopg.Connection, case: Case) -> dict[str | None, dict[str, Any]]:
    """Of each partition: ``n`` rows, ``asserted``, ``failed`` with the ``ids`` or the number ``v``, and whether that is ``good``."""
    keep, held = f"coalesce(({case.keep}), false)", f"coalesce(({case.sql}), false)"
    if case.kind == ROWS:
        counted = f"""select count(*) n, count(*) filter (where {keep}) asserted, count(*) filter (where {keep} and {held}) failed,
          coalesce(array_agg(id) filter (where {keep} and {held}), '{{}}') ids from mixed where {_WHERE}"""
        sql = f"select place, c.*, ({case.good}) good from (values {_PLACES}) p(place), lateral ({counted}) c"
    else:
        counted = f"select count(*) n, count(*) filter (where {keep}) asserted from mixed where {_WHERE}"
        number = f"select {case.sql} v from mixed where {_WHERE} and {keep}"
        good = case.good if case not in CHANGES and "volumetric" not in case.rule.rule else "true"
        sql = f"""select place, c.*, v, coalesce(({good}), true) good
          from (values {_PLACES}) p(place), lateral ({counted}) c, lateral ({number}) x"""
    cursor = source.execute(sql.encode())
    names = [column.name for column in cursor.description or ()]
    return {row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}


def changed(source: psycopg.Connection, case: Case) -> dict[str | None, str]:
    """The status by the mean of the months before. April, the last, is still being filled."""
    low, high, over = case.good.split()
    keep = f"coalesce(({case.keep}), false)"
    sql = f"""with months as (select place, (select count(*) from mixed where {_WHERE}) n,
        (select {case.sql} from mixed where {_WHERE} and {keep})::float v from (values {_PLACES}) p(place)),
      means as (select *, (select nullif(avg(b.v), 0) from months b
        where b.place < m.place and b.place::date >= m.place::date - {over} * interval '1 month' and b.n > 0) mean from months m)
      select place, case when (v - mean) / abs(mean) > {high} then 'failed'
        when (v - mean) / abs(mean) < {low} then case place when '{APRIL}' then 'unasserted' else 'failed' end
        when v is null or mean is null then 'unasserted' else 'passed' end from means"""
    return dict(source.execute(sql.encode()).fetchall())


def captured(result: ScanResult, case: Case, place: str | None) -> list[int]:
    found = [row.key for row in result.failed_rows if row.partition == place and case.name in row.rules]
    return sorted(int(json.loads(key or "")["id"]) for key in found)


def of(kind: str, *lists: Sequence[Case]) -> Any:
    return pytest.mark.parametrize("case", [case for some in lists for case in some if case.kind == kind], ids=lambda case: case.name)


@of(ROWS, WHOLE, PART, ODD)
def test_rules_of_rows_find_the_same_rows_as_sql(scanned: Scanned, case: Case) -> None:
    """Otherwise bad rows pass, good rows are reported, or the numbers in the UI are wrong."""
    found = scanned.verdicts(case)
    expected = answers(scanned.source, case)
    assert set(found) == ({MARCH} if case in PART else {*PLACES})
    for place, verdict in found.items():
        answer = expected[place]
        assert (verdict.rows, verdict.asserted, verdict.failed) == (answer["n"], answer["asserted"], answer["failed"]), verdict
        assert verdict.status is (Status.PASSED if answer["good"] else Status.FAILED), verdict
        assert verdict.value == pytest.approx(answer["failed"] / answer["asserted"] if answer["asserted"] else 0)
        ids = sorted(answer["ids"]) if verdict.status is Status.FAILED else []
        if case in PART:
            first = sorted(ids, key=str)[:2]
            opened = [int(json.loads(one.key or "")["id"]) for one in OPEN if one.rule == case.name]
            assert captured(scanned.part, case, place) == sorted({*first, *(key for key in opened if key in ids)}), verdict
        else:
            assert captured(scanned.result(case), case, place) == ids, verdict


@of(NUMBERS, WHOLE)
def test_numbers_of_a_partition_are_those_of_sql(scanned: Scanned, case: Case) -> None:
    """A wrong number is a wrong alarm and a wrong point in the chart. Without rows, a sum and a count are 0, and there are no other
    numbers."""
    expected = answers(scanned.source, case)
    for place, verdict in scanned.verdicts(case).items():
        answer = expected[place]
        number = None if answer["v"] is None or not math.isfinite(answer["v"]) else float(answer["v"])
        assert (verdict.rows, verdict.asserted, verdict.failed) == (answer["n"], answer["asserted"], None), verdict
        assert verdict.value == (None if number is None else pytest.approx(number, rel=1e-6)), verdict
        assert verdict.status is (Status.PASSED if answer["good"] else Status.FAILED), verdict


@of(NUMBERS, CHANGES, PART)
def test_changes_are_measured_against_earlier_partitions_only(scanned: Scanned, case: Case) -> None:
    """A partition must not be in its own baseline, empty partitions must not be in it either, and the newest partition is not complete
    yet."""
    expected, now = changed(scanned.source, case), answers(scanned.source, case)
    for place, verdict in scanned.verdicts(case).items():
        number = now[place]["v"]
        assert (verdict.status.value, verdict.asserted) == (expected[place], now[place]["asserted"]), verdict
        assert verdict.value == (None if number is None else pytest.approx(float(number))), verdict


def test_earlier_partitions_are_taken_from_earlier_scans(scanned: Scanned) -> None:
    """Otherwise each scan reads the earlier partitions again."""
    (verdict,) = [verdict for verdict in scanned.part.verdicts if verdict.rule == "stored"]
    assert verdict.status is Status.FAILED and "of the mean 7 of 1 earlier" in verdict.message, verdict
    assert [keys for _, keys in scanned.asked] == [[JANUARY, FEBRUARY]], "the first scans have all partitions on their own ground"


def test_both_engines_say_the_same(scanned: Scanned) -> None:
    """Otherwise a rule's verdict depends on how many rows a sync wrote, as many rows are measured by Spark and few in this process."""
    for here, by_spark in zip((scanned.whole, scanned.part), scanned.by_spark, strict=True):
        assert {(one.rule, one.partition): one for one in here.verdicts} == {(one.rule, one.partition): one for one in by_spark.verdicts}
        assert sorted(here.failed_rows, key=repr) == sorted(by_spark.failed_rows, key=repr)


def test_plain_rules_are_measured_without_spark(scanning: Scanning) -> None:
    """Otherwise a sync of five rows with three plain rules waits for Spark, which takes ten times as long as the write."""
    plain = ("not_null", "between", "min", "max", "compare", "length", "expected_values", "not_in_future", "positive", "not_negative",
             "unique", "exists_in", "not_exists_in", "distinct_count", "volumetric", "contains_email", "contains_url")  # fmt: skip
    rules = [case.rule for case in (*WHOLE, *CHANGES) if case.kind in (ROWS, NUMBERS)]
    scope, head = scanning.scope(ScanRequest(ScanMode.partitions, KEYS, True)), scanning.head
    table, in_sql = scanning.lake.table("shop", "mixed"), ScannedTable(head.columns, NOW, "UTC", ("day",))
    measured = local_measures.measure_here(scanning.lake, table, head, scope, rules, in_sql).own
    assert {rule.id for rule in rules if rule.rule in plain and rule.filter is None} - set(measured) == SPARK_ALONE
    assert not {rule.id for rule in rules if rule.filter is not None or rule.rule not in (*plain, "matches_pattern")} & set(measured)


def test_failed_rows_of_plain_rules_are_fetched_without_spark(scanning: Scanning, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that somebody's rows break would otherwise make each sync of five rows wait for Spark. Keys are compared by their text later,
    so that they are Spark's to the letter."""
    chosen = ("not_null", "between", "length", "expected_values", "unique", "exists_in", "not_exists_in", "positive", "compare")
    rules = [case.rule for case in WHOLE if case.kind == ROWS and case.rule.rule in chosen and case.rule.filter is None]
    rules = [rule for rule in rules if rule.id not in SPARK_ALONE]
    opened = [replace(one, rule=rules[0].id) for one in OPEN]
    monkeypatch.setattr(failed_rows, "MOST_ROWS", 7)
    with monkeypatch.context() as patch:
        patch.setattr(failed_rows, "MOST_HERE", -1)
        expected = scanning.scan(rules, (FEBRUARY, MARCH, APRIL), True, opened)
    monkeypatch.setattr(LakeScope, "spark", property(lambda _: pytest.fail("Spark was asked")))
    found = scanning.scan(rules, (FEBRUARY, MARCH, APRIL), True, opened)

    def rows(result: ScanResult) -> list[Any]:
        return sorted(((one.partition, one.key, json.loads(one.row), one.rules) for one in result.failed_rows), key=repr)

    assert len(rows(found)) > 30 and rows(found) == rows(expected)
    assert found.verdicts == expected.verdicts and found.moved == expected.moved


def test_few_rows_reach_spark_as_it_reads_them_itself(scanning: Scanning, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an expression gives another verdict on few rows than on many: times that are shifted, or a NaN that became NULL."""
    scope, in_sql = scanning.scope(ScanRequest(ScanMode.partitions, KEYS, True)), ScannedTable(scanning.head.columns, NOW, "UTC")

    def rows() -> Any:
        table = scanning.lake.table("shop", "mixed")
        return Rows(lambda: scanning.lake.spark, table, scanning.head, scope, in_sql, may_be_sent=True).frame

    sent = rows()
    assert "LocalTableScan" in str(sent._explain_string()), "the rows were not sent"
    monkeypatch.setattr(local_rows, "FEW_ROWS", -1)
    read = rows()
    assert sent.schema.simpleString() == read.schema.simpleString()
    assert sent.exceptAll(read).count() == read.exceptAll(sent).count() == 0 < sent.count()


@of(TROUBLE, WHOLE, PART)
def test_a_rule_that_cannot_be_evaluated_is_neither_passed_nor_failed(scanned: Scanned, case: Case) -> None:
    """Its verdict for each partition is errored, with or without rows, and the other rules are evaluated. PostgreSQL refuses the SQL,
    too."""
    found = scanned.verdicts(case)
    tables = case.rule.rule == "freshness"
    assert set(found) == ({None} if tables else {MARCH} if case in PART else {*PLACES})
    for verdict in found.values():
        assert verdict.status is Status.ERRORED and re.search(case.says, verdict.message), verdict
        assert verdict.failed is None and verdict.value is None and (tables or verdict.asserted == 0)
    with pytest.raises(psycopg.Error):
        scanned.source.execute(case.sql.encode())


@of(TABLE, WHOLE)
def test_rules_of_the_table_are_judged_as_by_sql(scanned: Scanned, case: Case) -> None:
    """Otherwise a table that is no longer filled, or that has other columns, passes."""
    (verdict,) = scanned.verdicts(case).values()
    row = scanned.source.execute(f"select v, {case.good} from (select {case.sql} v from mixed) x".encode()).fetchone()
    assert row is not None
    assert verdict.partition is None and verdict.status is (Status.PASSED if row[1] else Status.FAILED), verdict
    if case.rule.rule == "expected_schema" or row[1]:
        assert verdict.value == pytest.approx(float(row[0])), verdict


@pytest.mark.long
def test_a_partition_scanned_alone_is_judged_as_among_others(scanning: Scanning, scanned: Scanned) -> None:
    """Its rows are aggregated without groups. A number that differs, or a rule that cannot be evaluated over no rows, would be a verdict
    that depends on how a scan was started."""
    rules = [case.rule for case in WHOLE if case.kind != TABLE]
    for place in (FEBRUARY, MARCH):
        result = scanning.scan(rules, (place,), False)
        among = {one.rule: (one.status, one.rows, one.asserted, one.failed) for one in scanned.whole.verdicts if one.partition == place}
        found = {one.rule: (one.status, one.rows, one.asserted, one.failed) for one in result.verdicts if one.partition == place}
        assert found == {rule: among[rule] for rule in found} and len(found) > 50
        values = {one.rule: one.value for one in scanned.whole.verdicts if one.partition == place}
        for one in result.verdicts:
            assert one.partition is None or one.value == (None if values[one.rule] is None else pytest.approx(values[one.rule])), one


def test_a_failed_row_is_kept_as_it_was(scanned: Scanned) -> None:
    """The row may be corrected or gone when somebody looks at it, so the record must keep its microseconds, digits and NULLs."""
    (row,) = [row for row in scanned.whole.failed_rows if row.key == '{"id":"3"}']
    assert row.partition == JANUARY
    broken = {case.name for case in WHOLE if case.kind == ROWS and not answers(scanned.source, case)[JANUARY]["good"]}
    ids = {name for name in broken if 3 in answers(scanned.source, next(c for c in WHOLE if c.name == name))[JANUARY]["ids"]}
    assert {*row.rules} == ids and len(row.rules) == len(ids)
    assert '"huge":1234567890123456789012345678.0123456789,' in row.row
    kept = json.loads(row.row)
    assert (kept["at"], kept["seen"], kept["day"]) == ("2024-01-03T06:00:00.000001", "2024-01-03T06:00:00.000001Z", "2024-01-04")
    assert (kept["status"], kept["note"], kept["rules_broken"], kept["row"], kept["key"]) == ("A", "O'Brien", "mine", 3, "k3")
    (null,) = [row for row in scanned.whole.failed_rows if row.key == '{"id":"154"}']
    kept = json.loads(null.row)
    assert null.partition is None and "day" in kept and kept["day"] is None and kept["customer"] == 2 and kept["amount"] is None


def test_a_limited_number_of_failed_rows_is_kept_and_all_are_counted(scanned: Scanned) -> None:
    """A million failed rows must not be stored, except those with an open anomaly, as it must be known whether they still fail."""
    by_rule = {verdict.rule: verdict.failed for verdict in scanned.part.verdicts if verdict.status is Status.FAILED}
    bad_ones = next(case for case in PART if case.name == "part_bad")
    kept = captured(scanned.part, bad_ones, MARCH)
    assert (by_rule["part_bad"] or 0) > 4 and len(kept) == 4 and {134, 140} < {*kept}, kept


@pytest.mark.long
def test_rules_share_passes_over_the_rows(scanning: Scanning, scanned: Scanned) -> None:
    """Thirty rules must not read a partition thirty times: one pass for rows and numbers, one for each key that rows are grouped by."""
    passing = scanning.scan(PASSING, KEYS, True)
    assert {verdict.status for verdict in passing.verdicts} <= {Status.PASSED, Status.UNASSERTED}
    assert passing.passes == 3 + 1, "and one for values that are in the table, but not among the rows looked at"
    assert scanned.whole.rows == {JANUARY: 100, FEBRUARY: 0, MARCH: 40, APRIL: 10, None: 5} == passing.rows


OF_SPARK = [
    made("priced", "expression", {"expression": "amount < 0 OR i > 20", "tolerance": 10_000}),
    made("mean", "metric", {"expression": "avg(amount)", "min": -1e9}),
    made("kept", "sum", {"column": "i", "min": -1e9, "filter": "i > 3"}),
    made("Kept", "sum", {"column": "i", "min": -1e9, "filter": "i > 4"}),
    made("alone", "unique", {"columns": ["n"], "filter": "i > 3", "tolerance": 10_000}),
    made("in_table", "unique", {"columns": ["n"], "scope": "table", "filter": "i > 3", "tolerance": 10_000}),
    made("known", "exists_in", {"column": "customer", "container": "customers", "field": "id", "filter": "id > 5", "tolerance": 10_000}),
    made("born", "exists_in", {"column": "day2", "container": "customers", "field": "born", "filter": "id > 5", "tolerance": 10_000}),
    made("new", "freshness", {"max_age": "900 days", "filter": "id > 5"}),
    made("seen", "freshness", {"max_age": "900 days", "column": "seen"}),
]


@pytest.mark.long
@pytest.mark.parametrize("keys", [(MARCH,), KEYS], ids=["a partition", "all"])
def test_all_rules_over_few_rows_are_one_query_of_spark(scanning: Scanning, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]) -> None:
    """Otherwise a sync of five rows waits for Spark once for each filter, key and lookup, half a second and more each time."""
    sent: list[int] = []
    to_table = SparkConnectClient.to_table

    def counted(self: SparkConnectClient, *arguments: Any) -> Any:
        sent.append(1)
        return to_table(self, *arguments)

    monkeypatch.setattr(SparkConnectClient, "to_table", counted)
    here, queries = scanning.scan(OF_SPARK, keys, len(keys) > 1), len(sent)
    monkeypatch.setattr(local_rows, "FEW_ROWS", -1)
    monkeypatch.setattr(rows, "FEW_ROWS", -1)
    apart = scanning.scan(OF_SPARK, keys, len(keys) > 1)
    assert queries == 1 + (len(keys) > 1) and len(sent) - queries >= 8, "of partitions without rows, the mean is asked once more"
    assert here.verdicts == apart.verdicts and here.rows == apart.rows and here.passes == apart.passes
    assert {one.status for one in here.verdicts} == {Status.PASSED}


# ---------------------------------------------------------------- without Spark
IN_SQL = ScannedTable([Column("day", "date"), Column("at", "timestamp_ntz"), Column("seen", "timestamp")], NOW, "Asia/Tokyo")


@given(st.lists(st.sampled_from(["a", "Z", "7", "@", ".", "-", "_", "%", " ", "é", "com", "x@y.de", "\n"]), max_size=12).map("".join))
def test_an_address_is_found_wherever_there_is_one(text: str) -> None:
    """The expression begins with the @, as that is faster. It must find what the one that people would write finds."""
    plain = r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}"
    assert bool(re.search(EMAIL, text)) == bool(re.search(plain, text))


def rule(words: Mapping[str, Any]) -> Rule:
    return ADAPTER.validate_python(words)


def condition(words: Mapping[str, Any]) -> str:
    made = rule(words)
    assert isinstance(made, RowRule)
    return made.condition(IN_SQL)


def test_rules_with_the_same_key_and_filter_share_a_pass() -> None:
    """Each further key takes a further pass over the rows, and a filter must not be lost when rules share a pass."""
    rules = [
        made("a", "unique", {"columns": ["x", "Y"]}),
        made("b", "distinct_count", {"columns": ["y", "X"], "max": 3}),
        made("c", "unique", {"columns": ["x"], "scope": "table"}),
        made("d", "unique", {"columns": ["x"], "filter": "x > 1"}),
        made("e", "sum", {"column": "x", "max": 3}),
        made("f", "metric", {"expression": "avg(x)", "max": 3, "filter": "x > 1"}),
        made("g", "volumetric", {"max_change": 1, "filter": "x > 1"}),
        made("h", "positive", {"column": "x", "filter": "x > 2"}),
    ]
    named = {grouping: [one.name for one in some] for grouping, some in groupings(rules).items()}
    assert named == {Grouping(("x", "y"), None): ["a", "b"], Grouping(("x",), None): ["c"], Grouping(("x",), "x > 1"): ["d"]}
    assert {condition: [one.name for one in some] for condition, some in by_filter(rules).items()} == {None: ["e"], "x > 1": ["f", "g"]}


def test_spark_names_the_rule_that_broke_a_pass() -> None:
    """Otherwise a correct rule is called errored because another rule's SQL begins with the same text."""
    rules = [Aggregate("good", "a", "ok"), Aggregate("bad", "b", Condition("ok AND 1 / x > 0"))]
    quoted = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL (line 1, position 8) ==\nok AND 1 / x > 0\n       ^^^^^"
    assert named_by(PySparkException(quoted), rules) == "bad"
    assert named_by(PySparkException(quoted), rules[:1]) is None
    assert named_by(PySparkException("[OUT_OF_MEMORY]"), rules) is None


@pytest.mark.parametrize(
    ("written", "sql"),
    [
        (True, "true"),
        (0.1, "0.1"),
        (-5e-3, "-0.005"),
        (1e300, "CAST('1e+300' AS DOUBLE)"),
        (math.inf, "CAST('inf' AS DOUBLE)"),
        (2**63 - 1, "9223372036854775807"),
        (2**63, "9223372036854775808BD"),
        ("it's", r"'it\'s'"),
        ("a\\' OR 1=1 -- ", r"'a\\\' OR 1=1 -- '"),
        ("${env:HOME}", r"'\u0024{env:HOME}'"),
    ],
)
def test_constants_of_rules_keep_their_value_and_type(written: Any, sql: str) -> None:
    """0.1 as a double is not equal to 0.1 in a numeric column, and a quote that is not escaped would become SQL."""
    assert constant(written) == sql


def test_now_is_the_time_in_the_zone_of_the_column() -> None:
    """At noon in London it is evening in Tokyo: a row of this evening there is not in the future."""
    said = [condition({"rule": "not_in_future", "column": name}) for name in ("AT", "seen", "day")]
    assert said == [
        "`AT` <= TIMESTAMP_NTZ'2024-04-20 21:00:00.000000'",
        "`seen` <= TIMESTAMP'2024-04-20 12:00:00.000000Z'",
        "`day` <= DATE'2024-04-20'",
    ]
    with pytest.raises(RuleNotApplicable, match="no column 'nope'"):
        condition({"rule": "positive", "column": "nope"})


def test_exact_numbers_are_compared_as_they_are_written() -> None:
    """0.30 is at most 0.3, which as a float is a little less."""
    from decimal import Decimal

    assert within(Decimal("0.30"), 0.3, 0.3) and not within(Decimal("0.31"), None, 0.3)
    assert within(None, 1, 2) and not within(math.nan, 1, None)
    assert not within(2**63, None, 2**63 - 1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"rule": "between", "column": "a", "min": 1}, "takes min and max"),
        ({"rule": "max", "column": "a", "min": 1}, "takes max, and here is min"),
        ({"rule": "between", "column": "a", "min": 2, "max": 1}, "min 2 is above max 1"),
        ({"rule": "length", "column": "a"}, "no bound"),
        ({"rule": "compare", "column": "a", "operator": "=", "field": "b", "value": 1}, "either another field"),
        ({"rule": "compare", "column": "a", "operator": "=>", "value": 1}, "operator"),
        ({"rule": "not_null", "columns": []}, "columns"),
        ({"rule": "not_null", "columns": ["a"], "tolerance": 1.5}, "from 0.0 to 1.0"),
        ({"rule": "not_null", "columns": ["a"], "tolerance": -1}, "from 0.0 to 1.0"),
        ({"rule": "not_null", "columns": ["a"], "tolerance": math.nan}, "from 0.0 to 1.0"),
        ({"rule": "not_null", "columns": ["a"], "name": "a b"}, "letters, digits and _"),
        ({"rule": "not_null", "columns": ["a"], "colour": "red"}, "colour"),
        ({"rule": "is_type", "column": "a", "type": "int) OR (true"}, "write it as Spark does"),
        ({"rule": "is_type", "column": "a", "type": "money"}, "write it as Spark does"),
        ({"rule": "expected_schema", "types": {"a": "inte"}}, "write it as Spark does"),
        ({"rule": "metric_change", "max_change": 1}, "takes an expression"),
        ({"rule": "volumetric", "max_change": 1, "over": 0}, "over"),
        ({"rule": "freshness", "max_age": "a while"}, "a number and a unit"),
        ({"rule": "freshness", "max_age": "999999999 weeks"}, "longer than 1,000 years"),
        ({"rule": "nearly_null", "columns": ["a"]}, "nearly_null"),
    ],
)
def test_invalid_attributes_of_a_rule_are_refused(words: Mapping[str, Any], says: str) -> None:
    """They must be refused when the project loads, and not only in a run."""
    with pytest.raises(ValidationError, match=re.escape(says)):
        rule(words)


def test_the_id_of_a_rule_stays_when_its_bounds_change() -> None:
    """Records, anomalies and the UI use the id, so it must stay when bounds, severity or the order in the file change."""
    assert rule({"rule": "between", "column": "a b", "min": 1, "max": 2}).id == "between_a_U20_b"
    assert rule({"rule": "unique", "columns": ["a", "b"]}).id == "unique_a_b"
    assert rule({"rule": "compare", "column": "a", "operator": "<=", "field": "b"}).id == "compare_a_at_most_b"
    one, two = (rule({"rule": "expression", "expression": text}).id for text in ("a > 1", "a > 2"))
    assert one != two and re.fullmatch("expression_[0-9a-f]{8}", one)


KNOWN = ["id", "a", "b", "my col", "a.b", "Tags"]
IN_ROWS = [
    "a > 0 AND `my col` IS NOT NULL AND `a.b` = A",
    "tags.owner = 'x' AND tags['owner'] = 'x' AND tags.owner.name = 'y'",
    "exists(tags, x -> x > a)",
    "aggregate(tags, 0, (total, x) -> total + x) > 0",
    "some_function_of_tomorrow(a, b) > 1 AND try_divide(a, b) > 1 AND luhn_check(a)",
    "timestampdiff(DAY, a, b) > 1 AND dateadd(HOUR, 1, a) > b AND extract(DOW FROM a) = 1",
    "a < current_timestamp AND a < localtimestamp AND a < current_date() AND b = user AND b = current_user",
    "a RLIKE '^\\\\d+$' OR a ILIKE ANY ('x', 'y') OR b LIKE 'x!%' ESCAPE '!'",
    "a <=> b AND a DIV b = 1 AND a::int > 1 AND 1BD < a AND a >>> 1 > 0 AND a !< b",
    "a > b - INTERVAL 1 DAY AND a > DATE'2024-01-01' AND a IS DISTINCT FROM b -- as it should be",
    "CASE WHEN a THEN b ELSE NULL END",
    "a IN (SELECT other FROM somewhere) AND a <= (SELECT max(other) FROM somewhere)",
    "greatest(a, b) > 0 AND array_max(array(a, b)) > 1",
]
IN_NUMBERS = [
    "count(*)",
    "count_if(a > 0) / count(*)",
    "sum(a) FILTER (WHERE b > 0)",
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY a)",
    "hll_sketch_estimate(hll_sketch_agg(a))",
    "count(DISTINCT a, `my col`)",
    "aggregate_of_tomorrow(a)",
]


def check(words: Mapping[str, Any], columns: Sequence[str] | None = KNOWN, has_partitions: bool = True) -> None:
    check_rules("shop/orders", [rule({"place": "shop/defs.yaml:7", **words})], columns, {"customers": None}, has_partitions)


@pytest.mark.parametrize("text", IN_ROWS)
def test_a_condition_that_spark_knows_is_not_refused(text: str) -> None:
    """A function that the check does not know must not keep the project from loading; Spark may know it."""
    check({"rule": "expression", "expression": text})
    check({"rule": "metric", "expression": "count(*)", "min": 1, "filter": text})


@pytest.mark.parametrize("text", IN_NUMBERS)
def test_an_aggregate_that_spark_knows_is_not_refused(text: str) -> None:
    """The same holds for aggregates."""
    check({"rule": "metric", "expression": text, "min": 1})
    check({"rule": "metric_change", "expression": text, "max_change": 1})


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"rule": "positive", "column": "idd"}, "no column 'idd'. Nearest: id."),
        ({"rule": "expression", "name": "x", "expression": "my_col > 0"}, "there is no column 'my_col'. Nearest: my col."),
        ({"rule": "not_null", "columns": ["id"], "filter": "nope = 1"}, "no column 'nope'"),
        ({"rule": "expression", "expression": "a > "}, "no expression of Spark SQL"),
        ({"rule": "expression", "expression": "a > 0) OR (true"}, "no expression of Spark SQL"),
        ({"rule": "expression", "expression": "a > 0; DROP TABLE x"}, "no expression of Spark SQL"),
        ({"rule": "expression", "expression": "DROP TABLE x"}, "no expression of Spark SQL"),
        ({"rule": "expression", "expression": "a > 0, b > 0"}, "is several expressions"),
        ({"rule": "expression", "expression": "SELECT 1"}, "is a statement"),
        ({"rule": "metric", "expression": "SELECT count(*) FROM x", "min": 1}, "is a statement"),
        ({"rule": "metric", "expression": "DESCRIBE x", "min": 1}, "is a statement"),
        ({"rule": "expression", "expression": "sum(a) > 0"}, "rule: metric does"),
        ({"rule": "metric", "expression": "sum(a)", "min": 1, "filter": "max(a) > 0"}, "rule: metric does"),
        ({"rule": "exists_in", "column": "a", "container": "customer", "field": "id"}, "no container 'customer' in the datastore. Near"),
        ({"rule": "exists_in", "column": "a", "container": "shop/customer", "field": "id"}, "no container 'customer' in the datastore."),
        ({"rule": "metric", "expression": "a", "min": 1}, "has no aggregate"),
        ({"rule": "freshness", "max_age": "1 day"}, "say which column"),
    ],
)  # fmt: skip
def test_wrong_names_and_sql_are_refused_with_their_line(words: Mapping[str, Any], says: str) -> None:
    """To correct a rule, its reader needs the line of the YAML and the name that was probably meant."""
    with pytest.raises(ConfigurationError, match=r"\Ashop/defs.yaml:7: shop/orders: check \w+: .*" + re.escape(says)):
        check(words, has_partitions=words["rule"] != "freshness")


def test_names_are_not_checked_where_the_columns_are_unknown() -> None:
    """Columns of files are known only when the files are read, but the SQL can be checked before."""
    check({"rule": "expression", "expression": "whatever > 0"}, None)
    with pytest.raises(ConfigurationError, match="no expression"):
        check({"rule": "expression", "expression": "whatever >"}, None)


def test_two_rules_of_one_id_are_refused() -> None:
    """The records and anomalies of the two rules could not be distinguished."""
    rules = [
        rule({"rule": "not_null", "columns": ["a"], "place": f"defs.yaml:{line}", **more})
        for line, more in ((3, {}), (4, {"tolerance": 5}))
    ]
    with pytest.raises(ConfigurationError, match=r"\Adefs.yaml:4: .*'not_null_a' too \(defs.yaml:3\); give one of them a name"):
        check_rules("shop/orders", rules, KNOWN, {})
