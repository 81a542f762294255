"""What is wrong with the containers, by the records of ``status``.

Belongs here: which of these is a problem, how bad it is, and the words. Does not belong: schedules and sensors (``ticks``), the log that a
source keeps (``replication_slots``), and which problems are new (``messages``).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from incremental_assets.core.anomalies import Anomaly
from incremental_assets.core.rules.rule import Severity as RuleSeverity

_END_IT = (
    "New rows are synced all the same, but each sync reads again from there on. If nobody needs the transaction, end it in the source "
    "(pg_terminate_backend of PostgreSQL); a sync after that moves the watermark."
)
_SEE = "Is a schedule or sensor at work, and do its syncs succeed? incremental-assets status says both."
_MOST_CHARACTERS = 500
"""How much of a message of an error is shown."""


class Severity(str, Enum):
    """How bad it is. The values are those of apprise's kinds of messages, and of the attribute ``send``."""

    FAILURE = "failure"
    WARNING = "warning"
    SUCCESS = "success"


@dataclass(frozen=True)
class Problem:
    """Something that is wrong now. ``text``: what has happened, and to what, on one line. ``remedy``: what to do; empty if it is plain."""

    severity: Severity
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Limits:
    """From where on something is a problem. None: it never is one.

    ``lag_seconds``: how far the lake may be behind a source. ``held_back_seconds``: for how long open transactions may hold a watermark
    back. ``retained_seconds``: for how long a source may keep the same log for a replication slot; ``retained_bytes``: how much of it,
    where None stands for the datastore's ``capture_warning_bytes``. ``overdue_seconds``: by how much a schedule or sensor may be late.
    """

    lag_seconds: int | None = None
    held_back_seconds: int | None = 3600
    retained_seconds: int | None = 86_400
    retained_bytes: int | None = None
    overdue_seconds: int | None = 3600


@dataclass(frozen=True)
class Found:
    """What a look has found. ``problems``: by their keys. ``undecided``: keys of which nothing can be said now, as a run is at work or a
    source does not answer. ``runs``: of each container its last successful sync, and what it has done."""

    problems: Mapping[str, Problem]
    undecided: frozenset[str]
    runs: Mapping[str, tuple[str, str]]

    def with_more(self, problems: Mapping[str, Problem], undecided: Iterable[str] = ()) -> "Found":
        return Found({**self.problems, **problems}, self.undecided | frozenset(undecided), self.runs)

    def without(self, keys: frozenset[str]) -> "Found":
        """The same, with nothing said of the problems with these keys."""
        return Found({key: one for key, one in self.problems.items() if key not in keys}, self.undecided | keys, self.runs)


def found_in(
    records: Sequence[Mapping[str, Any]], anomalies: Iterable[Anomaly], limits: Limits, every: Mapping[str, int] | None = None
) -> Found:
    """The problems of containers. ``records``: those of ``status --json``. ``anomalies``: all that are open.

    ``every``: in seconds, how much later than others containers may be looked at, by their labels: those that are read at intervals.
    """
    of_rules: dict[str, Counter[str]] = {}
    for one in anomalies:
        of_rules.setdefault(one.container, Counter())[one.severity.value] += 1
    problems, said = _lags(records, limits, every or {})
    undecided = set(said)
    runs: dict[str, tuple[str, str]] = {}
    for record in records:
        label, result = record["container"], record["result"]
        if result in ("running", "queued", "aborted"):  # what the sync before has found still holds
            undecided.add(f"{label} sync")
        elif result in ("failure", "missing"):
            text = "it is gone from the source" if result == "missing" else f"the last sync has failed: {as_line(record['message'])}"
            problems[f"{label} sync"] = Problem(Severity.FAILURE, f"{label}: {text}")
        elif result in ("success", "warning") and record["run_id"] is not None:
            runs[label] = record["run_id"], f"{label}: {as_line(record['message'])}"
            if result == "warning":
                problems[f"{label} sync"] = Problem(Severity.WARNING, f"{label}: the last sync warns: {as_line(record['message'])}")
        if record["audit"] == "different":
            problems[f"{label} audit"] = Problem(Severity.FAILURE, f"{label}: the last audit has found differences from its source")
        held = record["held_back_seconds"]
        if limits.held_back_seconds is not None and held is not None and held > limits.held_back_seconds:
            problems[f"{label} held back"] = Problem(Severity.WARNING, f"{label}: {_held_back(record)}", _END_IT)
        rules = of_rules.get(label)
        if rules:
            severity = Severity.FAILURE if rules[RuleSeverity.ERROR.value] else Severity.WARNING
            problems[f"{label} anomalies"] = Problem(severity, f"{label}: {rules.total():,} open anomalies")
    return Found(problems, frozenset(undecided), runs)


