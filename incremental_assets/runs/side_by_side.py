"""Plans several containers at a time, in threads of this process, within a time limit.

Dagster's daemon waits a minute for a tick, which is one call for all containers of a datastore. After that the whole tick has failed.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.errors import OutOfTime, SourceUnreachable
from incremental_assets.core.time_limit import done_by
from incremental_assets.databases.postgres.kept_connections import connections_kept

T = TypeVar("T")
THREADS = 4
"""How many containers are planned at a time. Each needs a connection to the source."""


@dataclass(frozen=True)
class PlannedContainers(Generic[T]):
    """The results, in which each container appears once.

    ``done``: with the result of its work. ``failed``: with the error. ``unreachable``: its source cannot be reached. ``late``: its work was
    begun and did not finish in time. ``left``: its work was not begun.
    """

    done: list[tuple[ContainerDefinition, T]] = field(default_factory=list)
    failed: list[tuple[ContainerDefinition, Exception]] = field(default_factory=list)
    unreachable: list[tuple[ContainerDefinition, SourceUnreachable]] = field(default_factory=list)
    late: list[ContainerDefinition] = field(default_factory=list)
    left: list[ContainerDefinition] = field(default_factory=list)


class ParallelPlanning:
    """Runs such work repeatedly, as for each tick of a schedule.

    A container whose thread of an earlier call is still running counts as late at once, and gets no second thread.
    """

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads
        self._at_it: set[str] = set()

    def plan(
        self, definitions: Sequence[ContainerDefinition], work: Callable[[ContainerDefinition], T], seconds: float
    ) -> PlannedContainers[T]:
        """Does the work of each container, in their order, until all are done or ``seconds`` have passed.

        No more work is begun once the source is unreachable, unless the work of another container is done already.
        """
        until = time.monotonic() + seconds
        lock = threading.Lock()
        seen: PlannedContainers[T] = PlannedContainers()
        seen.left.extend(definitions)
        over = False

        def take() -> ContainerDefinition | None:
            """The next container whose work this thread is to begin; None where there is none. It counts as late until it is done."""
            with lock:
                while seen.left and not (over or time.monotonic() >= until or (seen.unreachable and not seen.done)):
                    definition = seen.left.pop(0)
                    seen.late.append(definition)
                    if definition.container.label not in self._at_it:
                        self._at_it.add(definition.container.label)
                        return definition
                return None

        def put(definition: ContainerDefinition, outcome: T | Exception) -> None:
            """Stores the result of a container's work, unless the time is over and the results were returned."""
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
            with connections_kept():
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
        # Threads that still run are left behind as daemons. From here on they change nothing in the results.
        with lock:
            over = True
            return seen
