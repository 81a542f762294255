"""Rules as YAML to paste, each asked of partitions that it was not made from.

Belongs here: which partitions are held out, asking their rows in one pass, what is left out, the YAML. Does not belong: which rules come
into question (``propose``).

The order of calls: ``split_partitions`` of the profile of all; ``suggest`` with the profile of the fitted ones, and with what asks
the rows of the held-out ones; ``Suggestions.yaml``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from incremental_assets.core.names import backticked as quote
from incremental_assets.core.rules import Change, NotNull, RowRule, Rule, Unique
from incremental_assets.delta.guards import expr
from incremental_assets.quality.predicates import CannotAsk
from incremental_assets.quality.profile.column import Key, Profile
from incremental_assets.quality.profile.propose import RARE, candidates, changes_of, rounded_up, rows_by_partition, volumetric
from incremental_assets.quality.rows import Aggregate, Values

HELD_OUT = 0.2
"""The share of partitions, the newest, that rules are not made from; at least one of two."""
MOST_HELD_OUT = 10
_TEMPLATE = "{{"

Predicate = Callable[[RowRule], str]
"""Spark SQL of *the row passes*; where it is NULL, it does. Raises CannotAsk."""
Ask = Callable[[Sequence[Aggregate]], Values]
"""Aggregates of the held-out rows by partition, in one pass. Those that Spark does not understand are left out."""


@dataclass(frozen=True)
class Split:
    """Partitions with rows, oldest first. ``held_out`` is empty where there are too few to hold one back."""

    fitted: tuple[Key, ...]
    held_out: tuple[Key, ...]


@dataclass(frozen=True)
class Suggestion:
    """``failed`` of ``asked`` held-out rows (of partitions, for rules about those) break it; ``asked`` is 0 where it was not asked.

    ``worst``: the share of the rows of that partition that breaks it most, as its tolerance is asked of each by itself.
    """

    rule: Rule
    failed: int = 0
    asked: int = 0
    worst: float = 0.0

    @property
    def share(self) -> float:
        return self.failed / self.asked if self.asked else 0.0


@dataclass(frozen=True)
class Suggestions:
    """``kept``: to propose. ``dropped``: they do not hold for the held-out rows. ``rows``: held out. ``unfit``: what could not be asked or
    written, and why."""

    split: Split
    kept: Sequence[Suggestion]
    dropped: Sequence[Suggestion] = field(repr=False)
    rows: int = 0
    unfit: Sequence[tuple[Rule, str]] = field(default=(), repr=False)

    def yaml(self) -> str:
        """A list for ``checks:``, a rule a line, with comments."""
        lines = _head(self.split, self.rows)
        lines += [f"- {_flow(one.rule.words())}  # {_of_held_out(one)}" for one in self.kept]
        if not self.kept:
            lines.append("[]")
        if self.dropped:
            lines.append("# Left out, as they do not hold there:")
            lines += [f"#   {_flow(one.rule.words())}: {_of_held_out(one)}" for one in self.dropped]
        if self.unfit:
            lines.append("# Left out, as they cannot be used:")
            lines += [f"#   {_flow(rule.words())}: {_said(why)}" for rule, why in self.unfit]
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
    ask: Ask | None,
    predicate: Predicate,
    *,
    rows: Mapping[Key, int],
    filling: Sequence[Key] = (),
) -> Suggestions:
    """``fitted``: of ``split.fitted`` alone. ``ask``: of the rows of ``split.held_out``; None where nothing is held out. ``rows``: of each
    partition, oldest first. ``filling``: partitions that more rows are expected in.

    One pass over the rows held out, and over no others. A rule that more than 1 % of the rows of one of those partitions break is left
    out; one that fewer break gets a tolerance.
    """
    unfit: list[tuple[Rule, str]] = []
    groups = [_usable(one.alternatives, predicate, unfit) for one in candidates(fitted)]
    texts = [(rule, text) for group in groups for rule, text in group]
    found, total = _ask(ask, texts) if ask is not None and split.held_out else ({rule.id: Suggestion(rule) for rule, _ in texts}, 0)
    unfit += [(rule, "Spark cannot ask it of this column") for rule, _ in texts if rule.id not in found]
    kept: list[Suggestion] = []
    dropped: list[Suggestion] = []
    for group in groups:
        for one in (found[rule.id] for rule, _ in group if rule.id in found):
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


def _usable(rules: Sequence[RowRule | Unique], predicate: Predicate, unfit: list[tuple[Rule, str]]) -> list[tuple[RowRule | Unique, str]]:
    """Each with Spark SQL of how many rows of a partition break it."""
    found: list[tuple[RowRule | Unique, str]] = []
    for rule in rules:
        if _TEMPLATE in str(rule.words()):
            unfit.append((rule, f"{_TEMPLATE} begins a template in YAML"))
            continue
        try:
            found.append((rule, _failing(rule, predicate)))
        except CannotAsk as error:
            unfit.append((rule, str(error)))
    return found


def _ask(ask: Ask, texts: Sequence[tuple[RowRule | Unique, str]]) -> tuple[dict[str, Suggestion], int]:
    """What became of each rule that could be asked, by its id; and how many rows there are."""
    names = {rule.id: f"r{n}" for n, (rule, _) in enumerate(texts)}
    wanted = [Aggregate(names[rule.id], names[rule.id], lambda text=text: expr(text), (text,)) for rule, text in texts]
    parts = list(ask([Aggregate(None, "total", lambda: expr("count(*)")), *wanted]).values())
    total = sum(int(part["total"]) for part in parts)
    found: dict[str, Suggestion] = {}
    for rule, _ in texts:
        broken = [(int(part[names[rule.id]] or 0), int(part["total"])) for part in parts if names[rule.id] in part]
        if len(broken) == len(parts):
            worst = max((failed / rows for failed, rows in broken if rows), default=0.0)
            found[rule.id] = Suggestion(rule, sum(failed for failed, _ in broken), total, worst)
    return found, total


def _failing(rule: RowRule | Unique, predicate: Predicate) -> str:
    if isinstance(rule, Unique):
        present = predicate(NotNull(columns=rule.columns))
        return f"count_if({present}) - count(DISTINCT {', '.join(quote(name) for name in rule.columns)})"
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
    """A key, or what somebody else worded, in a comment, which ends with its line."""
    text = str(key)
    return text if text.isprintable() else ascii(text)


def _of_held_out(one: Suggestion) -> str:
    if not one.asked:
        return "not asked of other rows"
    what = "partitions" if isinstance(one.rule, Change) else "rows"
    if not one.failed:
        return f"none of {one.asked:,} {what} fails"
    worst = f", at worst {100 * one.worst:.2g} % of a partition" if one.worst > one.share else ""
    return f"{one.failed:,} of {one.asked:,} {what} fail ({100 * one.share:.2g} %{worst})"


class _OnALine(yaml.SafeDumper):
    """Texts that would not stay on their line, or not be seen there, are written with escapes."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if value.isprintable() else '"')


_OnALine.add_representer(str, _text)


def _flow(words: Mapping[str, Any]) -> str:
    """On one line."""
    how: dict[str, Any] = {"Dumper": _OnALine, "default_flow_style": True, "sort_keys": False, "width": float("inf")}
    text = yaml.dump(dict(words), allow_unicode=True, **how).rstrip("\n")
    return text if text.isprintable() else yaml.dump(dict(words), **how).rstrip("\n")
