"""Own assets by partitions of every kind: of time, static, dynamic and of two dimensions, on columns of every type, one and in ranges.

Belongs here: which rows are written and read by which keys, in real runs. Does not belong: the three writes themselves
(``test_own_writes``), and the nights in which clocks are set (``test_own_partitions``).
"""

from typing import Any

import dagster as dg
import pytest

from assets_tests.harness import long
from assets_tests.own_lake import OwnLake, own, values
from incremental_assets.core.errors import ConfigurationError, FrameRefused

DAYS = dg.DailyPartitionsDefinition(start_date="2026-03-01")
RANGE = dg.BackfillPolicy.single_run()
WRITES = ("overwrite", pytest.param("merge", marks=pytest.mark.long), pytest.param("append", marks=pytest.mark.long))
HOSTILE = "a' or 1=1 --"
OTHERS = ("\\' OR 1=1 -- ", "x`y", "${spark.app.id}", "ä\nö", "%_", "")


def partition_counts(result: dg.ExecuteInProcessResult, name: str) -> dict[str, int]:
    """The row count of each partition, as its materialization says."""
    events = result.asset_materializations_for_node(name)
    counts: dict[Any, Any] = {event.partition: event.metadata["dagster/partition_row_count"].value for event in events}
    return counts


@pytest.mark.long
@pytest.mark.parametrize(
    ("type_", "keys"),
    [
        pytest.param("int", ("1", "2", "-3"), marks=pytest.mark.long),
        ("bigint", ("9007199254740993", "9007199254740992", "0")),
        pytest.param("string", ("eu", "EU", "eu "), marks=pytest.mark.long),
        pytest.param("date", ("2026-03-01", "2026-03-02", "1999-12-31"), marks=pytest.mark.long),
        ("timestamp", ("2026-03-01 10:00:00", "2026-03-01 10:00:00.000001", "1999-12-31")),
        pytest.param("timestamp_ntz", ("2026-03-01 10:00:00", "2026-03-01 10:00:01", "1999-12-31"), marks=pytest.mark.long),
        pytest.param("decimal(20,0)", ("12345678901234567890", "1", "2"), marks=pytest.mark.long),
    ],
)
def test_a_static_key_is_a_value_of_its_column(own_lake: OwnLake, type_: str, keys: tuple[str, str, str]) -> None:
    """One key is written anew, and the rows of keys that differ by a blank, a case or a microsecond stay."""
    parts = dg.StaticPartitionsDefinition(list(keys))
    numbers = iter(range(10))
    query = lambda c: f"select cast('{c.partition_key}' as {type_}) as part, {next(numbers)} as n"  # noqa: E731
    made = own("made", query, {"partition_expr": "part"}, partitions_def=parts)
    for key in (*keys, keys[0]):
        result = own_lake.run(made, key=key)
        assert partition_counts(result, "made") == {key: 1}
    assert own_lake.rows("made", "n") == [(1,), (2,), (3,)]


@pytest.mark.long
@pytest.mark.parametrize("write", WRITES)
def test_a_dynamic_key_that_looks_like_sql_is_a_text(own_lake: OwnLake, write: str) -> None:
    """Names of files become keys. Taken for SQL, one would replace every other partition, or read all of them."""
    regions = dg.DynamicPartitionsDefinition(name="regions")
    with own_lake.instance() as instance:
        instance.add_dynamic_partitions("regions", [HOSTILE, *OTHERS[:5]])

    @dg.asset(
        partitions_def=regions,
        io_manager_key="delta",
        required_resource_keys={"lake"},
        metadata={"partition_expr": "region", "write": write, **({"merge_keys": ["region"]} if write == "merge" else {})},
    )
    def sales(context: dg.AssetExecutionContext) -> Any:
        return context.resources.lake.assets_spark.createDataFrame([(context.partition_key, 1)], "region string, n int")

    seen: dict[str, list[str]] = {}

    @dg.asset(partitions_def=regions, ins={"sales": dg.AssetIn(input_manager_key="delta")})
    def read(context: dg.AssetExecutionContext, sales: Any) -> None:
        seen[context.partition_key] = [row.region for row in sales.collect()]

    keys = [HOSTILE, *OTHERS[:5]]
    for key in keys:
        own_lake.run(sales, read, key=key)
    assert seen == {key: [key] for key in keys}
    own_lake.run(sales, key=HOSTILE)
    assert len(own_lake.rows("sales")) == len(keys) + (write == "append")


