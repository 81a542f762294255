"""Which problems are new to a destination and which are over, and the message about them."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from incremental_assets.core.shown_text import on_one_line
from incremental_assets.core.stored_format import known_value
from incremental_assets.operations.alerts.problems import Found, Problem, Severity

_MOST_LINES = 50
"""How many problems a message names; of the others it has the number."""


@dataclass(frozen=True)
class Known:
    """What a destination knows. ``problems``: those that it has got a message of and that are not over, by their keys. ``runs``: of each
    container the last sync that it knows."""

    problems: Mapping[str, Problem] = field(default_factory=dict[str, Problem])
    runs: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Urls:
    """Where Dagster's UI is (``base``), and its page of all that is open."""

    base: str
    page: str


@dataclass(frozen=True)
class Message:
    """What is sent."""

    severity: Severity
    title: str
    body: str


def news(before: Known | None, found: Found, on: frozenset[Severity], urls: Urls | None = None) -> tuple[Message | None, Known]:
    """What is sent to a destination (None: nothing), and what it knows afterwards. ``before``: what it knows; None: it is a new one.
    ``urls``: None where it is not known where Dagster's UI is.

    There is one message of a problem, and one more when it is over. One that was a warning and is a failure now, or has another cause,
    counts as new. One whose causes are all known is not new: one more container that cannot reach a source which is away, or the last one
    that still cannot.
    """
    reports_syncs = before is not None and Severity.SUCCESS in on
    before = before or Known()
    problems = {key: one for key, one in found.problems.items() if one.severity in on}
    known = _causes(before.problems.values())
    begun = [one for key, one in problems.items() if key not in before.problems and _is_new(one, known)]
    begun += [one for key, one in problems.items() if key in before.problems and _is_worse(one, before.problems[key])]
    kept = {key: one for key, one in before.problems.items() if key not in problems and _is_undecided(key, one, found.undecided)}
    over = _over({key: one for key, one in before.problems.items() if key not in problems and key not in kept}, {**kept, **problems})
    after = Known({**kept, **problems}, {label: run for label, (run, _) in found.runs.items()})
    synced = [text for label, (run, text) in found.runs.items() if reports_syncs and before.runs.get(label) != run]
    if not (begun or over or synced):
        return None, after
    return _message(begun, over, synced, urls), after


def _causes(problems: Iterable[Problem]) -> frozenset[str]:
    return frozenset().union(*(one.causes for one in problems))


def _is_new(one: Problem, known: frozenset[str]) -> bool:
    return not one.causes or not one.causes <= known


def _over(gone: Mapping[str, Problem], left: Mapping[str, Problem]) -> list[Problem]:
    """Those of the problems that are said to be over: of several with one cause one, and only if none with that cause is left."""
    known, said = _causes(left.values()), list[Problem]()
    for one in sorted(gone.values(), key=lambda one: -len(one.text)):
        if _is_new(one, known):
            said.append(one)
            known |= one.causes
    return said


def _is_worse(one: Problem, before: Problem) -> bool:
    return (one.severity is Severity.FAILURE and before.severity is not Severity.FAILURE) or not one.causes <= before.causes


def _is_undecided(key: str, one: Problem, undecided: frozenset[str]) -> bool:
    """Whether nothing can be said of the problem now: of one for several, if at least half of them are at work."""
    return key in undecided or (bool(one.members) and 2 * len(one.members & undecided) >= len(one.members))


def _message(begun: Sequence[Problem], over: Sequence[Problem], synced: Sequence[str], urls: Urls | None) -> Message:
    ordered = sorted(begun, key=lambda one: (one.severity is not Severity.FAILURE, one.text))
    severity = ordered[0].severity if ordered else Severity.SUCCESS
    counts = [(len(begun), "new problem", "new problems"), (len(over), "problem over", "problems over"), (len(synced), "sync", "syncs")]
    title = "incremental-assets: " + ", ".join(f"{number} {one if number == 1 else many}" for number, one, many in counts if number)
    lines = [f"{one.severity.value}: {one.in_words}{_link(one, urls)}" for one in ordered]
    lines += [f"over: {one.text}" for one in sorted(over, key=lambda one: one.text)] + [f"synced: {text}" for text in synced]
    lines = [on_one_line(one) for one in lines]  # a name with a line break would otherwise make up a line of its own
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"and {len(lines) - _MOST_LINES:,} more: incremental-assets alerts"]
    if urls is not None:
        lines.append(f"all that is open: {urls.page}")
    return Message(severity, title, "\n".join(lines))


def _link(one: Problem, urls: Urls | None) -> str:
    return f" {urls.base}{one.link}" if urls is not None and one.link else ""


# ---------------------------------------------------------------------- the cursor
def to_cursor(known: Mapping[str, Known]) -> str:
    return json.dumps(
        {key: {"problems": {name: _noted(p) for name, p in one.problems.items()}, "runs": one.runs} for key, one in known.items()}
    )


def _noted(one: Problem) -> Mapping[str, Any]:
    sets = {"causes": sorted(one.causes), "members": sorted(one.members)}
    return {"severity": one.severity.value, "text": one.text, "remedy": one.remedy, **sets}


def from_cursor(text: str | None) -> dict[str, Known]:
    return {key: Known(dict(_problems(one["problems"])), one["runs"]) for key, one in json.loads(text or "{}").items()}


def _problems(found: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Problem]]:
    for key, one in found.items():
        causes, members = (frozenset(one.get(name, ())) for name in ("causes", "members"))
        severity = known_value(Severity, one["severity"], "the cursor of the alerts")
        yield key, Problem(severity, one["text"], one.get("remedy", ""), causes=causes, members=members)
