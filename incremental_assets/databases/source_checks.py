"""What a sync checks in the source before it reads rows: that the table is there, has not fallen back, and has the keys that rows need."""

import hashlib
import json
from collections.abc import Sequence

from incremental_assets.core.comparison import RowScope
from incremental_assets.core.container import NO_IDENTIFIER, Arrays, Container, Inherited, OnNull, SourceTable
from incremental_assets.core.cursor_type import format_value
from incremental_assets.core.errors import ConfigurationError, RebuildNeeded, SourceError
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.ladder import TEXT
from incremental_assets.core.schema import Column
from incremental_assets.core.shown_text import counted
from incremental_assets.core.watermark import TableState
from incremental_assets.databases.plan_warnings import fallen_back
from incremental_assets.databases.source import Highest, SourceDatabase

_FOLLOW_OTHERWISE = "follow it by a column whose values grow, such as the time of the last change, or leave it out of incremental"


def check_column_names(container: Container) -> None:
    """Raises ConfigurationError if a column has a name with which Spark could not change rows of the table, before that is made."""
    name = next((column.name for column in container.columns if column.name.lower() == "_metadata"), None)
    if name is not None:
        raise ConfigurationError(
            f"{container.label}: column {name!r} has the name of one that Spark has in each table, so that it could not change rows. "
            f"Nothing was read. Leave it out: containers: {{{container.name}: {{exclude_columns: [{name}]}}}}, or read a view that gives "
            f"it another name."
        )


def check_counts_down(container: Container) -> None:
    """Raises ConfigurationError if the catalog has seen that the sequence of the identifier counts down."""
    identifier = container.identifier
    if identifier is None or not any(
        c.origin is not None and c.origin.counts_down for c in container.columns if c.name in identifier.columns
    ):
        return
    raise ConfigurationError(
        f"{container.label}: {identifier.columns[0]} is drawn from {identifier.sequence or 'a sequence'}, which counts down: new rows come "
        f"below the watermark, where no sync looks for them. Nothing was read. To sync it, {_FOLLOW_OTHERWISE}: then it is synced whole "
        f"each time."
    )


def check_fallen_back(container: Container, watermark: int | None, highest: Highest) -> str | None:
    """Raises RebuildNeeded, or returns a warning for a time, if the source's highest identifier is below the watermark.

    An integer that falls back means that the table was truncated or restored, and new rows would lie below the watermark. A time may
    fall back because the newest rows were deleted, and new rows get later times all the same.
    """
    if watermark is None or container.identifier is None or container.cursor_type is None or container.is_captured:
        return None
    shown = format_value(container.cursor_type, watermark)
    if not container.cursor_type.is_time:
        now = highest.sequence if highest.sequence is not None else highest.seen
        if now is None or now < watermark:
            again = f"incremental-assets sync {container.label} --reset-watermarks"
            if highest.sequence is not None and highest.seen is not None and highest.seen >= watermark:
                raise RebuildNeeded(
                    f"{container.label}: the source has fallen back: the watermark is {shown} but its sequence is at {now}, while rows "
                    f"reach {highest.seen}: the sequence counts down, began again (CYCLE), or was set back, and new rows come below the "
                    f"watermark, where no sync looks for them. Nothing was written. If that was a mistake, set it above the rows in the "
                    f"source; otherwise {_FOLLOW_OTHERWISE}. Then load it anew: {again}"
                )
            what = "its sequence is at" if highest.sequence is not None else "its highest identifier is"
            raise RebuildNeeded(
                f"{container.label}: the source has fallen back: the watermark is {shown} but {what} {now}. Was the table truncated, "
                f"or restored from a backup? Nothing was written. To load it anew: {again}"
            )
    elif highest.seen is None or highest.seen < watermark:
        seen = "none" if highest.seen is None else format_value(container.cursor_type, highest.seen)
        return f"{fallen_back(container)} (watermark {shown}, highest now {seen})"
    return None


def check_null_rows(container: Container, source: SourceDatabase, scope: RowScope) -> int | None:
    """Counts the rows without identifier, if the scope includes them. Raises SourceError if there are some and they are forbidden."""
    identifier, forbidden = container.identifier, container.options.on_null is OnNull.ERROR
    if identifier is None or not (container.has_null_identifiers or forbidden):
        return None
    found = source.count_nulls() if scope.include_nulls or forbidden else None
    if forbidden and found:
        raise SourceError(
            f"{container.label}: {counted(found, 'row has', 'rows have')} no {'/'.join(identifier.columns)}, and on_null is error. "
            f"Fill them in the source, or write on_null: include (or exclude)."
        )
    return found


