"""Implements the source adapter of a table or view: its plan, its sync, and the description of its asset."""

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import missing
from incremental_assets.core.comparison import Comparison, Difference
from incremental_assets.core.container import Container, RowSecurity, SourceColumn, SourceTable
from incremental_assets.core.errors import ContainerMissing, RebuildNeeded, SourceError, SourceWaits
from incremental_assets.core.names import canonical_name, encode_name
from incremental_assets.core.partitions import IntegerPartitions, Partitions
from incremental_assets.core.plan import Action, AuditRequest, Mode, Plan, Request
from incremental_assets.core.schema import Column
from incremental_assets.core.shown_text import counted
from incremental_assets.core.watermark import TableState
from incremental_assets.core.window import EVERYTHING
from incremental_assets.databases.audit import audit, below, compare_as_one, is_audited_here, is_compared_here
from incremental_assets.databases.capture_plan import make_capture_plan
from incremental_assets.databases.capture_sync import CapturedSync, advance_slot
from incremental_assets.databases.definition import TableDefinition
from incremental_assets.databases.dialect import Dialect
from incremental_assets.databases.next_state import confirmed_by
from incremental_assets.databases.plan import TablePlan, make_plan, undecided
from incremental_assets.databases.recreated import decided
from incremental_assets.databases.run_keys import integer_keys, run_keys
from incremental_assets.databases.slot_counts import SlotCounts
from incremental_assets.databases.source import Relation, SourceDatabase, SourceSnapshot, along_axis
from incremental_assets.databases.source_checks import gone_from_source, shape_digest
from incremental_assets.databases.stored_state import checked_state, compared_relation, load_anew, without_watermark
from incremental_assets.databases.sync import TableSync
from incremental_assets.databases.takeover import TakenOver, all_rows, compared, other_columns, taken_over, to_be_proved
from incremental_assets.delta.container_sync import ContainerSync
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.runs.adapters.learned import keep_learned
from incremental_assets.runs.partitioning import WINDOWS_METADATA, windows_metadata
from incremental_assets.runs.partitions import add_keys, container_key, container_partitions, partitions_definition
from incremental_assets.runs.records.watermarks import newest_watermark, reported_version

LINEAGE_LIMIT = 500
"""Column lineage is recorded for tables of up to this number of columns."""


