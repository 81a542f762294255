"""This module proposes rules as YAML to paste, each evaluated on partitions that it was not derived from.

The order of calls is: ``split_partitions`` with the profile of all partitions; then ``suggest`` with the profile of the fitted partitions
and a function that evaluates aggregates on the held-out rows; then ``Suggestions.yaml``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from incremental_assets.core.names import backticked as quote
from incremental_assets.core.rules.keys import Unique
from incremental_assets.core.rules.numbers import Change
from incremental_assets.core.rules.rule import Rule
from incremental_assets.core.rules.sql import RuleNotApplicable
from incremental_assets.core.rules.values import NotNull, RowRule
from incremental_assets.core.shown_text import counted
from incremental_assets.core.yaml_text import comment_text, flow
from incremental_assets.profiles.column import Key, Profile
from incremental_assets.profiles.propose import RARE, candidates, changes_of, rounded_up, rows_by_partition, volumetric
from incremental_assets.quality.rows import Aggregate, Condition, Values

HELD_OUT = 0.2
"""The share of the partitions with rows, counted from the newest, that rules are not derived from. It is at least one partition."""
MOST_HELD_OUT = 10
"""The largest number of partitions that are held out."""
_TEMPLATE = "{{"
"""The beginning of a template in Dagster's component YAML. A rule that contains it would not be loaded as it was written."""

Predicate = Callable[[RowRule], str]
"""Returns the Spark SQL condition for a row to pass a rule; NULL passes too. Raises RuleNotApplicable."""
Evaluate = Callable[[Sequence[Aggregate]], Values]
"""Computes aggregates over the held-out rows, by partition, in one pass. Those that Spark cannot analyse are left out of the result."""
_Tried = tuple[RowRule | Unique, str | Condition]
"""A rule, with the aggregate or the condition that counts the rows which break it."""


@dataclass(frozen=True)
class Split:
    """The partitions with rows, oldest first, divided into two parts.

    ``held_out`` is empty if there are too few partitions to hold one back.
    """

    fitted: tuple[Key, ...]
    held_out: tuple[Key, ...]


@dataclass(frozen=True)
class Suggestion:
    """A rule and its result on the held-out rows.

    ``failed`` of the ``evaluated`` rows break it; for rules about partitions, these are numbers of partitions. ``evaluated`` is 0 if the
    rule was not evaluated. ``worst`` is the share of failed rows in the partition with the most of them: a scan applies the tolerance to
    each partition separately, so that share counts.
    """

    rule: Rule
    failed: int = 0
    evaluated: int = 0
    worst: float = 0.0

    @property
    def share(self) -> float:
        """The share of held-out rows (or partitions) that break the rule, from 0 to 1."""
        return self.failed / self.evaluated if self.evaluated else 0.0


@dataclass(frozen=True)
class Suggestions:
    """All proposed rules, and those that were dropped.

    ``kept`` are the rules to propose. ``dropped`` do not hold for the held-out rows. ``rows`` is the number of held-out rows. ``unfit`` are
    rules that cannot be evaluated or written as YAML, each with the reason.
    """

    split: Split
    kept: Sequence[Suggestion]
    dropped: Sequence[Suggestion] = field(repr=False)
    rows: int = 0
    unfit: Sequence[tuple[Rule, str]] = field(default=(), repr=False)

    def yaml(self) -> str:
        """Return the rules as a YAML list for ``checks:``, one rule a line, with comments."""
        lines = _head(self.split, self.rows)
        lines += [f"- {flow(one.rule.words())}  # {_of_held_out(one)}" for one in self.kept]
        if not self.kept:
            lines.append("[]")
        if self.dropped:
            lines.append("# Left out, as they do not hold there:")
            lines += [f"#   {flow(one.rule.words())}: {_of_held_out(one)}" for one in self.dropped]
        if self.unfit:
            lines.append("# Left out, as they cannot be used:")
            lines += [f"#   {flow(rule.words())}: {comment_text(why)}" for rule, why in self.unfit]
        return "\n".join(lines) + "\n"


def split_partitions(profile: Profile) -> Split:
    """Hold out the newest fifth of the partitions with rows, at least one and at most 10.

    The rows without an identifier are in neither part.
    """
    filled = [key for key, rows in rows_by_partition(profile).items() if rows and key is not None]
    if len(filled) < 2:
        return Split(tuple(key for key, rows in rows_by_partition(profile).items() if rows), ())
    count = max(1, min(MOST_HELD_OUT, round(HELD_OUT * len(filled))))
    return Split(tuple(filled[:-count]), tuple(filled[-count:]))


