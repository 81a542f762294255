"""Warns of rows that have left what an append reads, and that cannot be looked up as the container has no primary key."""

from incremental_assets.core.grammar import Strategy
from incremental_assets.core.shown_text import counted
from incremental_assets.delta.write_batch import WriteBatch, WriteResult


def left_without_key(write_batch: WriteBatch, outcome: WriteResult) -> str | None:
    """The warning for rows that an earlier sync read here and that are here no longer; None if there are none, or if they have a key."""
    container, identifier = write_batch.container, write_batch.identifier
    if identifier is None or container.primary_key or container.strategy is not Strategy.APPEND or not outcome.rows_deleted:
        return None
    column = "/".join(identifier.columns)
    return (
        f"no longer there, and removed: {counted(outcome.rows_deleted, 'row')} at or above the watermark, or without {column}: "
        f"they were changed, deleted, or given an older {column}, and then they are missing now. Without a primary key they cannot be "
        f"looked up. To compare: incremental-assets audit {container.label} --repair. If columns tell rows apart, name them: "
        f"containers: {{{container.name}: {{primary_key: [<column>]}}}}"
    )