def check_merge_key(container: Container, source: SourceDatabase, scope: RowScope) -> None:
    """Raises SourceError if the key by which rows are merged is NULL, or occurs twice in the scope."""
    if container.strategy is not Strategy.UPSERT or container.key_is_enforced:
        return
    wrong = source.duplicate_keys(scope.windows, scope.include_nulls)
    if wrong is not None:
        raise SourceError(
            f"{container.label}: the key ({', '.join(container.primary_key)}) = {wrong} is NULL or occurs twice in the source, "
            f"which would double rows; nothing was written. Name columns under primary_key that tell rows apart."
        )


def unfound_respellings(container: Container, source: SourceDatabase) -> list[str]:
    """What to say at a load of an upsert whose key may be written otherwise without anything that tells it: the log and sweeps do."""
    if container.strategy is not Strategy.UPSERT or container.is_captured or container.options.sweeps:
        return []
    loose = source.loose_key()
    if not loose:
        return []
    return [
        f"the source may take values of the key ({', '.join(loose)}) for equal that look different, and has no form that they share. If a "
        f"key is only written otherwise, and its row was below the watermark, the row as it was before stays in the lake until a sweep: "
        f"containers: {{{container.name}: {{deletes: sweep}}}}"
    ]


def arrays_as_text(container: Container, columns: Sequence[Column]) -> list[str]:
    """What to say at a load of arrays that are text though the YAML says ``arrays: list``. ``columns``: those of the lake."""
    text = {column.name for column in columns if column.type == TEXT} - {*container.options.text_columns}
    found = [f"{column.name} ({column.type})" for column in container.columns if column.name in text and column.base.endswith("[]")]
    said = "arrays that are text all the same, for their elements' type, their values, or as a part of the key"
    return [f"{said}: {', '.join(found)}"] if found and container.options.arrays is Arrays.LIST else []


def gone_from_source(container: Container) -> SourceError:
    """The error for a container that the source no longer has."""
    return SourceError(
        f"{container.label}: the source has no table {container.schema}.{container.name} any more; its rows stay in the "
        f"lake. To forget it: incremental-assets catalog {container.datastore}"
    )


def check_readable(container: Container) -> None:
    """Raises ConfigurationError if a Delta table cannot have its columns, or if tables inherit from the container's table and the YAML does
    not say whether their rows belong to it."""
    if container.refusal is not None:
        raise ConfigurationError(container.refusal)
    if container.inherited is None:
        raise ConfigurationError(
            f"{container.label}: other tables inherit from it, and a query on it returns their rows, too. Say whose rows it is to have: "
            f"containers: {{{container.name}: {{inherited: only}}}} for its own ones (the others are containers of their own), or "
            f"inherited: include for all of them, read as one table, by no key. Nothing was read."
        )


def read_otherwise(container: Container, state: TableState) -> str | None:
    """Why the table in the lake has rows of other tables than a read returns now, values that are filled up to another length, or no
    watermark as it was synced whole; None if it is as a read of some rows expects it."""
    if state.identifier == NO_IDENTIFIER and container.identifier is not None:
        return f"it was synced whole until now, and its identifier {'/'.join(container.identifier.columns)} is new"
    longer = padded_otherwise(container, state)
    if longer is not None:
        return longer
    now = container.options.inherited
    before = state.inherited or (Inherited.INCLUDE if container.heirs is not None else now)
    if now is None or not state.loaded or before is now:
        return None
    return f"it is to have {_WHOSE[now]} (inherited: {now.value}), and it has {_WHOSE[before or now]}"


def padded_otherwise(container: Container, state: TableState) -> str | None:
    """Which column's values are filled up with spaces to another length than those in the lake, in words; None if all are as they were."""
    before = (state.padded or {}) if state.loaded else {}
    said = [
        f"its column {name} was {before[name]} and is {type_}, so that other spaces stand behind its values"
        for name, type_ in container.padded.items()
        if before.get(name, type_) != type_
    ]
    return said[0] if said else None


def check_padding(container: Container, state: TableState) -> None:
    """Raises SourceError if a sync of some rows would give them values of another length than those in the lake, which the catalog of its
    plan did not know yet."""
    longer = padded_otherwise(container, state)
    if longer is not None:
        raise SourceError(
            f"{container.label}: {longer}; nothing was written. This brings the catalog up to date and loads it anew: incremental-assets "
            f"sync {container.label}"
        )


_WHOSE = {Inherited.ONLY: "its own rows alone", Inherited.INCLUDE: "the rows of the tables that inherit from it, too"}


def shape_digest(table: SourceTable) -> str:
    """A hash of what a sync needs to know of a table (columns with their comments, primary key, kind, whether others inherit).

    A sync compares the hash of the table in its snapshot with that of the table in the catalog.
    """
    columns = [(c.name, c.type, c.not_null, c.default, c.sequence, c.comment or "") for c in table.columns]
    return hashlib.md5(
        json.dumps([columns, table.primary_key, table.kind.value, table.heirs is None]).encode(), usedforsecurity=False
    ).hexdigest()
