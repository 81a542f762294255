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

    ``lag_seconds``: how far a watermark may be behind the clock. ``held_back_seconds``: for how long open transactions may hold a watermark
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


def found_in(records: Sequence[Mapping[str, Any]], anomalies: Iterable[Anomaly], limits: Limits) -> Found:
    """The problems of containers. ``records``: those of ``status --json``. ``anomalies``: all that are open."""
    of_rules: dict[str, Counter[str]] = {}
    for one in anomalies:
        of_rules.setdefault(one.container, Counter())[one.severity.value] += 1
    problems: dict[str, Problem] = {}
    undecided: set[str] = set()
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
        lag, held = record["lag_seconds"], record["held_back_seconds"]
        if limits.lag_seconds is not None and lag is not None and lag > limits.lag_seconds:
            problems[f"{label} lag"] = Problem(Severity.WARNING, f"{label}: its watermark is {lag:,} s behind the clock")
        if limits.held_back_seconds is not None and held is not None and held > limits.held_back_seconds:
            problems[f"{label} held back"] = Problem(Severity.WARNING, f"{label}: {_held_back(record)}", _END_IT)
        rules = of_rules.get(label)
        if rules:
            severity = Severity.FAILURE if rules[RuleSeverity.ERROR.value] else Severity.WARNING
            problems[f"{label} anomalies"] = Problem(severity, f"{label}: {rules.total():,} open anomalies")
    return Found(problems, frozenset(undecided), runs)


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
