"""Becomes a part of a standalone cluster of Spark: ``python -m deploy.cluster.spark_standalone master|worker …`` is replaced by its JVM.

Belongs here: the master and the workers. Does not belong: the Connect server (``spark_connect``). The options are Spark's own.

Spark's scripts need a shell and ``ps``, and find another Spark if SPARK_HOME names one. This starts the same classes out of the pyspark of
this Python. Executors inherit the environment of their worker, and with it the keys of the object store.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from incremental_assets.spark.embedded import launch

CLASSES = {"master": "org.apache.spark.deploy.master.Master", "worker": "org.apache.spark.deploy.worker.Worker"}


def become(part: str, options: Sequence[str]) -> None:
    """Replaces this process by the part. Raises SparkUnavailable if Java is missing, and KeyError for another part."""
    java, home = launch.java(), launch.spark_home()
    command = [str(java.executable), "-Xmx256m", "-cp", f"{home}/jars/*", CLASSES[part], *options]
    named = {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": launch.SCALA, "JAVA_HOME": str(java.home), "PYSPARK_PYTHON": sys.executable}
    os.execve(command[0], command, {**os.environ, **named})


if __name__ == "__main__":
    become(sys.argv[1], sys.argv[2:])
