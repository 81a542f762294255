"""How the columns of a table in the lake follow those of its source, without losing values.

Belongs here: the decision. Does not belong: the statements that change the table (``test_schema_changes``).
"""

import itertools
import re

import pytest

from incremental_assets.core.errors import RebuildNeeded
from incremental_assets.core.schema import Column, Evolution, plan_evolution, widens

SIMPLE = ["smallint", "int", "bigint", "float", "double", "date", "timestamp", "timestamp_ntz", "string", "boolean", "binary"]
DECIMALS = [f"decimal({p},{s})" for p in range(1, 39) for s in (0, 1, 2, 9, 18, 37, 38) if s <= p]

INTEGER_RANGE = {"smallint": 2**15, "int": 2**31, "bigint": 2**63}


def holds_every_value(old: str, new: str) -> bool:
    """Whether ``new`` holds each value of ``old`` exactly, computed from the types' ranges."""

    def decimal(name: str) -> tuple[int, int] | None:
        found = re.fullmatch(r"decimal\((\d+),(\d+)\)", name)
        return (int(found[1]), int(found[2])) if found else None

    if old == new:
        return True
    before, after = decimal(old), decimal(new)
    if old in INTEGER_RANGE:
        if new in INTEGER_RANGE:
            return INTEGER_RANGE[old] <= INTEGER_RANGE[new]
        if after:
            return INTEGER_RANGE[old] <= 10 ** (after[0] - after[1])
        return new == "double" and INTEGER_RANGE[old] <= 2**53
    if before and after:
        return after[1] >= before[1] and after[0] - after[1] >= before[0] - before[1]
    return (old, new) in {("float", "double"), ("date", "timestamp_ntz")}


def test_a_widened_type_holds_every_old_value() -> None:
    """Otherwise old rows are rounded, cut or nulled by a change of the source's column."""
    widened = [(old, new) for old, new in itertools.product([*SIMPLE, *DECIMALS], repeat=2) if widens(old, new)]
    assert len(widened) > 1000
    for old, new in widened:
        assert old != new and holds_every_value(old, new), (old, new)
        assert not widens(new, old), f"the wider of {old} and {new} is one of them"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("smallint", "int"),
        ("int", "bigint"),
        ("float", "double"),
        ("int", "double"),
        ("date", "timestamp_ntz"),
        ("int", "decimal(10,0)"),
        ("int", "decimal(12,2)"),
        ("bigint", "decimal(20,0)"),
        ("decimal(10,2)", "decimal(12,2)"),
        ("decimal(10,2)", "decimal(12,4)"),
    ],
)
def test_a_wider_type_needs_no_load_anew(old: str, new: str) -> None:
    """Otherwise a harmless ALTER in the source asks for the whole table to be loaded anew."""
    assert widens(old, new)
    found = plan_evolution("shop/orders", [Column("a", old)], [Column("a", new)])
    assert found == Evolution(widen=((Column("a", old), Column("a", new)),)) and found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bigint", "double"),
        ("bigint", "decimal(19,0)"),  # Delta requires 20 digits
        ("int", "decimal(11,2)"),
        ("decimal(12,4)", "decimal(12,2)"),
        ("decimal(10,2)", "decimal(11,4)"),
        ("string", "int"),
        ("int", "string"),
        ("date", "timestamp"),  # the moment at which a day begins depends on a time zone
        ("timestamp", "timestamp_ntz"),
    ],
)
def test_an_incompatible_change_is_refused_with_the_command_that_helps(old: str, new: str) -> None:
    """Otherwise rows are written that do not mean what they meant, or the user does not learn how to go on."""
    with pytest.raises(RebuildNeeded) as caught:
        plan_evolution("shop/orders", [Column("id", "bigint"), Column("price", old)], [Column("id", "bigint"), Column("price", new)])
    message = str(caught.value)
    for part in ("shop/orders", "'price'", old, new, "nothing was written", "incremental-assets sync shop/orders --reset-watermarks"):
        assert part in message


def test_new_columns_are_added_and_dropped_ones_stay() -> None:
    """Otherwise a new column is lost without a word, or a dropped one takes its old values along."""
    lake = [Column("id", "bigint"), Column("note", "string")]
    found = plan_evolution("shop/orders", lake, [Column("id", "bigint"), Column("channel", "string")])
    assert found == Evolution(add=(Column("channel", "string"),), dropped=(Column("note", "string"),))
    only_dropped = plan_evolution("shop/orders", lake, [Column("id", "bigint")])
    assert only_dropped == Evolution(dropped=(Column("note", "string"),))
    assert not only_dropped, "nothing has to be altered in the lake, where the column stays"
    assert not plan_evolution("shop/orders", lake, lake)


def test_a_column_that_was_narrowed_stays_wide_in_the_lake() -> None:
    """Otherwise a column that was narrowed in the source stops all syncs, although the lake's column holds all its values."""
    assert plan_evolution("shop/orders", [Column("n", "bigint")], [Column("n", "int")]) == Evolution()


def test_names_of_columns_are_compared_without_case() -> None:
    """Otherwise a column renamed from ID to id is added a second time, which Delta refuses."""
    assert plan_evolution("shop/orders", [Column("ID", "int")], [Column("id", "bigint")]) == Evolution(
        widen=((Column("ID", "int"), Column("id", "bigint")),)
    )
