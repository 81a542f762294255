"""A real Hive metastore on this machine: the one that pyspark contains, with its tables in Derby.

Belongs here: starting and stopping it. Does not belong: what is registered in it (``test_publish``).
"""

import socket
import subprocess
import time
from pathlib import Path

import pyspark

from incremental_assets.spark.embedded.launch import java

_SITE = """<configuration>
<property><name>javax.jdo.option.ConnectionURL</name><value>jdbc:derby:;databaseName={folder}/db;create=true</value></property>
<property><name>datanucleus.schema.autoCreateAll</name><value>true</value></property>
<property><name>hive.metastore.schema.verification</name><value>false</value></property>
<property><name>hive.metastore.warehouse.dir</name><value>{folder}/warehouse</value></property>
<property><name>hive.async.log.enabled</name><value>false</value></property>
</configuration>
"""


class HiveMetastore:
    """A server of its own in the folder, which answers when this is made."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "hive-site.xml").write_text(_SITE.format(folder=folder), encoding="utf-8")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port: int = free.getsockname()[1]
        opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "net", "nio", "util")]
        jars = f"{folder}:{Path(pyspark.__file__).parent / 'jars'}/*"
        command = [
            str(java().executable),
            *opens,
            "-Xmx512m",
            "-cp",
            jars,
            "org.apache.hadoop.hive.metastore.HiveMetaStore",
            "-p",
            str(self._port),
        ]
        self._log = folder / "metastore.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder, start_new_session=True)
        deadline = time.monotonic() + 180
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < deadline, self._log.read_text(errors="replace")[-3000:]
            time.sleep(0.2)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    @property
    def settings(self) -> str:
        """Settings of a Spark server that uses it."""
        return f"spark.sql.catalogImplementation=hive;spark.hadoop.hive.metastore.uris=thrift://127.0.0.1:{self._port}"

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)
