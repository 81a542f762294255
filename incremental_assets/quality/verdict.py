"""Result types of a scan: a verdict for each rule and partition, and the rows that broke a rule. They are plain values, without Spark.

Belongs here: the types that the scan (``scan``) hands to the records (``records``) and to Dagster's events (``dagster.quality``). Does not
belong: how a verdict is reached (``judge``, ``table_rules``).
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import Enum

from incremental_assets.core.rules import Severity


class Status(str, Enum):
    """Outcome of a rule for one partition.

    ``PASSED``: no asserted row breaks the rule, or no more rows than its tolerance allows. ``FAILED``: the rule is broken. ``ERRORED``: the
    rule cannot be evaluated (a column is missing, or an expression fails), so it has neither passed nor failed. ``UNASSERTED``: there is
    nothing to compare with, for example no earlier partition.
    """

    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    UNASSERTED = "unasserted"


@dataclass(frozen=True)
class Verdict:
    """The outcome of one rule for one partition.

    ``partition`` is the partition's key. It is None for the rows without an identifier, for containers without partitions, and for rules
    about the table as a whole. ``rows`` counts the rows of the partition, ``asserted`` those that the rule's filter keeps, and ``failed``
    the asserted rows that break the rule; ``failed`` is None for a rule about a number. ``value`` is a number for a chart: the share of
    failed rows among the asserted ones, or the number that the rule is about. ``message`` is one line for the reader. ``asks`` is a digest
    of what is measured (``ScanScope.question_digest``): values with different digests are not comparable.
    """

    rule: str
    partition: str | None
    status: Status
    severity: Severity = Severity.ERROR
    blocking: bool = False
    rows: int = 0
    asserted: int = 0
    failed: int | None = None
    value: float | None = None
    message: str = ""
    asks: str = ""

    @property
    def unasserted(self) -> int:
        """The number of rows that the filter leaves out."""
        return self.rows - self.asserted

    @property
    def blocks(self) -> bool:
        """Whether downstream assets must not run."""
        return self.blocking and self.status in (Status.FAILED, Status.ERRORED)


@dataclass(frozen=True)
class FailedRow:
    """One row that broke a rule, as the scan saw it.

    ``partition`` is the key of its partition. ``key`` is a JSON object of the key columns, each value as text; None if the container has no
    key. ``row`` is a JSON object of all columns. ``rules`` are the ids of the rules that the row breaks.
    """

    partition: str | None
    key: str | None
    row: str
    rules: tuple[str, ...]


@dataclass(frozen=True)
class ScanResult:
    """What one scan of one container found.

    ``version`` is the version of the Delta table that was read. ``passes`` counts how many times rows of the table were read. ``rows`` is
    the number of rows of each partition in the scan scope. ``moved`` concerns rows with an open anomaly that was found in another
    partition: it maps the key of each such row that the scan did read to the partition that the row is in now.
    """

    version: int
    passes: int
    rows: Mapping[str | None, int]
    verdicts: Sequence[Verdict] = field(repr=False)
    failed_rows: Sequence[FailedRow] = field(repr=False)
    moved: Mapping[str, str | None] = field(default_factory=dict[str, str | None], repr=False)

    def without(self, judged: Set[tuple[str, str | None]]) -> "ScanResult":
        """Return this result without the verdicts and failed rows of the given pairs of (rule id, partition key).

        It is used for pairs that another scan has judged on a newer version of the table in the meantime.
        """
        if not judged:
            return self
        rows = (replace(row, rules=tuple(rule for rule in row.rules if (rule, row.partition) not in judged)) for row in self.failed_rows)
        verdicts = [one for one in self.verdicts if (one.rule, one.partition) not in judged]
        return replace(self, verdicts=verdicts, failed_rows=[row for row in rows if row.rules])
