"""A point in the history of the source's server, by which a sync notices that the server was set back, or replaced by another one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from incremental_assets.core.capture import lsn_text, parse_lsn


@dataclass(frozen=True)
class HistoryPoint:
    """How far the server's log had come at one moment.

    ``timeline``: that of the log, which is another one after a restore to a point in time and after a fail-over; None if it is hidden.
    ``lsn``: the end of the log. Everything that was visible at the moment lies below it.
    """

    timeline: str | None
    lsn: int

    def break_before(self, now: "HistoryPoint | None") -> str | None:
        """Why the history does not lead from this point to ``now``, in words; None if it may, or if ``now`` is not known."""
        if now is None:
            return None
        if None not in (self.timeline, now.timeline) and self.timeline != now.timeline:
            return f"its log has another timeline ({self.timeline}, now {now.timeline})"
        if now.lsn < self.lsn:
            return f"its log is at {lsn_text(now.lsn)} and was at {lsn_text(self.lsn)}"
        return None

    def to_json(self) -> dict[str, Any]:
        return {"timeline": self.timeline, "lsn": lsn_text(self.lsn)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> "HistoryPoint | None":
        return None if data is None else cls(data["timeline"], parse_lsn(data["lsn"]))
