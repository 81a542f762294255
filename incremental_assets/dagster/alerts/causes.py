"""Problems of a datastore that have one cause become one problem.

Belongs here: which problems have the same cause, and the words of the one that stands for them. Does not belong: what is a problem.

While a source is away, each sync and each tick fails for the same reason, one after the other. The problem of the datastore has one key
however many of them there are, and it is not over as long as one of them has failed, or is at work.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from incremental_assets.core.rules.rule import digest
from incremental_assets.dagster.alerts.problems import Cause, Found, Kind, Problem, Severity

_MOST_NAMES = 5
"""How many containers, schedules and sensors a problem names; of the others it has the number."""
_TEXTS: Mapping[Kind, str] = {
    Kind.FAILING: "{who} fail for one reason: {why}",
    Kind.GONE: "{who} are gone from the source",
    Kind.HELD_BACK: "the watermarks of {who} {why}",
}


def one_for_each_cause(found: Found, store_of: Callable[[str], str | None]) -> Found:
    """The same, with one problem for each cause. Those for which it stands are undecided.

    ``store_of``: the datastore that the key of a problem is about; None: it is about none.
    """
    problems = dict(found.problems)
    undecided = set(found.undecided)
    for kind in Kind:
        by_store: dict[str, dict[str, list[str]]] = {}
        for key, one in found.problems.items():
            store = store_of(key)
            if one.cause is not None and one.cause.kind is kind and store is not None:
                by_store.setdefault(store, {}).setdefault(one.cause.why, []).append(key)
                problems[key] = replace(one, causes=frozenset({digest(f"{store} {kind.value} {one.cause.why}")}))
        for store, causes in by_store.items():
            shared = [keys for keys in causes.values() if len(keys) > 1]
            undecided.add(f"{store} {kind.value}")
            if shared:
                problems[f"{store} {kind.value}"] = _joined(store, kind, [[problems.pop(key) for key in keys] for keys in shared])
                undecided |= {key for keys in shared for key in keys}
    at_work = {store for key in found.undecided if (store := store_of(key)) is not None}
    undecided |= {f"{store} {Kind.FAILING.value}" for store in at_work}
    return Found(problems, frozenset(undecided - problems.keys()), found.runs)


def _joined(store: str, kind: Kind, groups: Sequence[Sequence[Problem]]) -> Problem:
    """One problem for several groups, each of which has one cause."""
    every = [one for group in groups for one in group]
    texts = [_TEXTS[kind].format(who=_names(causes), why=causes[0].why) for causes in map(_causes, groups)]
    since = [one.since for one in every if one.since is not None]
    return Problem(
        Severity.FAILURE if any(one.severity is Severity.FAILURE for one in every) else Severity.WARNING,
        f"{store}: {'; '.join(texts)}",
        next((one.remedy for one in every if one.remedy), ""),
        link=next((one.link for one in every if one.link), ""),
        since=min(since, default=None),
        causes=frozenset().union(*(one.causes for one in every)),
    )


def _causes(group: Iterable[Problem]) -> list[Cause]:
    return [one.cause for one in group if one.cause is not None]


def _names(causes: Sequence[Cause]) -> str:
    shown = ", ".join(one.who for one in causes[:_MOST_NAMES])
    return shown + (f" and {len(causes) - _MOST_NAMES:,} more" if len(causes) > _MOST_NAMES else "")
