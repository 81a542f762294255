"""The metadata of own assets: what is understood, and what the message says otherwise.

Belongs here: parsing, without Spark and Dagster. Does not belong: the writes (``dagster/test_own_writes``).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.own_rows import PartitionExpr
from incremental_assets.core.own_write import OwnWrite, WriteMode, column_or_expression, expect_columns, parse_partition_expr, parse_write


@pytest.mark.parametrize(
    ("metadata", "write"),
    [
        ({}, OwnWrite(WriteMode.OVERWRITE)),
        ({"write": "overwrite"}, OwnWrite(WriteMode.OVERWRITE)),
        ({"write": "append", "partition_expr": "day"}, OwnWrite(WriteMode.APPEND)),
        ({"write": "merge", "merge_keys": ["id", "day"]}, OwnWrite(WriteMode.MERGE, ("id", "day"))),
        ({"write": "merge", "merge_keys": "id"}, OwnWrite(WriteMode.MERGE, ("id",))),
    ],
)
def test_what_an_asset_says_is_how_it_is_written(metadata: Mapping[str, Any], write: OwnWrite) -> None:
    """Taken for another mode, a write would remove or double rows."""
    assert parse_write("sums", metadata) == write


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"write": "upsert"}, r"sums: .*'upsert', which is unknown\. Write one of 'overwrite', 'append', 'merge'"),
        ({"write": "Append"}, "Write one of"),
        ({"write": None}, "Write one of"),
        ({"write": "merge"}, r"merge_keys names no column\. Name the columns .*'merge_keys': \['<column>', …\]"),
        ({"write": "merge", "merge_keys": []}, r"merge_keys is \[\]"),
        ({"write": "merge", "merge_keys": ["id", "ID"]}, "Name the columns"),
        ({"write": "merge", "merge_keys": 3}, "merge_keys is 3"),
        ({"write": "append", "merge_keys": ["id"]}, r"Add \{'write': 'merge'\}, or remove merge_keys"),
        ({"merge_keys": ["id"]}, "write is 'overwrite'"),
    ],
)
def test_what_is_not_understood_is_answered_by_what_to_write(metadata: Mapping[str, Any], said: str) -> None:
    """Otherwise a typing error silently overwrites a table that should have been merged."""
    with pytest.raises(ConfigurationError, match=said):
        parse_write("sums", metadata)


@pytest.mark.parametrize(
    ("given", "dimensions", "said"),
    [
        (None, (), r"column of its partitions is not known\. Add @asset\(metadata=\{'partition_expr': '<column or expression>'\}\)"),
        ({"day": "d"}, (), "cannot be"),
        ("day", ("day", "shop"), r"says nothing of day, shop\. .*\{'day': '<column>', 'shop': '<column>'\}"),
        ({"day": "d"}, ("day", "shop"), "says nothing of shop"),
        ({"day": "d", "shop": "s", "region": "r"}, ("day", "shop"), "has no such dimension: region"),
        ({"day": "d", "shop": "D"}, ("day", "shop"), "one column for two dimensions"),
    ],
)
def test_a_partition_expr_that_does_not_fit_the_partitions_is_refused(given: Any, dimensions: Sequence[str], said: str) -> None:
    """Otherwise partitions overwrite each other."""
    with pytest.raises(ConfigurationError, match=said):
        parse_partition_expr("sums", {"partition_expr": given}, dimensions)


def test_a_partition_expr_names_the_column_of_each_dimension() -> None:
    assert parse_partition_expr("sums", {"partition_expr": "day"}, ()) == ("day",)
    assert parse_partition_expr("sums", {"partition_expr": {"shop": "s", "day": "d"}}, ("day", "shop")) == ("d", "s")


def test_what_is_no_column_is_an_expression_and_a_typing_error_is_neither() -> None:
    """A column may be called `order date`; a name that is no column would give a message of Spark's."""
    assert column_or_expression("sums", "ORDER DATE", ["order date"]) == PartitionExpr("order date")
    assert column_or_expression("sums", "to_date(at)", ["at"]) == PartitionExpr("to_date(at)", is_column=False)
    with pytest.raises(ConfigurationError, match=r"partition_expr names 'dy', and there is no such column\. Nearest: day"):
        column_or_expression("sums", "dy", ["day"])


def test_an_unknown_column_is_answered_by_the_nearest_one() -> None:
    """Column names are compared as Delta compares them, and the table's spelling counts."""
    assert expect_columns("sums", "merge_keys", ["ID"], ["id", "day"]) == ("id",)
    with pytest.raises(ConfigurationError, match=r"sums: merge_keys names 'order_idd', and there is no such column\. Nearest: order_id"):
        expect_columns("sums", "merge_keys", ["order_idd"], ["order_id", "day"])
