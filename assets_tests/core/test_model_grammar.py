"""The grammar of an entry of ``incremental``, and errors that point at the wrong place in it.

Belongs here: parsing. Does not belong: whether an entry fits a table (``test_model_container``).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incremental_assets.core.cursor_type import IdentifierType
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.grammar import GRAMMAR, IncrementalSpec, Strategy, parse_incremental, parse_strategy

DATE, DATETIME, TIMESTAMP, INTEGER = IdentifierType.DATE, IdentifierType.DATETIME, IdentifierType.TIMESTAMP, IdentifierType.INTEGER


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("sales.orders:created_date:date", IncrementalSpec("sales", "orders", ("created_date",), DATE)),
        ("sales.orders:created_date:date:i", IncrementalSpec("sales", "orders", ("created_date",), DATE)),
        ("sales.returns:return_date:date:e", IncrementalSpec("sales", "returns", ("return_date",), DATE, excluded=True)),
        ("sales.orders:created_date:date@2025-01-01", IncrementalSpec("sales", "orders", ("created_date",), DATE, "2025-01-01")),
        ("sales.orders:d:date!upsert", IncrementalSpec("sales", "orders", ("d",), DATE, strategy=Strategy.UPSERT)),
        ("sales.orders:d:date:i@2025-01-01!upsert", IncrementalSpec("sales", "orders", ("d",), DATE, "2025-01-01", Strategy.UPSERT)),
        ("events.pageviews:event_time:timestamp!append", IncrementalSpec("events", "pageviews", ("event_time",), TIMESTAMP)),
        ("a.b:c:datetime@2025-01-08 14:30:25!append", IncrementalSpec("a", "b", ("c",), DATETIME, "2025-01-08 14:30:25")),
        ("a.b:c:integer@1000001", IncrementalSpec("a", "b", ("c",), INTEGER, "1000001")),
        ("transactions:created_at:datetime", IncrementalSpec(None, "transactions", ("created_at",), DATETIME)),
        ("public.order items:Größe in cm:integer", IncrementalSpec("public", "order items", ("Größe in cm",), INTEGER)),
    ],
)
def test_every_form_of_an_entry_is_parsed(text: str, spec: IncrementalSpec) -> None:
    """Otherwise entries that users have written are refused, or get another meaning."""
    assert parse_incremental(text) == spec


@pytest.mark.parametrize(
    ("text", "own", "schema", "table"),
    [
        ("my.shop.orders:id:integer", "my.shop", "my.shop", "orders"),
        ("my.shop.eu.orders:id:integer", "my.shop", "my.shop", "eu.orders"),
        ("public.eu.orders:id:integer", "public", "public", "eu.orders"),
        ("orders:id:integer", "my.shop", None, "orders"),
        ("other.orders:id:integer", "my.shop", "other", "orders"),
    ],
)
def test_names_with_dots_are_read_by_the_schema_of_the_datastore(text: str, own: str, schema: str | None, table: str) -> None:
    """Otherwise a schema or a table with a dot in its name ends the datastore, and only the longer form of the entry would do."""
    spec = parse_incremental(text, own)
    assert (spec.schema, spec.table) == (schema, table)


words = st.text(st.characters(exclude_characters=":@!.", exclude_categories=("C", "Z")), min_size=1)
gaps = st.sampled_from(["", " ", "  "])


@given(st.data(), words, words, words, st.sampled_from(IdentifierType), st.sampled_from([None, "i", "e"]))
def test_parts_mean_the_same_with_and_without_spaces(
    data: st.DataObject, schema: str, table: str, column: str, type_: IdentifierType, direction: str | None
) -> None:
    """Otherwise a space after a colon changes what is synced, or stops the whole datastore from loading."""
    start = data.draw(st.none() | st.sampled_from(["2025-01-01", "2025-01-08 14:30:25", "17"]))
    strategy = data.draw(st.none() | st.sampled_from([Strategy.APPEND, Strategy.UPSERT]))
    parts = [f"{schema}.{table}", ":", column, ":", type_.value]
    parts += [":", direction] if direction else []
    parts += ["@", start] if start else []
    parts += ["!", strategy.value] if strategy else []
    text = "".join(data.draw(gaps) + part for part in parts) + data.draw(gaps)
    assert parse_incremental(text) == IncrementalSpec(
        schema, table, (column,), type_, start, strategy or Strategy.APPEND, excluded=direction == "e"
    )


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("", "", "a table name is missing"),
        (":c:date", ":c:date", "a table name is missing"),
        ("public.:c:date", "public.:c:date", "'public.' is not schema.table"),
        (".orders:c:date", ".orders:c:date", "'.orders' is not schema.table"),
        ("db.public.orders:c:date", "db.public.orders:c:date", "more than one dot"),
        ("public.orders", "", "a column is missing: ':' expected"),
        ("public.orders::date", ":date", "a column is missing"),
        ("public.orders:c", "", "a type is missing: ':' expected"),
        ("public.orders:c:", "", "a type is missing"),
        ("public.orders:c:dat", "dat", "unknown type 'dat'; an identifier is one of date, datetime, timestamp, integer"),
        ("public.orders:date:dat @2025-01-01", "dat @2025-01-01", "unknown type 'dat'"),
        ("public.orders:c:date:x", "x", "unknown direction 'x'"),
        ("public.orders:c:date:", "", "a direction is missing"),
        ("public.orders:c:date@", "", "a start value is missing after @"),
        ("public.orders:c:date@!upsert", "!upsert", "a start value is missing after @"),
        ("public.orders:c:date!merge", "merge", "unknown strategy 'merge'; it is append or upsert"),
        ("public.orders:c:date!upsert@2025-01-01", "upsert@2025-01-01", "unknown strategy 'upsert@2025-01-01'"),
        ("public.orders:c:date!snapshot", "snapshot", "unknown strategy 'snapshot'"),
        ("public.orders:c:date:i:e", ":e", "did not expect ':e' here"),
    ],
)
def test_an_error_points_at_the_place_in_the_entry(text: str, at: str, says: str) -> None:
    """Otherwise the user of a long list has to guess which entry is wrong, where, and what would be right."""
    with pytest.raises(ConfigurationError) as caught:
        parse_incremental(text)
    first, shown, caret, grammar = str(caught.value).splitlines()
    assert says in first
    assert shown == f"    {text}"
    assert text[len(caret) - 5 :] == at, f"the caret stands elsewhere:\n{shown}\n{caret}"
    assert caret == " " * (len(caret) - 1) + "^"
    assert GRAMMAR in grammar


@given(st.text(st.sampled_from(":@!. abdeintx1"), max_size=20))
def test_a_text_that_is_no_entry_is_a_configuration_error(text: str) -> None:
    """Otherwise a typing mistake ends in a stack trace."""
    try:
        spec = parse_incremental(text)
    except ConfigurationError as error:
        assert "The grammar is" in str(error)
    else:
        assert spec.table.strip() and all(name.strip() for name in spec.columns)


def test_snapshot_is_refused_as_a_strategy() -> None:
    """Otherwise a container with an identifier is written whole each time, and its partitions mean nothing."""
    with pytest.raises(ConfigurationError, match="append or upsert"):
        parse_strategy("snapshot")
