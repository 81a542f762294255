"""Rows with infinity or NaN in the column by which they are followed or partitioned, which no window holds.

Belongs here: that the other rows are synced, and what is said of these. Does not belong: such values in other columns (``test_types``).
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

from assets_tests.harness import Project, long

MakeProject = Callable[..., Project]
# Type of the column, its type in the grammar, two values, the first and the last of all, and values that no window holds.
TYPES = {
    "timestamptz": ("timestamp", "2026-01-01Z", "2026-02-01Z", "infinity", "-infinity"),
    "timestamp": ("datetime", "2026-01-01", "2026-02-01", "infinity", "294250-01-01"),
    "date": ("date", "2026-01-01", "2026-02-01", "infinity", "-infinity"),
    "numeric(20)": ("integer", "1", "20", "NaN", "NaN"),
}


def accepted(line: dict[str, Any]) -> str:
    """The condition for `where` that a message proposes."""
    found = re.search(r"where: '(.*)'}}", line["message"])
    assert found, line["message"]
    return found[1].replace("''", "'")


@pytest.mark.parametrize("type_", ["timestamptz", *long("timestamp", "date", "numeric(20)")])
@pytest.mark.parametrize("null", ["null", *long("not null")])
def test_a_row_that_no_window_holds_does_not_keep_the_others_out(project: MakeProject, type_: str, null: str) -> None:
    """One `infinity` in `updated_at` would fail its container for ever, and all other rows with it."""
    word, first, last, high, low = TYPES[type_]
    shop = project(incremental=[f"public.t:at:{word}!upsert"], containers={"t": {"partition_by": 10 if word == "integer" else "month"}})
    shop.execute(
        f"create table t (id int primary key, at {type_} {null}); insert into t values (1, '{first}'), (2, '{low}'), (3, '{last}')"
    )
    placed = "id not in (2, 5)"
    line = shop.one("t")
    assert line["status"] == "warning" and line["message"].startswith("1 row of the source is left out"), line
    shop.assert_equal("t", where=placed)
    shop.execute(f"insert into t values (4, '{last}'), (5, '{high}')" + (", (6, null)" if null == "null" else ""))
    line = shop.one("t")
    assert line["status"] == "warning" and line["message"].startswith("2 rows of the source are left out"), line
    shop.assert_equal("t", where=placed)
    assert shop.one("t")["status"] == "skipped"
    audited = shop.audit("t")["t"]
    assert audited["status"] == "equal" and "2 rows of the source are left out" in audited["message"], audited
    entry = shop.attributes["containers"]["t"]
    shop.configure(containers={"t": {**entry, "where": accepted(line)}})
    assert shop.one("t")["status"] == "synced"
    shop.assert_equal("t", where=placed)


def test_a_row_that_becomes_infinite_is_said_though_nothing_else_is_new(project: MakeProject) -> None:
    """The row leaves the lake, so a sync must not be skipped as if there were nothing to do, nor stop at it."""
    shop = project(incremental=["public.t:at:timestamp!upsert"], containers={"t": {"partition_by": "month"}})
    shop.execute("create table t (id int primary key, at timestamptz); insert into t values (1, '2026-01-01Z'), (2, '2026-02-01Z')")
    assert shop.one("t")["status"] == "synced"
    shop.execute("insert into t values (3, 'infinity')")
    line = shop.one("t")
    assert line["status"] == "warning" and line["watermark"]["new"] == "2026-02-01T00:00:00Z", line
    assert [id_ for (id_,) in sorted(shop.rows("t", "id"))] == [1, 2]


@pytest.mark.parametrize("strategy", ["upsert", *long("append")])
def test_a_row_that_is_corrected_to_a_value_below_the_watermark_is_not_lost_silently(project: MakeProject, strategy: str) -> None:
    """The sync says: correct it. Whoever does so with the date that it really has would have lost the row, and no sync would say so."""
    shop = project(incremental=[f"public.t:at:timestamp!{strategy}"], containers={"t": {"partition_by": "month"}})
    shop.execute("create table t (id int primary key, at timestamptz)")
    shop.execute("insert into t values (1, '2026-01-01Z'), (2, '2026-02-01Z'), (3, 'infinity'), (4, 'infinity')")
    assert "(after that: incremental-assets audit shop/t --repair)" in shop.one("t")["message"]
    shop.execute("update t set at = '2026-01-05Z' where id = 3")
    line = shop.one("t")
    assert line["status"] == "warning" and "1 row fewer than before is left out for their at" in line["message"], line
    assert shop.audit("t", repair=True)["t"]["status"] == "repaired"
    shop.assert_equal("t", where="id <> 4")
    shop.execute("insert into t values (5, '2026-02-03Z')")
    assert "fewer" not in shop.one("t")["message"]


@pytest.mark.long
@pytest.mark.parametrize("column", ["a", "b", "part"])
def test_either_of_two_columns_and_that_of_the_partitions_may_be_infinite(project: MakeProject, column: str) -> None:
    """A row is followed by the greater of two columns, and belongs to a partition by a third one. None of them may fail the container."""
    entry = {"table": "public.t", "column": ["a", "b"], "type": "timestamp", "strategy": "upsert"}
    shop = project(incremental=[entry | {"partition_by": {"column": "part", "every": "month"}}])
    shop.execute(
        """create table t (id int primary key, a timestamptz, b timestamptz, part timestamptz);
        insert into t select i, date '2026-01-01' + i, date '2026-01-02' + i, date '2026-01-03' + i from generate_series(1, 90) i"""
    )
    shop.execute(f"update t set {column} = '-infinity' where id = 5")
    assert shop.one("t")["status"] == "warning"
    shop.assert_equal("t", where="id <> 5")
    changed = {"a": "now()", "b": "now()", column: "'infinity'"}
    shop.execute(f"update t set {', '.join(f'{name} = {value}' for name, value in changed.items())} where id = 7")
    shop.execute("insert into t values (100, now(), now(), now())")
    assert shop.one("t")["message"].startswith("2 rows of the source")
    shop.one("t", keys=("2026-01-01", "2026-01-01"))
    shop.assert_equal("t", where="id not in (5, 7)")
