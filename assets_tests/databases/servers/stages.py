"""The stages of a sync at which the tests end it: by an error, or by the end of its process.

Belongs here: which function stands for which stage in the code of each server. Does not belong: who ends a sync (``project``,
``dying_sync``).
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from incremental_assets.databases.mysql import rows as mysql_rows
from incremental_assets.databases.mysql.source import MySQLSource
from incremental_assets.databases.sqlserver import rows as sqlserver_rows
from incremental_assets.databases.sqlserver.source import SQLServerSource
from incremental_assets.delta import write
from incremental_assets.runs import commit as container_output

READ, BEFORE_ROWS, BEFORE_STATE, BEFORE_EVENT = STAGES = (
    "while rows are read",
    "before the rows are committed",
    "between rows and state",
    "before the event",
)
Function = tuple[Any, str]
"""A module or class, and the name of a function in it."""
_EVERYWHERE: Mapping[str, Function] = {BEFORE_STATE: (write, "set_property"), BEFORE_EVENT: (container_output, "commit")}
FUNCTIONS: Mapping[str, Mapping[str, Function]] = {
    "MySQLDatastore": {READ: (mysql_rows, "_in_lake"), BEFORE_ROWS: (MySQLSource, "still_there"), **_EVERYWHERE},
    "SQLServerDatastore": {READ: (sqlserver_rows, "table_of"), BEFORE_ROWS: (SQLServerSource, "still_there"), **_EVERYWHERE},
}
"""By the component of the datastore: the function of each stage."""


class Killed(Exception):
    """Raised where a sync is to end as if it were killed there."""


def ending(kind: str, stage: str, end: Callable[[], None]) -> tuple[Any, str, Callable[..., Any]]:
    """The owner and the name of the stage's function, and what takes its place: it calls ``end`` after the function for the last stage,
    and before it for all others."""
    owner, name = FUNCTIONS[kind][stage]
    real = getattr(owner, name)

    def ends(*arguments: Any, **named: Any) -> Any:
        if stage == BEFORE_EVENT:
            real(*arguments, **named)
        end()

    return owner, name, ends


@contextlib.contextmanager
def ends_by_error(kind: str, stage: str) -> Iterator[None]:
    """Each sync in the block ends at the stage by an error, if it comes there."""

    def fail() -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*ending(kind, stage, fail))
        yield
