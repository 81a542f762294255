"""The request for a sync, and the part of its plan that all sources have in common."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from incremental_assets.core.capture import RetainedLog
from incremental_assets.core.comparison import Comparison
from incremental_assets.core.container import Container
from incremental_assets.core.cursor_type import format_value
from incremental_assets.core.looks import Look
from incremental_assets.core.watermark import TableState


class Mode(str, Enum):
    """What a sync reads. ``incremental``: what is new or changed since the last sync. ``refresh``: the requested partitions completely."""

    INCREMENTAL = "incremental"
    REFRESH = "refresh"


class Action(str, Enum):
    """What a sync will do.

    ``SKIP``: nothing, as nothing has changed. ``LOAD``: it reads the whole container, for the first time or again. ``SYNC``: it reads the
    lag window, or new and changed files. ``REFRESH``: it reads the requested partitions, or a container without identifier, completely.
    """

    SKIP = "skip"
    LOAD = "load"
    SYNC = "sync"
    REFRESH = "refresh"


@dataclass(frozen=True)
class AuditRequest:
    """Asks for an audit after the sync. ``keys``: the partition keys to be compared; None: all rows.

    ``start``: where an audit goes on that is too large for one snapshot, as an integer of the cursor type (``Comparison.following``); rows
    below it, and those without identifier, have been compared before. None: it begins.
    """

    keys: tuple[str, ...] | None = None
    start: int | None = None


@dataclass(frozen=True)
class Request:
    """What a caller asks of a sync.

    ``keys``: the partition keys of a refresh (None: all partitions). ``reset``: the table is loaded again as a whole
    (``--reset-watermarks``). ``allow_empty``: the sync may remove rows although the source has none in their place (``--allow-empty``).
    ``audit``: whether, and for which partitions, the lake is compared with the source afterwards. ``sweep``: a container that has sweeps
    is swept even if that is not due yet. ``changed_at``: the position of a commit in the source's log that has changed the container, as
    an earlier plan has seen. A table that has not come so far has something to do, for which the log need not be read again.

    The last two concern containers of files. ``max_files``: the highest number of files to read (None: no limit); sensors and schedules
    set it. With such a limit, files that failed before are tried again only beside others, or after their options in the YAML have changed.
    ``again_before`` lifts this restriction for files that failed before this time (microseconds since 1970 UTC); the command line sets it
    to the time at which it starts, so that it tries each failed file once.
    """

    mode: Mode
    keys: tuple[str, ...] | None = None
    reset: bool = False
    allow_empty: bool = False
    max_files: int | None = None
    again_before: int | None = None
    audit: AuditRequest | None = None
    sweep: bool = False
    changed_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class Plan(ABC):
    """The plan of one sync: what it will do, and why. Each kind of source has a subclass that adds what is read.

    ``reason``: one sentence for people. ``watermark``: the watermark in effect now (``TableState.counting_watermark``); None if there is
    none. ``state`` and ``base_version``: the stored state and the Delta version of the table as it is; None if there is no table or no
    state. ``alarm``: a skipped sync has the status ``warning`` instead of ``skipped``. ``confirmed``: set if the plan skips and has
    nevertheless found out that noted transactions have ended; it is the state to store, with a watermark that may have moved without
    reading a row. Else None. ``sweep``: whether the sync compares all keys with those of the source, after its last commit of
    rows. ``audited``: what the audit of a sync that had nothing to do has found; None if none was asked for. ``retained``: how much log the
    source keeps for a container that follows it; else None. ``looked_at``: when the source was looked at for the plan, before any of its
    rows was, in seconds since 1970 UTC; None: it was not looked at.
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
    confirmed: TableState | None = None
    audited: Comparison | None = None
    sweep: bool = False
    retained: RetainedLog | None = None
    looked_at: float | None = None

    @property
    @abstractmethod
    def requested(self) -> str:
        """What the sync reads, as text for people."""

    @property
    def is_of_chosen_partitions(self) -> bool:
        """Whether it refreshes single partitions, beside which the rows of the others stay as they were read before."""
        return self.action is Action.REFRESH and self.request.keys is not None

    @property
    def missed(self) -> int:
        """How many changed rows of the source a plan that skips knows of which append has not met."""
        return 0

    @property
    def look(self) -> Look | None:
        """The look after which the lake has all that the source had then, once the plan was carried out; None: it lacks some.

        A refresh of single partitions says nothing of the others.
        """
        return None if self.is_of_chosen_partitions or self.looked_at is None else Look(int(self.looked_at), self.missed)

    def commit_metadata(self, new: int | None, run_id: str) -> dict[str, Any]:
        """The commit metadata: a JSON object that Delta stores as ``userMetadata``. ``new``: the watermark after the commit."""
        cursor_type = self.container.cursor_type

        def shown(value: int | None) -> str | None:
            return None if value is None or cursor_type is None else format_value(cursor_type, value)

        return {
            "container": self.container.label,
            "mode": self.request.mode.value,
            "action": self.action.value,
            "range": self.requested,
            "watermark": {"previous": shown(self.watermark), "new": shown(new)},
            "run_id": run_id,
        }
