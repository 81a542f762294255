"""What the YAML says about a container is checked against the catalog: a refusal names the wrong word and what would be right.

Belongs here: resolving a container, its default partitions, and the catalog's file. Does not belong: the grammar of ``incremental``
(``test_model_grammar``).
"""

import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incremental_assets.catalog.detect import Proposal
from incremental_assets.catalog.state import Catalog, Known, Presence
from incremental_assets.core.capture import Capture
from incremental_assets.core.container import (
    Container,
    ContainerOptions,
    HoldBack,
    Kind,
    OnNull,
    Partitioning,
    SourceColumn,
    SourceTable,
)
from incremental_assets.core.cursor_type import CursorType, IdentifierType, days_from_civil, format_value, parse_value
from incremental_assets.core.deletes import Deletes
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.grammar import IncrementalSpec, Strategy, parse_incremental
from incremental_assets.core.partitions import Granularity
from incremental_assets.core.resolve import resolve
from incremental_assets.core.window import EVERYTHING, Window

TODAY = days_from_civil(2026, 3, 10)
ORDERS = SourceTable(
    name="orders",
    kind=Kind.TABLE,
    columns=(
        SourceColumn("id", "bigint", "bigint", not_null=True, default="nextval('orders_id_seq')", sequence="public.orders_id_seq"),
        SourceColumn("o_orderdate", "date", "date"),
        SourceColumn("created_at", "timestamp(3) without time zone", "timestamp without time zone", not_null=True),
        SourceColumn("updated_at", "timestamp with time zone", "timestamp with time zone"),
        SourceColumn("removed_at", "timestamp with time zone", "timestamp with time zone"),
        SourceColumn("batch", "numeric(20,0)", "numeric"),
        SourceColumn("amount", "numeric(12,2)", "numeric"),
        SourceColumn("comment", "text", "text"),
    ),
    primary_key=("id",),
    indexed=("id",),
    rows=1000,
    bytes=81920,
    comment="all orders",
    first="2026-01-01",
    last="2026-03-09",
)


def resolved(spec: str | IncrementalSpec | None = None, table: SourceTable = ORDERS, *, lag: int = 0, **options: Any) -> Container:
    parsed = parse_incremental(spec) if isinstance(spec, str) else spec
    return resolve("shop", "public", table, parsed, ContainerOptions(**options), lag, TODAY)


