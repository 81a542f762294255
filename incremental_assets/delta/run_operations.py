"""Collects what one run has to record of its operations: those that have ended, those that have not, and the watermarks
that were written.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from incremental_assets.core.container import Container
from incremental_assets.delta.operation_tables import EndedAs, Operation, OperationKind, WrittenWatermark


@dataclass(frozen=True)
class BegunOperation:
    """An operation that has begun. ``container``: its label; None for one of a whole datastore. ``started``: microseconds since 1970 UTC.
    ``step``: the step of the run that carries it out; None: one of them."""

    kind: OperationKind
    datastore: str
    container: str | None
    started: int
    step: str | None

    def ended(self, result: EndedAs, **values: Any) -> Operation:
        """The operation, which ends now. ``values``: further fields of ``Operation``."""
        return Operation(
            kind=self.kind, datastore=self.datastore, container=self.container, started=self.started, ended=now(), result=result, **values
        )  # fmt: skip


class RunOperations:
    """The operations of one run, which may be of several containers."""

    def __init__(self) -> None:
        self._begun: dict[tuple[OperationKind, str | None], BegunOperation] = {}
        self.ended: list[Operation] = []
        self.watermarks: list[WrittenWatermark] = []

    def begin(self, kind: OperationKind, datastore: str, container: str | None = None, step: str | None = None) -> None:
        """Begins an operation. One that is tried again has begun with its first attempt."""
        self._begun.setdefault((kind, container), BegunOperation(kind, datastore, container, now(), step))

    def end(self, kind: OperationKind, container: str | None, result: EndedAs, **values: Any) -> None:
        """Ends an operation that has begun. ``values``: further fields of ``Operation``."""
        self.ended.append(self._begun.pop((kind, container)).ended(result, **values))

    def add(self, kind: OperationKind, container: Container, result: EndedAs, seconds: float, **values: Any) -> None:
        """Adds an operation that has just ended and took so many seconds, such as a sweep within a sync."""
        ended = now()
        begun = BegunOperation(kind, container.datastore, container.label, ended - int(seconds * 1e6), None)
        self.ended.append(begun.ended(result, **values))

    @property
    def unfinished(self) -> Sequence[BegunOperation]:
        """The operations that have begun and not ended. When the run has ended, these have failed."""
        return tuple(self._begun.values())


def now() -> int:
    """Microseconds since 1970 UTC."""
    return time.time_ns() // 1000