@pytest.mark.long
def test_a_range_of_days_is_one_commit_and_each_day_has_its_count(own_lake: OwnLake) -> None:
    """A backfill of a range is one run; a day without rows counts 0, and days outside of the range stay."""
    rows = [f"date'2026-03-{day:02d}', {n}" for day in (1, 2, 4) for n in range(day)]

    def query(context: dg.AssetExecutionContext) -> str:
        span = context.partition_key_range
        return f"{values('day, n', *rows)} where day between '{span.start}' and '{span.end}'"

    made = own("made", query, {"partition_expr": "day"}, partitions_def=DAYS, backfill_policy=RANGE)
    result = own_lake.run(made, keys=("2026-03-01", "2026-03-04"))
    assert partition_counts(result, "made") == {"2026-03-01": 1, "2026-03-02": 2, "2026-03-03": 0, "2026-03-04": 4}
    assert own_lake.table("made").version() == 0
    result = own_lake.run(made, keys=("2026-03-02", "2026-03-03"))
    assert partition_counts(result, "made") == {"2026-03-02": 2, "2026-03-03": 0}
    assert len(own_lake.rows("made")) == 7


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", *long("UTC", "America/New_York")])
@pytest.mark.parametrize("type_", ["timestamp", *long("timestamp_ntz")])
def test_hours_of_a_range_are_counted_by_the_clock_of_their_zone(own_lake: OwnLake, zone: str, type_: str) -> None:
    """Counts by UTC's hours would be those of other partitions where the zone is 45 minutes off."""
    hours = dg.HourlyPartitionsDefinition(start_date="2026-03-01-00:00", timezone=zone)
    span = "sequence(lower, upper - interval 20 minutes, interval 20 minutes)"

    def query(context: dg.AssetExecutionContext) -> str:
        window = context.partition_time_window
        bounds = [window.start, window.end]
        if type_ == "timestamp":
            literals = [f"timestamp'{bound.isoformat()}'" for bound in bounds]
        else:
            literals = [f"timestamp_ntz'{bound:%Y-%m-%d %H:%M:%S}'" for bound in bounds]
        return f"select explode({span}) as at from (select {literals[0]} as lower, {literals[1]} as upper)"

    made = own("made", query, {"partition_expr": "at"}, partitions_def=hours, backfill_policy=RANGE)
    result = own_lake.run(made, keys=("2026-03-01-05:00", "2026-03-01-08:00"))
    assert partition_counts(result, "made") == {f"2026-03-01-{hour:02d}:00": 3 for hour in range(5, 9)}


@pytest.mark.long
def test_time_keys_on_a_column_of_texts_are_these_texts(own_lake: OwnLake) -> None:
    """A column may hold the day as text; hours and months then go by the text of their keys."""
    made = own("made", lambda c: values("day", f"'{c.partition_key}'"), {"partition_expr": "day"}, partitions_def=DAYS)
    for key in ("2026-03-01", "2026-03-02", "2026-03-01"):
        own_lake.run(made, key=key)
    assert own_lake.rows("made") == [("2026-03-01",), ("2026-03-02",)]


BY_SHOP = dg.MultiPartitionsDefinition({"shop": dg.StaticPartitionsDefinition(["b", "a", HOSTILE]), "day": DAYS})


@pytest.mark.long
@pytest.mark.parametrize("write", WRITES)
def test_two_dimensions_are_two_columns(own_lake: OwnLake, write: str) -> None:
    """One shop's day is written anew; the same day of other shops and other days of the shop stay."""
    metadata = {"write": write, "partition_expr": {"day": "on_day", "shop": "of_shop"}}
    metadata |= {"merge_keys": ["on_day", "of_shop", "n"]} if write == "merge" else {}

    def query(context: dg.AssetExecutionContext) -> str:
        parts = context.partition_key.keys_by_dimension  # pyright: ignore[reportAttributeAccessIssue]
        shop = parts["shop"].replace("'", "\\'")
        return values("of_shop, on_day, n", f"'{shop}', date'{parts['day']}', 1", f"'{shop}', date'{parts['day']}', 2")

    made = own("made", query, metadata, partitions_def=BY_SHOP)
    seen: dict[str, int] = {}

    @dg.asset(partitions_def=BY_SHOP, ins={"made": dg.AssetIn(input_manager_key="delta")})
    def read(context: dg.AssetExecutionContext, made: Any) -> None:
        seen[context.partition_key] = made.count()

    keys = [dg.MultiPartitionKey({"shop": shop, "day": day}) for shop in ("a", "b", HOSTILE) for day in ("2026-03-01", "2026-03-02")]
    for key in keys:
        result = own_lake.run(made, read, key=key)
        assert partition_counts(result, "made") == {key: 2}
    assert seen == {str(key): 2 for key in keys}
    own_lake.run(made, key=keys[0])
    assert len(own_lake.rows("made")) == 12 + 2 * (write == "append")


