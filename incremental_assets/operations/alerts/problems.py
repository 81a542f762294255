"""What is wrong with the containers, by the records of ``status``."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import Any
from urllib.parse import quote

from incremental_assets.core.duration import for_people
from incremental_assets.core.shown_text import counted
from incremental_assets.runs.records.event_log import INTERRUPTED

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


class Kind(str, Enum):
    """Which problems of a datastore may have one cause. The value is the end of the key of the problem that stands for them.

    ``FAILING``: syncs, ticks and runs of schedules that have failed. ``GONE``: containers that are gone from the source. ``HELD_BACK``:
    watermarks that open transactions hold back.
    """

    FAILING = "failing"
    GONE = "gone"
    HELD_BACK = "held back"


@dataclass(frozen=True)
class Cause:
    """Why there is a problem. Problems with the same ``kind`` and ``why`` have one cause; ``who``: what has the problem."""

    kind: Kind
    who: str
    why: str


@dataclass(frozen=True)
class Problem:
    """Something that is wrong now. ``text``: what has happened, and to what, on one line; no value or key of a row, as texts are kept in
    Dagster's storage. ``example``: what follows it in a message, with a value and a key. ``remedy``: what to do; empty if it is plain.

    ``link``: the path of a page of Dagster's UI about it; empty if there is none. ``since``: in seconds since 1970 UTC; None if it is not
    known. ``cause``: None where no other problem can have the same one. ``causes``: digests of all causes that it stands for.
    ``members``: the keys of the problems that it stands for.
    """

    severity: Severity
    text: str
    remedy: str = ""
    link: str = ""
    since: float | None = None
    cause: Cause | None = None
    causes: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    example: str = ""

    @property
    def with_example(self) -> str:
        """The text and the example."""
        return self.text + self.example

    @property
    def in_words(self) -> str:
        """The text, the example, since when, and the remedy."""
        text = self.with_example if self.since is None else f"{self.with_example.rstrip('.')}, since {moment(self.since)}"
        return f"{text}. {self.remedy}" if self.remedy else text


@dataclass(frozen=True)
class Facts:
    """What is known of a container by the YAML. ``path``: of its asset. ``every``: in seconds, how much later than others it may be looked
    at. ``samples``: whether values and keys of its rows may be shown. ``automation``: the schedules and the sensor that sync it."""

    path: Sequence[str]
    every: int = 0
    samples: bool = True
    automation: Sequence[str] = ()

    @classmethod
    def of_label(cls, label: str) -> "Facts":
        """The facts of a container of which only the label is known."""
        return cls(label.split("/"))

    @property
    def link(self) -> str:
        """The path of the page of its asset."""
        return asset_page(self.path)


def asset_page(path: Sequence[str]) -> str:
    """The path of the page that Dagster's UI has of an asset. ``path``: of its key."""
    return f"/assets/{'/'.join(quote(part, safe='') for part in path)}"


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
    records: Sequence[Mapping[str, Any]],
    limits: Limits,
    facts: Mapping[str, Facts] | None = None,
    *,
    halted: Collection[str] = (),
    blocked: Collection[str] = (),
) -> Found:
    """The problems of containers. ``records``: those of ``status --json``. ``facts``: by the containers' labels.

    ``halted``: containers that are late because nothing syncs them, or their run waits, which is a problem of its own. ``blocked``:
    containers whose last sync has failed because of blocking rules, which are problems of their own.
    """
    known = {record["container"]: Facts.of_label(record["container"]) for record in records} | dict(facts or {})
    problems, said = _lags(records, limits, known, halted)
    undecided = set(said)
    runs: dict[str, tuple[str, str]] = {}
    for record in records:
        label, result, link = record["container"], record["result"], known[record["container"]].link
        if result in ("running", "queued", "aborted"):  # what the sync before has found still holds
            undecided.add(f"{label} sync")
        elif result in ("success", "warning") and record["run_id"] is not None:
            runs[label] = record["run_id"], f"{label}: {as_line(record['message'])}"
        problem = _of_sync(record, link)
        if problem is not None and label not in blocked:
            problems[f"{label} sync"] = problem
        if record["audit"] == "different":
            text = f"{label}: the last audit has found differences from its source"
            problems[f"{label} audit"] = Problem(Severity.FAILURE, text, link=link, since=_seconds(record["audited_at"]))
        held = record["held_back_seconds"]
        if limits.held_back_seconds is not None and held is not None and held > limits.held_back_seconds:
            problems[f"{label} held back"] = _held_back(record, link)
    return Found(problems, frozenset(undecided), runs)


