"""Profiles: what is computed of each partition, how it is kept and merged, the page, and the rules that are proposed.

Belongs here: figures against those that plain Python finds in the same rows. Does not belong: the command, and what runs when.
"""

import contextlib
import datetime as dt
import io
import json
import math
import random
import re
import shutil
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pydantic import TypeAdapter

from assets_tests.harness import Folder, Project, Workspace
from incremental_assets.catalog.definition import Settings
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.rules.checks import AnyRule
from incremental_assets.core.rules.numbers import Change
from incremental_assets.core.rules.sql import RuleNotApplicable, ScannedTable
from incremental_assets.core.rules.values import Between, NotNull, RowRule
from incremental_assets.core.schema import Column
from incremental_assets.dagster.datastore import maintenance_job
from incremental_assets.dagster.profiles import suggested_checks
from incremental_assets.delta.guards import expr
from incremental_assets.delta.maintenance import next_time_if_moved, tidy
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.operations.scans import ScanOptions, profile_lines
from incremental_assets.profiles.column import (
    ColumnProfile,
    Form,
    Frequent,
    Key,
    Lengths,
    Moments,
    Profile,
    form_of,
    merge_columns,
    merge_moments,
)
from incremental_assets.profiles.page import profile_page
from incremental_assets.profiles.propose import candidates, changes_of, rounded_up, rows_by_partition, volumetric
from incremental_assets.profiles.shapes import common_pattern
from incremental_assets.profiles.states import RANKS, Parameters, profile_states
from incremental_assets.profiles.store import ProfileStore, sorted_keys
from incremental_assets.profiles.suggest import Split, Suggestions, split_partitions, suggest
from incremental_assets.quality.records import OperationResult, OperationType, Records, ScanOperation
from incremental_assets.quality.rows import PARTITION, Aggregate, Rows, Values
from incremental_assets.quality.scan_scope import ScanScope
from incremental_assets.spark.code_generation import interpret_few

ROWS, DAYS = 6000, 5
NASTY = '<b>"x"</b><script>alert(1)</script>'
EMPTY = "2026-02-01"
RULES = TypeAdapter(list[AnyRule])
Row = dict[str, Any]


def _rows() -> list[Row]:
    rnd = random.Random(7)
    start = dt.datetime(2026, 1, 1)

    def text(n: int) -> str | None:
        return None if n % 3 == 0 else "" if n % 4 == 0 else rnd.choice(["it's", '"quoted"', "😀", "a\\b"]) + str(rnd.randrange(900))

    return [
        {
            "day": None if n % 500 == 0 else dt.date(2026, 1, 1 + n % DAYS),
            "id": n,
            "small": rnd.choice((1, 1, 1, 2, 2, 3)),
            "big": rnd.randrange(-(2**62), 2**62),
            "price": Decimal(rnd.randrange(-5000, 90000)) / 100,
            "ratio": math.nan if n % 50 == 0 else math.inf if n == 3 else -0.0 if n % 51 == 0 else rnd.gauss(1e9, 1),
            "words": text(n),
            "mail": f"user{rnd.randrange(4000)}@example.org",
            "code": f"Clerk#{rnd.randrange(100):05d}",
            "local": start + dt.timedelta(microseconds=rnd.randrange(10**13)),
            "instant": (start - dt.timedelta(days=150_000, seconds=rnd.randrange(10**9))).replace(tzinfo=dt.timezone.utc),
            "flag": n % 3 == 0,
            "raw": b"" if n % 100 == 0 else n.to_bytes(3, "big"),
            "nothing": None,
            "pairs": [("k", n)] if n % 2 else None,
            NASTY: rnd.choice([NASTY, "plain", "%{x}", ""]),
        }
        for n in range(ROWS)
    ]


SCHEMA = pa.schema(
    [
        ("day", pa.date32()), ("id", pa.int64()), ("small", pa.int32()), ("big", pa.int64()), ("price", pa.decimal128(12, 2)),
        ("ratio", pa.float64()), ("words", pa.string()), ("mail", pa.string()), ("code", pa.string()), ("local", pa.timestamp("us")),
        ("instant", pa.timestamp("us", "UTC")), ("flag", pa.bool_()), ("raw", pa.binary()), ("nothing", pa.int64()),
        ("pairs", pa.map_(pa.string(), pa.int64())), (NASTY, pa.string()),
    ]
)  # fmt: skip


@dataclass
class Lake:
    """``scans``: of the table, in the plan of the states. ``merged``: of the states of all partitions, ``whole``: of the same rows at once;
    ``fitted``: of what ``suggestions`` are made from. ``after``: 2 January has 100 rows in other states, and 3 January none; ``kept``: the
    states then, as delta-rs reads them."""

    rows: list[Row]
    scans: int
    merged: Profile
    whole: Profile
    fitted: Profile
    suggestions: Suggestions
    after: Profile
    kept: list[Row]