@pytest.mark.long
def test_a_range_of_two_dimensions_is_one_commit(own_lake: OwnLake) -> None:
    """Its partitions are those between the two keys on both dimensions. Others are refused."""
    rows = [f"'{shop}', date'2026-03-{day:02d}'" for shop in "ab" for day in (1, 2, 3)]
    queries = iter([values("shop, day", *rows), values("shop, day", *rows[:2], *rows[3:5]), values("shop, day", *rows)])
    metadata = {"partition_expr": {"day": "day", "shop": "shop"}}
    made = own("made", lambda _: next(queries), metadata, partitions_def=BY_SHOP, backfill_policy=RANGE)
    first, last, before = (str(dg.MultiPartitionKey({"shop": s, "day": f"2026-03-0{d}"})) for s, d in (("b", 1), ("a", 3), ("a", 2)))
    assert set(partition_counts(own_lake.run(made, keys=(first, last)), "made").values()) == {1}
    counts = partition_counts(own_lake.run(made, keys=(first, before)), "made")
    assert counts == {f"2026-03-0{day}|{shop}": 1 for day in (1, 2) for shop in "ab"}
    assert len(own_lake.rows("made")) == 6
    with pytest.raises(FrameRefused, match=r"2 of the 6 rows .* such as one with day = 2026-03-03, shop = [ab]"):
        own_lake.run(made, keys=(first, before))


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("1.5d", "is double; a date, timestamp, integer or string is needed"),
        ("array(1)", "is array<int>; a date, timestamp, integer or string is needed"),
        ("date'2026-01-01'", "made: a partition key is no value of what partition_expr says: 'eu' is not a date"),
        ("1", "'eu' is not an integer"),
    ],
)
def test_a_column_that_cannot_hold_the_keys_is_refused(own_lake: OwnLake, column: str, said: str) -> None:
    """Compared in another type, a key would select no row or several keys' rows."""
    parts = dg.StaticPartitionsDefinition(["eu"])
    made = own("made", lambda _: f"select {column} as part", {"partition_expr": "part"}, partitions_def=parts)
    with pytest.raises(ConfigurationError, match=said):
        own_lake.run(made, key="eu")


@pytest.mark.long
@pytest.mark.parametrize("write", WRITES)
def test_a_dimension_goes_by_an_expression(own_lake: OwnLake, write: str) -> None:
    """Rows have a time and an address, and partitions are days and regions: nobody has to add columns for that.

    One expression ends with a comment, which must not hide the rest of the condition.
    """
    exprs = {"day": "cast(at AS date) -- of the order", "shop": "lower(substr(code, 1, 1))"}
    metadata = {"write": write, "partition_expr": exprs} | ({"merge_keys": ["n"]} if write == "merge" else {})
    parts = dg.MultiPartitionsDefinition({"shop": dg.StaticPartitionsDefinition(["a", "b"]), "day": DAYS})
    numbers = {("a", "2026-03-01"): 1, ("b", "2026-03-01"): 3, ("a", "2026-03-02"): 5}

    def query(context: dg.AssetExecutionContext) -> str:
        key = context.partition_key.keys_by_dimension  # pyright: ignore[reportAttributeAccessIssue]
        first = numbers[key["shop"], key["day"]]
        rows = [f"timestamp_ntz'{key['day']} {hour}:00:00', '{key['shop'].upper()}{hour}', {first + hour % 2}" for hour in (10, 23)]
        return values("at, code, n", *rows)

    made = own("made", query, metadata, partitions_def=parts)
    seen: dict[str, list[int]] = {}

    @dg.asset(partitions_def=parts, ins={"made": dg.AssetIn(input_manager_key="delta")})
    def read(context: dg.AssetExecutionContext, made: Any) -> None:
        seen[context.partition_key] = sorted(row.n for row in made.collect())

    keys = {pair: dg.MultiPartitionKey({"shop": pair[0], "day": pair[1]}) for pair in numbers}
    for key in keys.values():
        result = own_lake.run(made, read, key=key)
        assert partition_counts(result, "made") == {key: 2}
    assert seen == {str(key): [numbers[pair], numbers[pair] + 1] for pair, key in keys.items()}
    own_lake.run(made, key=keys["a", "2026-03-01"])
    assert len(own_lake.rows("made")) == 6 + 2 * (write == "append")


