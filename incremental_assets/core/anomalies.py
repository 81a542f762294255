"""The life cycle of an anomaly: what opens it, what closes it, and which changes a person can make.

An anomaly belongs to a row (it then has the row's key) or to a partition. The anomaly of a row does not depend on the partition: a row that
moves to another partition keeps it. Each change has a later time than the change before it, even if a clock was set back, so that the
change with the newest time is always the last one.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.rules.examples import value_of
from incremental_assets.core.rules.rule import FailedRow, Rule, Severity, Status, Verdict


class State(str, Enum):
    """The state of an anomaly.

    ``ACTIVE``: open. ``ACKNOWLEDGED``: open, and a person knows of it. ``RESOLVED``: closed; a scan that finds it again reopens it.
    ``DISCARDED``: closed for good, because a person said that it is no problem; no scan reopens it.
    """

    ACTIVE = "active"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"
    DISCARDED = "discarded"

    @property
    def is_open(self) -> bool:
        """Whether the anomaly still has to be dealt with."""
        return self in (State.ACTIVE, State.ACKNOWLEDGED)


@dataclass(frozen=True)
class Anomaly:
    """An anomaly as it is after its last change.

    ``id``: see ``fingerprint``. ``container``: the label of the container (``shop/orders``). ``rule``: the id of the rule. ``partition``:
    the key of the partition in which it was last found; None for rows without identifier, containers without partitions, and rules about
    the table. ``key``: JSON of the row's key; None if the anomaly belongs to the partition. ``rows``: the number of failed rows that it
    stands for; None for a rule about a number. ``value``: what its row has in the columns of the rule (``seats = 0``), or one of the rows
    of its partition; None where the container keeps no samples. ``message``, ``rows`` and ``value`` come from the scan that opened,
    reopened or moved it. ``first_seen`` and ``changed_at``: microseconds since 1970 UTC. ``changed_by``: ``scan <operation id>``, or the
    name of a person. ``comment``: the comment of that person. ``operation``: the id of the scan that made this change; None if a person
    made it.
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
    value: str | None = None

    @property
    def is_open(self) -> bool:
        return self.state.is_open


@dataclass(frozen=True)
class Finding:
    """A broken rule that a scan found, for one row or for one partition.

    ``key``: JSON of the row's key. If it is None, the finding is about the partition: about its failed rows that no finding with a key
    stands for, or about a number. ``rows``: how many failed rows it stands for; None for a rule about a number. ``value``: see ``Anomaly``.
    """

    rule: str
    partition: str | None
    key: str | None
    rows: int | None
    message: str
    severity: Severity
    value: str | None = None


MOST_OPEN_KEYS = 10_000
"""The highest number of open anomalies of rows for one rule of a container. Each scan reads all of them, and no person reads more."""

Place = tuple[str, str | None]
"""The id of a rule and the key of a partition."""


def fingerprint(container: str, rule: str, partition: str | None, key: str | None) -> str:
    """The id of an anomaly: 16 hexadecimal digits, which are the same for the same failure in each scan.

    They are computed from the container, the rule and the row's key, or the partition if ``key`` is None.
    """
    subject = ["partition", partition] if key is None else ["key", key]
    return hashlib.sha256(json.dumps([container, rule, *subject]).encode()).hexdigest()[:16]


def scanned_places_of(verdicts: Iterable[Verdict]) -> set[Place]:
    """The rules and partitions for which the scan has a result.

    Verdicts with the status ``errored`` or ``unasserted`` are left out: an anomaly must not be resolved because of them.
    """
    return {(v.rule, v.partition) for v in verdicts if v.status in (Status.PASSED, Status.FAILED)}


def findings_of(
    verdicts: Iterable[Verdict], failed_rows: Iterable[FailedRow], rules: Mapping[str, Rule] = MappingProxyType({})
) -> list[Finding]:
    """The findings of each failed verdict: one for each key among the recorded failed rows, and one for all other failed rows.

    The latter has no key. It stands for rows without a key, for rows beyond the number that a scan keeps, or for a number.

    ``rules``: by their ids, those of which findings have the values of their rows.
    """
    with_key: dict[Place, dict[str, int]] = {}
    first: dict[tuple[str, str | None, str | None], str] = {}
    for row in failed_rows:
        for rule in row.rules:
            first.setdefault((rule, row.partition, row.key), row.row)
            if row.key is not None:
                keys = with_key.setdefault((rule, row.partition), {})
                keys[row.key] = keys.get(row.key, 0) + 1

    def finding(v: Verdict, key: str | None, rows: int | None) -> Finding:
        rule, row = rules.get(v.rule), first.get((v.rule, v.partition, key))
        value = None if rule is None or row is None else value_of(rule, row)
        return Finding(v.rule, v.partition, key, rows, v.message, v.severity, value)

    found: list[Finding] = []
    for v in verdicts:
        if v.status is not Status.FAILED:
            continue
        keys = with_key.get((v.rule, v.partition), {})
        found.extend(finding(v, key, rows) for key, rows in keys.items())
        rest = None if v.failed is None else v.failed - sum(keys.values())
        if rest is None or rest > 0 or not keys:
            found.append(finding(v, None, rest))
    return found


