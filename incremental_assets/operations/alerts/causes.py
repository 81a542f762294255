"""Problems of a datastore that have one cause become one problem.

While a source is away, each sync and each tick fails for the same reason, one after the other. Their problem has one key however many of
them there are, and it is not over as long as one of them has failed for this reason, or most of them are at work.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from incremental_assets.core.rules.rule import digest
from incremental_assets.operations.alerts.problems import Cause, Found, Kind, Problem, Severity

_MOST_NAMES = 5
"""How many containers, schedules and sensors a problem names; of the others it has the number."""
_TEXTS: Mapping[Kind, str] = {
    Kind.FAILING: "{who} fail for one reason: {why}",
    Kind.GONE: "{who} are gone from the source",
    Kind.HELD_BACK: "the watermarks of {who} {why}",
}


def one_for_each_cause(found: Found, store_of: Callable[[str], str | None]) -> Found:
    """The same, with one problem for each cause.

    ``store_of``: the datastore that the key of a problem is about; None: it is about none.
    """
    problems = dict(found.problems)
    by_cause: dict[tuple[str, Kind, str], list[str]] = {}
    for key, one in found.problems.items():
        store = store_of(key)
        if one.cause is not None and store is not None:
            by_cause.setdefault((store, one.cause.kind, one.cause.why), []).append(key)
            # Each container that is gone is news, though all of them are one problem.
            why = one.cause.who if one.cause.kind is Kind.GONE else one.cause.why
            problems[key] = replace(one, causes=frozenset({digest(f"{store} {one.cause.kind.value} {why}")}))
    for (store, kind, why), keys in by_cause.items():
        if len(keys) > 1:
            joined = _joined(store, kind, {key: problems.pop(key) for key in keys})
            problems[f"{store} {kind.value} {digest(why)}" if why else f"{store} {kind.value}"] = joined
    return Found(problems, found.undecided - problems.keys(), found.runs)


def _joined(store: str, kind: Kind, group: Mapping[str, Problem]) -> Problem:
    """One problem for several that have one cause."""
    every = list(group.values())
    causes = [one.cause for one in every if one.cause is not None]
    since = [one.since for one in every if one.since is not None]
    return Problem(
        Severity.FAILURE if any(one.severity is Severity.FAILURE for one in every) else Severity.WARNING,
        f"{store}: {_TEXTS[kind].format(who=_names(causes), why=causes[0].why)}",
        next((one.remedy for one in every if one.remedy), ""),
        link=next((one.link for one in every if one.link), ""),
        since=min(since, default=None),
        causes=frozenset().union(*(one.causes for one in every)),
        members=frozenset(group),
    )


def _names(causes: Sequence[Cause]) -> str:
    shown = ", ".join(one.who for one in causes[:_MOST_NAMES])
    return shown + (f" and {len(causes) - _MOST_NAMES:,} more" if len(causes) > _MOST_NAMES else "")