@pytest.mark.long
def test_a_row_outside_of_an_expression_is_refused(own_lake: OwnLake) -> None:
    """It would be in a partition that this run does not replace, and be there once more after each run."""
    rows = iter([values("at", "timestamp_ntz'2026-03-01 23:59:59'"), values("at", "timestamp_ntz'2026-03-02 00:00:00'")])
    made = own("made", lambda _: next(rows), {"partition_expr": "to_date(at)"}, partitions_def=DAYS)
    own_lake.run(made, key="2026-03-01")
    with pytest.raises(FrameRefused, match=r"such as one with to_date\(at\) = 2026-03-02"):
        own_lake.run(made, key="2026-03-01")
    assert own_lake.state("made")[0] == 0


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("max(day)", "cannot evaluate partition_expr 'max.day.' for each row"),
        ("row_number() over (order by day)", "cannot evaluate partition_expr"),
        ("day) or (true", "cannot evaluate partition_expr"),
        ("to_date(dya)", "cannot evaluate partition_expr .*dya.* an expression of the columns day, n"),
        ("date_add(day, cast(rand() * 2 AS int))", "cannot evaluate partition_expr"),
        ("(select max(day) from made)", "has a subquery"),
        ("current_date()", "of the moment or the session .current_date."),
        ("cast(now() AS date)", "of the moment or the session .now."),
        ("least(day, date'2026-03-01' + extract(second FROM now()))", "of the moment"),
        ("date'2026-03-01'", "has no column"),
        ("day AS today", "has the name 'today' behind it"),
    ],
)
def test_an_expression_that_is_no_value_of_a_row_is_refused(own_lake: OwnLake, expression: str, said: str) -> None:
    """A condition that is another one each time, true of every row, or that the text could leave, would replace other partitions."""
    made = own("made", lambda _: values("day, n", "date'2026-03-01', 1"), {"partition_expr": expression}, partitions_def=DAYS)
    with pytest.raises(ConfigurationError, match=said):
        own_lake.run(made, key="2026-03-01")
    assert not own_lake.lake.joinpath("made").exists()


@pytest.mark.long
def test_an_expression_means_the_same_rows_whatever_the_zone_of_the_session(own_lake: OwnLake) -> None:
    """An asset sets the time zone of its session, and its rows of half past midnight are written as of one day, and read as of another."""
    rows = ["timestamp'2026-03-01T23:30:00Z', 'EU', 1", "timestamp'2026-03-02T11:00:00Z', 'eu', 2"]

    def query(context: dg.AssetExecutionContext) -> str:
        context.resources.lake.assets_spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        return values("at, region, n", *rows)

    zoned = "cast(from_utc_timestamp(at, 'Europe/Berlin') AS date)"
    for expression in ("cast(at AS date)", zoned):
        made = own("made", query, {"partition_expr": expression}, partitions_def=DAYS)
        with pytest.raises(ConfigurationError, match=r"timeZone is Europe/Berlin, and partition_expr .cast\("):
            own_lake.run(made, key="2026-03-02")
    assert not own_lake.lake.joinpath("made").exists()
    own_lake.run(own("made", lambda _: values("at, region, n", *rows), {"partition_expr": zoned}, partitions_def=DAYS), key="2026-03-02")
    berlin = dg.DailyPartitionsDefinition(start_date="2026-03-01", timezone="Europe/Berlin")
    own_lake.run(own("instants", query, {"partition_expr": "at"}, partitions_def=berlin), key="2026-03-02")
    plain = own(
        "texts",
        lambda c: f"select region, n from ({query(c)})",
        {"partition_expr": "lower(region)"},
        partitions_def=dg.StaticPartitionsDefinition(["eu"]),
    )
    own_lake.run(plain, key="eu")
    assert [len(own_lake.rows(name)) for name in ("made", "instants", "texts")] == [2, 2, 2]


@pytest.mark.long
@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("region", marks=pytest.mark.long),
        "lower(region)",
        pytest.param("coalesce(lower(region), 'us')", marks=pytest.mark.long),
    ],
)
def test_partitions_may_go_by_a_column_that_is_new(own_lake: OwnLake, expression: str) -> None:
    """The first run after an asset was given other partitions would fail, and each one after it."""
    old = own("made", lambda _: values("day, n", "date'2026-03-01', 1"), {"partition_expr": "day"}, partitions_def=DAYS)
    own_lake.run(old, key="2026-03-01")
    regions = dg.StaticPartitionsDefinition(["eu", "us"])
    query = lambda c: values("day, n, `a b`, region", f"date'2026-03-01', 2, 3, '{c.partition_key}'")  # noqa: E731
    made = own("made", query, {"partition_expr": expression}, partitions_def=regions)
    for key in ("eu", "us", "eu"):
        assert partition_counts(own_lake.run(made, key=key), "made") == {key: 1}
    kept = [] if "coalesce" in expression else [(1, None)]
    assert own_lake.rows("made", "n, region") == [*kept, (2, "eu"), (2, "us")]
