"""incremental-assets: Delta tables that follow source databases, as partitioned Dagster assets with watermarks that do not lie.

Belongs here: the public names, imported only when asked for, so that the command line starts quickly.
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from incremental_assets.catalog.definition import ContainerDefinition
    from incremental_assets.dagster.components.files import FileDatastore
    from incremental_assets.dagster.components.postgres import PostgresDatastore
    from incremental_assets.dagster.definitions import build_definitions
    from incremental_assets.dagster.io_manager import DeltaIOManager, delta_io_manager

# gRPC's handler of fork() waits for its own threads, at times for ever; nothing here forks and then goes on using a channel.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

__all__ = ["ContainerDefinition", "DeltaIOManager", "FileDatastore", "PostgresDatastore", "build_definitions", "delta_io_manager"]

_MODULES = {
    "ContainerDefinition": "incremental_assets.catalog.definition",
    "DeltaIOManager": "incremental_assets.dagster.io_manager",
    "FileDatastore": "incremental_assets.dagster.components.files",
    "PostgresDatastore": "incremental_assets.dagster.components.postgres",
    "build_definitions": "incremental_assets.dagster.definitions",
    "delta_io_manager": "incremental_assets.dagster.io_manager",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