def refused(spec: str | IncrementalSpec | None = None, table: SourceTable = ORDERS, **options: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        resolved(spec, table, **options)
    assert str(caught.value).startswith("shop/orders: "), "the message names the container"
    return str(caught.value)


# ---------------------------------------------------------------------- what is accepted
def test_a_container_without_identifier_is_a_snapshot() -> None:
    """Otherwise a table that nobody listed is not synced, or only in part."""
    for container in (resolved(), resolved("public.orders:o_orderdate:date:e")):
        assert (container.identifier, container.partitioning, container.strategy) == (None, None, Strategy.SNAPSHOT)
        assert (container.cursor_type, container.signature, container.has_null_identifiers) == (None, "none", False)
        assert container.columns == ORDERS.columns


@pytest.mark.parametrize(
    ("column", "type_", "cursor_type"),
    [
        ("o_orderdate", "date", CursorType.DATE),
        ("created_at", "datetime", CursorType.TIMESTAMP_NTZ),
        ("created_at", "timestamp", CursorType.TIMESTAMP_NTZ),
        ("updated_at", "datetime", CursorType.TIMESTAMP),
        ("updated_at", "timestamp", CursorType.TIMESTAMP),
        ("id", "integer", CursorType.INTEGER),
        ("batch", "integer", CursorType.INTEGER),
    ],
)
def test_the_type_of_the_column_decides_how_values_are_compared(column: str, type_: str, cursor_type: CursorType) -> None:
    """Otherwise zone-less times are shifted, or days are compared with microseconds."""
    container = resolved(f"public.orders:{column}:{type_}")
    assert container.identifier is not None
    assert container.cursor_type is cursor_type
    assert container.signature == f"{column}:{type_}:{cursor_type.value}"
    assert container.identifier.sequence == ("public.orders_id_seq" if column == "id" else None)
    assert container.identifier.domain == EVERYTHING


def test_rows_below_the_start_value_are_not_synced() -> None:
    """Otherwise rows below ``@start`` are synced all the same."""
    container = resolved("public.orders:o_orderdate:date@2026-02-01")
    assert container.identifier is not None
    assert container.identifier.domain == Window(days_from_civil(2026, 2, 1), None)
    assert container.partitioning == Partitioning(Granularity.DAY, days_from_civil(2026, 2, 1)), "and its partitions begin there"


@pytest.mark.parametrize(
    ("spec", "lag", "option", "counts"),
    [
        ("public.orders:o_orderdate:date", 3600, None, 3600),
        ("public.orders:o_orderdate:date", 3600, 0, 0),
        ("public.orders:o_orderdate:date", 0, 86_400, 86_400),
        ("public.orders:id:integer", 3600, None, 1000),  # a lag in seconds does not apply to integers, so the automatic lag counts
        ("public.orders:id:integer", 0, None, 0),
        ("public.orders:id:integer", 3600, 500, 500),
    ],
)
def test_the_containers_safety_lag_counts_before_the_datastores(spec: str, lag: int, option: int | None, counts: int) -> None:
    """Otherwise a container reads less far back than its YAML says, and late rows are lost."""
    assert resolved(spec, lag=lag, safety_lag=option).lag == counts


def test_an_upsert_merges_on_the_key_of_the_yaml_or_of_the_table() -> None:
    """Otherwise rows are merged on other columns than the ones that tell them apart, and doubled or lost."""
    spec = "public.orders:updated_at:timestamp!upsert"
    found = resolved(spec)
    assert (found.strategy, found.primary_key, found.key_is_enforced) == (Strategy.UPSERT, ("id",), True)
    named = resolved(spec, primary_key=("batch", "id"))
    assert (named.primary_key, named.key_is_enforced) == (("batch", "id"), False), "nobody guarantees that it is unique"
    assert resolved(spec, primary_key=("id",)).key_is_enforced
    assert not resolved(spec, replace(ORDERS, primary_key=()), primary_key=("id",)).key_is_enforced


def test_two_columns_make_one_identifier() -> None:
    """Otherwise rows that were created and never updated, or updated and never marked as created, are missed."""
    spec = IncrementalSpec("public", "orders", ("removed_at", "updated_at"), IdentifierType.TIMESTAMP, strategy=Strategy.UPSERT)
    container = resolved(spec)
    assert container.signature == "removed_at+updated_at:timestamp:instant"
    assert container.has_null_identifiers


def test_rows_without_identifier_are_read_only_where_the_column_may_be_null() -> None:
    """Otherwise they are never read again, or each sync searches for what cannot exist."""
    assert resolved("public.orders:updated_at:timestamp").has_null_identifiers
    assert not resolved("public.orders:updated_at:timestamp", on_null=OnNull.EXCLUDE).has_null_identifiers
    assert not resolved("public.orders:updated_at:timestamp", on_null=OnNull.ERROR).has_null_identifiers
    assert not resolved("public.orders:id:integer").has_null_identifiers, "NOT NULL in the source"


def test_excluded_columns_are_left_out() -> None:
    """Otherwise a column that must not leave the source arrives in the lake."""
    container = resolved("public.orders:id:integer", exclude_columns=("comment", "amount"))
    assert [c.name for c in container.columns] == ["id", "o_orderdate", "created_at", "updated_at", "removed_at", "batch"]


def test_a_name_with_special_characters_has_a_plain_key() -> None:
    """Otherwise Dagster refuses the asset of a table whose name has a space in it, and with it the whole datastore."""
    container = resolve("my shop", "public", replace(ORDERS, name="order items"), None, ContainerOptions(), 0, TODAY)
    assert container.key_path == ("my_U20_shop", "order_U20_items")
    assert container.label == "my shop/order items"


# ---------------------------------------------------------------------- what is refused
def test_an_unknown_column_is_named_with_the_nearest_ones() -> None:
    """Otherwise a misspelt column is found out by a failing query, in the words of PostgreSQL, or not at all."""
    assert refused("public.orders:o_oderdate:date") == ("shop/orders: incremental: there is no column 'o_oderdate'. Nearest: o_orderdate.")
    assert "exclude_columns: there is no column 'coment'. Nearest: comment" in refused(exclude_columns=("coment",))
    assert "primary_key: there is no column 'ID'. Nearest: id" in refused(primary_key=("ID",))
    assert "text_columns: there is no column 'amont'. Nearest: amount" in refused(text_columns=("amont",))
    assert "Known: amount, batch" in refused("public.orders:zzzzzz:date")


@pytest.mark.parametrize(
    ("column", "type_", "says"),
    [
        ("o_orderdate", "timestamp", "declared timestamp but the column is date. Write 'date'."),
        ("o_orderdate", "integer", "declared integer but the column is date. Write 'date'."),
        ("updated_at", "date", "declared date but the column is timestamp with time zone. Write 'timestamp'."),
        ("id", "timestamp", "declared timestamp but the column is bigint. Write 'integer'."),
        ("amount", "integer", "declared integer but the column is numeric(12,2). Choose a date, timestamp or integer column."),
        ("batch", "date", "declared date but the column is numeric(20,0)."),
        ("comment", "date", "declared date but the column is text. Choose a date, timestamp or integer column."),
    ],
)
def test_a_type_that_does_not_fit_the_column_is_refused_with_one_that_does(column: str, type_: str, says: str) -> None:
    """Otherwise watermarks are compared with values of another kind, and rows are skipped without a word."""
    message = refused(f"public.orders:{column}:{type_}")
    assert f"identifier {column!r} is {says}" in message


def test_numeric_without_a_scale_of_zero_is_no_integer() -> None:
    """Otherwise rows between two integers, such as 7.5, lie in no window."""
    for type_ in ("numeric", "numeric(12,2)", "numeric(12,10)", "numeric(20,-2)"):
        table = replace(ORDERS, columns=(*ORDERS.columns, SourceColumn("n", type_, "numeric")))
        assert f"the column is {type_}" in refused("public.orders:n:integer", table)


def test_upsert_without_a_key_shows_the_line_that_would_fix_it() -> None:
    """Otherwise the user learns that a key is missing, and not where to write it."""
    keyless = replace(ORDERS, primary_key=())
    message = refused("public.orders:updated_at:timestamp!upsert", keyless)
    assert "upsert needs a primary key" in message and "containers: {orders: {primary_key: [<column>]}}" in message


def test_the_key_and_the_identifier_cannot_be_left_out() -> None:
    """Otherwise the lake's table lacks the column that its own rows are found by, and the first MERGE fails."""
    assert "primary key column 'id' cannot be excluded" in refused("public.orders:o_orderdate:date", exclude_columns=("id",))
    for option in ("exclude_columns", "text_columns"):
        options: dict[str, Any] = {option: ("o_orderdate",)}
        assert "'o_orderdate' can be neither excluded nor read as text" in refused("public.orders:o_orderdate:date", **options)
    for name in ("id", "o_orderdate"):
        assert f"rows are found by the values of '{name}'" in refused("public.orders:o_orderdate:date", binary_columns=(name,))
    twice: dict[str, Any] = {"binary_columns": ("comment",), "text_columns": ("comment",)}
    assert "is in binary_columns, and also" in refused("public.orders:o_orderdate:date", **twice)
    every = tuple(c.name for c in ORDERS.columns)
    assert "exclude_columns leaves no column" in refused(None, replace(ORDERS, primary_key=()), exclude_columns=every)


def test_columns_that_differ_only_in_case_are_refused_with_a_remedy() -> None:
    """Otherwise Delta refuses the table in the middle of its first load, in its own words."""
    more = ("Comment", "COMMENT", "Id")
    table = replace(ORDERS, columns=(*ORDERS.columns, *(SourceColumn(name, "text", "text") for name in more)))
    message = resolved("public.orders:id:integer", table).refusal or ""
    assert "'id' and 'Id'; " in message and "'comment' and 'Comment' and 'COMMENT' differ only in case" in message
    remedy = re.search(r"containers: \{orders: \{exclude_columns: \[([\w, ]+)\]\}\}", message)
    assert remedy is not None
    excluded = tuple(remedy[1].split(", "))
    assert resolved("public.orders:id:integer", table, exclude_columns=excluded).refusal is None, "what the message says to write works"


@pytest.mark.parametrize(
    ("spec", "partition_by", "says"),
    [
        (None, "month", "partition_by needs an incremental identifier; add public.orders:<column>:<type> to incremental."),
        ("public.orders:o_orderdate:date:e", "month", "partition_by needs an incremental identifier"),
        ("public.orders:o_orderdate:date", "quarter", "is one of hour, day, week, month, not 'quarter'"),
        ("public.orders:o_orderdate:date", 100, "is one of hour, day, week, month, not 100"),
        ("public.orders:o_orderdate:date", "batch", "is one of hour, day, week, month, not 'batch'"),
        ("public.orders:o_orderdate:date", "hour", "a date cannot be partitioned by hour; write day, week or month"),
        ("public.orders:id:integer", "month", "is a positive width or 'batch', not 'month'"),
        ("public.orders:id:integer", 0, "is a positive width or 'batch', not 0"),
        ("public.orders:id:integer", -5, "is a positive width or 'batch', not -5"),
        ("public.orders:id:integer", "100000", "is a positive width or 'batch', not '100000'"),
    ],
)
def test_a_partition_by_that_does_not_fit_is_refused(spec: str | None, partition_by: str | int, says: str) -> None:
    """Otherwise the container gets partitions that nobody asked for, and loses them when the mistake is corrected."""
    assert says in refused(spec, partition_by=partition_by)


@pytest.mark.parametrize("kind", [Kind.VIEW, Kind.MATERIALIZED_VIEW, Kind.FOREIGN])
def test_hold_back_for_writers_is_refused_where_writers_cannot_be_seen(kind: Kind) -> None:
    """Otherwise nobody ever holds the watermark of a view back, and rows that are committed late are lost."""
    message = refused("public.orders:o_orderdate:date", replace(ORDERS, kind=kind), hold_back=HoldBack.WRITERS)
    assert f"a {kind.value} has none of its own" in message and "Leave hold_back out" in message
    for allowed in (Kind.TABLE, Kind.PARTITIONED):
        assert resolved("public.orders:o_orderdate:date", replace(ORDERS, kind=allowed), hold_back=HoldBack.WRITERS).identifier


def test_a_container_follows_the_log_or_is_swept() -> None:
    """Two of the ways to find deleted rows would each write what the other has written, and marks of the one are unknown to the other."""
    spec = "public.orders:updated_at:timestamp!upsert"
    for deletes in Deletes:
        assert "capture: log finds deleted rows by itself" in refused(spec, capture=Capture.LOG, deletes=deletes)
        assert resolved(spec, capture=Capture.NONE, deletes=deletes).options.deletes is deletes


def test_a_start_value_of_another_type_is_refused() -> None:
    """Otherwise the sync begins somewhere else than the YAML says."""
    assert refused("public.orders:id:integer@2025-01-01") == "shop/orders: start: '2025-01-01' is not an integer."
    assert "start: 'yesterday' is not a date such as 2025-01-08" in refused("public.orders:o_orderdate:date@yesterday")
    assert "start: '2025-01-08T00:00Z' is not a time" in refused("public.orders:created_at:datetime@2025-01-08T00:00Z")


def test_two_columns_that_do_not_go_together_are_refused() -> None:
    """Otherwise a local time and an instant are compared as if they were one thing, or changed rows are appended a second time."""

    def two(columns: Sequence[str], strategy: Strategy = Strategy.UPSERT) -> IncrementalSpec:
        return IncrementalSpec("public", "orders", tuple(columns), IdentifierType.TIMESTAMP, strategy=strategy)

    assert "one column, or two of the same type" in refused(two(["created_at", "updated_at"]))
    assert "one column, or two of the same type" in refused(two(["updated_at", "removed_at", "updated_at"]))
    assert "works with upsert only; add strategy: upsert" in refused(two(["updated_at", "removed_at"], Strategy.APPEND))


# ---------------------------------------------------------------------- defaults of partition_by
@pytest.mark.parametrize(
    ("first", "last", "granularity", "begins"),
    [
        ("2026-01-15", "2026-03-09", Granularity.DAY, "2026-01-15"),
        ("2022-06-15", "2026-03-09", Granularity.WEEK, "2022-06-12"),  # a Sunday
        ("1992-01-02", "2026-03-09", Granularity.MONTH, "1992-01-01"),
        ("1992-01-02", "1992-03-01", Granularity.MONTH, "1992-01-01"),  # the rows ended long ago, but the calendar goes on until today
        (None, None, Granularity.DAY, "2026-03-10"),  # an empty table begins today
        ("2026-05-01", "2027-01-01", Granularity.DAY, "2026-03-10"),  # only rows dated in the future
        ("0001-01-01", "2026-03-09", Granularity.MONTH, "1946-01-01"),  # one outlier does not make 24,000 partitions
        ("-4712-01-01", "5874897-12-31", Granularity.MONTH, "1946-01-01"),
        ("2026-03-09T00:00:00", "2026-03-09", Granularity.DAY, "2026-03-10"),  # found for another column, before the YAML changed
        ("17", "2400", Granularity.DAY, "2026-03-10"),
    ],
)
def test_time_partitions_are_chosen_by_the_range_of_the_rows(
    first: str | None, last: str | None, granularity: Granularity, begins: str
) -> None:
    """Otherwise a container without partition_by gets a calendar of tens of thousands of keys, or does not load at all."""
    container = resolved("public.orders:o_orderdate:date", replace(ORDERS, first=first, last=last))
    assert container.partitioning == Partitioning(granularity, parse_value(CursorType.DATE, begins))


@given(st.integers(days_from_civil(-4712, 1, 1), TODAY + 40_000), st.integers(0, 60_000), st.sampled_from([None, "day", "week", "month"]))
def test_a_calendar_begins_at_a_partition_that_dagster_can_name(first: int, span: int, partition_by: str | None) -> None:
    """Otherwise the project does not load because of one row dated BC or in the future."""
    found = replace(ORDERS, first=format_value(CursorType.DATE, first), last=format_value(CursorType.DATE, first + span))
    partitioning = resolved("public.orders:o_orderdate:date", found, partition_by=partition_by).partitioning
    assert partitioning is not None and partitioning.first is not None and partitioning.granularity is not None
    assert days_from_civil(1901, 1, 1) <= partitioning.first <= TODAY
    if partition_by is None:
        newest = min(first + span, TODAY)
        assert (
            partitioning.granularity is Granularity.MONTH
            or (TODAY - partitioning.first) / {"day": 1, "week": 7}[partitioning.granularity.value] <= 1000
        )
        assert partitioning.first <= max(first, newest - 366 * 80, days_from_civil(1901, 8, 1)), (
            "the oldest rows have partitions of their own"
        )
    if first >= days_from_civil(1902, 1, 1) and partition_by is not None:
        assert partitioning.first <= min(first, TODAY) < partitioning.first + 31


@pytest.mark.parametrize(
    ("first", "last", "start", "width"),
    [
        (None, None, None, 1000),
        ("1", "5000", None, 1000),
        ("1", "150000", None, 2000),
        ("1", "1000000000", None, 10_000_000),
        ("999000000", "1000000000", None, 20_000),
        ("1", "1000000000", "999000000", 20_000),
        ("1", "1000", "5000", 1000),  # no row has reached the start value yet
        ("-1000000", "0", None, 20_000),
        ("2026-01-01", "2026-03-09", None, 1000),  # found for another column, before the YAML changed
    ],
)
def test_the_width_of_integer_partitions_is_chosen_by_the_range_of_the_rows(
    first: str | None, last: str | None, start: str | None, width: int
) -> None:
    """Otherwise a container by id gets hundreds of thousands of keys, or a single one that a refresh cannot cut."""
    spec = f"public.orders:id:integer@{start}" if start else "public.orders:id:integer"
    assert resolved(spec, replace(ORDERS, first=first, last=last)).partitioning == Partitioning(width=width)


def test_partition_by_of_the_yaml_counts() -> None:
    """Otherwise the YAML's partition_by does not count."""
    assert resolved("public.orders:o_orderdate:date", partition_by="month").partitioning == Partitioning(
        Granularity.MONTH, days_from_civil(2026, 1, 1)
    )
    hourly = resolved("public.orders:updated_at:timestamp", replace(ORDERS, first="2026-03-09T17:45:00.5Z"), partition_by="hour")
    assert hourly.partitioning == Partitioning(Granularity.HOUR, parse_value(CursorType.TIMESTAMP, "2026-03-09T17:00"))
    assert resolved("public.orders:id:integer", partition_by=250).partitioning == Partitioning(width=250)
    assert resolved("public.orders:id:integer", partition_by="batch").partitioning == Partitioning(width=1, batch=True)


# ---------------------------------------------------------------------- the component's state
texts = st.text(max_size=8)
optional_texts = st.none() | texts
tables = st.builds(
    SourceTable,
    name=texts,
    kind=st.sampled_from(Kind),
    columns=st.lists(
        st.builds(SourceColumn, texts, texts, texts, st.booleans(), optional_texts, optional_texts), min_size=1, max_size=4
    ).map(tuple),
    primary_key=st.lists(texts, max_size=2).map(tuple),
    indexed=st.lists(texts, max_size=2).map(tuple),
    rows=st.none() | st.integers(),
    bytes=st.none() | st.integers(),
    comment=optional_texts,
    first=optional_texts,
    last=optional_texts,
)


@given(tables)
def test_a_saved_catalog_is_loaded_as_it_was(table: SourceTable) -> None:
    """Otherwise a project that loads without its source has other containers than the catalog found."""
    catalog = Catalog(20_000, "then", (Known(table, "f", "since", 3, Presence.MISSING, table.columns, Proposal(("x",), CursorType.DATE)),))
    with tempfile.TemporaryDirectory() as folder:
        catalog.save(Path(folder) / "state")
        assert Catalog.load(Path(folder) / "state") == catalog