def _of_sync(record: Mapping[str, Any], link: str) -> Problem | None:
    """What is wrong with the last sync of a container."""
    label, result = record["container"], record["result"]
    if result == "missing":
        return Problem(Severity.FAILURE, f"{label}: it is gone from the source", link=link, cause=Cause(Kind.GONE, label, ""))
    if result == "failure":
        # Messages that differ only in the name of the container have one cause.
        why = as_line(record["message"]).removeprefix(f"{label}: ")
        text, since = f"{label}: the last sync has failed: {why}", _seconds(record["failing_since"])
        cause = None if why == INTERRUPTED else Cause(Kind.FAILING, label, why)  # which does not say why
        return Problem(Severity.FAILURE, text, link=link, since=since, cause=cause)
    # What an audit that was a sync's own has found is the problem of the audit.
    if result == "warning" and not (record["audit"] == "different" and record["message"].startswith("audit: ")):
        # A look after that sync may have found what was missed: since when is not known.
        since = None if record["missed_changes"] else _seconds(record["synced_at"])
        return Problem(Severity.WARNING, f"{label}: the last sync warns: {as_line(record['message'])}", link=link, since=since)
    return None


def _lags(
    records: Sequence[Mapping[str, Any]], limits: Limits, facts: Mapping[str, Facts], halted: Collection[str]
) -> tuple[dict[str, Problem], set[str]]:
    """The problems of lag by their keys, and the keys of those that another problem explains.

    A container whose sync has failed, which is gone from the source, or which nothing syncs has a problem already. If all others of a
    datastore are late, it is mostly for one reason: they are one problem then.
    """
    problems: dict[str, Problem] = {}
    said: set[str] = set()
    if limits.lag_seconds is None:
        return problems, said
    by_store: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        store = record["container"].partition("/")[0]
        some = by_store.setdefault(store, [])
        if record["result"] in ("failure", "missing") or record["container"] in halted:
            said.add(f"{record['container']} lag")
        elif record["lag_seconds"] is not None:
            some.append(record)
    for store, some in by_store.items():
        late = [one for one in some if one["lag_seconds"] > limits.lag_seconds + facts[one["container"]].every]
        keys = {f"{one['container']} lag": one for one in late}
        if len(late) > 1 and late == some:
            last = min(late, key=lambda one: one["lag_seconds"])
            text = f"{store}: all of its {counted(len(late), 'container')} are behind: {_behind(last)}"
            problems[f"{store} lag"] = Problem(Severity.WARNING, text, _SEE, facts[last["container"]].link)
            said |= keys.keys()
        elif not some:
            said.add(f"{store} lag")
        else:
            problems |= {
                key: Problem(Severity.WARNING, f"{one['container']}: {_behind(one)}", _SEE, facts[one["container"]].link)
                for key, one in keys.items()
            }
    return problems, said


def _behind(record: Mapping[str, Any]) -> str:
    """How far the lake is behind the source of a container."""
    at = moment(datetime.fromisoformat(record["looked_at"]).timestamp())
    return f"the lake is {for_people(record['lag_seconds'])} behind the source, which was last looked at and found covered at {at}"


def _held_back(record: Mapping[str, Any], link: str) -> Problem:
    """Who holds the watermark of a container back, and for how long."""
    label, ordered = record["container"], sorted(record["held_back_by"], key=lambda one: (one["since"] is None, one["since"]))
    holders = [_holder(one) for one in ordered]
    more = f" and {len(holders) - 5:,} more" if len(holders) > 5 else ""
    at = f" at {record['watermark']}" if record["watermark"] is not None else ""
    by = f"for {for_people(record['held_back_seconds'])} by open transactions in the source: "
    return Problem(
        Severity.WARNING,
        f"{label}: its watermark has been held back{at} {by}{', '.join(holders[:5])}{more}",
        _END_IT,
        link,
        # The transaction that has been open for longest holds all of them back.
        cause=Cause(Kind.HELD_BACK, label, f"have been held back by an open transaction in the source: {holders[0]}"),
    )


def _holder(holder: Mapping[str, Any]) -> str:
    application = holder["application"] or "unnamed"
    if holder["pid"] is None:
        return f"{application} (user {holder['user']}, since {holder['since']})"
    if holder["user"] is None and holder["since"] is None:
        return f"pid {holder['pid']} (the role may not see more of it)"
    return f"pid {holder['pid']} (user {holder['user']}, application {application}, open since {holder['since'] or 'a time not shown'})"


def moment(at: float) -> str:
    """A time for people. ``at``: in seconds since 1970 UTC."""
    return f"{datetime.fromtimestamp(at, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def as_line(text: str) -> str:
    """A text on one line, cut off where it is very long."""
    return " ".join(text.split())[:_MOST_CHARACTERS]


def _seconds(moment: str | None) -> float | None:
    """A time of a record in seconds since 1970 UTC."""
    return None if moment is None else datetime.fromisoformat(moment).timestamp()
