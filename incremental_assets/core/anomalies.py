"""The life of an anomaly: what opens it, what closes it, and who may say so. Plain values.

Belongs here: which changes follow from a scan's findings or from a person's word. Does not belong: where they are kept
(``quality.records``), or how a scan finds them (``quality.scan``).

An anomaly is of a row (it has the row's key) or of a partition. A row's does not depend on its partition: a row that moved to another one
keeps it. Each change is later than the one that it was made from, even where a clock was set back: so the newest is always the last.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.rules import Severity


class State(str, Enum):
    """``DISCARDED``: a person said that it is no problem; no scan brings it back. ``RESOLVED``: one that finds it again reopens it."""

    ACTIVE = "active"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"
    DISCARDED = "discarded"

    @property
    def is_open(self) -> bool:
        """Whether something is still to be done about it."""
        return self in (State.ACTIVE, State.ACKNOWLEDGED)


@dataclass(frozen=True)
class Anomaly:
    """One as it is after its last change.

    ``id``: see ``fingerprint``. ``container``: its label (``shop/orders``). ``partition``: where it was last found. ``key``: JSON of the
    row's key; None: it is the partition's. ``rows``: how many failed rows it stands for; None for a rule about a number. ``message`` and
    ``rows`` are of the scan that opened, reopened or moved it. ``first_seen``, ``changed_at``: microseconds since 1970 UTC. ``changed_by``:
    ``scan <operation id>`` or a person. ``comment``: the person's. ``operation``: of the scan that made this change, None for a person.
    """

    id: str
    container: str
    rule: str
    partition: str | None
    key: str | None
    rows: int | None
    message: str
    severity: Severity
    state: State
    first_seen: int
    changed_at: int
    changed_by: str
    comment: str | None = None
    operation: str | None = None

    @property
    def is_open(self) -> bool:
        return self.state.is_open


@dataclass(frozen=True)
class Finding:
    """Something that a scan found broken: the row with this key, or (``key`` None) those rows of the partition that none has the key of."""

    rule: str
    partition: str | None
    key: str | None
    rows: int | None
    message: str
    severity: Severity


MOST_OPEN_KEYS = 10_000
"""Open anomalies of rows, of one rule of a container: each scan reads all of them, and no person would."""

Place = tuple[str, str | None]
"""A rule's id and a partition."""


class _Verdict(Protocol):
    """What is used of ``quality.verdict.Verdict``, which the model must not import."""

    @property
    def rule(self) -> str: ...
    @property
    def partition(self) -> str | None: ...
    @property
    def status(self) -> str: ...
    @property
    def severity(self) -> Severity: ...
    @property
    def failed(self) -> int | None: ...
    @property
    def message(self) -> str: ...


class _FailedRow(Protocol):
    """What is used of ``quality.verdict.FailedRow``."""

    @property
    def partition(self) -> str | None: ...
    @property
    def key(self) -> str | None: ...
    @property
    def rules(self) -> tuple[str, ...]: ...


def fingerprint(container: str, rule: str, partition: str | None, key: str | None) -> str:
    """16 hexadecimal digits: the same for the same failure in each scan."""
    subject = ["partition", partition] if key is None else ["key", key]
    return hashlib.sha256(json.dumps([container, rule, *subject]).encode()).hexdigest()[:16]


def looked_at_of(verdicts: Iterable[_Verdict]) -> set[Place]:
    """What a scan can speak of: not what it could not ask, nor what there was nothing to judge by."""
    return {(v.rule, v.partition) for v in verdicts if v.status in ("passed", "failed")}


def findings_of(verdicts: Iterable[_Verdict], failed_rows: Iterable[_FailedRow]) -> list[Finding]:
    """Of each failed verdict: one for each key on record, and one for the failed rows that are not on record with a key."""
    with_key: dict[Place, dict[str, int]] = {}
    for row in failed_rows:
        if row.key is not None:
            for rule in row.rules:
                keys = with_key.setdefault((rule, row.partition), {})
                keys[row.key] = keys.get(row.key, 0) + 1
    found: list[Finding] = []
    for v in verdicts:
        if v.status != "failed":
            continue
        keys = with_key.get((v.rule, v.partition), {})
        found.extend(Finding(v.rule, v.partition, key, rows, v.message, v.severity) for key, rows in keys.items())
        rest = None if v.failed is None else v.failed - sum(keys.values())
        if rest is None or rest > 0 or not keys:
            found.append(Finding(v.rule, v.partition, None, rest, v.message, v.severity))
    return found


