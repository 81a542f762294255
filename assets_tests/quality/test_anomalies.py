"""The life of an anomaly: random histories of breaking, repairing, moving, scanning and people's words, against what is really broken.

Each test says what a person who works through the list of anomalies would be told wrongly.
"""

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from incremental_assets.core.anomalies import Anomaly, Finding, State, after_scan, by_person, findings_of, fingerprint, scanned_places_of
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.rules.rule import FailedRow, Severity, Status, Verdict
from incremental_assets.core.rules.values import Between

SHOP, RULE = "shop/orders", "not_null_price"
ANN = "ann"


def key(number: int) -> str:
    return json.dumps({"id": number})


def found(number: int | None = 1, partition: str | None = "a", severity: Severity = Severity.ERROR, rows: int | None = 1) -> Finding:
    return Finding(RULE, partition, None if number is None else key(number), rows, "1 of 9 rows", severity)


def verdict(partition: str | None = "a", status: Status = Status.FAILED, failed: int | None = 0, rule: str = RULE) -> Verdict:
    return Verdict(rule, partition, status, failed=failed, message="of the scan")


class Known(dict[str, Anomaly]):
    """The anomalies of a container as the records keep them; ``changed``: by the last scan or person."""

    changed: list[Anomaly]

    def scan(
        self,
        *findings: Finding,
        at: Iterable[str | None] = ("a",),
        now: int = 10,
        resolve: bool = True,
        run: str = "run",
        moved: Mapping[str, str | None] | None = None,
    ) -> "Known":
        places = {(RULE, partition) for partition in at}
        return self.keep(after_scan(self, places, findings, SHOP, run, now, resolve, moved or {}))

    def person(self, wanted: State, comment: str | None = None, now: int = 20) -> "Known":
        return self.keep([by_person(self.one, wanted, ANN, comment, now)])

    def keep(self, changed: list[Anomaly]) -> "Known":
        assert len({one.id for one in changed}) == len(changed)
        self.changed = changed
        self.update({one.id: one for one in changed})
        return self

    @property
    def one(self) -> Anomaly:
        (single,) = self.values()
        return single


# ---------------------------------------------------------------- single steps
def test_the_same_failure_is_one_anomaly_however_often_it_is_found() -> None:
    """Otherwise the list grows with each scan, and nobody can say what is new."""
    known = Known().scan(found(), now=10, run="r1")
    first = known.one
    assert (first.state, first.first_seen, first.changed_at, first.changed_by, first.operation) == (State.ACTIVE, 10, 10, "scan r1", "r1")
    assert not known.scan(found(), now=11).changed
    assert not known.person(State.ACKNOWLEDGED, "asked the supplier").scan(found(), now=30).changed
    assert (known.one.state, known.one.comment, known.one.operation) == (State.ACKNOWLEDGED, "asked the supplier", None)


def test_a_scan_resolves_anomalies_only_where_it_looked_and_only_with_auto_resolve() -> None:
    """Otherwise anomalies of partitions that were not scanned are resolved, or anomalies are resolved without auto_resolve."""
    known = Known().scan(found(1, "a"), found(2, "b"), at="ab")
    assert not known.scan(at="a", resolve=False).changed
    assert [one.partition for one in known.scan(at="a", now=40, run="r2").changed] == ["a"]
    assert {one.partition: one.state for one in known.values()} == {"a": State.RESOLVED, "b": State.ACTIVE}
    assert known.changed[0].changed_by == "scan r2" and known.changed[0].first_seen == 10
    others = after_scan(known, {(RULE, "b")}, [], "shop/lines", "r3", 50, True)
    assert not others  # another container has a partition and a rule of the same name


def test_an_anomaly_that_comes_back_is_reopened_with_its_history() -> None:
    """Otherwise it looks new, and its earlier comments are not found."""
    known = Known().scan(found(), now=10).person(State.RESOLVED, "repaired by hand", now=20)
    known.scan(found(1, "b", rows=3), at="ab", now=30, run="r9")
    assert (known.one.state, known.one.first_seen, known.one.partition, known.one.rows) == (State.ACTIVE, 10, "b", 3)
    assert (known.one.comment, known.one.changed_by, known.one.operation) == (None, "scan r9", "r9")  # the comment was on the repair


