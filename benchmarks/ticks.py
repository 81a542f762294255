"""What a schedule's tick over unchanged containers costs: `python -m benchmarks.ticks [--containers 1000]`, without Spark.

Belongs here: the tick of a whole datastore, as the server of the code location evaluates it after it has loaded the project. Does not
belong: loading the project (`python -m benchmarks.loading`), or runs that a tick starts (`python -m benchmarks.containers`).

The Delta tables are empty ones that are made here, with the state that a sync would have left: what a plan reads of them is the same.
"""

import argparse
import os
import resource
import statistics
import tempfile
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import dagster as dg
import psycopg
import pyarrow as pa
from deltalake import DeltaTable

from benchmarks.figures import Figure, report
from benchmarks.measure import Project
from incremental_assets.core.cursor_type import json_value
from incremental_assets.dagster.components.postgres import PostgresDatastore
from incremental_assets.dagster.schedules import datastore_schedule
from incremental_assets.databases.definition import TableDefinition, definitions_of
from incremental_assets.databases.postgres.source import PostgresSource
from incremental_assets.databases.stored_state import fresh_state
from incremental_assets.delta.result import NEW, SIGNATURE
from incremental_assets.delta.table import CONTAINER_PROPERTY, STATE_PROPERTY, LakeTable
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.project.folders import enter_project, lake_root
from incremental_assets.runs.ordinary_run import command_line_instance
from incremental_assets.runs.partitions import container_key

ROWS = 1000
"""How many rows each table has in the source."""
TARGETS = {1_000: 10.0}
"""The seconds that a tick over so many containers may take."""


def make_tables(source: psycopg.Connection, containers: int) -> None:
    """Makes tables of 12 columns; the newest row of each is a day old."""
    fields = ", ".join(f"field_{n:02d} text" for n in range(10))
    for n in range(containers):
        source.execute(f"create table t{n:05d} (id int primary key, at timestamptz not null, {fields})".encode())
        rows = f"select i, now() - interval '1 day' - i * interval '1 second' from generate_series(1, {ROWS}) i"
        source.execute(f"insert into t{n:05d} (id, at) {rows}".encode())
        source.execute(f"create index on t{n:05d} (at)".encode())


def leave_synced(definition: TableDefinition, instance: dg.DagsterInstance) -> None:
    """Makes the container's Delta table and its event as a sync leaves them, from what its source has now."""
    container, settings = definition.container, definition.settings
    with PostgresSource(settings.address, container, timezone=container.timezone, margin_seconds=1.0) as reader:
        highest = reader.highest().value
        state = replace(
            fresh_state(container, reader.server.source),
            watermark=highest,
            fingerprint=reader.fingerprint((container.lag_window.window(highest),), container.has_null_identifiers),
            data_version=0,
            loaded=True,
            relation=reader.relation().id,
        )
    table = LakeTable(lake_root(), *container.key_path)
    properties = {CONTAINER_PROPERTY: container.label, STATE_PROPERTY: state.to_json(container.cursor_type)}
    made = DeltaTable.create(table.address, pa.schema([("id", pa.int32())]))
    made.alter.set_table_properties(properties, raise_if_not_exists=False)
    assert container.cursor_type is not None
    metadata = {NEW: json_value(container.cursor_type, highest), SIGNATURE: container.signature}
    instance.report_runless_asset_event(dg.AssetMaterialization(container_key(container), metadata=metadata))


def measure(folder: Path, url: str, containers: int, rounds: int) -> None:
    """Prints the seconds of ticks: wall, and of the processor in this process."""
    project = Project(folder / "project", url)
    os.environ.update(project.environment)
    enter_project(project.folder)
    with psycopg.connect(url, autocommit=True) as source:
        make_tables(source, containers)
    named = [f"public.t{n:05d}:at:timestamp!upsert" for n in range(containers)]
    component = PostgresDatastore(name="many", url=url, incremental=named)
    settings = component.settings()
    definitions = definitions_of(settings, component.take_catalog(None).catalog)
    schedule = datastore_schedule(settings, definitions, "*/10 * * * *")
    with command_line_instance() as instance:
        for definition in definitions:
            leave_synced(definition, instance)
        wall, processor = [], []
        for _ in range(rounds):
            context = dg.build_schedule_context(instance=instance, scheduled_execution_time=datetime.now(timezone.utc))
            spent, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
            found = schedule.evaluate_tick(context)
            wall.append(time.monotonic() - began)
            now = resource.getrusage(resource.RUSAGE_SELF)
            processor.append(now.ru_utime + now.ru_stime - spent.ru_utime - spent.ru_stime)
            skipped = (found.skip_message or "").count("nothing to do")
            if found.run_requests or skipped != containers:
                raise RuntimeError(f"{len(found.run_requests or ())} runs were requested, and {skipped} containers skipped")
    middle = statistics.median(wall)
    each = middle / containers * 1000
    report(
        f"{containers:,} unchanged containers: {middle:.1f} s ({min(wall):.1f} to {max(wall):.1f}), {each:.1f} ms each, "
        f"{statistics.median(processor):.1f} s of this process's processor",
        Figure(f"a tick over {containers:,} unchanged containers", middle, target=TARGETS.get(containers)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ticks", description=__doc__)
    parser.add_argument("--containers", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as work, EmbeddedPostgres(Path(work) / "postgres") as server:
        measure(Path(work), server.create_database("bench", drop=True), asked.containers, asked.rounds)


if __name__ == "__main__":
    main()
