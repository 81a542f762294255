"""One sync of a container of files: from its plan to the one commit of all its files, and what is remembered of each.

Belongs here: the order of steps. Does not belong: Dagster's contexts (``assets``), reading a file (``sources.files``), writing (``lake``).

The rows are committed first, then the table's state, then what was rejected, then the manifest. Wherever that breaks off, the files count
as not read, and are read and replaced again.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg

from incremental_assets.catalog.folder import FileDefinition, now_micros
from incremental_assets.lake.errors import lake_errors
from incremental_assets.lake.extraction import Extraction, Extractions, Outcome
from incremental_assets.lake.manifest import EVERY_FILE, FileRecord, Manifest
from incremental_assets.lake.rejected import rejected_table, replace_rejected
from incremental_assets.lake.scope import LakeScope
from incremental_assets.lake.table import LakeTable
from incremental_assets.model.axis import Axis, format_value
from incremental_assets.model.files import FILE, MODIFIED
from incremental_assets.model.schema import Column
from incremental_assets.model.watermark import TableState
from incremental_assets.orchestration.files.planning import FilesPlan
from incremental_assets.orchestration.result import Result
from incremental_assets.sources.files.read import FileCount, FileRows, Reading

SHOWN_FILES = 20


class FileSync:
    """Carries out one plan. Used once; ``result`` is complete when its extraction has been committed."""

    def __init__(
        self,
        definition: FileDefinition,
        plan: FilesPlan,
        table: LakeTable,
        manifest: Manifest,
        scope: LakeScope,
        run_id: str,
        log: Callable[[str], None],
        forget: Callable[[Sequence[str]], None],
    ) -> None:
        self._definition, self._plan, self._table, self._manifest = definition, plan, table, manifest
        self._scope, self._run_id, self._log, self._forget = scope, run_id, log, forget
        self._started = time.monotonic()
        self._rows: FileRows | None = None
        self._columns: tuple[Column, ...] = ()
        self._drop: tuple[str, ...] = ()
        self._orphaned: Mapping[str, int] = {}
        self.result = Result(plan, plan.watermark, plan.watermark, warnings=list(plan.warnings))

    def extractions(self, before_outside: Callable[[str], None]) -> Extractions | None:
        """Reads the files. None where none of them could be read, and none is to be dropped."""
        plan = self._plan
        head = self._table.head()
        before = plan.state.data_version if plan.state is not None else None
        self._manifest.keep_only(plan.remembered)
        self._orphaned = self._orphans() if plan.recheck else {}
        self._drop = (*plan.drop, *(self._orphaned if plan.prunes else ()))
        in_lake = () if head is None or plan.whole else tuple(c for c in head.columns if c.name not in (FILE.name, MODIFIED.name))
        if plan.files:
            self._rows = self._read(in_lake)
        self._columns = self._rows.columns if self._rows is not None else in_lake
        self._note()
        if not self._counts and not self._drop:
            table_id, version = (head.table_id, head.version) if head is not None else ("", -1)
            kept = -1 if before is None else before
            records = [*(self._refused(key, table_id, kept) for key in self._refusals), *self._of_orphans(table_id, kept)]
            if plan.recheck:
                records.append(self._blank(EVERY_FILE, table_id, version))
            self._manifest.add(records)
            self.result.seconds = time.monotonic() - self._started
            return None
        return Extractions(
            container=plan.container,
            partitions=None,
            steps=self._steps(),
            done=self._done,
            metadata=self._metadata,
            before_outside=before_outside,
            rows_of=self._rows_of,
            of_partition=self._of_partition,
        )

    def finish(self) -> None:
        if self._drop:
            self._forget(self._drop)

    # ------------------------------------------------------------------ files that nobody remembers
    def _orphans(self) -> Mapping[str, int]:
        """Rows of each file that the table holds, the manifest does not know, and nobody is about to read: their sync broke off."""
        expected = {*self._plan.known, *(file.key for file in self._plan.files)}
        query = f"SELECT {FILE.name}, count(*) FROM {self._table.sql_name} GROUP BY 1"
        with lake_errors(self._plan.container.label, self._table.url):
            return {str(key): int(rows) for key, rows in self._scope.spark.sql(query).collect() if key not in expected}

    def _of_orphans(self, table_id: str, version: int) -> list[FileRecord]:
        return [replace(self._blank(key, table_id, version), rows=rows) for key, rows in self._orphaned.items() if key not in self._drop]

    def _blank(self, key: str, table_id: str, version: int) -> FileRecord:
        return FileRecord(key, 0, 0, None, 0, 0, None, False, table_id, version, now_micros(), self._run_id)

    # ------------------------------------------------------------------ reading
    def _read(self, known: tuple[Column, ...]) -> FileRows:
        definition = self._definition
        options = definition.options
        reading = Reading(definition.format, options.read, options.types)
        staging = Path(self._scope.stack.enter_context(tempfile.TemporaryDirectory(prefix="incremental-assets-")))
        rows = FileRows(self._scope.spark, definition.settings.address, reading, self._plan.files, known, staging, self._log)
        self._scope.stack.callback(rows.close)
        return rows

    @property
    def _counts(self) -> Mapping[str, FileCount]:
        return self._rows.counts if self._rows is not None else {}

    @property
    def _refusals(self) -> Mapping[str, str]:
        return self._rows.refused if self._rows is not None else {}

    def _note(self) -> None:
        result, choice = self.result, self._plan.choice
        rejected = sum(count.rejected for count in self._counts.values())
        result.more = {
            "sync/files_read": len(self._counts),
            "sync/files_refused": len(self._refusals),
            "sync/files_waiting": len(choice.waiting),
            "sync/files_left": choice.left,
            "sync/files_gone": len(choice.removed),
            "sync/rows_rejected": rejected,
        }
        result.messages.append(self._plan.reason)
        if self._refusals:
            shown = list(self._refusals.values())[:3]
            more = f" … and {len(self._refusals) - 3:,} more" if len(self._refusals) > 3 else ""
            result.warnings.append(f"{len(self._refusals):,} files could not be read: {'; '.join(shown)}{more}")
            result.more["files/refused"] = dg.JsonMetadataValue(dict(list(self._refusals.items())[:SHOWN_FILES]))
        if rejected:
            files = {key: count.rejected for key, count in self._counts.items() if count.rejected}
            table = rejected_table(self._scope.lake, self._plan.container.key_path)
            result.warnings.append(
                f"{rejected:,} rows of {len(files):,} files do not fit the columns; they are kept, with the reasons, in {table.url}"
            )
            result.more["files/rejected"] = dg.JsonMetadataValue(dict(list(files.items())[:SHOWN_FILES]))

    # ------------------------------------------------------------------ the commit
    def _steps(self) -> Iterator[AbstractContextManager[Extraction]]:
        plan = self._plan
        columns = (FILE, MODIFIED, *self._columns)
        newest = max((file.modified for file in plan.files if file.key in self._counts), default=None)
        watermark = max((value for value in (plan.watermark, newest) if value is not None), default=None)
        self.result.new = watermark
        empty = ", ".join(f"cast(NULL AS {c.type}) AS `{c.name.replace('`', '``')}`" for c in columns)
        rows = self._rows
        yield nullcontext(
            Extraction(
                container=plan.container,
                windows=(),
                include_nulls=False,
                whole=plan.whole,
                columns=columns,
                base_version=plan.base_version,
                state=TableState(plan.container.signature, plan.container.strategy.value, (), "files", watermark, loaded=True),
                expected=sum(count.rows for count in self._counts.values()),
                allow_empty=True,  # a file that is empty now was emptied; that all are gone, the plan has looked at
                story=self._story(watermark),
                frame=lambda spark: rows.good() if rows is not None else spark.sql(f"SELECT {empty} WHERE false"),
                still_there=lambda: None,  # a file that changed meanwhile has another stamp than the one remembered, and is read again
                files=(*self._counts, *self._drop),
            )
        )

    def _story(self, watermark: int | None) -> dict[str, Any]:
        """What the Delta commit tells of itself."""
        plan = self._plan

        def shown(value: int | None) -> str | None:
            return None if value is None else format_value(Axis.INSTANT, value)

        return {
            "container": plan.container.label,
            "mode": plan.request.mode.value,
            "action": plan.action.value,
            "range": plan.asked,
            "watermark": {"previous": shown(plan.watermark), "new": shown(watermark)},
            "run_id": self._run_id,
        }

    def _done(self, extraction: Extraction, outcome: Outcome) -> None:
        self.result.add(outcome)
        head = self._table.head()
        assert head is not None
        self._replace_rejected(extraction.files or ())
        read = [self._record(key, count, head.table_id, outcome.data_version) for key, count in self._counts.items()]
        refused = [self._refused(key, head.table_id, outcome.data_version) for key in self._refusals]
        dropped = [replace(self._blank(key, head.table_id, outcome.data_version), dropped=True) for key in self._drop]
        kept = self._of_orphans(head.table_id, outcome.data_version)
        self._manifest.add([*read, *refused, *dropped, *kept])
        for column in outcome.evolution.add:
            self.result.messages.append(f"column {column.name} ({column.type}) was added; rows of files read before are NULL there")
        for old, new in outcome.evolution.widen:
            self.result.messages.append(f"column {new.name} was widened from {old.type} to {new.type}")
        self.result.seconds = time.monotonic() - self._started

    def _replace_rejected(self, keys: Sequence[str]) -> None:
        now = any(count.rejected for count in self._counts.values())
        before = self._plan.recheck or any(self._plan.known[key].rejected for key in keys if key in self._plan.known)
        table = rejected_table(self._scope.lake, self._plan.container.key_path)
        if not now and (table.head() is None if self._plan.whole else not before):
            return
        frame = self._rows.bad() if self._rows is not None else self._scope.spark.read.format("delta").load(table.url).where("false")
        replace_rejected(self._plan.container.label, table, frame, None if self._plan.whole else keys)

    # ------------------------------------------------------------------ what is remembered and told of each file
    def _record(self, key: str, count: FileCount, table_id: str, version: int) -> FileRecord:
        stamp = self._plan.listed.stamps[key]
        return FileRecord(key, stamp.modified, stamp.size, stamp.etag, count.rows, count.rejected, None, False, table_id, version,
                          now_micros(), self._run_id)  # fmt: skip

    def _refused(self, key: str, table_id: str, version: int) -> FileRecord:
        before = self._plan.known.get(key)
        kept = FileCount(before.rows, before.rejected) if before is not None and not self._plan.whole else FileCount(0, 0)
        return replace(self._record(key, kept, table_id, version), refused=self._refusals[key])

    def _metadata(self, keys: list[str]) -> dict[str, Any]:
        from incremental_assets.orchestration.result import result_metadata

        columns = [dg.TableColumn(column.name, column.type) for column in (FILE, MODIFIED, *self._columns)]
        return {**result_metadata(self.result, self._table.url, keys), "dagster/column_schema": dg.TableSchema(columns)}

    def _rows_of(self, keys: Sequence[str]) -> Mapping[str, int]:
        known = {key: self._plan.known[key].rows for key in keys if key in self._plan.known}
        return {key: known.get(key, 0) for key in keys} | {key: count.rows for key, count in self._counts.items()}

    def _of_partition(self, key: str) -> Mapping[str, Any]:
        stamp, count = self._plan.listed.stamps.get(key), self._counts.get(key)
        values: dict[str, Any] = {"file/path": self._plan.listed.paths.get(key, key).encode("utf-8", "replace").decode()}
        if stamp is not None:
            values |= {"file/modified": format_value(Axis.INSTANT, stamp.modified), "file/size": dg.MetadataValue.int(stamp.size)}
        if count is not None and count.rejected:
            values["file/rows_rejected"] = count.rejected
        if key in self._refusals:
            values["file/refused"] = self._refusals[key]
        return values