def test_a_discarded_anomaly_is_not_opened_by_a_scan() -> None:
    """Otherwise each scan reports again what a person has decided to be no problem."""
    known = Known().scan(found()).person(State.DISCARDED, "test data")
    for findings, places in (((found(),), "a"), ((found(1, "b"),), "ab"), ((found(1, severity=Severity.WARN),), "a"), ((), "ab")):
        assert not known.scan(*findings, at=places, now=30).changed
    assert known.one.state is State.DISCARDED and known.one.comment == "test data"


def test_a_row_that_moved_to_another_partition_keeps_its_anomaly_and_comments() -> None:
    """Otherwise an acknowledged problem of an updated row is reported anew, and the old one is never closed."""
    known = Known().scan(found(1, "a")).person(State.ACKNOWLEDGED, "known")
    known.scan(found(1, "b"), at="b", now=30)
    assert (known.one.state, known.one.partition, known.one.comment) == (State.ACKNOWLEDGED, "b", "known")
    assert not known.scan(at="a", now=40).changed  # it is no longer there
    assert known.scan(at="b", now=50).one.state is State.RESOLVED


def test_a_key_that_is_broken_in_two_partitions_is_one_anomaly_without_further_changes() -> None:
    """Otherwise each scan of both partitions records another change in the history."""
    known = Known().scan(found(1, "c"), found(1, "b", rows=2), at="bc")
    assert (known.one.partition, known.one.rows) == ("b", 3)
    assert not known.scan(found(1, "c"), found(1, "b"), at="bc").changed
    known.scan(found(1, "c"), at="bc")
    assert known.one.partition == "c"
    for order in ((found(1, "b"), found(1, "c")), (found(1, "c"), found(1, "b"))):
        assert not known.scan(*order, at="bc").changed


def test_a_changed_severity_changes_nothing_else_of_an_anomaly() -> None:
    """Otherwise an error is still counted as a warning, or an acknowledged anomaly becomes active again."""
    known = Known().scan(found(severity=Severity.WARN)).person(State.ACKNOWLEDGED, "known")
    known.scan(found(severity=Severity.ERROR), now=30)
    assert (known.one.severity, known.one.state, known.one.comment) == (Severity.ERROR, State.ACKNOWLEDGED, "known")


def test_a_change_is_later_than_the_one_before_although_the_clock_was_set_back() -> None:
    """Otherwise, with a clock set back, the newest change is not the last one, and a resolved anomaly shows as active."""
    known = Known().scan(found(), now=1000).person(State.ACKNOWLEDGED, now=7)
    assert known.one.changed_at == 1001
    assert known.scan(now=1001).one.changed_at == 1002
    assert known.scan(found(), now=5).one.changed_at == 1003


def test_a_row_that_was_corrected_and_moved_is_resolved_in_its_new_partition() -> None:
    """Otherwise a row whose ``updated_at`` changed when it was corrected stays on the list until its old month is scanned again."""
    known = Known().scan(found(1), found(2), found(3))
    known.scan(found(2, "b"), at="b", now=30, moved={key(1): "b", key(2): "b"})
    assert {one.key: (one.state, one.partition) for one in known.values()} == {
        key(1): (State.RESOLVED, "b"), key(2): (State.ACTIVE, "b"), key(3): (State.ACTIVE, "a")
    }  # fmt: skip
    known.scan(at="b", now=40, moved={key(3): "c"})  # the rule could not be asked there
    assert known[next(id for id, one in known.items() if one.key == key(3))].is_open


