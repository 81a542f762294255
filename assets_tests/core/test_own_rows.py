"""Partitions on the columns of an own table: the rows that they select, and the way back from a row to its partition.

Belongs here: these values and the SQL that is made of them, without Spark and Dagster. Does not belong: what Dagster's keys mean
(``dagster/test_own_partitions``).
"""

from incremental_assets.core.cursor_type import CursorType
from incremental_assets.core.own_rows import Axis, OwnRows, PartitionExpr
from incremental_assets.core.window import Window
from incremental_assets.delta.sql import axis_value, boxes_predicate

DAYS = Axis(PartitionExpr("day"), CursorType.DATE, {f"d{n}": (Window(n, n + 1),) for n in range(10)})
MONTHS = Axis(PartitionExpr("at"), CursorType.TIMESTAMP, {"jan": (Window(0, 31 * 24),), "feb": (Window(31 * 24, 59 * 24),)})
SHOPS = Axis(PartitionExpr("shop"), None, {})


def test_partitions_that_differ_on_the_first_axis_alone_share_a_condition() -> None:
    """A range of a year for a hundred shops would otherwise be a statement of 36,500 conditions, which Spark does not plan."""
    rows = OwnRows((DAYS, SHOPS), {(f"d{n}", shop): f"d{n}|{shop}" for n in (1, 2, 3, 5) for shop in "ab"})
    (box,) = rows.boxes()
    assert box[0].windows == (Window(1, 4), Window(5, 6)) and box[1].texts == ("a", "b")
    odd = OwnRows((DAYS, SHOPS), {("d1", "a"): "1", ("d2", "a"): "2", ("d2", "b"): "3"})
    assert [(box[0].windows, box[1].texts) for box in odd.boxes()] == [((Window(1, 3),), ("a",)), ((Window(2, 3),), ("b",))]


def test_a_row_is_of_the_partition_whose_condition_selects_it() -> None:
    """Otherwise the row counts that Dagster shows are those of other partitions."""
    rows = OwnRows((DAYS, SHOPS), {("d1", "a"): "1", ("d2", "b"): "2"})
    assert [rows.partition_of(found) for found in ((1, "a"), (2, "b"))] == ["1", "2"]
    assert {rows.partition_of(found) for found in ((2, "a"), (0, "a"), (None, "a"), (1, None), (99, "b"))} == {None}
    months = OwnRows((MONTHS,), {("jan",): "jan", ("feb",): "feb"})
    assert [months.partition_of((v,)) for v in (-1, 0, 743, 744, 1415, 1416)] == [None, "jan", "jan", "feb", "feb", None]


def test_values_are_counted_in_pieces_that_lie_in_one_partition() -> None:
    """Microseconds would be a group each, and pieces that are too wide would count rows for the partition before."""
    assert MONTHS.step == 24  # the greatest width that divides 0, 744 and 1416
    assert axis_value(MONTHS) == "unix_micros(cast(`at` AS timestamp)) - pmod(unix_micros(cast(`at` AS timestamp)), 24L)"
    assert DAYS.step == 1 and axis_value(SHOPS) == "`shop`"


def test_a_key_does_not_become_sql() -> None:
    """Dynamic keys come from names of files and from people. A backslash escapes in Spark's constants."""
    hostile = ["a' or 1=1 --", "\\' OR 1=1 -- ", "`x`", "${env:HOME}"]
    rows = OwnRows((SHOPS,), {(key,): key for key in hostile})
    assert boxes_predicate(rows.boxes()) == (r"((`shop` IN ('a\' or 1=1 --', '\\\' OR 1=1 -- ', '`x`', '${env:HOME}')))")
    assert boxes_predicate(OwnRows((Axis(PartitionExpr("a`b"), None, {}),), {("k",): "k"}).boxes()) == "((`a``b` IN ('k')))"
    assert boxes_predicate([]) == "false"
