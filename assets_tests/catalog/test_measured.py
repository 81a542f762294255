"""What a profile of a container does to the identifier that the catalog proposes: it ranks, rules out and warns, and never guarantees.

Belongs here: the rules, on plain values, and the whole way from a real profile to the proposal. Does not belong: what the source itself
says of a column (``test_detect``), and how a profile is made (``test_profiles``).
"""

import datetime
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from assets_tests.harness import Project
from incremental_assets.catalog.detect import Proposal, propose
from incremental_assets.core.container import Kind, SourceColumn, SourceTable
from incremental_assets.core.evidence import ColumnEvidence, ProfiledColumn, TableEvidence, TableProfile
from incremental_assets.operations.scans import ScanOptions, profile_lines

MakeProject = Callable[..., Project]
NOW = "now()"
LONG_AGO = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
WRITTEN_ONCE = TableEvidence(inserts=5000, changes=0, live=5000, counted_since=LONG_AGO, made_at=LONG_AGO)
pytestmark = pytest.mark.usefixtures("long_used")
GOOD = ProfiledColumn(5000, 0, "2026-01-01 00:00:00", "2026-11-19 00:00:00", 4900)


def column(name: str, *, default: str | None = None, not_null: bool = False) -> SourceColumn:
    return SourceColumn(name, "timestamp with time zone", "timestamp with time zone", not_null, default=default)


def table(*columns: SourceColumn) -> SourceTable:
    key = SourceColumn("code", "text", "text", True)
    return SourceTable("orders", Kind.TABLE, (key, *columns), primary_key=("code",), rows=5000)


def profile(is_older: bool = False, **columns: ProfiledColumn) -> TableProfile:
    return TableProfile("2026-11-20T08:00:00+00:00", "run", is_older, columns)


def test_rows_without_a_value_take_the_trust_from_a_column_that_may_be_null() -> None:
    """Statistics of a sample say that no value is NULL. Rows without would be read again with each sync, unasked."""
    evidence = replace(WRITTEN_ONCE, columns={"created_at": ColumnEvidence(null_share=0.0)})
    orders = table(column("created_at", default=NOW))
    assert propose(orders, evidence).trusted
    seen = propose(orders, evidence, profile(created_at=replace(GOOD, nulls=150)))
    assert (seen.columns, seen.trusted) == (("created_at",), False)
    assert any(one.startswith("created_at: profile of 2026-11-20: 3 % of the values are NULL") for one in seen.reasons), seen.reasons


@pytest.mark.parametrize("is_older", [True, False])
def test_no_profile_makes_a_proposal_trusted(is_older: bool) -> None:
    """A profile describes the rows that were there. That nothing was NULL, and in order, does not bind the next row."""
    unsure = table(column("created_at"))
    best = replace(GOOD, in_order=1.0)
    seen = propose(unsure, WRITTEN_ONCE, profile(is_older, created_at=best))
    assert seen.columns == ("created_at",) and not seen.trusted
    [said] = [one for one in seen.reasons if "profile of 2026-11-20" in one]
    assert "no value is NULL" in said and ("older than the table is now" in said) == is_older
    may_be_null = table(column("created_at", default=NOW))
    assert not propose(may_be_null, WRITTEN_ONCE, profile(is_older, created_at=best)).trusted, "only a constraint keeps NULLs out"


def test_a_constraint_counts_more_than_a_profile_from_before_it() -> None:
    bound = table(column("created_at", default=NOW, not_null=True))
    assert propose(bound, WRITTEN_ONCE, profile(True, created_at=replace(GOOD, nulls=150))).trusted


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        (replace(GOOD, nulls=4000), "profile of 2026-11-20: 80 % of the values are NULL"),
        (replace(GOOD, minimum="2020-01-01 00:00:00", maximum="2020-01-01 00:00:00"), "all 5,000 values are 2020-01-01 00:00:00"),
    ],
)
def test_a_profile_rules_out_a_column_with_the_reason(measured: ProfiledColumn, why: str) -> None:
    """Its name is right, and its values are useless: each sync would read all rows, or none."""
    seen = propose(table(column("created_at")), TableEvidence(), profile(created_at=measured))
    assert seen.columns == () and any(why in one for one in seen.reasons), seen.reasons


def test_one_value_does_not_rule_out_what_the_source_itself_sets() -> None:
    """All rows of a table that was filled by one transaction have one time. The next ones will have another."""
    loaded = table(column("created_at", default=NOW, not_null=True))
    alike = replace(GOOD, minimum="2026-01-01 00:00:00", maximum="2026-01-01 00:00:00")
    assert propose(loaded, WRITTEN_ONCE, profile(created_at=alike)).trusted


@pytest.mark.parametrize(
    ("doubtful", "why"),
    [
        (replace(GOOD, nulls=1), "less than 1 % of the values are NULL"),
        (replace(GOOD, maximum="9999-12-31 00:00:00"), "there are values up to 9999-12-31 00:00:00, which had not come yet"),
        (replace(GOOD, in_order=0.5), "50 % of them overlap the one before"),
    ],
)
def test_of_two_columns_the_one_without_doubts_is_proposed(doubtful: ProfiledColumn, why: str) -> None:
    """By their names alone, the first one of the table would be taken."""
    orders = table(column("created_at"), column("received_at"))
    assert propose(orders, TableEvidence(), profile(created_at=GOOD, received_at=GOOD)).columns == ("created_at",)
    seen = propose(orders, TableEvidence(), profile(created_at=doubtful, received_at=GOOD))
    assert seen.columns == ("received_at",)
    alone = propose(table(column("created_at")), TableEvidence(), profile(created_at=doubtful))
    assert alone.columns == ("created_at",) and any(why in one for one in alone.reasons), alone.reasons


def test_a_column_of_changes_that_is_mostly_null_is_still_one_of_a_pair() -> None:
    """It is NULL until the first change, which most rows never see."""
    orders = table(column("created_at", default=NOW, not_null=True), column("updated_at"))
    seen = propose(orders, TableEvidence(), profile(created_at=GOOD, updated_at=replace(GOOD, nulls=4900)))
    assert seen.columns == ("created_at", "updated_at")


@pytest.mark.long
def test_a_real_profile_reaches_the_proposal_and_an_older_one_says_so(project: MakeProject) -> None:
    """The whole way: sync, profile, catalog. The containers' rows have not changed between profile and catalog."""
    shop = project()
    shop.execute("create table orders (id text primary key, created_at timestamp, received_at timestamp)")
    shop.execute(
        "insert into orders select i, case when i % 10 > 0 then timestamp '2026-01-01' + i * interval '1 hour' end, "
        "timestamp '2026-01-01' + i * interval '1 hour' from generate_series(1, 200) i"
    )
    shop.one("orders")

    def proposed() -> Proposal:
        return shop.definition("orders").proposal

    assert proposed().columns == ("created_at",)
    with shop.instance() as instance:
        made: list[dict[str, Any]] = list(profile_lines(shop.dagster(), [shop.definition("orders")], ScanOptions(), instance))
    assert made[0]["status"] == "profiled", made
    seen = proposed()
    assert seen.columns == ("received_at",) and not seen.trusted
    assert any("no value is NULL, from 2026-01-01 01:00:00 to 2026-01-09 08:00:00" in one for one in seen.reasons), seen.reasons
    shop.execute("insert into orders values ('new', now(), now())")
    shop.one("orders")
    assert any("older than the table is now" in one for one in proposed().reasons), proposed().reasons
