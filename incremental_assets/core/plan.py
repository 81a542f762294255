"""What is asked of a sync, and what every plan of one says.

Belongs here: the words of requests and decisions. Does not belong: deciding (``postgres.planning``, ``files.planning``).
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from incremental_assets.core.axis import format_value
from incremental_assets.core.container import Container
from incremental_assets.core.watermark import TableState


class Mode(str, Enum):
    """``incremental``: what is new since the last sync. ``refresh``: the asked partitions whole."""

    INCREMENTAL = "incremental"
    REFRESH = "refresh"


class Action(str, Enum):
    SKIP = "skip"
    LOAD = "load"
    SYNC = "sync"
    REFRESH = "refresh"


@dataclass(frozen=True)
class Request:
    """What was asked for. ``keys``: partitions of a refresh (None: all of them).

    ``most_files``: at most so many files are read, as a tick asks; one of those that could not be read before is not tried again by it.
    ``again_before``: all the same those are that were refused before this moment, in microseconds since 1970.
    """

    mode: Mode
    keys: tuple[str, ...] | None = None
    reset: bool = False
    allow_empty: bool = False
    most_files: int | None = None
    again_before: int | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What will be done, and why. ``watermark`` is the one that counts now; ``alarm``: the reason is worth a look.

    ``state`` and ``base_version``: of the table as it is (None: there is none). ``learned``: of a plan that skips, the state with what was
    found out all the same: who has ended, and how far the watermark may move without a row being read. None where that is nothing.
    """

    container: Container
    request: Request
    action: Action
    reason: str
    watermark: int | None
    state: TableState | None
    base_version: int | None
    warnings: tuple[str, ...] = field(default=())
    alarm: bool = False
    learned: TableState | None = None

    @property
    def asked(self) -> str:
        """What is read, in words."""
        raise NotImplementedError

    def story(self, new: int | None, run_id: str) -> dict[str, Any]:
        """What the Delta commit tells of itself. ``new``: the watermark that it leads to."""
        axis = self.container.axis

        def shown(value: int | None) -> str | None:
            return None if value is None or axis is None else format_value(axis, value)

        return {
            "container": self.container.label,
            "mode": self.request.mode.value,
            "action": self.action.value,
            "range": self.asked,
            "watermark": {"previous": shown(self.watermark), "new": shown(new)},
            "run_id": run_id,
        }