def suggest(
    fitted: Profile,
    split: Split,
    evaluate: Evaluate | None,
    predicate: Predicate,
    *,
    rows: Mapping[Key, int],
    filling: Sequence[Key] = (),
) -> Suggestions:
    """Evaluate the candidates on the held-out rows and return what to propose.

    - ``fitted`` is the profile of ``split.fitted`` alone.
    - ``evaluate`` computes aggregates over the rows of ``split.held_out``; None if nothing is held out.
    - ``rows`` is the number of rows of each partition, oldest first.
    - ``filling`` are the partitions in which more rows are expected.

    It takes one pass over the held-out rows, and reads no others. A rule that more than 1 % of the rows of a held-out partition break is
    dropped. A rule that fewer rows break gets a tolerance of twice the worst share. Of each candidate's alternatives, the first that holds
    is kept.
    """
    unfit: list[tuple[Rule, str]] = []
    groups = [_usable(one.alternatives, predicate, unfit) for one in candidates(fitted)]
    texts = [(rule, text) for group in groups for rule, text in group]
    found, total = (
        _results(evaluate, texts) if evaluate is not None and split.held_out else ({rule.id: Suggestion(rule) for rule, _ in texts}, 0)
    )
    unfit += [(rule, "Spark cannot ask it of this column") for rule, _ in texts if rule.id not in found]
    kept: list[Suggestion] = []
    dropped: list[Suggestion] = []
    for group in groups:
        for one in (found[rule.id] for rule, _ in group if rule.id in found):
            # A ``unique`` rule gets no tolerance: a key that repeats even once is no key.
            if one.failed and (one.worst > RARE or isinstance(one.rule, Unique)):
                dropped.append(one)
                continue
            share = 2 * one.worst
            kept.append(replace(one, rule=replace(one.rule, tolerance=max(one.rule.tolerance, rounded_up(share)))) if share else one)
            break
    of_rows = _volumetric(split, rows, filling)
    if of_rows is not None:
        (dropped if of_rows.failed else kept).append(of_rows)
    return Suggestions(split, _not_nulls_as_one(kept), dropped, total, unfit)


def _usable(rules: Sequence[RowRule | Unique], predicate: Predicate, unfit: list[tuple[Rule, str]]) -> list[_Tried]:
    """Return each rule with what counts the rows of a partition which break it. The others go into ``unfit``."""
    found: list[_Tried] = []
    for rule in rules:
        if _TEMPLATE in str(rule.words()):
            unfit.append((rule, f"{_TEMPLATE} begins a template in YAML"))
            continue
        try:
            found.append((rule, _failing(rule, predicate)))
        except RuleNotApplicable as error:
            unfit.append((rule, str(error)))
    return found


def _results(evaluate: Evaluate, texts: Sequence[_Tried]) -> tuple[dict[str, Suggestion], int]:
    """Return the result of each rule that could be evaluated, by its id, and the number of held-out rows."""
    names = {rule.id: f"r{n}" for n, (rule, _) in enumerate(texts)}
    wanted = [Aggregate(names[rule.id], names[rule.id], failing) for rule, failing in texts]
    parts = list(evaluate([Aggregate(None, "total", "count(*)"), *wanted]).values())
    total = sum(int(part["total"]) for part in parts)
    found: dict[str, Suggestion] = {}
    for rule, _ in texts:
        broken = [(int(part[names[rule.id]] or 0), int(part["total"])) for part in parts if names[rule.id] in part]
        if len(broken) == len(parts):
            worst = max((failed / rows for failed, rows in broken if rows), default=0.0)
            found[rule.id] = Suggestion(rule, sum(failed for failed, _ in broken), total, worst)
    return found, total


def _failing(rule: RowRule | Unique, predicate: Predicate) -> str | Condition:
    """Return the aggregate in Spark SQL, or the condition, that counts the rows of a partition that break the rule."""
    if isinstance(rule, Unique):
        present = predicate(NotNull(columns=rule.columns))
        # As in ``quality.rows.Aggregate``, no ``count_if``.
        return f"count(CASE WHEN {present} THEN 1 END) - count(DISTINCT {', '.join(quote(name) for name in rule.columns)})"
    return Condition(predicate(rule), holds=False)


def _volumetric(split: Split, rows: Mapping[Key, int], filling: Sequence[Key]) -> Suggestion | None:
    """Propose a rule about the number of rows, and evaluate it on the held-out partitions; None if there are too few partitions."""
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
    """Combine the ``not_null`` rules without a tolerance into one rule for all their columns, as a person would write them."""
    plain = [one for one in kept if isinstance(one.rule, NotNull) and not one.rule.tolerance]
    if len(plain) < 2:
        return list(kept)
    columns = tuple(name for one in plain for name in one.rule.columns_used)
    return [Suggestion(NotNull(columns=columns), 0, plain[0].evaluated), *(one for one in kept if one not in plain)]


# ---------------------------------------------------------------- YAML
def _head(split: Split, rows: int) -> list[str]:
    lines = [f"# Proposed by the profile of {_span(split.fitted)}."]
    if split.held_out:
        return [*lines, f"# Tested on {_span(split.held_out)}, {counted(rows, 'row')} that they were not made from."]
    return [*lines, "# NOT asked of other rows: there is no second partition with rows to hold back. Look at each rule before you use it."]


def _span(keys: Sequence[Key]) -> str:
    if not keys:
        return "no partition"
    if len(keys) == 1:
        return "all rows" if keys[0] is None else f"partition {comment_text(keys[0])}"
    return f"{counted(len(keys), 'partition')} ({comment_text(keys[0])} to {comment_text(keys[-1])})"


def _of_held_out(one: Suggestion) -> str:
    if not one.evaluated:
        return "not asked of other rows"
    what = "partitions" if isinstance(one.rule, Change) else "rows"
    if not one.failed:
        return f"none of {one.evaluated:,} {what} fails"
    worst = f", at worst {100 * one.worst:.2g} % of a partition" if one.worst > one.share else ""
    return f"{one.failed:,} of {one.evaluated:,} {what} fail ({100 * one.share:.2g} %{worst})"
