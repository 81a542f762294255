"""The safety lag of a container: the one that the YAML sets or else the automatic one, and the reason for it as text.

The watermark rule (``core.watermark``) covers values that the database makes while the transaction that inserts them is open. A value that
the application made earlier, or that was drawn from a sequence long before its row was inserted, can arrive below a watermark that has
already moved: the automatic lag is for these. A DEFAULT does not prove that the database makes the values, because most applications send
the column all the same.
"""

from dataclasses import dataclass, replace
from typing import Literal

from incremental_assets.core.container import Container, ContainerOptions, HoldBack, Identifier, Kind, Origin, SourceTable
from incremental_assets.core.cursor_type import CursorType
from incremental_assets.core.grammar import Strategy

AUTO_LAG_SECONDS = 300
"""The automatic lag for times that something else than the database may make. It is to cover differences between clocks, and the time from
the reading of a clock to the commit."""
AUTO_LAG_FOLD_SECONDS = 3600
"""What the automatic lag of times without zone has more where ``timezone`` does not say in which zone they are meant: clocks there may be
set back, mostly by an hour, and show its times once more."""
AUTO_LAG_BLOCKS = 20
"""The automatic lag for integers, in blocks: the number of blocks that sessions or applications may hold at one time."""
AUTO_LAG_BLOCK = 50
"""The values in a block if no sequence of the identifier has larger blocks. Hibernate draws 50 values at a time by default."""
AUTO_LAG_BATCHES = 1
"""The automatic lag for batch numbers (``partition_by: batch``): as a batch has many rows, only the one below the highest is read again."""


@dataclass(frozen=True)
class SafetyLag:
    """A safety lag and its reason.

    ``value``: seconds for times and dates, a number of values for integers. ``is_auto``: the YAML does not set it. ``reason``: one sentence
    without its full stop.
    """

    value: int
    is_auto: bool
    reason: str


def safety_lag(
    table: SourceTable,
    identifier: Identifier | None,
    strategy: Strategy,
    options: ContainerOptions,
    safety_lag_seconds: int | Literal["auto"],
    zone_is_said: bool = False,
    batch: bool = False,
) -> SafetyLag:
    """The lag of the container's YAML if it has one, else that of the datastore's YAML, else the automatic one.

    ``identifier`` is None for a snapshot, which has no lag. ``zone_is_said``: the YAML says the zone of times without zone. ``batch``: the
    identifier is the number of a batch. The datastore's lag is in seconds and therefore does not apply to integers, except for 0, which
    means no lag in any unit.
    """
    if identifier is None:
        return SafetyLag(0, False, "it is synced whole each time")
    if options.safety_lag is not None and options.safety_lag != "auto":
        return SafetyLag(options.safety_lag, False, "safety_lag of the container says so")
    if options.safety_lag is None and safety_lag_seconds != "auto" and (identifier.cursor_type.is_time or safety_lag_seconds == 0):
        return SafetyLag(safety_lag_seconds, False, "safety_lag_seconds of the datastore says so")
    return automatic_lag(table, identifier, strategy, options.hold_back, zone_is_said, batch)


def automatic_lag(
    table: SourceTable,
    identifier: Identifier,
    strategy: Strategy,
    hold_back: HoldBack = HoldBack.ALL,
    zone_is_said: bool = False,
    batch: bool = False,
) -> SafetyLag:
    """The lag of an identifier for which the YAML sets none: 0 if it is certain that the source itself makes each value."""
    found = [(name, column.origin if (column := table.column(name)) is not None else None) for name in identifier.columns]
    origins = [origin or Origin() for _, origin in found]
    trusted = None if table.subscribed else _trusted(identifier, origins, strategy, hold_back)
    if trusted is not None:
        return SafetyLag(0, True, trusted)
    if batch:
        return SafetyLag(AUTO_LAG_BATCHES, True, f"{_doubt(table, identifier, found)}, so the batch below the highest is read again")
    if identifier.cursor_type is not CursorType.INTEGER:
        doubt = _doubt(table, identifier, found)
        if zone_is_said or identifier.cursor_type is not CursorType.TIMESTAMP_NTZ:
            return SafetyLag(AUTO_LAG_SECONDS, True, f"{doubt}, so the last {AUTO_LAG_SECONDS} seconds are read again")
        seconds = AUTO_LAG_SECONDS + AUTO_LAG_FOLD_SECONDS
        fold = "timezone does not say in which zone these times are meant, where clocks may be set back"
        return SafetyLag(seconds, True, f"{doubt}, and {fold}, so the last {seconds:,} seconds are read again")
    block = max(AUTO_LAG_BLOCK, *(origin.block or 0 for origin in origins))
    lag = AUTO_LAG_BLOCKS * block
    return SafetyLag(
        lag,
        True,
        f"{_doubt(table, identifier, found)}, so the last {lag:,} values ({AUTO_LAG_BLOCKS} blocks of {block:,}) are read again",
    )