@pytest.mark.parametrize(
    ("state", "allowed"),
    [
        (State.ACTIVE, {State.ACKNOWLEDGED, State.RESOLVED, State.DISCARDED}),
        (State.ACKNOWLEDGED, {State.RESOLVED, State.DISCARDED}),
        (State.RESOLVED, {State.DISCARDED}),
        (State.DISCARDED, set[State]()),
    ],
)
def test_a_refused_change_of_an_anomaly_names_the_possible_ones(state: State, allowed: set[State]) -> None:
    """Otherwise a resolved anomaly could be acknowledged and so be open again, or the refusal would not say what is possible."""
    one = replace(Known().scan(found(), run="r1").one, state=state)
    words = {State.ACKNOWLEDGED: "acknowledge", State.RESOLVED: "resolve", State.DISCARDED: "discard"}
    for wanted in State:
        if wanted in allowed:
            now = by_person(one, wanted, ANN, "because", 20)
            assert (now.state, now.changed_by, now.comment, now.operation, now.changed_at) == (wanted, ANN, "because", None, 20)
            assert (now.id, now.first_seen, now.rows, now.message) == (one.id, one.first_seen, one.rows, one.message)
            continue
        with pytest.raises(ConfigurationError) as refused:
            by_person(one, wanted, ANN, None, 20)
        text = str(refused.value)
        assert one.id in text and f"is {state.value}" in text
        remedy = text.partition(";")[2]
        assert {word for one_state, word in words.items() if word in remedy} == {words[s] for s in allowed}


# ---------------------------------------------------------------- what a scan found
def test_failed_rows_with_a_key_are_findings_and_the_others_count_for_their_partition() -> None:
    """Otherwise failed rows that are not kept, or have no key, are missing from the list of anomalies."""
    rows = [
        FailedRow("a", key(1), "{}", (RULE, "other")),
        FailedRow("a", key(1), "{}", (RULE,)),  # a duplicate
        FailedRow("a", None, "{}", (RULE,)),
        FailedRow("b", key(2), "{}", (RULE,)),  # within the tolerance: its rule passed there
    ]
    verdicts = [verdict("a", failed=10), verdict("b", Status.PASSED, failed=1), verdict("c", failed=4), verdict("d", failed=None)]
    verdicts += [verdict("e", Status.ERRORED, None), verdict("f", Status.UNASSERTED, None), verdict("a", Status.PASSED, 1, "other")]
    assert {(f.partition, f.key, f.rows) for f in findings_of(verdicts, rows)} == {
        ("a", key(1), 2), ("a", None, 8), ("c", None, 4), ("d", None, None)
    }  # fmt: skip
    assert all((f.rule, f.message, f.severity) == (RULE, "of the scan", Severity.ERROR) for f in findings_of(verdicts, rows))
    assert [f.key for f in findings_of([verdict("a", failed=2)], rows)] == [key(1)]
    assert [(f.key, f.rows) for f in findings_of([verdict("z", failed=0)], rows)] == [(None, 0)]  # failed is failed


def test_a_finding_has_the_value_of_its_row_only_where_values_may_be_shown() -> None:
    """Without a value, somebody has to query the table to see what is wrong; with one, `samples: false` would be broken."""
    rule = Between(name=RULE, column="seats", min=1, max=600)
    rows = [FailedRow("a", key(1), '{"id":1,"seats":0}', (RULE,)), FailedRow("a", None, '{"id":2,"seats":-7}', (RULE,))]
    verdicts = [verdict("a", failed=2)]
    assert [(one.key, one.value) for one in findings_of(verdicts, rows, {RULE: rule})] == [(key(1), "seats = 0"), (None, "seats = -7")]
    assert [one.value for one in findings_of(verdicts, rows)] == [None, None]


def test_a_rule_that_could_not_be_evaluated_resolves_nothing() -> None:
    """Otherwise a typing error in a rule resolves all of its anomalies."""
    verdicts = [verdict(status.value, status) for status in Status]
    assert scanned_places_of(verdicts) == {(RULE, "passed"), (RULE, "failed")}


