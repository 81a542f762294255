"""Each rule says in one sentence what it expects, for people who look at its check and did not write it.

Belongs here: the sentences. Does not belong: what the rules mean in SQL (``test_rules``).
"""

from typing import Any, get_args, get_type_hints

import pytest
from pydantic import TypeAdapter

from incremental_assets.core.rules.checks import AnyRule
from incremental_assets.core.rules.rule import Rule

RULES: TypeAdapter[Rule] = TypeAdapter(AnyRule)
ID = {"column": "id"}
SENTENCES: list[tuple[dict[str, Any], str]] = [
    ({"rule": "not_null", "columns": ["a", "b", "c"]}, "Each row has a value in `a`, `b` and `c`."),
    ({"rule": "between", "column": "seats", "min": 1, "max": 8}, "Each value of `seats` lies between 1 and 8."),
    ({"rule": "min", **ID, "min": 1000, "filter": "x > 1"}, "Each value of `id` is at least 1,000, of the rows where `x > 1`."),
    (
        {"rule": "max", **ID, "max": "2026-01-01", "tolerance": 0.01},
        "Each value of `id` is at most 2026-01-01; 1 % of the rows may break it.",
    ),
    ({"rule": "compare", **ID, "operator": "<=", "field": "b", "tolerance": 5}, "In each row, `id` is at most `b`; 5 rows may break it."),
    ({"rule": "length", **ID, "min": 2}, "The length of each value of `id` is at least 2."),
    ({"rule": "matches_pattern", **ID, "pattern": "^A"}, "Each value of `id` matches the pattern `^A`."),
    ({"rule": "expected_values", **ID, "values": ["F", "O"]}, "Each value of `id` is one of F, O."),
    (
        {"rule": "expected_values", **ID, "values": list(range(1, 14))},
        "Each value of `id` is one of 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 3 others.",
    ),
    ({"rule": "is_type", **ID, "type": "int"}, "Each value of `id` can be read as `int`."),
    ({"rule": "not_in_future", **ID}, "No value of `id` lies in the future."),
    ({"rule": "positive", **ID}, "Each value of `id` is above zero."),
    ({"rule": "not_negative", **ID}, "No value of `id` is below zero."),
    ({"rule": "contains_email", **ID}, "Each value of `id` contains an e-mail address."),
    ({"rule": "contains_url", **ID}, "Each value of `id` contains an http, https or ftp URL."),
    ({"rule": "expression", "expression": "a < b"}, "No row makes `a < b` false."),
    ({"rule": "unique", "columns": ["a", "b"]}, "No two rows have the same `a` and `b` in each partition."),
    ({"rule": "unique", "columns": ["a"], "scope": "table"}, "No two rows of the table have the same `a`."),
    ({"rule": "distinct_count", "columns": ["a"], "max": 9}, "The number of different values of `a` is at most 9 in each partition."),
    ({"rule": "exists_in", **ID, "container": "c", "field": "f"}, "Each value of `id` is among those of `f` in `c`."),
    ({"rule": "not_exists_in", **ID, "container": "c", "field": "f"}, "No value of `id` is among those of `f` in `c`."),
    ({"rule": "sum", **ID, "min": 0.5}, "The sum of `id` is at least 0.5 in each partition."),
    ({"rule": "metric", "expression": "avg(a)", "max": 2}, "`avg(a)` is at most 2 in each partition."),
    (
        {"rule": "volumetric", "min_change": -0.5, "max_change": 1.0},
        "The number of rows of a partition differs by between -50 % and +100 % from the mean of the 14 partitions before.",
    ),
    (
        {"rule": "metric_change", "expression": "avg(a)", "max_change": 0.1, "over": 3},
        "`avg(a)` of a partition differs by at most +10 % from the mean of the 3 partitions before.",
    ),
    (
        {"rule": "expected_schema", "types": {"a": "int", "b": None}, "only": True},
        "The table has the columns `a` (int), `b`, and no others.",
    ),
    ({"rule": "freshness", "max_age": "2 days", "column": "at"}, "The newest row by `at` is at most 2 days old."),
]


@pytest.mark.parametrize(("words", "sentence"), SENTENCES, ids=[f"{words['rule']} {n}" for n, (words, _) in enumerate(SENTENCES)])
def test_a_rule_says_what_it_expects(words: dict[str, Any], sentence: str) -> None:
    """A person who is told that a check has failed reads JSON instead, and does not know what was expected."""
    assert RULES.validate_python(words).sentence(is_partitioned=True) == sentence


def test_without_partitions_none_are_spoken_of() -> None:
    words = {"rule": "sum", "column": "id", "min": 1}
    assert RULES.validate_python(words).sentence(is_partitioned=False) == "The sum of `id` is at least 1."


def test_every_rule_has_its_sentence_here() -> None:
    """A rule without one makes the whole project fail to load."""
    kinds = get_args(get_args(AnyRule)[0])
    names = {name for kind in kinds for name in get_args(get_type_hints(kind)["rule"])}
    assert names == {words["rule"] for words, _ in SENTENCES}
