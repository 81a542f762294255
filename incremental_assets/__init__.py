"""incremental-assets: Delta tables that follow source databases and folders of files, as partitioned Dagster assets.

The watermark of a table is never ahead of the rows that the table has.

Belongs here: the public names. They are imported only when they are asked for, so that the command line starts quickly. Does not belong:
the code behind the names.
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from incremental_assets.catalog.definition import ContainerDefinition
    from incremental_assets.dagster.components.alerts import Alerts
    from incremental_assets.dagster.components.files import FileDatastore
    from incremental_assets.dagster.components.jdbc import JdbcDatastore
    from incremental_assets.dagster.components.mysql import MySQLDatastore
    from incremental_assets.dagster.components.postgres import PostgresDatastore
    from incremental_assets.dagster.components.sqlserver import SQLServerDatastore
    from incremental_assets.dagster.definitions import build_definitions
    from incremental_assets.dagster.io_manager import DeltaIOManager, delta_io_manager

# gRPC registers a fork handler that waits for gRPC's own threads, and sometimes never returns. Switching it off is safe here, because no
# process of this package forks and then goes on using a gRPC channel. The variable has to be set before grpc is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

__all__ = [
    "Alerts",
    "ContainerDefinition",
    "DeltaIOManager",
    "FileDatastore",
    "JdbcDatastore",
    "MySQLDatastore",
    "PostgresDatastore",
    "SQLServerDatastore",
    "build_definitions",
    "delta_io_manager",
]

_MODULES = {
    "Alerts": "incremental_assets.dagster.components.alerts",
    "ContainerDefinition": "incremental_assets.catalog.definition",
    "DeltaIOManager": "incremental_assets.dagster.io_manager",
    "FileDatastore": "incremental_assets.dagster.components.files",
    "JdbcDatastore": "incremental_assets.dagster.components.jdbc",
    "MySQLDatastore": "incremental_assets.dagster.components.mysql",
    "PostgresDatastore": "incremental_assets.dagster.components.postgres",
    "SQLServerDatastore": "incremental_assets.dagster.components.sqlserver",
    "build_definitions": "incremental_assets.dagster.definitions",
    "delta_io_manager": "incremental_assets.dagster.io_manager",
}
"""The module that defines each public name."""


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use (PEP 562). Raises AttributeError for any other name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    from incremental_assets.core.collector import collector_paused

    # Importing them makes very many objects that all stay, in each process that Dagster starts for a run, too.
    with collector_paused():
        return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