@dataclass(frozen=True)
class TableAdapter:
    """The ``SourceAdapter`` of a table or view."""

    definition: TableDefinition

    @property
    def due(self) -> Request:
        return Request(Mode.INCREMENTAL)

    def plan(
        self,
        instance: dg.DagsterInstance,
        request: Request,
        lake: str,
        events: Mapping[str, int | None] | None = None,
        counts: SlotCounts | None = None,
    ) -> tuple[TablePlan, list[str]]:
        """See ``SourceAdapter``. Raises ContainerMissing where the catalog has found the table gone, and it still is.

        Raises SourceError where the identifier's first value is not known yet, as the calendar of partitions begins with it.
        """
        partitions = container_partitions(self.definition, instance)
        with self._reader() as reader:
            definition = self._seen_by(reader)
            container = definition.container
            table = LakeTable(lake, *container.key_path)
            if definition.missing_since is not None and reader.table() is None:
                raise ContainerMissing(missing(definition))
            try:
                return self._planned(instance, request, definition, reader, table, partitions, events or {}, counts)
            except SourceWaits as waits:
                if request.mode is not Mode.INCREMENTAL or request.reset or request.audit is not None:
                    raise
                plan, reason = undecided(container, request, table.head(), None, None, ()), str(waits).removeprefix(f"{container.label}: ")
                event = newest_watermark(instance, container)
                return replace(plan, reason=reason, watermark=event, alarm=True, looked_at=None), []

    def _planned(
        self,
        instance: dg.DagsterInstance,
        request: Request,
        definition: TableDefinition,
        reader: SourceDatabase,
        table: LakeTable,
        partitions: Partitions | None,
        events: Mapping[str, int | None],
        counts: SlotCounts | None,
    ) -> tuple[TablePlan, list[str]]:
        """See ``plan``. Raises SourceWaits where the source cannot read the container."""
        container = definition.container
        if container.kind.is_view:
            reader.expect_readable()
        axis, table_found = container.axis, definition.table
        if axis is not None and (table_found.span is None or _is_of_another_column(table_found, container)):
            reader.estimate((EVERYTHING,), True)  # where it fails, its error says why the catalog has found nothing
            raise SourceError(
                f"{container.label}: what its {'/'.join(axis.columns)} begins with is not known yet, and its "
                f"partitions follow from that. Run: incremental-assets catalog {container.datastore}"
            )
        # The table exists in the lake, but Dagster has no partition of it: DAGSTER_HOME was deleted or replaced.
        if isinstance(partitions, IntegerPartitions) and not partitions.known and table.head() is not None:
            partitions = self._listed_again(instance, reader, partitions)
        event = events[container.label] if container.label in events else newest_watermark(instance, container)
        plan = self._made(instance, container, reader, table, partitions, request, event, counts)
        keys = run_keys(plan, reader, partitions) if plan.action is not Action.SKIP else []
        return plan, keys

    def begin(
        self, instance: dg.DagsterInstance, request: Request, scope: LakeScope, run_id: str, log: Callable[[str], None]
    ) -> ContainerSync | Plan:
        # The connection stays open until the run has ended: the IO manager iterates over the write batches after this method has returned.
        reader = scope.stack.enter_context(self._reader())
        definition = self._seen_by(reader)
        container = definition.container
        reader.limits, reader.interrupt = self.definition.settings.limits, scope.interrupt
        table = scope.table(*container.key_path)
        partitions = container_partitions(self.definition, instance)
        event = newest_watermark(instance, container)
        plan = self._made(instance, container, reader, table, partitions, request, event)
        if plan.doubt is not None:
            older = below(container, plan.windows[0].lower)
            if not is_compared_here(table, plan.in_lake, all_rows(container) if plan.is_certain else older):
                scope.start_spark()
            log(f"{container.label}: {plan.reason}")
            with reader.snapshot():
                rows, now = _rows_now(definition, reader, plan)
                compare = functools.partial(compare_as_one, rows, lambda: scope.spark, table, now, reader)
                others = _other_columns(plan, table, rows) if plan.is_certain else None
                differ: Mapping[Difference, int] = {}
                if others is None:  # else it is decided, whatever the rows are
                    differ = compared(container, plan.windows[0].lower, compare)[1] if plan.is_certain else compare(older).counts
                seen = reader.relation()
            plan = decided(container, plan, differ, others) or self._made(
                instance, container, reader, table, partitions, request, event, proved=seen
            )
            if plan.doubt is not None:
                raise SourceError(f"{container.label}: its table was made anew while it was compared; sync again.")
        if plan.action is Action.SKIP and request.audit is not None:
            if not is_audited_here(table, plan.in_lake, partitions, request.audit):
                scope.start_spark()  # before the snapshot, so that none is held while a JVM starts
            # The lake is compared with a state of the source in which there is still nothing to do. If there is, it is synced first.
            changes = plan.changes  # in a snapshot, they are not asked for
            with reader.snapshot():
                plan = replace(self._made(instance, container, reader, table, partitions, request, event), changes=changes)
                if plan.action is Action.SKIP:
                    rows, now = _rows_now(definition, reader, plan)
                    most = definition.settings.rows_a_window
                    found = audit(rows, lambda: scope.spark, table, now, partitions, request.audit, reader, most)
                    return replace(plan, audited=found, confirmed=_confirmed(plan, found, request.audit, partitions))
        if plan.action is Action.SKIP:
            return plan
        if plan.applies:
            log(f"{container.label}: {plan.reason}")
        if container.is_captured:
            scope.progress.begin(container.label)
            others = self._captured_tables(scope.lake, reader)
            return CapturedSync(
                definition, plan, reader, table, partitions, run_id, log, log=reader.change_log(definition.settings.slot), others=others
            )
        reader.container = plan.reading
        expected = reader.estimate(plan.windows, plan.include_nulls)
        log(f"{container.label}: {plan.reason}: {plan.requested}, about {counted(expected, 'row')} by {container.strategy.value}")
        scope.progress.begin(container.label, expected)
        return TableSync(definition, plan, reader, table, partitions, run_id, log)

    def keep_learned(self, instance: dg.DagsterInstance, plan: Plan, lake: str) -> int | None:
        assert isinstance(plan, TablePlan)
        table = LakeTable(lake, *self.definition.container.key_path)
        watermark = keep_learned(instance, plan, table, lake)
        if plan.container.is_captured and plan.confirmed is not None:
            with self._reader() as reader:
                advance_slot(reader.change_log(self.definition.settings.slot), table, self._captured_tables(lake, reader))
        return watermark

    def preview(self, plan: Plan) -> Mapping[str, Any]:
        assert isinstance(plan, TablePlan)
        container, rows = self.definition.container, 0
        if plan.applies:
            return {"rows": None, "sql": plan.reason}
        if plan.action is not Action.SKIP:
            with self._reader() as reader:
                reader.container = plan.reading
                rows = reader.count(plan.windows, plan.include_nulls)
        described = container.along_axis if plan.by_partition else container
        return {"rows": rows, "sql": self._dialect.describe_read(described, plan.windows, plan.include_nulls)}

    def source(self) -> dg.AssetSpec:
        container, address = self.definition.container, self.definition.settings.address
        return dg.AssetSpec(
            self._source_key,
            group_name=f"{container.key_path[0]}_source",
            kinds={self._dialect.kind, "view" if "view" in container.kind.value else "table"},
            description=container.comment or f"The {container.kind.value} {container.schema}.{container.name} of {address.display}.",
            metadata={
                "dagster/table_name": f"{address.database}.{container.schema}.{container.name}",
                "dagster/column_schema": dg.TableSchema(
                    [dg.TableColumn(c.name, c.type, description=c.comment or None) for c in container.columns]
                ),
            },
        )

    def asset_spec(self) -> dg.AssetSpec:
        definition, container = self.definition, self.definition.container
        columns = container.columns
        by_name = {column.name: column for column in columns}
        lineage = {c.name: [dg.TableColumnDep(self._source_key, c.name)] for c in columns if len(columns) <= LINEAGE_LIMIT}
        metadata: dict[str, Any] = {
            "dagster/column_schema": dg.TableSchema(
                [dg.TableColumn(c.name, c.type, description=_came_from(c, by_name, container)) for c in self._dialect.columns(container)]
            ),
            "dagster/column_lineage": dg.TableColumnLineage(lineage),
        }
        if not definition.is_specified and definition.proposal.reasons:
            metadata["catalog/proposal"] = definition.entry or "none"
            metadata["catalog/why"] = "\n".join(definition.proposal.reasons)
        if container.axis is not None:
            metadata["partition_expr"] = container.axis.columns[0]
            metadata[WINDOWS_METADATA] = windows_metadata(container)
        return dg.AssetSpec(
            container_key(container),
            deps=[self._source_key],
            kinds={self._dialect.kind, "deltalake", "spark"},
            description=self._description(),
            metadata=metadata,
        )

    def reason_not_to_adopt(self, head: Head) -> str | None:
        container, slot = self.definition.container, self.definition.settings.slot
        if container.is_captured and head.captured_to is not None and head.captured_to[0] != slot:
            return (
                f"the table follows the replication slot {head.captured_to[0]}, and the datastore has {slot} now: write capture_slot: "
                f"{head.captured_to[0]}, so that it goes on with the log"
            )
        return None

    def take_over(self, instance: dg.DagsterInstance, table: LakeTable, before: Container, spark: Callable[[], Any]) -> TakenOver:
        with self._reader() as reader:
            reader.limits, definition = self.definition.settings.limits, self._seen_by(reader)
            container, head, request = definition.container, table.head(), self.due
            relation = compared_relation(container, head, reader)
            state = checked_state(container, table, head, reader, relation, request, proving=before)
            why = to_be_proved(container, head, state, reader, relation) if head is not None and state is not None else None
            if why is None or state is None:
                return TakenOver()
            if container.is_captured or not state.loaded:
                lacks = "it follows a log that another server does not have" if container.is_captured else without_watermark(state)
                raise RebuildNeeded(f"{container.label}: {why}, and {lacks}: {load_anew(container)}")
            plan = undecided(container, request, head, state, newest_watermark(instance, container), ())
            if not is_compared_here(table, plan.in_lake, all_rows(container)):
                spark()  # before the snapshot, so that none is held while a server starts
            with reader.snapshot():
                rows, now = _rows_now(definition, reader, plan)
                compare = functools.partial(compare_as_one, rows, spark, table, now, reader)
                return taken_over(plan, reader, why, relation.changes, compare, _other_columns(plan, table, rows))

    def companion_tables(self, lake: str) -> Sequence[LakeTable]:
        return []

    # ------------------------------------------------------------------
    def _made(
        self,
        instance: dg.DagsterInstance,
        container: Container,
        reader: SourceDatabase,
        table: LakeTable,
        partitions: Partitions | None,
        request: Request,
        event: int | None,
        counts: SlotCounts | None = None,
        proved: Relation | None = None,
    ) -> TablePlan:
        if not container.is_captured:
            reported = None if container.partitioned_on is None else reported_version(instance, container)
            return make_plan(container, reader, table, partitions, request, event, reported, proved)
        settings, counts = self.definition.settings, counts or SlotCounts()
        log, most = reader.change_log(settings.slot), settings.capture_warning_bytes
        return make_capture_plan(container, reader, log, table, partitions, request, event, counts, most)

    def _captured_tables(self, lake: str, reader: SourceDatabase) -> Sequence[LakeTable]:
        """The tables in the lake of all containers whose changes the datastore's slot keeps."""
        settings = self.definition.settings
        names = self._dialect.captured_names(reader, settings)
        return [LakeTable(lake, encode_name(settings.name), encode_name(name)) for name in names if settings.may_capture(name)]

    def _seen_by(self, reader: SourceDatabase) -> TableDefinition:
        """The definition as it has to be for the role of this connection.

        If the role may not see the activity of other sessions, the container needs a safety lag where it would have none otherwise
        (``core.lag.where_sessions_are_hidden``). The definition is then resolved with ``shows_activity=False``, and the reader gets the
        container that results.
        """
        if reader.server.shows_activity:
            return self.definition
        definition = replace(self.definition, shows_activity=False)
        reader.container = definition.container
        return definition

    @property
    def _source_key(self) -> dg.AssetKey:
        container = self.definition.container
        return dg.AssetKey([container.key_path[0], encode_name(container.schema), container.key_path[1]])

    @property
    def _dialect(self) -> Dialect:
        return self.definition.settings.dialect

    def _reader(self) -> AbstractContextManager[SourceDatabase]:
        return self._dialect.source(self.definition.settings, self.definition.container)

    def _listed_again(self, instance: dg.DagsterInstance, reader: SourceDatabase, partitions: IntegerPartitions) -> IntegerPartitions:
        """Adds the integer partitions of the whole table to Dagster again, and returns them.

        Dagster stores the keys of dynamic partitions in DAGSTER_HOME. If that was lost, they are derived from the rows of the source.
        """
        container = self.definition.container
        assert container.axis is not None and container.partitioning is not None
        with along_axis(reader):
            keys = integer_keys(reader, partitions.width, container.partitioning.batch, None, (container.axis.domain,))
        add_keys(instance, partitions_definition(self.definition), keys)
        return partitions.with_keys(keys)

    def _description(self) -> str:
        container = self.definition.container
        what = f"{container.kind.value.capitalize()} `{container.schema}.{container.name}`, kept in step by {container.strategy.value}"
        by = f" on `{'`, `'.join(container.identifier.columns)}`" if container.identifier else ": the whole container each time"
        if container.partitioned_on is not None:
            by += f", partitioned by `{container.partitioned_on.columns[0]}`"
        if container.is_captured:
            by = ", by the log of its source"
        if container.row_security is RowSecurity.ACCEPT:
            by += ", without the rows that row security hides"
        return f"{container.comment}\n\n{what}{by}." if container.comment else f"{what}{by}."