def capped(findings: Iterable[Finding], known: Mapping[str, Anomaly], container: str, most: int = MOST_OPEN_KEYS) -> list[Finding]:
    """With at most ``most`` open anomalies of rows of each rule, those that are open already among them.

    The rows beyond that are counted in the finding of their partition, whose number of rows is then the true one.
    """
    open_keys = Counter(one.rule for one in known.values() if one.is_open and one.key is not None and one.container == container)
    kept: list[Finding] = []
    beyond: dict[Place, Finding] = {}
    added: set[str] = set()
    for f in sorted(findings, key=lambda one: one.key is None):
        place = f.rule, f.partition
        if f.key is None:
            other = beyond.pop(place, None)
            rows = f.rows if other is None or f.rows is None or other.rows is None else f.rows + other.rows
            kept.append(replace(f, rows=rows))
            continue
        identity = fingerprint(container, f.rule, f.partition, f.key)
        old = known.get(identity)
        if (old is not None and old.state is not State.RESOLVED) or identity in added:
            kept.append(f)
        elif open_keys[f.rule] < most:
            open_keys[f.rule] += 1
            added.add(identity)
            kept.append(f)
        else:
            other = beyond.get(place)
            known_rows = other is None or (other.rows is not None and f.rows is not None)
            rows = (f.rows if other is None else (f.rows or 0) + (other.rows or 0)) if known_rows else None
            beyond[place] = replace(f, key=None, rows=rows)
    return [*kept, *beyond.values()]


def after_scan(
    known: Mapping[str, Anomaly],
    looked_at: AbstractSet[Place],
    findings: Sequence[Finding],
    container: str,
    operation: str,
    now: int,
    resolve: bool,
    moved: Mapping[str, str | None] = MappingProxyType({}),
) -> list[Anomaly]:
    """The anomalies that a scan changed, as they are now.

    ``known``: all of the container, as they were just before. ``findings``: those of rows with an open anomaly among them in any case.
    ``operation``: the scan's id. ``now``: microseconds since 1970 UTC. ``resolve``: whether what was looked at and not found is resolved.
    ``moved``: by their keys, rows that were looked at in another partition than the one they were last found in.
    """
    by = f"scan {operation}"
    found = _by_id(findings, container, known)
    changed: list[Anomaly] = []
    for identity, f in found.items():
        old = known.get(identity)
        if old is None:
            new = Anomaly(
                identity, container, f.rule, f.partition, f.key, f.rows, f.message, f.severity, State.ACTIVE,
                first_seen=now, changed_at=now, changed_by=by, operation=operation,
            )  # fmt: skip
            changed.append(new)
            continue
        if old.state is State.DISCARDED or (old.is_open and (old.partition, old.severity) == (f.partition, f.severity)):
            continue
        state = old.state if old.is_open else State.ACTIVE
        comment = old.comment if old.is_open else None  # a person's, on a state that stays
        seen = replace(old, partition=f.partition, rows=f.rows, message=f.message, severity=f.severity, state=state, comment=comment)
        changed.append(_stamped(seen, old, by, now, operation))
    if resolve:
        for identity, old in known.items():
            place = (old.rule, old.partition if old.key is None else moved.get(old.key, old.partition))
            if identity in found or not old.is_open or old.container != container or place not in looked_at:
                continue
            changed.append(_stamped(replace(old, partition=place[1], state=State.RESOLVED, comment=None), old, by, now, operation))
    return changed


_WANTED = {State.ACKNOWLEDGED: "acknowledge", State.RESOLVED: "resolve", State.DISCARDED: "discard"}
_POSSIBLE = {
    State.ACTIVE: (State.ACKNOWLEDGED, State.RESOLVED, State.DISCARDED),
    State.ACKNOWLEDGED: (State.RESOLVED, State.DISCARDED),
    State.RESOLVED: (State.DISCARDED,),
    State.DISCARDED: (),
}


def by_person(anomaly: Anomaly, wanted: State, who: str, comment: str | None, now: int) -> Anomaly:
    """As ``who`` wants it. Raises ConfigurationError where its state does not allow that."""
    possible = _POSSIBLE[anomaly.state]
    if wanted not in possible:
        remedy = " or ".join(_WANTED[state] for state in possible)
        what = f"what can be done with it: {remedy}." if remedy else "that is for good."
        verb = _WANTED.get(wanted, "activate")
        raise ConfigurationError(f"anomaly {anomaly.id} of {anomaly.container} is {anomaly.state.value}: cannot {verb} it; {what}")
    return _stamped(replace(anomaly, state=wanted, comment=comment), anomaly, who, now, None)


def _by_id(findings: Iterable[Finding], container: str, known: Mapping[str, Anomaly]) -> dict[str, Finding]:
    """One for each anomaly. A key that is found in two partitions stays where it was, else it goes to the first."""
    found: dict[str, Finding] = {}
    for f in findings:
        identity = fingerprint(container, f.rule, f.partition, f.key)
        other = found.get(identity)
        if other is not None:
            old = known.get(identity)
            home = old.partition if old is not None else None
            first = min(f, other, key=lambda one: (one.partition != home, one.partition or ""))
            f = replace(first, rows=None if f.rows is None or other.rows is None else f.rows + other.rows)
        found[identity] = f
    return found


def _stamped(new: Anomaly, old: Anomaly, by: str, now: int, operation: str | None) -> Anomaly:
    return replace(new, changed_at=max(now, old.changed_at + 1), changed_by=by, operation=operation)
