"""What a scan found: a verdict for each rule and partition, and the rows that broke a rule. Plain values, without Spark.

Belongs here: the types between the scan (``scan``), the records (``records``) and the events (orchestration). Does not belong: how a
verdict is reached.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import Enum

from incremental_assets.core.rules import Severity


class Status(str, Enum):
    """What became of a rule for one partition.

    ``ERRORED``: it could not be asked (a column is missing, an expression does not hold): neither passed nor failed. ``UNASSERTED``: there
    was nothing to judge by, such as no earlier partition to compare with.
    """

    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    UNASSERTED = "unasserted"


@dataclass(frozen=True)
class Verdict:
    """Of one rule for one partition.

    ``partition``: None for the rows of no partition (without identifier), for containers without partitions, and for rules of the table.
    ``rows``: of the partition. ``asserted``: of those, the rows that the rule's filter left. ``failed``: of those, the rows that broke it;
    None where the rule is about a number. ``value``: a number for a chart: the share of failed rows, or the number itself. ``message``:
    one line for the reader. ``asks``: a digest of what was asked (``Ground.asks``).
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
        """Rows that the filter left out."""
        return self.rows - self.asserted

    @property
    def blocks(self) -> bool:
        """Whether what is downstream must not run."""
        return self.blocking and self.status in (Status.FAILED, Status.ERRORED)


@dataclass(frozen=True)
class FailedRow:
    """A row as it was. ``key``: JSON of the columns that tell rows apart (None: nothing does); ``row``: of all; ``rules``: it broke."""

    partition: str | None
    key: str | None
    row: str
    rules: tuple[str, ...]


@dataclass(frozen=True)
class ScanResult:
    """``version``: of the Delta table. ``passes``: how many times rows of it were read. ``rows``: of each partition that was looked at.

    ``moved``: of rows that have an open anomaly of another partition, those that were looked at, with the partition they are in now.
    """

    version: int
    passes: int
    rows: Mapping[str | None, int]
    verdicts: Sequence[Verdict] = field(repr=False)
    failed_rows: Sequence[FailedRow] = field(repr=False)
    moved: Mapping[str, str | None] = field(default_factory=dict[str, str | None], repr=False)

    def without(self, judged: Set[tuple[str, str | None]]) -> "ScanResult":
        """What it says of other rules and partitions than these."""
        if not judged:
            return self
        rows = (replace(row, rules=tuple(rule for rule in row.rules if (rule, row.partition) not in judged)) for row in self.failed_rows)
        verdicts = [one for one in self.verdicts if (one.rule, one.partition) not in judged]
        return replace(self, verdicts=verdicts, failed_rows=[row for row in rows if row.rules])
