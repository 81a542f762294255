"""``incremental-assets adopt``: lets tables go on whose source was moved or made anew, or whose datastore was renamed.

The owner is set last: until then each sync of the new name refuses the table, and a command that was killed is simply run again.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from obstore.exceptions import BaseError

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.container import Container
from incremental_assets.core.cursor_type import json_value
from incremental_assets.core.errors import ConfigurationError, LakeError, SyncError
from incremental_assets.core.names import encode_name
from incremental_assets.core.shown_text import counted
from incremental_assets.core.watermark import TableState
from incremental_assets.core.window import EVERYTHING
from incremental_assets.delta.counts import partition_rows, row_count
from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.operation_tables import Rows
from incremental_assets.delta.properties import set_property
from incremental_assets.delta.result import NEW, SIGNATURE, VERSION
from incremental_assets.delta.store import has_objects
from incremental_assets.delta.table import CONTAINER_PROPERTY, STATE_PROPERTY, Head, LakeTable
from incremental_assets.files.manifest import Manifest
from incremental_assets.project.folders import dagster_home, lake_root
from incremental_assets.quality.records import Records
from incremental_assets.runs.adapters.choose import adapter_of
from incremental_assets.runs.locks import container_lock
from incremental_assets.runs.partitions import add_keys, container_key, container_partitions, is_by_file, partitions_definition
from incremental_assets.runs.records.metadata import as_metadata
from incremental_assets.runs.records.operation_log import record
from incremental_assets.runs.records.operation_rows import watermark_of
from incremental_assets.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_RUN = "adopt"
"""What the locks name instead of a run: the command has none."""


def adopt_lines(
    before: str | None, definitions: Sequence[ContainerDefinition], instance: dg.DagsterInstance, log: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Takes tables over one after another, and yields the record of each container. ``before``: the name that their datastore had until
    now; None: they go on under the name that they have.

    The fields are ``container``, ``status`` (``adopted``, ``there``, ``no table``, ``different`` or ``failed``) and ``message``.
    """
    with contextlib.ExitStack() as stack:
        spark = functools.cache(lambda: stack.enter_context(open_session(dagster_home(), name="adopt")))
        adoption = Adoption(before, instance, dagster_home(), lake_root(), spark, log)
        for definition in definitions:
            try:
                status, message = adoption.adopt(definition)
            except SyncError as error:
                status, message = "failed", str(error)
            yield {"container": definition.container.label, "status": status, "message": message}


