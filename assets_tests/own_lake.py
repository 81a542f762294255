"""A lake for users' own assets: Dagster, Spark and Delta as in a project, without any datastore.

Belongs here: what the tests of own assets share. Does not belong: projects with containers (``harness``).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from incremental_assets.dagster.io_manager import DeltaIOManager, delta_io_manager
from incremental_assets.dagster.resources import lake_resource, spark_resource
from incremental_assets.delta.scope import TableLock
from incremental_assets.runs.locks import table_lock
from incremental_assets.runs.partitions import RANGE_END, RANGE_START

Rows = list[tuple[Any, ...]]


class OwnLake:
    """``path``: the folder of the lake and of DAGSTER_HOME. ``held``: the lock that keeps two runs from writing one table."""

    def __init__(self, path: Path, spark_home: Path, held: TableLock | None = table_lock) -> None:
        self.lake, self.home, self._spark_home, self._held = path / "lake", path / "home", spark_home, held
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n")

    def resources(self, manager: type[DeltaIOManager] | None = None) -> Mapping[str, Any]:
        lake = lake_resource(lambda: str(self.lake), lambda: self._spark_home, self._held)
        delta = dg.IOManagerDefinition(lambda _: manager(), required_resource_keys={"lake"}) if manager else delta_io_manager
        return {"lake": lake, "delta": delta, "spark": spark_resource}

    def instance(self) -> dg.DagsterInstance:
        os.environ["DAGSTER_HOME"] = str(self.home)
        return dg.DagsterInstance.get()

    def run(
        self, *assets: dg.AssetsDefinition, key: str | None = None, keys: tuple[str, str] | None = None, manager: Any = None
    ) -> dg.ExecuteInProcessResult:
        """Materializes the assets: all of them, the partition ``key``, or the range ``keys``. An error of a step is raised."""
        tags = {RANGE_START: keys[0], RANGE_END: keys[1]} if keys else {}
        with self.instance() as instance:
            return dg.materialize(assets, instance=instance, resources=dict(self.resources(manager)), partition_key=key, tags=tags)

    def table(self, *key: str) -> DeltaTable:
        return DeltaTable(str(self.lake.joinpath(*key)))

    def rows(self, name: str, columns: str = "*") -> Rows:
        """The rows of the asset's table in their order, read by another reader than Spark."""
        found = pa.table(QueryBuilder().register("t", self.table(name)).execute(f"select {columns} from t").read_all())
        return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)

    def state(self, name: str) -> tuple[int, Sequence[str]]:
        """The table's version and the names of its columns: what a refused write must leave as it is."""
        table = self.table(name)
        return table.version(), [field.name for field in table.schema().fields]


def own(name: str, rows: Callable[[dg.AssetExecutionContext], str], metadata: Mapping[str, Any], **more: Any) -> Any:
    """An asset whose rows are those of a query. ``rows`` returns its text in Spark SQL."""

    @dg.asset(name=name, io_manager_key="delta", required_resource_keys={"lake"}, metadata=dict(metadata), **more)
    def made(context: dg.AssetExecutionContext) -> Any:
        return context.resources.lake.assets_spark.sql(rows(context))

    return made


def values(columns: str, *rows: str) -> str:
    """A query of these rows: ``values("id, day", "1, date'2026-01-01'")``."""
    return f"select * from values {', '.join(f'({row})' for row in rows)} as t({columns})"
