"""Queries a table in this process by the engine of delta-rs, whose SQL is another dialect than Spark's.

delta-rs answers in milliseconds where Spark takes a second or two, but it works in this one process.
"""

from collections.abc import Sequence

from deltalake import DeltaTable

from incremental_assets.core.container import Identifier, Partitioning
from incremental_assets.core.cursor_type import CursorType
from incremental_assets.core.errors import LakeError
from incremental_assets.core.partitions import MICROS_PER_HOUR, Granularity
from incremental_assets.core.window import Window
from incremental_assets.delta.table import LakeTable, double_quoted

MOST_ROWS = 10_000_000
"""A table with more rows is queried by Spark, whose workers share the work."""


def readable_here(table: LakeTable, version: int | None = None) -> DeltaTable | None:
    """The table as a delta-rs object, at its newest version or at another one; None if delta-rs should not read its rows, or has not got
    that version any more. A table with more than ``MOST_ROWS`` rows counts as one of these."""
    try:
        delta = table.opened() if version is None else table.readable_at(version)
    except LakeError:
        if version is None:
            raise
        return None
    return delta if delta is not None and delta.count() <= MOST_ROWS and _is_readable(delta) else None


def described_here(table: LakeTable, version: int | None = None) -> DeltaTable | None:
    """The same for what the log says, of any number of rows: these are read from the files that may have them (``local_files``), or by
    ``readable_here``."""
    try:
        delta = table.log_opened() if version is None else table.opened_at(version)
    except LakeError:
        if version is None:
            raise
        return None
    return delta if delta is not None and _is_readable(delta) else None


def _is_readable(delta: DeltaTable) -> bool:
    protocol = delta.protocol()
    return protocol.min_reader_version == 1 or set(protocol.reader_features or ["unknown"]) <= {"deletionVectors", "timestampNtz"}


def identifier_value(identifier: Identifier) -> str:
    """The identifier's column, or the greater of its two columns."""
    names = [double_quoted(name) for name in identifier.columns]
    return names[0] if len(names) == 1 else f"greatest({', '.join(names)})"


_ARROW_TYPES = {
    CursorType.DATE: "Date32",
    CursorType.TIMESTAMP_NTZ: "Timestamp(Microsecond, None)",
    CursorType.TIMESTAMP: 'Timestamp(Microsecond, Some("UTC"))',
    CursorType.INTEGER: "Int64",
}


def is_expressible(delta: DeltaTable, identifier: Identifier, windows: Sequence[Window]) -> bool:
    """Whether the engine compares the identifier with the bounds of the windows exactly: it would round decimals."""
    types = {field.name: str(field.type.type) for field in delta.schema().fields if hasattr(field.type, "type")}
    bounds = [bound for window in windows for bound in (window.lower, window.upper) if bound is not None]
    return not any("decimal" in types.get(name, "decimal") for name in identifier.columns) and all(-(2**63) <= b < 2**63 for b in bounds)


def step_of(identifier: Identifier, partitioning: Partitioning) -> int:
    """The length of ranges of identifier values, counted from 0 on, of which none lies in two partitions."""
    if identifier.cursor_type is CursorType.INTEGER:
        return partitioning.width or 1
    hourly = partitioning.granularity is Granularity.HOUR and identifier.cursor_type is not CursorType.DATE
    return MICROS_PER_HOUR if hourly else identifier.cursor_type.steps_per_day


def window_condition(identifier: Identifier, windows: Sequence[Window], include_nulls: bool = False) -> str:
    """A condition for the rows of the windows and, with ``include_nulls``, for those without identifier.

    It selects the same rows as ``sql.scope_predicate`` does in Spark SQL. The windows must be expressible (``is_expressible``).
    """

    def bound(at: int) -> str:
        return f"arrow_cast({at}, '{_ARROW_TYPES[identifier.cursor_type]}')"

    either: list[str] = []
    for window in windows:
        parts: list[str] = []
        if window.lower is not None:
            parts.append("(" + " OR ".join(f"{double_quoted(n)} >= {bound(window.lower)}" for n in identifier.columns) + ")")
        if window.upper is not None:
            parts.append(f"{identifier_value(identifier)} < {bound(window.upper)}")
        either.append("(" + " AND ".join(parts) + ")" if parts else f"{identifier_value(identifier)} IS NOT NULL")
    if include_nulls:
        either.append("(" + " AND ".join(f"{double_quoted(name)} IS NULL" for name in identifier.columns) + ")")
    return " OR ".join(either) if either else "false"
