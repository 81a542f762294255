"""The command line's way through many files: as a sensor does it, so many a run, until none is left.

Belongs here: what each round asks for. Does not belong: a round itself (``sync``). Each is a run with one commit, so that a command that is
stopped has kept what it has read, and the next one goes on there.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.plan import Mode, Plan, Request
from incremental_assets.files.definition import FileDefinition
from incremental_assets.files.plan import FilesPlan


def first_round(definition: ContainerDefinition, request: Request) -> Request:
    """What is asked of a container of files first; of others, all at once. A file that was refused is tried once a command."""
    if not isinstance(definition, FileDefinition) or request.mode is Mode.REFRESH:
        return request
    return replace(request, most_files=definition.settings.most_files, again_before=time.time_ns() // 1000)


def parts_of_refresh(definition: ContainerDefinition, plan: Plan) -> Sequence[Request]:
    """Of a refresh of more files than one run reads: a request for each run."""
    if not isinstance(definition, FileDefinition) or not isinstance(plan, FilesPlan) or plan.request.mode is not Mode.REFRESH:
        return [plan.request]
    most, keys = definition.settings.most_files, [*(file.key for file in plan.files), *plan.drop, *plan.phantoms]
    if len(keys) <= most:
        return [plan.request]
    return [replace(plan.request, keys=tuple(keys[at : at + most])) for at in range(0, len(keys), most)]


def next_round(plan: Plan, left: int, done: int) -> Request | None:
    """After a run that has looked at so many files and left others; None where nothing more is to be done, or nothing comes of it.

    After the first files of a table that is made anew, the others are new.
    """
    if not isinstance(plan, FilesPlan) or plan.request.mode is Mode.REFRESH or not left or not done:
        return None
    return replace(plan.request, reset=False)
