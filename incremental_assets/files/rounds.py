"""Splits a sync of many files from the command line into rounds of a limited number of files, as the ticks of a sensor do.

Each round is a run with one commit. So a command that is stopped keeps the rows of the files that it has read, and the next command goes
on from there.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.plan import Mode, Plan, Request
from incremental_assets.files.definition import FileDefinition
from incremental_assets.files.plan import FilesPlan


def first_round(definition: ContainerDefinition, request: Request) -> Request:
    """Returns the request of the first round. For containers other than files, and for a refresh, it is the request itself.

    ``again_before`` is set to now, so that a file that an earlier command has refused is tried again, once in each command.
    """
    if not isinstance(definition, FileDefinition) or request.mode is Mode.REFRESH:
        return request
    return replace(request, max_files=definition.settings.max_files_per_run, again_before=time.time_ns() // 1000)


def is_first_of_several(plan: Plan) -> bool:
    """Whether more files are due than one round reads."""
    return isinstance(plan, FilesPlan) and plan.later > 0


def parts_of_refresh(definition: ContainerDefinition, plan: Plan) -> Sequence[Request]:
    """Returns the requests of a plan: of a refresh of more files than one run reads, one for each run; of all others the plan's own.

    A partition is never divided, so that a run reads as many files more as a partition has.
    """
    if not isinstance(definition, FileDefinition) or not isinstance(plan, FilesPlan) or plan.request.mode is not Mode.REFRESH:
        return [plan.request]
    most, files = definition.settings.max_files_per_run, Counter[str]()
    files.update(definition.partition_of(key) for key in (*(file.key for file in plan.due), *plan.drop))
    files.update(plan.unknown)
    parts: list[list[str]] = [[]]
    read = 0
    for key, count in files.items():
        if parts[-1] and read + count > most:
            parts.append([])
            read = 0
        parts[-1].append(key)
        read += count
    return [plan.request] if len(parts) == 1 else [replace(plan.request, keys=tuple(part)) for part in parts]


def next_round(plan: Plan, left: int, done: int) -> Request | None:
    """Returns the request of the next round; None where no files are left, or where the last run made no progress.

    ``left``: files that the last run has left to be read. ``done``: files that it has read or refused. The request no longer resets
    the table: the first round has replaced it, and all other files count as new.
    """
    if not isinstance(plan, FilesPlan) or plan.request.mode is Mode.REFRESH or not left or not done:
        return None
    return replace(plan.request, reset=False)
