"""Rules as YAML to paste, each asked of partitions that it was not made from.

Belongs here: which partitions are held out, asking their rows in one pass, what is left out, the YAML. Does not belong: which rules come
into question (``propose``).

The order of calls: ``split_partitions`` of the profile of all; ``suggest`` with the profile of the fitted ones and the rows of the
held-out ones; ``Suggestions.yaml``.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import yaml

from incremental_assets.lake.guards import expr
from incremental_assets.model.names import backticked as quote
from incremental_assets.model.rules import Change, NotNull, RowRule, Rule, Unique
from incremental_assets.quality.profile.column import Key, Profile
from incremental_assets.quality.profile.propose import RARE, candidates, changes_of, rounded_up, rows_by_partition, volumetric

if TYPE_CHECKING:
    from pyspark.sql.dataframe import DataFrame

HELD_OUT = 0.2
"""The share of partitions, the newest, that rules are not made from; at least one of two."""
MOST_HELD_OUT = 10

Predicate = Callable[[RowRule], str]
"""Spark SQL of *the row passes*; where it is NULL, it does."""


@dataclass(frozen=True)
class Split:
    """Partitions with rows, oldest first. ``held_out`` is empty where there are too few to hold one back."""

    fitted: tuple[Key, ...]
    held_out: tuple[Key, ...]


@dataclass(frozen=True)
class Suggestion:
    """``failed`` of ``asked`` held-out rows (of partitions, for rules about those) break it; ``asked`` is 0 where it was not asked."""

    rule: Rule
    failed: int = 0
    asked: int = 0

    @property
    def share(self) -> float:
        return self.failed / self.asked if self.asked else 0.0


@dataclass(frozen=True)
class Suggestions:
    """``kept``: to propose. ``dropped``: they do not hold for the held-out rows. ``rows``: held out."""

    split: Split
    kept: Sequence[Suggestion]
    dropped: Sequence[Suggestion] = field(repr=False)
    rows: int = 0

    def yaml(self) -> str:
        """A list for ``checks:``, a rule a line, with comments."""
        lines = _head(self.split, self.rows)
        lines += [f"- {_flow(one.rule.words())}  # {_of_held_out(one)}" for one in self.kept]
        if not self.kept:
            lines.append("[]")
        if self.dropped:
            lines.append("# Left out, as they do not hold there:")
            lines += [f"#   {_flow(one.rule.words())}: {_of_held_out(one)}" for one in self.dropped]
        return "\n".join(lines) + "\n"


def split_partitions(profile: Profile) -> Split:
    """Of the partitions with rows, the newest fifth (at least one, at most 10) is held out; rows of no partition are in neither part."""
    filled = [key for key, rows in rows_by_partition(profile).items() if rows and key is not None]
    if len(filled) < 2:
        return Split(tuple(key for key, rows in rows_by_partition(profile).items() if rows), ())
    count = max(1, min(MOST_HELD_OUT, round(HELD_OUT * len(filled))))
    return Split(tuple(filled[:-count]), tuple(filled[-count:]))


def suggest(
    fitted: Profile,
    split: Split,
    frame: "DataFrame | None",
    predicate: Predicate,
    *,
    rows: Mapping[Key, int],
    partition: str | None = None,
    filling: Sequence[Key] = (),
) -> Suggestions:
    """``fitted``: of ``split.fitted`` alone. ``frame``: the rows of ``split.held_out``, which its column ``partition`` tells apart.

    ``frame`` is None where nothing is held out. ``rows``: of each partition, oldest first. ``filling``: partitions that more rows are
    expected in. One pass over the frame, and over no other rows. A rule that more than 1 % of the held-out rows break is left out; one
    that fewer break gets a tolerance.
    """
    groups = [one.alternatives for one in candidates(fitted)]
    rules = [rule for group in groups for rule in group]
    failed, total = _ask(frame, rules, predicate, partition) if frame is not None and split.held_out else ({}, 0)
    kept: list[Suggestion] = []
    dropped: list[Suggestion] = []
    for group in groups:
        for rule in group:
            found = Suggestion(rule, failed.get(rule.id, 0), total)
            if found.failed and (found.share > RARE or isinstance(rule, Unique)):
                dropped.append(found)
                continue
            share = 2 * found.share
            kept.append(replace(found, rule=replace(rule, tolerance=max(rule.tolerance, rounded_up(share)))) if share else found)
            break
    of_rows = _volumetric(split, rows, filling)
    if of_rows is not None:
        (dropped if of_rows.failed else kept).append(of_rows)
    return Suggestions(split, _not_nulls_as_one(kept), dropped, total)


def _ask(frame: "DataFrame", rules: Sequence[RowRule | Unique], predicate: Predicate, partition: str | None) -> tuple[dict[str, int], int]:
    """How many rows break each rule, by its id, and how many there are, in one aggregation."""
    asked = [f"{_failing(rule, predicate, partition)} AS r{n}" for n, rule in enumerate(rules)]
    found = frame.agg(expr("count(*) AS total"), *(expr(one) for one in asked)).collect()[0]
    return {rule.id: int(found[f"r{n}"] or 0) for n, rule in enumerate(rules)}, int(found["total"])


def _failing(rule: RowRule | Unique, predicate: Predicate, partition: str | None) -> str:
    if isinstance(rule, Unique):
        names = [quote(name) for name in rule.columns]
        present = " AND ".join(f"{name} IS NOT NULL" for name in names)
        within = ", ".join([*([quote(partition)] if partition is not None else []), *names])
        return f"count_if({present}) - count(DISTINCT {within})"
    return f"count_if(NOT ({predicate(rule)}))"


def _volumetric(split: Split, rows: Mapping[Key, int], filling: Sequence[Key]) -> Suggestion | None:
    fitted = {key: count for key, count in rows.items() if key in split.fitted}
    rule = volumetric(fitted)
    if rule is None:
        return None
    known = {key: count for key, count in rows.items() if key in split.fitted or key in split.held_out}
    changes = {key: change for key, change in changes_of(known).items() if key in split.held_out}
    return Suggestion(rule, sum(_breaks(rule, change, key in filling) for key, change in changes.items()), len(changes))


def _breaks(rule: Change, change: float, is_filling: bool) -> bool:
    low = rule.min_change is not None and change < rule.min_change and not is_filling
    return low or (rule.max_change is not None and change > rule.max_change)


def _not_nulls_as_one(kept: Sequence[Suggestion]) -> list[Suggestion]:
    """Columns that are never NULL, in one rule, as a person would write it."""
    plain = [one for one in kept if isinstance(one.rule, NotNull) and not one.rule.tolerance]
    if len(plain) < 2:
        return list(kept)
    columns = tuple(name for one in plain for name in one.rule.columns_used)
    return [Suggestion(NotNull(columns=columns), 0, plain[0].asked), *(one for one in kept if one not in plain)]


# ---------------------------------------------------------------- YAML
def _head(split: Split, rows: int) -> list[str]:
    lines = [f"# Proposed by the profile of {_span(split.fitted)}."]
    if split.held_out:
        return [*lines, f"# Asked of {_span(split.held_out)}, {rows:,} rows that they were not made from."]
    return [*lines, "# NOT asked of other rows: there is no second partition with rows to hold back. Look at each rule before you use it."]


def _span(keys: Sequence[Key]) -> str:
    if not keys:
        return "no partition"
    if len(keys) == 1:
        return "all rows" if keys[0] is None else f"partition {_said(keys[0])}"
    return f"{len(keys):,} partitions ({_said(keys[0])} to {_said(keys[-1])})"


def _said(key: Key) -> str:
    """A key in a comment, which ends with its line."""
    text = str(key)
    return text if text.isprintable() else json.dumps(text)


def _of_held_out(one: Suggestion) -> str:
    if not one.asked:
        return "not asked of other rows"
    what = "partitions" if isinstance(one.rule, Change) else "rows"
    if not one.failed:
        return f"none of {one.asked:,} {what} fails"
    return f"{one.failed:,} of {one.asked:,} {what} fail ({100 * one.share:.2g} %)"


def _flow(words: Mapping[str, Any]) -> str:
    """On one line."""
    text = yaml.safe_dump(dict(words), default_flow_style=True, sort_keys=False, allow_unicode=True, width=float("inf")).rstrip("\n")
    return text if text.isprintable() else json.dumps(words)