def _is_of_another_column(found: SourceTable, container: Container) -> bool:
    """Whether the catalog has measured another column than the one by which the container is partitioned now."""
    return found.spanned != (container.partitioned_on.columns if container.partitioned_on is not None else ())


def _came_from(column: Column, in_source: Mapping[str, SourceColumn], container: Container) -> str:
    """What a column of the lake is in the source; the marks of deleted rows (``deletes: soft``) are nothing there."""
    if column.name in in_source:
        known = in_source[column.name]
        return f"{known.comment} ({known.type} in the source)" if known.comment else f"{known.type} in the source"
    of = next((name for name in container.canonical if canonical_name(name) == column.name), None)
    return "when it was found that the source no longer has the row" if of is None else f"the same for all spellings of a value of {of}"


def _other_columns(plan: TablePlan, table: LakeTable, rows: SourceSnapshot) -> str | None:
    """``other_columns`` of the table in the lake and the snapshot."""
    head = table.head()
    return None if head is None or plan.state is None else other_columns(plan.state, head.columns, rows.columns)


def _rows_now(definition: TableDefinition, reader: SourceDatabase, plan: TablePlan) -> tuple[SourceSnapshot, Container]:
    """The rows of the snapshot that is held, and the container as they have it: with the columns that the source has now.

    Raises SourceError if the source no longer has the container.
    """
    found = reader.table()
    if found is None:
        raise gone_from_source(plan.container)
    if shape_digest(found) != shape_digest(definition.table):
        plan = replace(plan, container=definition.with_columns_of(found))
    return reader.snapshot_rows(plan.in_lake, plan.state.text_columns if plan.state is not None else ()), plan.in_lake


def _confirmed(plan: TablePlan, found: Comparison, asked: AuditRequest, partitions: Partitions | None) -> TableState | None:
    """The state to store after an audit of a sync that had nothing to do: older rows that it has found equal need no refresh."""
    state = plan.confirmed or plan.state
    if state is None:
        return None
    confirmed = confirmed_by(found, asked, state, partitions, plan.changes)
    return confirmed if confirmed != state else plan.confirmed
