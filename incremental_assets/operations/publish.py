"""``incremental-assets publish``: registers the tables of containers in a metastore, and returns one record for each."""

from collections.abc import Iterator, Sequence
from typing import Any

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.errors import SyncError
from incremental_assets.core.names import encode_name
from incremental_assets.delta.publish import PublishedName, expect_metastore, publish
from incremental_assets.delta.table import LakeTable
from incremental_assets.project.folders import dagster_home, lake_root
from incremental_assets.spark.session import open_session


def publish_lines(chosen: Sequence[ContainerDefinition], catalog: str, schema: str | None) -> Iterator[dict[str, Any]]:
    """Publishes the tables one after another, and yields the record of each. ``schema``: None: the name of the datastore.

    The fields are ``container``, ``name`` (None without a table), ``status`` (``created``, ``there``, ``no table`` or ``failed``) and
    ``message``. Raises ConfigurationError if the catalog would forget the names.
    """
    with open_session(dagster_home(), name="publish") as spark:
        expect_metastore(spark, catalog)
        for definition in chosen:
            container = definition.container
            table = LakeTable(lake_root(), *container.key_path)
            name = PublishedName.of(catalog, schema or encode_name(container.datastore).lower(), container.name)
            try:
                if table.head() is None:
                    yield _line(container.label, None, "no table", "it was never synced")
                else:
                    yield _line(container.label, str(name), publish(spark, container.label, table, name).value, "")
            except SyncError as error:
                yield _line(container.label, str(name), "failed", str(error))


def _line(container: str, name: str | None, status: str, message: str) -> dict[str, Any]:
    return {"container": container, "name": name, "status": status, "message": message}