@pytest.fixture(scope="module")
def lake(spark_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Runs everything that needs Spark once. The container's table is moved away while profiles are merged."""
    from incremental_assets.spark.session import open_session

    place, rows = tmp_path_factory.mktemp("lake"), _rows()
    table, away = place / "shop" / "orders", place / "away"
    write_deltalake(str(table), pa.Table.from_pylist(rows, schema=SCHEMA))
    head = LakeTable(str(place), "shop", "orders").head()
    assert head is not None
    columns, store = head.columns, ProfileStore(str(place), "shop")
    in_sql = ScannedTable(columns, dt.datetime.now(dt.timezone.utc))

    @contextlib.contextmanager
    def opened() -> Iterator[Any]:
        with open_session(spark_home, name="profiles") as session:
            interpret_few(session, len(rows))
            yield session

    def refresh(frame: Any, **kwargs: Any) -> None:
        key_of = {"partition": "day", "key_of": lambda day: day.isoformat()}
        store.refresh(frame, "orders", columns, delta_version=0, operation_id="run", **key_of, **kwargs)

    def refresh_whole() -> None:
        with opened() as session:
            frame = session.read.format("delta").load(str(table))
            store.refresh(frame, "whole", columns, delta_version=0, operation_id="run")

    with opened() as spark, ThreadPoolExecutor() as pool:
        beside = pool.submit(refresh_whole)  # the table of profiles is not there yet
        frame = spark.read.format("delta").load(str(table))
        refresh(frame, keys=[EMPTY])
        beside.result()
        with contextlib.redirect_stdout(io.StringIO()) as plan:
            profile_states(frame, columns, "day").explain()
        shutil.move(table, away)
        merged, whole = store.profile(spark, "orders"), store.profile(spark, "whole")
        assert merged is not None
        split = split_partitions(merged)
        fitted = store.profile(spark, "orders", split.fitted)
        assert fitted is not None
        shutil.move(away, table)
        held = frame.where(f"day = DATE'{split.held_out[0]}'")
        held = held.withColumn("small", expr("CASE WHEN id > 5970 THEN 77 ELSE small END"))
        held = held.withColumn("code", expr("CASE WHEN id > 3000 THEN 'gone' ELSE code END"))
        counts = rows_by_partition(merged)
        rows_held = Rows(lambda: spark, store.table, head, ScanScope(cast(Any, None), None, "day", None), in_sql)
        found = suggest(
            fitted,
            split,
            lambda wanted: rows_held.aggregate(held.withColumn(PARTITION, expr("day")), wanted),
            lambda rule: "no_such_function(local)" if rule.id == "not_in_future_local" else rule.condition(in_sql),
            rows=counts,
        )
        few = frame.where("day = DATE'2026-01-02' AND id < 500").withColumn("small", expr("9"))
        refresh(few, keys=["2026-01-02", "2026-01-03"], parameters=Parameters(distinct=12))
        _maintained_twice_at_once(store.table)
        after = store.profile(spark, "orders")
        assert whole and after
    delta = store.table.opened()
    assert delta is not None
    query = QueryBuilder().register("kept", delta).execute("SELECT container, partition, column_name FROM kept WHERE container = 'orders'")
    kept = pa.table(query.read_all()).to_pylist()
    return Lake(rows, plan.getvalue().count("FileScan "), merged, whole, fitted, found, after, kept)


def _maintained_twice_at_once(table: LakeTable) -> None:
    """Two runs maintain the table at once: the second one began before the first one has committed. No state may be there twice, since each
    row of a partition would then be counted twice."""
    before = table.opened_to_change()
    assert before is not None
    tidy(table)
    head = table.head()
    assert head is not None and head.version > before.version(), "there were files to be joined"
    with pytest.MonkeyPatch.context() as patch, next_time_if_moved():
        patch.setattr(LakeTable, "opened_to_change", lambda _: before)
        tidy(table)


def _text(value: Any) -> str:
    """A state as a profile writes it."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ").rstrip("0").rstrip(".") if value.microsecond else f"{value:%Y-%m-%d %H:%M:%S}"
    return value.hex().upper() if isinstance(value, bytes) else str(value).lower() if isinstance(value, bool) else str(value)


def _assert_rank(column: ColumnProfile, values: Sequence[Any], of_text: Any) -> None:
    """Checks that each quantile lies at its rank, within 2 % of the values."""
    ordered = sorted(values)
    for rank, value in column.quantiles.items():
        below, upto = (sum(one < of_text(value) for one in ordered), sum(one <= of_text(value) for one in ordered))
        assert below / len(ordered) - 0.02 <= rank <= upto / len(ordered) + 0.02, (column.column, rank, value)


def _assert_figures(found: ColumnProfile, rows: Sequence[Row]) -> None:
    """Compares everything that the profile says about a column with its rows."""
    values = [row[found.column] for row in rows]
    present = [value for value in values if value is not None]
    numbers = [value for value in present if not (isinstance(value, float) and math.isnan(value))]
    assert (found.rows, found.nulls, found.nans) == (len(values), len(values) - len(present), len(present) - len(numbers)), found
    if found.form is Form.OTHER:
        assert found.distinct is None and not found.frequent and found.minimum is None
        return
    distinct = len({repr(value + 0.0) if isinstance(value, float) else value for value in present})
    assert found.distinct == pytest.approx(distinct, rel=0.02), found.column
    if not present:
        assert (found.minimum, found.mean, found.deviation, found.lengths, found.frequent) == (None, None, None, None, ())
        assert not found.quantiles
        return
    if found.form is Form.FLOATING:
        finite = [value for value in numbers if math.isfinite(value)]
        assert float(found.minimum or "nan") == min(numbers) and float(found.maximum or "nan") == max(numbers)
    else:
        finite = numbers
        key = (lambda one: one.encode()) if found.form is Form.TEXT else None
        assert (found.minimum, found.maximum) == (_text(min(present, key=key)), _text(max(present, key=key))), found.column
    if found.form.is_number:
        assert found.mean == pytest.approx(float(statistics.fmean(map(float, finite))), rel=1e-12)
        assert found.deviation == pytest.approx(float(statistics.stdev(map(float, finite))), rel=1e-6)
        _assert_rank(found, numbers, type(numbers[0]))
    elif found.form.is_time:
        _assert_rank(found, [_text(value) for value in present], str)
    if found.form in (Form.TEXT, Form.BINARY):
        lengths = [len(value) for value in present]
        assert found.lengths == Lengths(len(lengths), min(lengths), max(lengths), sum(lengths))
    if found.form in (Form.INTEGER, Form.TEXT, Form.BOOLEAN):
        counts = Counter(map(_text, present))
        expected = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
        if distinct <= 20:
            assert [(one.value, one.count) for one in found.frequent] == expected and found.frequent_is_exact
        for one in found.frequent:
            assert abs(one.count - counts[one.value]) <= found.frequent_error, (found.column, one)


def test_a_profile_of_every_type_agrees_with_the_rows(lake: Lake) -> None:
    """A wrong minimum or share of NULLs would make people look for faults that do not exist."""
    for name in SCHEMA.names:
        _assert_figures(lake.merged.column(name), lake.rows)
    day = [row for row in lake.rows if row["day"] == dt.date(2026, 1, 3)]
    for column in lake.merged.partitions["2026-01-03"].values():
        _assert_figures(column, day)
    assert lake.merged.column("words").distinct == lake.whole.column("words").distinct
    assert len(lake.merged.records()) == len(SCHEMA.names)


def test_merged_profiles_equal_a_profile_of_all_rows(lake: Lake) -> None:
    """The profile of a large table is always merged, so nobody would notice a merge that is wrong."""
    assert set(lake.whole.partitions) == {None} and lake.whole.rows == ROWS
    for one in lake.whole.columns:
        merged = lake.merged.column(one.column)
        _assert_figures(one, lake.rows)
        assert (merged.minimum, merged.maximum, merged.lengths, merged.rows) == (one.minimum, one.maximum, one.lengths, one.rows)
        assert merged.moments is None or (one.moments and merged.moments.m2 == pytest.approx(one.moments.m2, rel=1e-9))


def test_a_profile_can_be_merged_from_any_choice_of_partitions(lake: Lake) -> None:
    """Rules are made from some partitions and tried on others. If a merge took in all partitions, every rule would seem to hold."""
    chosen = [row for row in lake.rows if row["day"] not in (None, dt.date(2026, 1, DAYS))]
    assert list(lake.fitted.partitions) == [f"2026-01-0{n + 1}" for n in range(DAYS - 1)]
    for name in ("id", "price", "words", "local"):
        _assert_figures(lake.fitted.column(name), chosen)


def test_a_profile_takes_one_pass_and_a_merge_reads_no_rows(lake: Lake) -> None:
    """A profile must not read the table once for each column, or again for each merge. The table was moved away while ``merged``, ``whole``
    and ``fitted`` were computed."""
    assert lake.scans == 1
    assert lake.merged.rows == ROWS


def test_rows_without_identifier_and_empty_partitions_have_profiles(lake: Lake) -> None:
    """A day without rows is important to people, so it must be a zero in the plot and not a gap."""
    assert rows_by_partition(lake.merged)[EMPTY] == 0 and rows_by_partition(lake.merged)[None] == ROWS // 500
    assert lake.merged.partitions[EMPTY]["price"] == ColumnProfile("price", "decimal(12,2)", Form.DECIMAL, 0, distinct=0)
    assert list(lake.merged.partitions) == [None, *(f"2026-01-0{n + 1}" for n in range(DAYS)), EMPTY]


def test_a_refreshed_partition_replaces_its_state_and_no_other(lake: Lake) -> None:
    """After a refresh, rows must not be counted twice, and other partitions must stay in the profile."""
    before, after = rows_by_partition(lake.merged), rows_by_partition(lake.after)
    assert after == {**before, "2026-01-02": 100, "2026-01-03": 0}
    assert lake.after.partitions["2026-01-02"]["small"].minimum == "9"
    assert lake.after.partitions["2026-01-04"] == lake.merged.partitions["2026-01-04"]
    states = [(row["container"], row["partition"], row["column_name"]) for row in lake.kept]
    assert len(states) == len(set(states)) == len(after) * len(SCHEMA.names), "one state a partition and column"


def test_states_with_other_parameters_are_named_and_not_merged(lake: Lake) -> None:
    """Sketches of different sizes cannot be merged, so the page must say that its figures are about a part of the rows."""
    refreshed = {"2026-01-02", "2026-01-03"}
    assert set(lake.after.left_out["small"]) == set(lake.after.partitions) - refreshed
    assert lake.after.column("small").rows == 100
    assert "Profile them again" in profile_page(lake.after) and not lake.merged.left_out


def test_the_page_loads_nothing_and_escapes_data(lake: Lake) -> None:
    """A value of the data must not become a script in the page, and opening the page must not send a request to the network."""
    page = profile_page(lake.merged, "shop/orders")
    head, _, rest = page.partition("<script>")
    own = head + rest[rest.index("</script>") :]  # without the library
    assert "default-src 'none'" in own
    assert not re.search(r"""(?:src|href)\s*=\s*(?!["']?#)|url\(|@import|https?:""", own), "something is loaded"
    assert "<script>alert" not in own and "<b>" not in own
    found = re.search(r'<script type="application/json" id="plots">(.*?)</script>', own, re.S)
    assert found is not None
    plots = json.loads(found[1], parse_constant=lambda word: pytest.fail(f"{word} is not JSON: the browser draws nothing"))
    assert NASTY not in json.dumps(plots) and "&lt;script&gt;" in json.dumps(plots)
    titles = [plot["layout"]["title"]["text"] for plot in plots]
    assert len(titles) == page.count("data-plot=") and "rows of each partition" in titles and "distinct values" in titles


def test_without_plotly_the_page_has_the_figures_and_says_what_to_install(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """plotly is an extra: where it is not installed, nobody must lose the figures of a profile, or get a page that draws nothing."""
    monkeypatch.setitem(sys.modules, "plotly", None)  # as Python notes what cannot be imported
    page = profile_page(lake.merged, "shop/orders")
    assert "pip install &#39;incremental-assets[profiles]&#39;" in page and "Clerk#" in page
    assert "<script>" not in page and 'class="plot"' not in page


def test_rules_are_proposed_that_hold_for_rows_they_were_not_made_from(lake: Lake) -> None:
    """Proposed rules must be valid when they are pasted, and rules that the newest rows break must be marked."""
    found = lake.suggestions
    assert found.split == Split(tuple(f"2026-01-0{n + 1}" for n in range(DAYS - 1)), (f"2026-01-0{DAYS}",))
    held = [row for row in lake.rows if row["day"] == dt.date(2026, 1, DAYS)]
    assert found.rows == len(held)
    text = found.yaml()
    rules = RULES.validate_python(yaml.safe_load(text))
    assert [rule.words() for rule in rules] == [one.rule.words() for one in found.kept]
    by_id = {rule.id: rule for rule in rules}
    assert by_id["not_null_day_id_small_big_price_ratio_mail_code_local_instant_flag_raw_" + rules[0].id.rpartition("_raw_")[2]]
    assert {"contains_email_mail", "not_in_future_instant", "unique_id"} <= set(by_id)
    few = sum(row["id"] > 5970 for row in held)
    assert few and by_id["expected_values_small"].words()["tolerance"] == pytest.approx(rounded_up(2 * few / len(held)))
    assert f"{few} of {len(held):,} rows fail" in text
    dropped = {one.rule.id: one for one in found.dropped}
    gone = sum(row["id"] > 3000 for row in held)
    assert dropped["matches_pattern_code"].failed == gone and "matches_pattern_code" not in by_id
    assert f"# {'  '}" in text and "Left out" in text
    assert [rule.id for rule, _ in found.unfit] == ["not_in_future_local"], "what Spark does not understand must not take the others along"


# ---------------------------------------------------------------- without Spark
def test_moments_merge_without_losing_a_small_deviation_beside_a_large_mean() -> None:
    """Sums of squares of times or keys lose all their digits: a deviation of 0, or of the root of a negative number, would be shown."""
    rnd = random.Random(1)
    parts = [[1e9 + rnd.gauss(0, 1e-3) for _ in range(50)] for _ in range(40)]
    one = [Moments(len(p), statistics.fmean(p), statistics.pvariance(p) * len(p)) for p in parts]
    whole = [value for part in parts for value in part]
    assert merge_moments([*one, Moments()]).deviation == pytest.approx(statistics.stdev(whole), rel=1e-3)
    assert merge_moments([]).deviation is None and Moments(1, 5.0, 0.0).deviation is None


def test_least_and_greatest_are_compared_as_values_and_not_as_texts() -> None:
    """By their texts, 9 is above 10 and the year 10000 below 2026: the bounds of a merged profile would be wrong."""

    def merged(type_: str, *values: str) -> tuple[str | None, str | None]:
        parts = [ColumnProfile("c", type_, form_of(type_), 1, minimum=value, maximum=value) for value in values]
        found = merge_columns(parts)
        return found.minimum, found.maximum

    assert merged("int", "9", "10", "-1") == ("-1", "10")
    assert merged("decimal(12,2)", "9.50", "10.00") == ("9.50", "10.00")
    assert merged("double", "9.0", "1.0E10", "-Infinity") == ("-Infinity", "1.0E10")
    assert merged("date", "2026-01-01", "+10000-01-01", "-0044-03-15") == ("-0044-03-15", "+10000-01-01")
    assert merged("timestamp", "2026-01-01 00:00:00.5", "2026-01-01 00:00:00.45") == ("2026-01-01 00:00:00.45", "2026-01-01 00:00:00.5")
    assert merged("string", "😀", "\uffff", "a") == ("a", "😀")


@pytest.mark.parametrize(
    ("texts", "pattern"),
    [
        (["Clerk#00001", "Clerk#00777", "Clerk#12345", "Clerk#99999"], "^Clerk#[0-9]{5}$"),
        (["A-1.5", "B-22.5", "C-3.5", "D-4.7"], r"^[A-Z]-[0-9]+\.[0-9]$"),
        (["a-1", "a--2", "a-3", "a---4"], "^a-+[0-9]$"),
        ([f"{n:032x}" for n in (1, 2, 3, 2**127)], "^[0-9a-f]{32}$"),
        (["one", "three", "five", "eleven"], None),
        (["a 1", "1 a", "b 2", "c 3"], None),
        (["x1", "x2", "", "x3"], None),
    ],
)
def test_a_pattern_is_proposed_for_texts_of_one_form(texts: list[str], pattern: str | None) -> None:
    """A pattern that its own texts do not match, or that every text matches, must not be proposed."""
    assert common_pattern(texts) == pattern
    assert pattern is None or all(re.search(pattern, one) for one in texts)


def test_the_number_of_rows_is_compared_with_the_partitions_before(lake: Lake) -> None:
    """A partition in its own baseline would hide that it is empty, and bounds that are too narrow would fail each week."""
    counts: dict[Key, int] = {f"2026-01-{n:02d}": 100 + 10 * (n % 3) for n in range(1, 21)}
    rule = volumetric(counts)
    assert rule == Change(rule="volumetric", min_change=-0.2, max_change=0.2, over=14)
    assert changes_of({**counts, "2026-01-21": 330})["2026-01-21"] == pytest.approx(2.0, abs=0.05)
    assert "2026-01-21" not in changes_of({**counts, "2026-01-21": 0}), "as the rule itself: those without rows are no baseline"
    assert volumetric(dict(list(counts.items())[:5])) is None


def test_rules_from_a_single_partition_are_marked_as_not_tried() -> None:
    """Rules that were not tried on other rows must not look as if they had been."""
    column = ColumnProfile(
        "flag", "boolean", Form.BOOLEAN, 50, distinct=2, minimum="false", maximum="true", frequent=(Frequent("true", 50),)
    )
    profile = Profile("t", (column,), {"2026-01-01\nx": {"flag": column}})
    split = split_partitions(profile)
    assert split == Split(("2026-01-01\nx",), ())
    found = suggest(profile, split, None, lambda rule: "true", rows={"2026-01-01\nx": 50})
    assert "NOT asked of other rows" in found.yaml() and len(yaml.safe_load(found.yaml())) == 1


def _of_texts(name: str, *values: str, rows: int = 100, nulls: int = 0) -> ColumnProfile:
    """A column of a few texts that each come again and again."""
    counted = tuple(Frequent(value, (rows - nulls) // len(values)) for value in values)
    return ColumnProfile(
        name, "string", Form.TEXT, rows, nulls, distinct=len(values), minimum=min(values), maximum=max(values), frequent=counted,
        lengths=Lengths(rows, 1, 9, rows),
    )  # fmt: skip


def _profile_of(*columns: ColumnProfile) -> tuple[Profile, Split]:
    """Of the partition ``old``; ``new`` is held out."""
    return Profile("shop/orders", columns, {"old": {one.column: one for one in columns}}), Split(("old",), ("new",))


def _answer(broken: Mapping[str, Mapping[str, int]], rows: int, but: str = "-") -> Callable[[Sequence[Aggregate]], Values]:
    """Of each partition, how many rows break the rules that ask of a column; Spark does not understand those with ``but``."""

    def ask(wanted: Sequence[Aggregate]) -> Values:
        return {
            key: {"total": rows}
            | {
                one.name: sum(n for column, n in of.items() if column in str(one.texts))
                for one in wanted
                if one.owner and but not in str(one.texts)
            }
            for key, of in broken.items()
        }

    return ask


def test_a_rule_that_cannot_be_evaluated_or_written_does_not_stop_the_others() -> None:
    """A column that was dropped or changed since the profile, or has an unusual name, must not keep the other rules from being proposed."""

    def predicate(rule: RowRule) -> str:
        if "gone" in rule.columns_used:
            raise RuleNotApplicable("the table has no column 'gone'")
        return " ".join((rule.rule, *rule.columns_used))

    names = ("gone", "odd", "fine", "{{ env.HOME }}")
    profile, split = _profile_of(*(_of_texts(name, "a", "b") for name in names), _of_texts("braces", "{{ x }}", "b"))
    found = suggest(profile, split, _answer({"new": {}}, 50, but="odd"), predicate, rows={"old": 100, "new": 50})
    rules = RULES.validate_python(yaml.safe_load(found.yaml()))
    assert {name for rule in rules for name in rule.columns_used} == {"fine", "braces"}
    assert not [rule for rule in rules if "{{" in str(rule.words())], "the component would fill it in as a template"
    assert "the table has no column 'gone'" in found.yaml() and {one.columns_used[0] for one, _ in found.unfit} == {*names, "braces"} - {
        "fine"
    }
    untried = suggest(profile, Split(("old",), ()), None, predicate, rows={"old": 100}).yaml()
    assert "gone" not in str(yaml.safe_load(untried)), "also where there is nothing to ask it of"


def test_a_proposed_tolerance_holds_for_each_partition() -> None:
    """A scan applies the tolerance to each partition. A tolerance computed from all rows together would fail in some of the partitions."""
    profile, split = _profile_of(_of_texts("some", "a", "b"), _of_texts("many", "a", "b"))
    split = Split(split.fitted, tuple(f"d{n}" for n in range(10)))
    broken = {key: {"some": 9 * (key == "d3"), "many": 20 * (key == "d3")} for key in split.held_out if key is not None}
    found = suggest(profile, split, _answer(broken, 1000), lambda rule: " ".join((rule.rule, *rule.columns_used)), rows={})
    kept = {one.rule.id: one.rule for one in found.kept}
    assert kept["expected_values_some"].tolerates(9, 1000) and kept["expected_values_some"].tolerance == 0.02
    assert {one.rule.columns_used for one in found.dropped} == {("many",)} and "at worst 2 % of a partition" in found.yaml()


def test_a_proposed_tolerance_of_nulls_follows_the_worst_partition() -> None:
    """NULLs that are rare in all rows may be frequent on one day, and the rule would fail in that partition at each scan."""

    def proposed(nulls: int) -> list[float]:
        days = [_of_texts("c", "a", "b"), _of_texts("c", "a", "b", rows=1000, nulls=nulls)]
        profile = Profile("t", (_of_texts("c", "a", "b", rows=100_000, nulls=nulls),), {str(n): {"c": day} for n, day in enumerate(days)})
        return [rule.tolerance for one in candidates(profile) for rule in one.alternatives if isinstance(rule, NotNull)]

    assert proposed(0) == [0] and proposed(8) == [0.02] and proposed(500) == []


@pytest.mark.parametrize("greatest", ["1e38", "9.87e307", "1.79e308", "12345678901234567890", "1e15"])
def test_proposed_bounds_are_numbers_that_spark_and_yaml_accept(greatest: str) -> None:
    """Spark accepts no number of 39 digits and YAML no infinity, so such bounds failed when they were proposed or pasted."""
    column = ColumnProfile("x", "double", Form.FLOATING, 100, distinct=90, minimum="1.0", maximum=greatest)
    profile, split = _profile_of(column)
    in_sql = ScannedTable([Column("x", "double")], dt.datetime.now(dt.timezone.utc))
    found = suggest(profile, split, _answer({"new": {}}, 50), lambda rule: rule.condition(in_sql), rows={})
    rules = {rule.rule: rule for rule in RULES.validate_python(yaml.safe_load(found.yaml()))}
    assert rules["not_null"] and all(rule.words() == one.rule.words() for rule, one in zip(rules.values(), found.kept, strict=True))
    assert ("between" in rules) is (greatest != "1.79e308"), "no number of the type is beyond it"
    if "between" in rules:
        between = rules["between"]
        assert isinstance(between, Between) and isinstance(between.max, int | float) and float(greatest) <= between.max < math.inf
        assert not re.search(r"\d{39}", between.condition(in_sql)), between.condition(in_sql)


@pytest.mark.parametrize(
    "value",
    [
        "plain", "2026-01-01", "no", "1e5", "it's \"x\"", "# no comment", "a: b", "😀", "👩\u200d💻", "a\nb", "\u2028", "\x00\x7f\x85",
        "\ufeff", "\ue000", "é\u200b", " a ",
    ],
)  # fmt: skip
def test_values_of_proposed_rules_are_the_same_after_yaml(value: str) -> None:
    """A value that YAML changes would fail for all rows that have it, and a line break would end the list of values."""
    profile, split = _profile_of(_of_texts("c", value, "other"), _of_texts(f"column {value}", "x", "y"))
    for broken in (0, 50):  # the rule is proposed, or printed as a comment
        text = suggest(profile, split, _answer({"new": {"expected": broken}}, 50), lambda rule: f"expected {rule.rule}", rows={}).yaml()
        assert all(line.startswith(("- ", "#", "[]")) and line.isprintable() for line in text.splitlines())
        found = [rule.words() for rule in RULES.validate_python(yaml.safe_load(text)) if rule.rule == "expected_values"]
        written = re.findall(r"^#   (\{rule: expected_values, .*\}): 50 of", text, re.M)
        words = found or [yaml.safe_load(one) for one in written]
        assert bool(found) is not bool(broken)
        assert {str(one["column"]): set(one["values"]) for one in words} == {"c": {value, "other"}, f"column {value}": {"x", "y"}}


def test_maintenance_joins_the_files_of_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The maintenance must also join the records of profiles of a datastore without rules, and must not fail where a profile is written at
    the same moment."""
    lake, records = str(tmp_path), Records(str(tmp_path), "shop")
    operation = ScanOperation("run", "shop/orders", 0, 0, OperationResult.SUCCESS, OperationType.PROFILE)
    for n in range(3):
        records.record(replace(operation, id=f"run{n}"), (), (), ())
    store = ProfileStore(lake, "shop")
    shown = {"profiled_at": pa.array([0], pa.timestamp("us", "UTC")), "form": ["text"], "minimum": ["Ann"], "maximum": ["Bob"]}
    shown |= {"frequent_state": [b"Ann"], "examples": [["Ann"]], "frequent": [[{"item": "Ann", "count": 1}]]}
    for n in range(2):
        state = pa.table({"container": ["shop/orders"], "n": [n], **shown})
        write_deltalake(store.table.url, state, mode="append", partition_by=["container"])
    opened = LakeTable.opened_to_change

    def before_another_writes(self: LakeTable) -> DeltaTable | None:
        delta = opened(self)
        if delta is not None and self.url == store.table.url:
            DeltaTable(self.url).delete()
        return delta

    monkeypatch.setattr(LakeTable, "opened_to_change", before_another_writes)
    settings = cast(Settings, SimpleNamespace(name="shop", keep_days=90))
    scope = LakeScope(lake, tmp_path, "maintenance", lambda _: None)
    assert maintenance_job(settings, ()).execute_in_process(resources={"lake": scope}).success
    assert len(DeltaTable(f"{lake}/shop/_quality/scan_operations").file_uris()) == 1


@pytest.mark.parametrize(("keys", "why"), [((), "there are no rows in its profile"), (("a", "b"), "its profile is of other partitions")])
def test_no_rules_are_proposed_from_a_profile_that_does_not_fit_the_table(
    keys: tuple[str, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a table without rows or partitions, the message must say what to do, instead of a stack trace."""
    column = ColumnProfile("id", "int", Form.INTEGER, 50 if keys else 0)
    profile = Profile("shop/orders", (column,), {key: {"id": column} for key in keys or (None,)})

    def merged(_store: ProfileStore, _spark: Any, _name: str, partitions: Sequence[Key] | None = None, order: Sequence[str] = ()) -> Any:
        return None if partitions == () else profile

    monkeypatch.setattr(ProfileStore, "profile", merged)
    facts = {"shop/orders": SimpleNamespace(is_older=False)}
    monkeypatch.setattr("incremental_assets.dagster.profiles.profile_facts", lambda *_: facts)
    container: Any = SimpleNamespace(
        label="shop/orders", datastore="shop", key_path=("shop", "orders"), signature="none", partitioning=None, cursor_type=None,
        timezone="UTC",
    )  # fmt: skip
    container.along_axis = container
    definition: Any = SimpleNamespace(container=container)
    table = SimpleNamespace(head=lambda: Head(0, (), {}))
    scope: Any = SimpleNamespace(lake=str(tmp_path), spark=None, table=lambda *_: table)
    with pytest.raises(ConfigurationError, match=f"shop/orders: {why}.* incremental-assets profile shop/orders"):
        suggested_checks(definition, cast(Any, None), scope, lambda _: None)


def test_partitions_of_files_are_ordered_by_their_time() -> None:
    """Rules are tried on the newest files and plots end with them, and the order of names may differ from the order of times."""
    assert sorted_keys({"b", "a", None, "z"}, ["z", "b", "later", "a"]) == [None, "z", "b", "a"]
    assert sorted_keys({"b", "gone", "a"}, ["b", "a"]) == ["gone", "b", "a"]
    assert sorted_keys({"10", "9", "-1"}) == ["-1", "9", "10"]


def test_partitions_and_the_merged_profile_have_the_same_ranks(lake: Lake) -> None:
    """Plots over partitions and the table of columns show the same ranks."""
    assert set(RANKS) <= set(lake.merged.column("id").quantiles) and 0.5 in RANKS


# ---------------------------------------------------------------- of containers that change
def _profiled(project: Workspace, name: str, **kwargs: Any) -> dict[str, Any]:
    """The line of ``profile --json``; ``kwargs`` are those of ``AskedScan``."""
    with project.instance() as instance:
        return next(iter(profile_lines(project.dagster(), [project.definition(name)], ScanOptions(**kwargs), instance)))


def _suggested(project: Workspace, name: str) -> str:
    with project.instance() as instance:
        scope = LakeScope(project.lake, project.spark_home, "suggest", lambda _: None)
        with scope.stack:
            return suggested_checks(project.definition(name), instance, scope, lambda _: None)


@pytest.mark.long
def test_partitions_without_rows_are_no_longer_counted_in_the_profile(project: Callable[..., Project]) -> None:
    """Corrected NULLs and emptied partitions must leave the figures, and where the profile has partitions that no longer exist, the message
    must say what to do."""
    shop = project(incremental=["public.orders:day:date"], containers={"orders": {"partition_by": "week"}})
    shop.execute(
        """create table orders (id int primary key, day date);
        insert into orders select i, date '2026-01-01' + (i - 1) from generate_series(1, 88) i;
        insert into orders select 88 + i from generate_series(1, 3) i"""
    )
    shop.one("orders")
    first = _profiled(shop, "orders", incremental=True, after_time="2026-01-10")
    mismatch = "The table has 91 rows, and this profile is of 81"
    assert mismatch in first["message"] and "--full" in first["message"] and mismatch in Path(first["page"]).read_text(encoding="utf-8")
    shop.execute("update orders set day = '2026-02-10' where day is null; delete from orders where day = '2026-03-29'")
    shop.one("orders", allow_empty=True)
    later = _profiled(shop, "orders", incremental=True, after_time="2026-03-20")
    assert "77 rows of 13 in the merged profile" in later["message"], "without the last week and the NULLs"
    whole = _profiled(shop, "orders")
    assert whole["message"] == "90 rows of 13 partitions profiled in one pass; 90 rows of 13 in the merged profile", (
        "the first two weeks, and the rows that have got a day"
    )
    assert "The table has" not in Path(whole["page"]).read_text(encoding="utf-8")
    shop.configure(containers={"orders": {"partition_by": "month"}})
    with pytest.raises(ConfigurationError, match=r"shop/orders: its profile is of other partitions .* profile shop/orders --full"):
        _suggested(shop, "orders")


@pytest.mark.long
def test_rules_for_files_are_tried_on_the_newest_files(folder: Callable[..., Folder]) -> None:
    """If rules were tried on the last names instead of the newest files, changes in the data would not be noticed."""
    landing = folder(containers={"orders": {"glob": "*.csv"}})
    for name in ("c.csv", "b.csv", "a.csv"):
        landing.put(name, "id\n" + "\n".join(map(str, range(40))))
    landing.one("orders")
    nothing = _profiled(landing, "orders", incremental=True, after_time="2036-01-01")
    assert (nothing["status"], nothing["page"]) == ("profiled", None) and nothing["message"].startswith("nothing to profile"), nothing
    records = Records(landing.lake, "landing").operations("landing/orders")
    assert [(one.result.value, one.rows) for one in records] == [("success", 0)], "an operation that found nothing has not failed"
    _profiled(landing, "orders")
    assert "Tested on partition a.csv, 40 rows" in _suggested(landing, "orders")