def where_sessions_are_hidden(container: Container) -> Container:
    """The container with the lag that it needs if our role cannot see the activity of other roles' sessions (no ``pg_read_all_stats``).

    An automatic lag of 0 for times relies on that activity: a transaction can have a time from before it has a virtual id, and only the
    session shows it then (``Activity.noted``). A lag that the YAML sets, and the lag of integers, stay as they are.
    """
    if not container.lag_is_auto or container.lag or container.cursor_type is None or not container.cursor_type.is_time:
        return container
    reason = (
        f"{container.lag_reason}, but this role, which lacks pg_read_all_stats, cannot see who is about to commit an earlier time, so the "
        f"last {AUTO_LAG_SECONDS} seconds are read again"
    )
    return replace(container, lag=AUTO_LAG_SECONDS, lag_reason=reason)


def lag_warning(container: Container) -> list[str]:
    """The warning for the first load of a container whose automatic lag is not 0; empty for all others."""
    if not container.lag_is_auto or container.lag == 0:
        return []
    return [
        f"safety_lag is auto: {container.lag_reason}; rows that arrive below that are not seen until a refresh. Set safety_lag to the "
        f"longest delay there can be, or to 0 where the database alone makes the values"
    ]


def _trusted(identifier: Identifier, origins: list[Origin], strategy: Strategy, hold_back: HoldBack) -> str | None:
    """The reason why the watermark rule alone covers the identifier, so that no lag is needed; None if it does not.

    If the identifier is the greater of two columns, it is enough that a trigger sets either of them at each insert, and a trigger sets
    either of them at each update.
    """
    columns = "/".join(identifier.columns)
    if identifier.cursor_type is CursorType.INTEGER:
        if all(origin.is_rowversion for origin in origins):
            return f"{columns} is a rowversion, which the source itself makes, and it says below which value nobody is open"
        if all(origin.identity and origin.in_turn for origin in origins):
            return (
                f"{columns} is GENERATED ALWAYS AS IDENTITY without CACHE, so the source itself makes each value when the row is inserted"
            )
        return None
    if identifier.cursor_type is not CursorType.TIMESTAMP:
        origins = [origin for origin in origins if origin.in_own_zone]
    at_insert = next((origin.at_insert for origin in origins if origin.at_insert), None)
    at_update = next((origin.at_update for origin in origins if origin.at_update), None)
    if at_insert is None or (strategy is Strategy.UPSERT and at_update is None):
        return None
    if hold_back is HoldBack.WRITERS:
        return None  # now() in a trigger is older than the write lock by which ``hold_back: writers`` finds a transaction
    if strategy is not Strategy.UPSERT:
        return f"the trigger {at_insert} sets {columns} at each insert, whatever the application sends"
    by = f"the trigger {at_insert} sets" if at_insert == at_update else f"the triggers {at_insert} and {at_update} set"
    return f"{by} {columns} at each insert and update, whatever the application sends"


def _doubt(table: SourceTable, identifier: Identifier, found: list[tuple[str, Origin | None]]) -> str:
    """The reason, for messages, why it is not certain that the source itself makes each value. ``found``: the origin of each column."""
    columns = "/".join(identifier.columns)
    if table.subscribed:
        return f"a subscription of logical replication fills the table, so the values of {columns} are made on another server"
    if table.kind not in (Kind.TABLE, Kind.PARTITIONED):
        return f"it is a {table.kind.value}, so who makes the values of {columns} cannot be seen"
    blocks = [name for name, origin in found if origin is not None and (origin.block or 1) > 1]
    if blocks:
        return f"each session draws a block of values of {'/'.join(blocks)} at a time and may insert them much later"
    triggers = [origin.at_insert or origin.at_update for _, origin in found if origin is not None and not origin.in_own_zone]
    by_session = next(filter(None, triggers), None)
    if by_session is not None and identifier.cursor_type is not CursorType.TIMESTAMP:
        return f"the trigger {by_session} sets {columns} to the time in the zone of each session, and these may differ"
    default = next((column.default for name, _ in found if (column := table.column(name)) is not None and column.default), None)
    but = f" (its default {default} is no proof, as applications send the column)" if default else ""
    return f"the application may make the values of {columns} itself{but}"
