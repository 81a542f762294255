"""Commits what the asset of a container returned, and finds the rows of a container that a user's own asset depends on."""

import dagster as dg

from incremental_assets.core.errors import EmptyRefused
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.window import Window, merge
from incremental_assets.delta.container_sync import ContainerSync, ReadAgain
from incremental_assets.delta.counts import partition_rows, row_count
from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.write import commit
from incremental_assets.delta.write_batch import WriteResult
from incremental_assets.runs.dagster_internals.event_batches import log_materializations_together
from incremental_assets.runs.partitions import add_keys
from incremental_assets.runs.records.covered_partitions import NOT_WRITTEN, covered_without_event
from incremental_assets.runs.records.metadata import ALL_INTERNALS, add_metadata_of_partitions, as_event_metadata, as_metadata
from incremental_assets.runs.records.operation_rows import end_sync


def commit_batches(context: dg.OutputContext, scope: LakeScope, sync: ContainerSync) -> None:
    """Commits the write batches of a container's sync one by one, then adds metadata and events.

    Each partition that was written gets its own row count. Raises EmptyRefused after the events if the sync has left partitions out.
    Dagster then logs no event of the run's partitions by itself, so that those which were left out count as failed.
    """
    container, table = sync.container, sync.table
    written: list[Window] = []
    outcomes: list[WriteResult] = []
    replaced_whole = False
    for step in sync.write_batches():
        if sync.needs_spark():
            # The session is opened before the step opens its snapshot of the source, so that none is held while a JVM starts.
            _ = scope.spark
        elif sync.is_inspected():
            scope.start_spark()
        try:
            with step as write_batch:
                # Another host may have taken the container over while the rows were read.
                scope.expect_lease()
                scope.progress.reads(write_batch.expected)
                outcome = commit(lambda: scope.spark, table, write_batch, context.log.info, scope.progress.read)
                sync.sweep(lambda: scope.spark, write_batch, outcome, scope.expect_lease)
                sync.inspect(lambda: scope.spark, outcome)
        except ReadAgain as again:
            context.log.info(f"{container.label}: {again}")
            continue
        sync.committed(write_batch, outcome)
        scope.progress.committed(outcome.rows_read)
        written += sync.written_windows(write_batch)
        outcomes.append(outcome)
        # An append that is one commit without NULL identifiers replaces exactly the windows that it read. An upsert leaves other rows
        # in them.
        one = container.strategy is Strategy.APPEND and not write_batch.include_nulls and len(outcomes) == 1
        replaced_whole = one and outcome.axis_values is None  # else rows have moved to other partitions
    scope.progress.counts()
    version = sync.result.version if outcomes else None
    with lake_errors(container.label, table.url):
        left_out = set(sync.result.left_out)
        keys = sorted({*context.asset_partition_keys} - left_out) if context.has_asset_partitions else []
        partitions, known = sync.partitions, sync.rows_of(keys)
        rows: dict[str, int] = {}
        if known is not None:
            rows = dict(known)
        elif partitions is not None and replaced_whole and len(keys) == 1 and tuple(written) == partitions.windows_of(keys):
            # One partition was replaced as a whole by the rows that were read, so their number is known without counting.
            rows = {keys[0]: outcomes[0].rows_read}
        elif partitions is not None:
            counted = sorted({*keys, *sync.changed_partitions()})
            rows = partition_rows(lambda: scope.spark, table, container, partitions, merge(written), counted, version)
            # A row of a partition that was left out may have moved to one that was written.
            rows = {key: count for key, count in rows.items() if key not in left_out}
        # They are empty, unless Dagster's events were lost. Their rows are counted, as an event must not say what is not so.
        covered = covered_without_event(context.step_context.instance, context.asset_key, sync, {*keys, *rows})
        of_covered: dict[str, int] = {}
        if partitions and covered:
            of_covered = partition_rows(lambda: scope.spark, table, container, partitions, (), covered, version)
        total = sync.total_rows()
        if total is None:
            total = row_count(lambda: scope.spark, table, version)
    sync.result.partitions = len(rows) if partitions is not None or known is not None else None
    refusal = _left_out(sync)
    if refusal is not None:
        sync.result.warnings.append(str(refusal))
    common = {**as_event_metadata(sync.metadata()), "dagster/row_count": total}
    last = {ALL_INTERNALS: common.pop(ALL_INTERNALS)}  # after what is said of a partition
    context.add_output_metadata(common if keys else {**common, **last})
    of_the_run = set(keys) if refusal is None else set[str]()
    # Rows may also have landed in partitions that the run was not launched with. Their keys must exist before there is an event of
    # them, and the events of these partitions are logged here, because Dagster makes those of the run's own partitions only.
    # That holds for a run without partitions too, such as one that materializes all assets.
    add_keys(context.step_context.instance, context.asset_spec.partitions_def, [key for key in rows if key not in of_the_run])
    own = {key: {**as_metadata(sync.partition_metadata(key)), "dagster/partition_row_count": count} for key, count in rows.items()}
    add_metadata_of_partitions(context, {key: {**own.get(key, {}), **last} for key in of_the_run})
    # The covered ones come first, so that the newest event is one of rows that were written, wherever there is one.
    others = {key: {"dagster/partition_row_count": count, NOT_WRITTEN: True} for key, count in of_covered.items()}
    others |= {key: metadata for key, metadata in own.items() if key not in of_the_run}
    log_materializations_together(
        context,
        [dg.AssetMaterialization(context.asset_key, partition=key, metadata={**common, **one, **last}) for key, one in others.items()],
    )
    if refusal is not None:
        end_sync(scope.operations, sync)
        raise refusal


def _left_out(sync: ContainerSync) -> EmptyRefused | None:
    """The error of a sync that has left partitions out; None if it has not."""
    keys = sync.result.left_out
    if not keys:
        return None
    return EmptyRefused(
        f"{sync.container.label}: the source has no rows for {'the partition' if len(keys) == 1 else 'the partitions'} {', '.join(keys)}, "
        f"where the lake has some; {'it was' if len(keys) == 1 else 'they were'} left as before, and the other partitions were written. If "
        f"the rows were really deleted, say so with --allow-empty."
    )