def test_different_subjects_have_different_fingerprints() -> None:
    """Otherwise two failures are one anomaly, and resolving the one hides the other."""
    subjects = [("shop/a", "r", p, k) for p in (None, "a", "None", "key", "") for k in (None, "a", "", "partition")]
    subjects += [("shop/a", "ra", None, None), ("shop/ar", "a", None, None)]
    ids = {(c, r, k if k is not None else ("partition", p)): fingerprint(c, r, p, k) for c, r, p, k in subjects}
    assert len(set(ids.values())) == len(ids)
    assert fingerprint("shop/a", "r", "a", "k") == fingerprint("shop/a", "r", "b", "k")
    assert fingerprint(SHOP, RULE, "2026-01-01", None) == "b81b137dd39ed9a0"  # a fixed value, as stored anomalies must be found again


# ---------------------------------------------------------------- histories
PARTITIONS: tuple[str | None, ...] = (None, "a", "b", "c")
ROW_RULES, NUMBER_RULE = ("r1", "r2"), "sum"


@dataclass
class World:
    """The true state: the partition of each row, and what is broken."""

    draw: random.Random
    cap: int
    where: dict[str, str | None] = field(default_factory=dict)
    broken: set[tuple[str, str]] = field(default_factory=set)
    numbers: set[str | None] = field(default_factory=set)
    severity: Severity = Severity.ERROR

    def happens(self) -> None:
        row = key(self.draw.randrange(6))
        match self.draw.randrange(7):
            case 0 | 1:
                self.where.setdefault(row, self.draw.choice(PARTITIONS))
                self.broken.add((self.draw.choice(ROW_RULES), row))
            case 2:
                self.broken -= {(rule, row) for rule in ROW_RULES if self.draw.random() < 0.8}
            case 3:
                if row in self.where:
                    self.where[row] = self.draw.choice(PARTITIONS)
            case 4:
                self.where.pop(row, None)
                self.broken -= {(rule, row) for rule in ROW_RULES}
            case 5:
                self.numbers ^= {self.draw.choice(PARTITIONS)}
            case _:
                self.severity = self.draw.choice(list(Severity))

    def really(self) -> set[tuple[str, str | None, str | None]]:
        """Rule, partition, key of all that is broken."""
        of_rows: set[tuple[str, str | None, str | None]] = {(rule, self.where[row], row) for rule, row in self.broken}
        return of_rows | {(NUMBER_RULE, partition, None) for partition in self.numbers}

    def scanned(
        self, partitions: Iterable[str | None], errored: set[str], on_record: set[tuple[str, str | None]]
    ) -> tuple[list[Verdict], list[FailedRow]]:
        """``on_record``: rules and rows with an open anomaly, which are kept in any case."""
        verdicts, rows, really = [], [], sorted(self.really(), key=repr)
        for partition in partitions:
            kept: dict[str, list[str]] = {}
            for rule in (*ROW_RULES, NUMBER_RULE):
                failed = [row for r, p, row in really if (r, p) == (rule, partition)]
                status = Status.ERRORED if rule in errored else Status.FAILED if failed else Status.PASSED
                count = None if rule == NUMBER_RULE else len(failed)
                verdicts.append(Verdict(rule, partition, status, self.severity, failed=count))
                chosen = self.draw.sample(failed, min(len(failed), self.cap))
                for row in dict.fromkeys([*chosen, *(row for row in failed if (rule, row) in on_record)]):
                    if row is not None and status is Status.FAILED:
                        kept.setdefault(row, []).append(rule)
            rows += [FailedRow(partition, row, "{}", tuple(rules)) for row, rules in kept.items()]
        return verdicts, rows


def change_some_anomaly_by_hand(known: Known, draw: random.Random, now: int) -> None:
    if known:
        one, wanted = known[draw.choice(sorted(known))], draw.choice(list(State))
        try:
            known.keep([by_person(one, wanted, ANN, "so", now)])
        except ConfigurationError:
            assert one.state is State.DISCARDED or wanted is State.ACTIVE or not (one.state is State.ACTIVE or wanted is State.DISCARDED)


def open_ones(known: Known) -> set[tuple[str, str | None, str | None]]:
    return {(one.rule, one.partition, one.key) for one in known.values() if one.is_open}


