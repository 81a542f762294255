"""Becomes a Spark Connect server: ``python -m deploy.cluster.spark_connect FOLDER HOST PORT`` is replaced by its JVM.

Belongs here: the server of a cluster, with the same JARs and settings as the embedded one, and with an address that does not change. Does
not belong: those settings (``incremental_assets.spark.embedded.launch``), or the embedded server's life.

INCREMENTAL_ASSETS_SPARK_CONF names the master. A token is required of clients where SPARK_CONNECT_AUTHENTICATE_TOKEN is set.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from incremental_assets.spark.embedded import launch

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"


def become_server(folder: Path, host: str, port: int) -> None:
    """Replaces this process by the server. Raises SparkUnavailable if Java or a JAR is missing."""
    java = launch.java()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    properties = folder / "launch.properties"
    address = {
        "spark.connect.grpc.binding.address": host,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": host,
    }
    launch.write_properties(properties, launch.settings(folder) | address)
    command = launch.command(java, properties, launch.SERVER_CLASS, ["-Duser.timezone=UTC", "-XX:+ExitOnOutOfMemoryError"])
    token = {TOKEN: os.environ[TOKEN]} if TOKEN in os.environ else {}
    os.chdir(folder)
    os.execve(command[0], command, launch.environment(java, folder / "scratch") | token)


if __name__ == "__main__":
    become_server(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
