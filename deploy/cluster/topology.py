"""The services of a deployment on several machines, what each of them needs, and the settings that they share.

Belongs here: names and settings that the processes on this machine (``local``) and ``deploy/compose.yaml`` have in common; a test compares
the two. Does not belong: starting anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Service(str, Enum):
    """One service of the deployment. Its value is its name in the compose file, and the name of its log."""

    POSTGRES = "postgres"
    STORE = "store"
    SPARK_MASTER = "spark-master"
    SPARK_WORKER_1 = "spark-worker-1"
    SPARK_WORKER_2 = "spark-worker-2"
    SPARK_CONNECT = "spark-connect"
    CODE = "code"
    WEBSERVER = "webserver"
    DAEMON = "daemon"


WORKERS = (Service.SPARK_WORKER_1, Service.SPARK_WORKER_2)


@dataclass(frozen=True)
class Needs:
    """What a service needs.

    ``after``: the services that have to be ready before it is started. ``keeps``: whether it has files that must survive its end.
    """

    after: tuple[Service, ...] = ()
    keeps: bool = False


SERVICES: Mapping[Service, Needs] = {
    Service.POSTGRES: Needs(keeps=True),
    Service.STORE: Needs(keeps=True),
    Service.SPARK_MASTER: Needs(),
    Service.SPARK_WORKER_1: Needs((Service.SPARK_MASTER,)),
    Service.SPARK_WORKER_2: Needs((Service.SPARK_MASTER,)),
    Service.SPARK_CONNECT: Needs((Service.SPARK_MASTER, Service.STORE)),
    # It has DAGSTER_HOME with the locks, and the catalogs. The runs are processes beside it.
    Service.CODE: Needs((Service.POSTGRES, Service.STORE, Service.SPARK_CONNECT), keeps=True),
    Service.WEBSERVER: Needs((Service.POSTGRES, Service.CODE)),
    Service.DAEMON: Needs((Service.POSTGRES, Service.CODE)),
}
"""All services, in an order in which they can be started."""

WORKER_CORES, WORKER_MEMORY, EXECUTOR_MEMORY, DRIVER_MEMORY = 1, "2g", "1g", "1g"
"""Of each worker, of the executor on it, and of the Connect server, which is the driver."""

BUCKET = "lake"
LAKE = f"s3://{BUCKET}/tables"
REGION = "us-east-1"

HADOOP, AWS_SDK = "3.5.0", "2.35.4"
"""The version of hadoop-aws is that of the Hadoop in pyspark; its SDK is fetched in the parts that are used."""
CONNECTOR: Mapping[str, str] = {
    "spark.jars.packages": ",".join(
        [
            f"org.apache.hadoop:hadoop-aws:{HADOOP}",
            *(f"software.amazon.awssdk:{part}:{AWS_SDK}" for part in ("s3-transfer-manager", "sts")),
        ]
    ),
    "spark.jars.excludes": "software.amazon.awssdk:bundle",
}

DAEMON_COMMAND = ("dagster-daemon", "run")
WEBSERVER_COMMAND = ("dagster-webserver",)
CODE_COMMAND = ("dagster", "api", "grpc")

STORAGE_DRIVER = "postgresql+psycopg2"
"""How the URL in DAGSTER_PG_URL begins. With ``postgresql://`` alone, SQLAlchemy 2.1 takes psycopg 3, which refuses the NOTIFY with a
parameter that dagster-postgres sends: no event could be stored."""


def spark_settings(master: str) -> dict[str, str]:
    """The settings of the Connect server for INCREMENTAL_ASSETS_SPARK_CONF. ``master``: the URL ``spark://host:port``."""
    return {
        **CONNECTOR,
        "spark.master": master,
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.cores.max": str(WORKER_CORES * len(WORKERS)),
        # The store may be gone for as long as a restart takes. With Hadoop's defaults a request gives up after a few seconds.
        "spark.hadoop.fs.s3a.attempts.maximum": "10",
        "spark.hadoop.fs.s3a.retry.limit": "10",
        "spark.hadoop.fs.s3a.retry.interval": "1s",
    }


def spark_conf(master: str, **more: str) -> str:
    """The same as the text of the variable INCREMENTAL_ASSETS_SPARK_CONF. ``more``: further settings, with ``_`` in place of dots."""
    listed = spark_settings(master) | {name.replace("_", "."): value for name, value in more.items()}
    return ";".join(f"{key}={value}" for key, value in listed.items())