def discarded(known: Known) -> set[tuple[str, str | None]]:
    """By rule and what it is of: a discarded row's partition is that of then."""
    return {(one.rule, one.key or one.partition) for one in known.values() if one.state is State.DISCARDED}


def one_scan(world: World, known: Known, partitions: list[str | None], errored: set[str], now: int, resolve: bool) -> None:
    before = dict(known)
    verdicts, rows = world.scanned(partitions, errored, {(one.rule, one.key) for one in known.values() if one.is_open})
    scanned_places, findings = scanned_places_of(verdicts), findings_of(verdicts, rows)
    elsewhere = {one.key for one in known.values() if one.is_open and one.key and one.partition not in partitions}
    moved = {row: where for row, where in world.where.items() if row in elsewhere and where in partitions}
    known.keep(after_scan(known, scanned_places, findings, SHOP, "run", now, resolve, moved))
    still_there = {(rule, row) for rule, row in world.broken if (rule, world.where[row]) in scanned_places}
    mended = {(rule, row) for row, where in world.where.items() for rule in ROW_RULES if (rule, where) in scanned_places} - still_there
    assert not resolve or not mended & {(one.rule, one.key) for one in known.values() if one.is_open}
    expected = {
        subject
        for subject in world.really()
        if subject[:2] in scanned_places and (subject[0], subject[2] or subject[1]) not in discarded(known)
    }
    listed = {subject for subject in open_ones(known) if subject[:2] in scanned_places}
    if world.cap >= 6:
        assert expected <= listed
        assert listed == expected or not resolve
    else:  # nothing that is broken is closed, and nothing that passed is open
        of_no_problem = {(one.rule, one.partition) for one in known.values() if one.state is State.DISCARDED and one.key is None}
        assert {subject[:2] for subject in expected} <= {subject[:2] for subject in listed} | of_no_problem
        passed = {(v.rule, v.partition) for v in verdicts if v.status is Status.PASSED}
        assert not resolve or not passed & {subject[:2] for subject in listed}
        still = {
            (one.rule, one.key) for one in before.values() if one.key and one.is_open and (one.rule, one.partition, one.key) in expected
        }
        assert still <= {(rule, row) for rule, _, row in listed}
    found_ids = {fingerprint(SHOP, f.rule, f.partition, f.key) for f in findings}
    for one in known.changed:
        old = before.get(one.id)
        assert one.state is not State.DISCARDED and (old is None or old.state is not State.DISCARDED)
        assert one.id in found_ids or (old is not None and (one.rule, one.partition) in scanned_places and one.state is State.RESOLVED)
        assert old is None or (one.changed_at > old.changed_at and one.first_seen == old.first_seen and one != replace(old, changed_at=0))
    assert not (set(before) - found_ids) & {one.id for one in known.changed} or resolve


@pytest.mark.parametrize("cap", [6, 1], ids=["all failed rows on record", "one row a rule and partition"])
def test_open_anomalies_are_exactly_what_is_broken_in_the_scanned_rows(cap: int) -> None:
    """Otherwise the list shows what was repaired, or hides what is broken."""
    for seed in range(1000):
        draw = random.Random(seed)
        world, known = World(draw, cap), Known()
        for step in range(12):
            for _ in range(draw.randrange(4)):
                world.happens()
            clock = 100 + step - draw.choice((0, 0, 50))
            if draw.random() < 0.3:
                change_some_anomaly_by_hand(known, draw, clock)
            partitions = draw.sample(PARTITIONS, draw.randrange(1, 5))
            errored = {rule for rule in (*ROW_RULES, NUMBER_RULE) if draw.random() < 0.1}
            one_scan(world, known, partitions, errored, clock, draw.random() < 0.8)
        one_scan(world, known, list(PARTITIONS), set(), 500, True)
        if cap >= 6:  # a scan of all: none is left open anywhere
            of_discarded = discarded(known)
            assert open_ones(known) == {s for s in world.really() if (s[0], s[2] or s[1]) not in of_discarded}, seed
