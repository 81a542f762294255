"""Predicates in Spark's dialect, built from typed values in this one place.

Belongs here: windows → WHERE, quoting, the start of a row's partition. Does not belong: running anything.
"""

from collections.abc import Sequence

from incremental_assets.core.axis import Axis, format_value
from incremental_assets.core.container import Container, Cut, Identifier
from incremental_assets.core.files import FILE
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.names import literal as text
from incremental_assets.core.partitions import Granularity, Partitions, TimePartitions
from incremental_assets.core.window import Window


def literal(axis: Axis, value: int) -> str:
    """An axis value as a constant. Outside the years 1 to 9999, which Spark's literals refuse, as exact integers."""
    if axis is Axis.INTEGER:
        return str(value) if -(2**63) < value < 2**63 else f"{value}BD"
    text = format_value(axis, value)
    if len(text.split("-")[0]) != 4 or text.startswith("0000"):
        if axis is Axis.DAY:
            return f"date_from_unix_date({value})"
        return f"timestamp_micros({value})" if axis is Axis.INSTANT else f"cast(timestamp_micros({value}) as timestamp_ntz)"
    return f"{ {Axis.DAY: 'DATE', Axis.LOCAL: 'TIMESTAMP_NTZ', Axis.INSTANT: 'TIMESTAMP'}[axis] }'{text}'"


def identifier_expression(identifier: Identifier) -> str:
    names = [quote(name) for name in identifier.columns]
    return names[0] if len(names) == 1 else f"greatest({', '.join(names)})"


def window_predicate(identifier: Identifier, window: Window) -> str:
    """Rows of one window; an unbounded window still leaves the NULLs out."""
    names = [quote(name) for name in identifier.columns]
    parts: list[str] = []
    if window.lower is not None:  # each column by itself, so that file statistics can be used
        parts.append("(" + " OR ".join(f"{name} >= {literal(identifier.axis, window.lower)}" for name in names) + ")")
    if window.upper is not None:
        parts.append(f"{identifier_expression(identifier)} < {literal(identifier.axis, window.upper)}")
    if not parts:
        return "(" + " OR ".join(f"{name} IS NOT NULL" for name in names) + ")"
    return "(" + " AND ".join(parts) + ")"


def scope_predicate(identifier: Identifier, windows: Sequence[Window], include_nulls: bool) -> str:
    """All rows of the windows, and of the NULLs."""
    either = [window_predicate(identifier, window) for window in windows]
    if include_nulls:
        either.append("(" + " AND ".join(f"{quote(name)} IS NULL" for name in identifier.columns) + ")")
    return " OR ".join(either) if either else "false"


def file_predicate(keys: Sequence[str]) -> str:
    """All rows of the files with these keys."""
    return f"{quote(FILE.name)} IN ({', '.join(map(text, keys))})" if keys else "false"


def partition_start(identifier: Identifier, cut: Cut) -> str:
    """An expression that is equal for the rows of one partition and, as an axis value, lies in it."""
    value = identifier_expression(identifier)
    if identifier.axis is Axis.INTEGER:
        # Not floor(value / width): Spark divides through doubles, which large ids do not survive.
        start = f"{value} - pmod({value}, {cut.width})" if (cut.width or 1) > 1 else value
        return f"cast({start} as decimal(38,0))"
    # Weeks begin on Sunday here, and on Monday in Spark's functions that cut times.
    since_sunday = f" - (dayofweek({value}) - 1) * {identifier.axis.steps_per_day}" if cut.granularity is Granularity.WEEK else ""
    if identifier.axis is Axis.DAY:
        return f"unix_date(trunc({value}, 'MM'))" if cut.granularity is Granularity.MONTH else f"unix_date({value}){since_sunday}"
    unit = {Granularity.MONTH: "MONTH", Granularity.HOUR: "HOUR"}.get(cut.granularity or Granularity.DAY, "DAY")
    return f"unix_micros(cast(date_trunc('{unit}', {value}) as timestamp)){since_sunday}"


def partition_of(identifier: Identifier, cut: Cut, partitions: Partitions) -> str:
    """The start of the partition that a row belongs to, however early or late it is (``Partitions.key_of`` names it); NULL without one."""
    start = partition_start(identifier, cut)
    if isinstance(partitions, TimePartitions):
        inside = f"greatest(least({start}, {partitions.last}), {partitions.first})"
    else:
        inside = f"greatest({start}, {partitions.known[0]})" if partitions.known else start
    return f"CASE WHEN {identifier_expression(identifier)} IS NOT NULL THEN {inside} END"


def align(container: Container, lake: Sequence[tuple[str, str]], carried: Sequence[str]) -> list[str]:
    """Select expressions that give source rows the lake's columns: in its order and types, NULL for those the source dropped."""
    have = {name.lower(): name for name in carried}
    return [
        f"cast({quote(have[name.lower()])} as {type_}) as {quote(name)}"
        if name.lower() in have
        else f"cast(NULL as {type_}) as {quote(name)}"
        for name, type_ in lake
    ]


def key_text(quoted: str, type_: str) -> str:
    """A key's value as text from which the source makes the same value again, whatever the two call it."""
    if type_ == "date":
        return f"cast(unix_date({quoted}) AS string)"
    if type_ in ("timestamp", "timestamp_ntz"):  # the session's zone is UTC
        return f"cast(unix_micros(cast({quoted} AS timestamp)) AS string)"
    return f"hex({quoted})" if type_ == "binary" else f"cast({quoted} AS string)"
