"""Several containers looked at at once in threads of this process, for at most so long.

Belongs here: handing out the work of a schedule's tick, and what became of it. Does not belong: the work, and what follows (``schedules``).

Dagster's daemon waits a minute for a tick, which is one call for all containers of a datastore, and then takes the whole tick for failed.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.errors import OutOfTime, SourceUnreachable
from incremental_assets.core.time_limit import done_by

T = TypeVar("T")
THREADS = 4
"""A connection to the source each."""


@dataclass(frozen=True)
class Seen(Generic[T]):
    """What became of each container: it is in one of these.

    ``late``: begun, and not done in time. ``left``: not begun. ``unreachable``: its source is away. ``failed``: with the error that says
    why.
    """

    done: list[tuple[ContainerDefinition, T]] = field(default_factory=list)
    failed: list[tuple[ContainerDefinition, Exception]] = field(default_factory=list)
    unreachable: list[tuple[ContainerDefinition, SourceUnreachable]] = field(default_factory=list)
    late: list[ContainerDefinition] = field(default_factory=list)
    left: list[ContainerDefinition] = field(default_factory=list)


class SideBySide:
    """Looks time after time. A container that a thread is still at from an earlier time is late at once, and gets no second thread."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads
        self._at_it: set[str] = set()

    def look(self, definitions: Sequence[ContainerDefinition], work: Callable[[ContainerDefinition], T], seconds: float) -> Seen[T]:
        """Does the work of each, in their order, until all are done or the time is over.

        Nothing more is begun once the source is away for all that were asked.
        """
        until = time.monotonic() + seconds
        lock = threading.Lock()
        seen: Seen[T] = Seen()
        seen.left.extend(definitions)
        over = False

        def take() -> ContainerDefinition | None:
            with lock:
                while seen.left and not (over or time.monotonic() >= until or (seen.unreachable and not seen.done)):
                    definition = seen.left.pop(0)
                    seen.late.append(definition)
                    if definition.container.label not in self._at_it:
                        self._at_it.add(definition.container.label)
                        return definition
                return None

        def put(definition: ContainerDefinition, outcome: T | Exception) -> None:
            with lock:
                self._at_it.discard(definition.container.label)
                if over or isinstance(outcome, OutOfTime):
                    return
                seen.late.remove(definition)
                if isinstance(outcome, SourceUnreachable):
                    seen.unreachable.append((definition, outcome))
                elif isinstance(outcome, Exception):
                    seen.failed.append((definition, outcome))
                else:
                    seen.done.append((definition, outcome))

        def run() -> None:
            while (definition := take()) is not None:
                try:
                    with done_by(until):
                        outcome: T | Exception = work(definition)
                except Exception as error:  # noqa: BLE001 it is that container's; the others go on
                    outcome = error
                put(definition, outcome)

        threads = [threading.Thread(target=run, name=f"look-{n}", daemon=True) for n in range(min(self._threads, len(definitions)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        with lock:
            over = True
            return seen