def capped(findings: Iterable[Finding], known: Mapping[str, Anomaly], container: str, most: int = MOST_OPEN_KEYS) -> list[Finding]:
    """Limits the findings so that a container has at most ``most`` open anomalies of rows for each rule.

    ``known``: all anomalies by id. Findings of known anomalies that are not resolved are always kept. The rows of the findings beyond the
    limit are added to the finding of their partition, so that the number of rows stays correct.
    """
    open_keys = Counter(one.rule for one in known.values() if one.is_open and one.key is not None and one.container == container)
    kept: list[Finding] = []
    beyond: dict[Place, Finding] = {}
    added: set[str] = set()
    # Findings with a key come first: the finding of a partition then takes up the rows of those that were over the limit.
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
    scanned_places: AbstractSet[Place],
    findings: Sequence[Finding],
    container: str,
    operation: str,
    now: int,
    resolve: bool,
    moved: Mapping[str, str | None] = MappingProxyType({}),
) -> list[Anomaly]:
    """Returns the anomalies that a scan changes or opens, as they are afterwards.

    ``known``: all anomalies of the container by id, as they were immediately before. ``scanned_places``: see ``scanned_places_of``.
    ``findings``: the scan must include every failed row that has an open anomaly, as an anomaly that is not among them counts as not found.
    ``operation``: the id of the scan. ``now``: microseconds since 1970 UTC. ``resolve``: whether open anomalies that were scanned and not
    found are resolved. ``moved``: the partition in which a row is now, by the row's key, for rows that were scanned in another partition
    than the one where they were last found.
    """
    by = f"scan {operation}"
    found = _by_id(findings, container, known)
    changed: list[Anomaly] = []
    for identity, f in found.items():
        old = known.get(identity)
        if old is None:
            new = Anomaly(
                identity, container, f.rule, f.partition, f.key, f.rows, f.message, f.severity, State.ACTIVE,
                first_seen=now, changed_at=now, changed_by=by, operation=operation, value=f.value,
            )  # fmt: skip
            changed.append(new)
            continue
        # An open anomaly gets a new record only if its partition or its severity has changed; else every scan would write one.
        same = (old.partition, old.severity) == (f.partition, f.severity)
        if old.state is State.DISCARDED or (old.is_open and same):
            continue
        state = old.state if old.is_open else State.ACTIVE
        comment = old.comment if old.is_open else None  # the comment explains the state, so it stays as long as the state does
        new = {name: getattr(f, name) for name in ("partition", "rows", "message", "severity", "value")}
        changed.append(_stamped(replace(old, **new, state=state, comment=comment), old, by, now, operation))
    if resolve:
        for identity, old in known.items():
            place = (old.rule, old.partition if old.key is None else moved.get(old.key, old.partition))
            if identity in found or not old.is_open or old.container != container or place not in scanned_places:
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
    """The anomaly after the person ``who`` has set its state to ``wanted``. ``now``: microseconds since 1970 UTC.

    Raises ConfigurationError if the current state does not allow the change.
    """
    possible = _POSSIBLE[anomaly.state]
    if wanted not in possible:
        remedy = " or ".join(_WANTED[state] for state in possible)
        what = f"what can be done with it: {remedy}." if remedy else "that is for good."
        verb = _WANTED.get(wanted, "activate")
        raise ConfigurationError(f"anomaly {anomaly.id} of {anomaly.container} is {anomaly.state.value}: cannot {verb} it; {what}")
    return _stamped(replace(anomaly, state=wanted, comment=comment), anomaly, who, now, None)


def _by_id(findings: Iterable[Finding], container: str, known: Mapping[str, Anomaly]) -> dict[str, Finding]:
    """One finding for each id of an anomaly.

    A key that was found in two partitions stays in the partition of its known anomaly if that is one of them, else it gets the first one in
    the order of the keys. The numbers of rows are added up.
    """
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
    # A clock may have been set back, or differ between hosts: the newest change is found by its time, so it must be later than ``old``.
    return replace(new, changed_at=max(now, old.changed_at + 1), changed_by=by, operation=operation)