@dataclass(frozen=True)
class Adoption:
    """What the containers of one datastore take over. ``before``: its name in the lake until now; None: it stays. ``spark`` returns a
    session, and is called only where Spark has to compare or count rows, or to set a property."""

    before: str | None
    instance: dg.DagsterInstance
    home: Path
    lake: str
    spark: Callable[[], "SparkSession"]
    log: Callable[[str], None]

    def adopt(self, definition: ContainerDefinition) -> tuple[str, str]:
        """Takes over the table of one container. Returns the status and the message of its record. Raises SyncError."""
        container = definition.container
        if self.before is None:
            with self._held(container):
                return self._goes_on(definition)
        with self._held(self._before(container)), self._held(container):
            return self._adopted(definition, self.before)

    def _held(self, container: Container) -> contextlib.AbstractContextManager[object]:
        return container_lock(self.home, container, _RUN, self.log, self.instance, lake=self.lake)

    def _before(self, container: Container) -> Container:
        return container if self.before is None else replace(container, datastore=self.before)

    def _goes_on(self, definition: ContainerDefinition) -> tuple[str, str]:
        """The table stays where it is."""
        container = definition.container
        table = LakeTable(self.lake, *container.key_path)
        if table.head() is None:
            return "no table", f"{table.url} is no table; the first sync makes it"
        taken = adapter_of(definition).take_over(self.instance, table, container, self.spark)
        if taken.differs:
            return "different", f"{container.label}: {taken.said}"
        if taken.state is None:
            return "there", "it was filled from this very source: there is nothing to do"
        self._store(container, table, taken.state)
        return "adopted", f"goes on with its table: {taken.said}"

    def _store(self, container: Container, table: LakeTable, state: TableState) -> None:
        head = table.head()
        assert head is not None
        with lake_errors(container.label, table.url):
            set_property(self.spark, table, STATE_PROPERTY, state.to_json(container.cursor_type, container.partitioned_on), head.version)

    def _adopted(self, definition: ContainerDefinition, name: str) -> tuple[str, str]:
        """The table was one of the datastore ``name``."""
        container, adapter = definition.container, adapter_of(definition)
        before, table = self._before(container).label, LakeTable(self.lake, *container.key_path)
        head, old = table.head(), self._old(container, table)
        if head is not None and head.owner != before:
            kept = f"{table.url} is its table; that of {before} stays where it is" if _is_there(old) else "it goes on with its table"
            return "there", kept
        found = head or old.head()
        if found is None or found.owner != before:
            return "no table", f"{old.url} is no table of {before}"
        why_not = adapter.reason_not_to_adopt(found)
        if why_not is not None:
            raise ConfigurationError(f"{container.label}: {why_not}; nothing was moved.")
        taken = adapter.take_over(self.instance, table if head is not None else old, self._before(container), self.spark)
        if taken.differs:
            return "different", f"{container.label}: {taken.said}"
        self._move([(self._old(container, one), one) for one in (*adapter.companion_tables(self.lake), table)], container)
        if taken.state is not None:
            self._store(container, table, taken.state)
        head = table.head()
        assert head is not None
        with lake_errors(container.label, table.url):
            rows = self._report(definition, table, head)
            Records(self.lake, container.key_path[0]).adopt(Records(self.lake, encode_name(name)), before, container.label)
            set_property(self.spark, table, CONTAINER_PROPERTY, container.label, head.version)
        said = f"; {taken.said}" if taken.said else ""
        return "adopted", f"goes on with the {counted(rows, 'row')} of {before}{said}"

    def _old(self, container: Container, table: LakeTable) -> LakeTable:
        """Where the table was until now: in the folder of the old name, under the same path."""
        within = table.url.removeprefix(LakeTable(self.lake, container.key_path[0]).url)
        return LakeTable(self.lake, self._before(container).key_path[0] + within)

    def _move(self, pairs: Sequence[tuple[LakeTable, LakeTable]], container: Container) -> None:
        """Moves folders to their new places; the table's own comes last. Raises LakeError.

        On a disk the name of a folder changes at once. An object store has no folders, so that its own tool has to copy the objects.
        """
        left = [(old, new) for old, new in pairs if _is_there(old)]
        for old, new in left:
            if _is_local(new) and _is_there(new):
                raise LakeError(f"{container.label}: {old.url} and {new.url} are both there; remove the one that is the copy.")
        if left and not _is_local(left[0][0]):
            tool = "aws s3 mv --recursive " if left[0][0].address.startswith("s3://") else ""
            commands = "; ".join(f"{tool}{old.address}/ {'' if tool else 'to '}{new.address}/" for old, new in left)
            raise LakeError(
                f"{container.label}: an object store cannot rename a folder. While no sync runs, move the objects by the store's own tool, "
                f"the table last, and run this command again: {commands}"
            )
        for old, new in left:
            Path(new.address).parent.mkdir(parents=True, exist_ok=True)
            try:
                Path(old.address).rename(new.address)
            except OSError as error:
                raise LakeError(f"{container.label}: {old.url} cannot be renamed to {new.url}: {error}") from error

    def _report(self, definition: ContainerDefinition, table: LakeTable, head: Head) -> int:
        """Logs the events that Dagster needs of the table under its new key. Returns how many rows the table has.

        The new asset has no events: without these, the UI would show all partitions as missing.
        """
        container, key = definition.container, container_key(definition.container)
        state = head.state(container) if head.signature() == container.signature else None
        partitions, rows = container_partitions(definition, self.instance), dict[str, int]()
        if partitions is not None:
            rows = partition_rows(self.spark, table, container, partitions, (EVERYTHING,), ())
        elif is_by_file(definition):
            known = Manifest(self.lake, container.key_path).remembered(head.table_id, state.data_version if state else None).files
            rows = {record.file: record.rows for record in known.values()}
        total, what = row_count(self.spark, table), f"taken over from {self._before(container).label}"
        common: dict[str, Any] = {"dagster/row_count": total, "dagster/uri": table.url, VERSION: head.version, "sync/message": what}
        if state is not None and container.cursor_type is not None:
            common |= {NEW: json_value(container.cursor_type, state.watermark), SIGNATURE: container.signature}
            written = watermark_of(container, state.watermark, head.version)
            record(self.lake, Rows(watermarks=[written] if written is not None else []))
        add_keys(self.instance, partitions_definition(definition), list(rows))
        events = [(one, {**common, "dagster/partition_row_count": count}) for one, count in rows.items()] or [(None, common)]
        for partition, metadata in events:
            self.instance.report_runless_asset_event(
                dg.AssetMaterialization(key, description=what, partition=partition, metadata=as_metadata(metadata))
            )
        return total


def _is_local(table: LakeTable) -> bool:
    return "://" not in table.address


def _is_there(table: LakeTable) -> bool:
    """Whether there is anything at the table's place. Raises LakeError if the object store cannot be listed."""
    if _is_local(table):
        place = Path(table.address)
        return place.is_dir() and any(place.iterdir())
    try:
        return has_objects(table.address)
    except BaseError as error:
        raise LakeError(f"{table.url}: it cannot be listed: {error}") from error
