"""Keeps what one run uses in the lake: its address, its Spark sessions, and the locks and connections to release at the end.

The Spark session is opened when it is first needed, so a run that has nothing to do opens none.
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from incremental_assets.delta.lease import Lease
from incremental_assets.delta.progress import RunProgress
from incremental_assets.delta.run_operations import RunOperations
from incremental_assets.delta.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession


APART = "apart"
"""The folder with the servers that runs have of their own."""
TableLock = Callable[[tuple[str, ...], str, str, Any, Callable[[str], None]], contextlib.AbstractContextManager[None]]
"""A function that locks a table of a user's own asset. Its arguments are the table's path in the lake, its label in messages, the id of the
run that wants the lock, the Dagster instance that knows the other runs, and the function that logs waiting."""


def _unheld(*_: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


class LakeScope:
    """The scope of one run in the lake.

    ``stack``: the resources to release, such as the lock, the snapshot and the session; it is closed when the run has ended, after its
    last event. ``assets_stack``: the session of the user's own assets; it is closed then, too. ``held``: locks the table of a user's own
    asset against other writers. ``lease``: the lease on the container that this run writes; None if it has none.
    ``operations``: what the run records of its operations when it ends. ``progress``: gets to know how far the run is; None: it is logged.
    """

    def __init__(
        self,
        lake: str,
        state_dir: Path,
        name: str,
        log: Callable[[str], None],
        held: "TableLock | None" = None,
        progress: RunProgress | None = None,
    ) -> None:
        self.lake = lake
        self.stack = contextlib.ExitStack()
        self.assets_stack = contextlib.ExitStack()
        self.held = held or _unheld
        self.lease: Lease | None = None
        self.operations = RunOperations()
        self._state_dir = self._shared_dir = state_dir
        self._name = name
        self.progress = progress or RunProgress(log, log)
        self._spark: SparkSession | None = None
        self._assets_spark: SparkSession | None = None

    def table(self, *parts: str) -> LakeTable:
        """The table at this path in the lake."""
        return LakeTable(self.lake, *parts)

    @property
    def spark(self) -> "SparkSession":
        """The session of the container that the run writes, opened at the first use. No other code uses it: its settings may be changed."""
        if self._spark is None:
            self._spark = self._session(self.stack, self._state_dir)
        return self._spark

    def start_spark(self) -> None:
        """Opens the session where that means to start a server, which takes seconds. On a running one it is opened when it is needed."""
        from incremental_assets.spark.session import is_running

        if not is_running(self._state_dir):
            self._spark = self.spark

    @property
    def assets_spark(self) -> "SparkSession":
        """The session of the user's own assets: of the frames that they load, and of the resource ``spark``.

        It is one session, as Spark refuses to join frames of two. No container is written in it: a sync and a user's asset each change the
        settings of their session as they need them.
        """
        if self._assets_spark is None:
            self._assets_spark = self._session(self.assets_stack, self._shared_dir)
        return self._assets_spark

    def _session(self, stack: contextlib.ExitStack, state_dir: Path) -> "SparkSession":
        """Opens a session, which is closed with the stack."""
        from incremental_assets.spark.session import is_running, open_session

        with contextlib.nullcontext() if is_running(state_dir) else self.progress.starts_spark():
            return stack.enter_context(open_session(state_dir, name=self._name, on_progress=self.progress.tasks))

    def close_assets_spark(self) -> None:
        """Closes that session. The next use opens another one."""
        self._assets_spark = None
        self.assets_stack.close()

    def begin(self) -> None:
        """Releases what an earlier attempt of this run still holds: its lock, its snapshot, its session. Dagster may retry a step."""
        self.stack.close()
        self._spark = self.lease = None
        self._state_dir = self._shared_dir

    def open_apart(self) -> bool:
        """Lets this run use an embedded Spark server of its own from now on, so that other runs are not harmed if the server dies.

        If the run already has a server of its own, that one has ended, and the next session starts a new one. Returns False if SPARK_REMOTE
        names the server to use; no other one can be started then.
        """
        self._spark = None  # the stack closes the old session
        if os.environ.get("SPARK_REMOTE"):
            return False
        if self._state_dir == self._shared_dir:
            self._state_dir = self._shared_dir / APART / uuid.uuid4().hex
            self.stack.callback(_end_server, self._state_dir)
        else:
            from incremental_assets.spark.embedded.server import wait_until_gone

            wait_until_gone(self._state_dir, seconds=10)
        return True

    def server_id(self) -> str | None:
        """The id of the Spark server of this run's session, which is opened; None if the server does not tell it."""
        from incremental_assets.spark.session import server_id

        return server_id(self.spark)

    def running_servers(self) -> Set[str]:
        """The ids of the Spark servers that are running now: that of SPARK_REMOTE, or those on this machine. None is started."""
        from incremental_assets.spark.session import running_servers

        return running_servers(self._shared_dir, self._shared_dir / APART)

    def is_server_gone(self) -> bool:
        """Whether a session was opened and can no longer be used."""
        if self._spark is None:
            return False
        import grpc
        from pyspark.errors import PySparkException

        try:
            self._spark.range(1).collect()
        except (PySparkException, grpc.RpcError):
            return True
        return False

    def expect_lease(self) -> None:
        """Raises ConcurrentWriteError if another host may have taken the lease over. It must be called right before each write."""
        if self.lease is not None:
            self.lease.expect_held()

    def interrupt(self) -> None:
        """Cancels the queries of this run's sessions that are running on the Spark server."""
        for session in (self._spark, self._assets_spark):
            if session is not None:
                from pyspark.errors import PySparkException

                with contextlib.suppress(PySparkException):  # if the server is gone, its queries are gone, too
                    session.interruptAll()


def _end_server(state_dir: Path) -> None:
    from incremental_assets.spark.session import stop_server

    stop_server(state_dir)
    shutil.rmtree(state_dir, ignore_errors=True)
    with contextlib.suppress(OSError):  # the folder is not empty: another run has a server of its own, too
        state_dir.parent.rmdir()
