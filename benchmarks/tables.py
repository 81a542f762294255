"""What loading a datastore of many tables costs: `python -m benchmarks.tables [TABLES …]`, without source and without Spark.

Belongs here: a synthetic catalog, and the time of each step in which a project converts it to Dagster's definitions. Does not belong:
asking a source for its tables.
"""

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg

from incremental_assets.catalog.state import Catalog, Known
from incremental_assets.core.container import Kind, SourceColumn, SourceTable
from incremental_assets.dagster.components.postgres import PostgresDatastore
from incremental_assets.dagster.components.tables import ContainerEntry
from incremental_assets.dagster.datastore import datastore_definitions
from incremental_assets.dagster.io_manager import delta_io_manager
from incremental_assets.databases.definition import definitions_of

COLUMNS = 20
"""How many columns each table has."""
T = TypeVar("T")


def table(number: int) -> SourceTable:
    """A table with a primary key, a time column as identifier, and further columns."""
    names = [f"field_{n:02d}" for n in range(COLUMNS - 2)]
    columns = (
        SourceColumn("id", "bigint", "bigint", not_null=True),
        SourceColumn("updated_at", "timestamp with time zone", "timestamp with time zone", not_null=True),
        *(SourceColumn(name, "text", "text") for name in names),
    )
    return SourceTable(f"table_{number:05d}", Kind.TABLE, columns, primary_key=("id",), span=60_000_000)


def datastore(tables: int, *, specified: bool) -> PostgresDatastore:
    """The component. ``specified``: the YAML names each table, with its identifier and its partitioning."""
    numbers = range(tables) if specified else range(0)
    return PostgresDatastore(
        name="many",
        url="postgresql://nobody@127.0.0.1:1/many",
        incremental=[f"public.table_{n:05d}:updated_at:timestamp!upsert" for n in numbers],
        containers={f"table_{n:05d}": ContainerEntry(partition_by="month") for n in numbers},
    )


def catalog(tables: int) -> Catalog:
    """The catalog of so many tables."""
    return Catalog(20_000, "2026-01-01T00:00:00Z", tuple(Known(table(n), "", "2026-01-01T00:00:00Z") for n in range(tables)))


def measure(tables: int, *, specified: bool) -> dict[str, Any]:
    """The processor seconds of each step, in the order in which a code location takes them, and the peak memory in MiB."""
    steps: dict[str, Any] = {"tables": tables, "specified": specified}

    def timed(name: str, step: Callable[[], T]) -> T:
        # Processor time and not wall time: the machine may be busy with other things.
        started = time.process_time()
        found = step()
        steps[name] = round(time.process_time() - started, 2)
        return found

    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "many" / "state"
        catalog(tables).save(path)
        component = datastore(tables, specified=specified)
        loaded = timed("read_state_s", lambda: Catalog.load(path))
        settings = timed("settings_s", component.settings)
        containers = timed("containers_s", lambda: definitions_of(settings, loaded))
        definitions = timed("definitions_s", lambda: datastore_definitions(settings, containers))
        resources = {"lake": dg.ResourceDefinition.none_resource(), "delta": delta_io_manager}
        whole = dg.Definitions.merge(definitions, dg.Definitions(resources=resources, executor=dg.in_process_executor))
        timed("repository_s", whole.get_repository_def)
    steps["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return steps


if __name__ == "__main__":
    for count in [int(one) for one in sys.argv[1:]] or [1_000, 10_000]:
        for specified in (False, True):
            print(json.dumps(measure(count, specified=specified)))