def _lags(records: Sequence[Mapping[str, Any]], limits: Limits, every: Mapping[str, int]) -> tuple[dict[str, Problem], set[str]]:
    """The problems of lag by their keys, and the keys of those that another one says, too.

    If all containers of a datastore are late, it is mostly for one reason: they are one problem then. What is gone from the source has a
    problem already.
    """
    problems: dict[str, Problem] = {}
    said: set[str] = set()
    if limits.lag_seconds is None:
        return problems, said
    by_store: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        if record["lag_seconds"] is not None and record["result"] != "missing":
            by_store.setdefault(record["container"].partition("/")[0], []).append(record)
    for store, some in by_store.items():
        late = [one for one in some if one["lag_seconds"] > limits.lag_seconds + every.get(one["container"], 0)]
        keys = {f"{one['container']} lag": one for one in late}
        if len(late) > 1 and late == some:
            last = min(late, key=lambda one: one["lag_seconds"])
            problems[f"{store} lag"] = Problem(
                Severity.WARNING, f"{store}: all of its {len(late):,} containers are behind: {_behind(last)}", _SEE
            )
            said |= keys.keys()
        else:
            problems |= {key: Problem(Severity.WARNING, f"{one['container']}: {_behind(one)}", _SEE) for key, one in keys.items()}
    return problems, said


def _behind(record: Mapping[str, Any]) -> str:
    """How far the lake is behind the source of a container."""
    at = moment(datetime.fromisoformat(record["looked_at"]).timestamp())
    return f"the lake is {duration(record['lag_seconds'])} behind the source, which was last looked at and found covered at {at}"


def _held_back(record: Mapping[str, Any]) -> str:
    """Who holds the watermark of a container back, and for how long."""
    who = ", ".join(_holder(one) for one in record["held_back_by"][:5])
    more = f" and {len(record['held_back_by']) - 5:,} more" if len(record["held_back_by"]) > 5 else ""
    at = f" at {record['watermark']}" if record["watermark"] is not None else ""
    return (
        f"its watermark has been held back{at} for {duration(record['held_back_seconds'])} by open transactions in the source: {who}{more}"
    )


def _holder(holder: Mapping[str, Any]) -> str:
    application = holder["application"] or "unnamed"
    if holder["pid"] is None:
        return f"{application} (user {holder['user']}, since {holder['since']})"
    if holder["user"] is None and holder["since"] is None:
        return f"pid {holder['pid']} (the role may not see more of it)"
    return f"pid {holder['pid']} (user {holder['user']}, application {application}, open since {holder['since']})"


def duration(seconds: float) -> str:
    """A number of seconds for people, in the largest unit of which there are at least two."""
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:,.0f} {unit}"
    return f"{seconds:,.0f} s"


def moment(at: float) -> str:
    """A time for people. ``at``: in seconds since 1970 UTC."""
    return f"{datetime.fromtimestamp(at, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def as_line(text: str) -> str:
    """A text on one line, cut off where it is very long."""
    return " ".join(text.split())[:_MOST_CHARACTERS]
