"""What one run holds: the lake's address, Spark sessions opened when first needed, and whatever must be given back at its end.

Belongs here: that hold, whoever runs. Does not belong: Dagster's resource of it (``dagster.resources``), or what is done with it. A run
that does nothing opens no session.
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from incremental_assets.delta.lease import Lease
from incremental_assets.delta.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession


@dataclass(frozen=True)
class Written:
    """What a run wrote of a container: partitions, and (``nulls``) the rows without identifier."""

    keys: tuple[str, ...]
    nulls: bool


TableLock = Callable[[tuple[str, ...], str, str, Any, Callable[[str], None]], contextlib.AbstractContextManager[None]]
"""Of the table at a path: with its label, the run that asks, the Dagster instance that knows the others, and where waiting is logged."""


def _unheld(*_: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


class LakeScope:
    """One run's hold on the lake. ``stack`` is what a container's sync holds, ``assets_stack`` the session of the user's own
    assets; both are closed when the run has ended, after its last event.

    ``written``: by the container's path, for who looks at it in the same run. ``held``: keeps other writers from a table that is no
    container's. ``lease``: on the container that the run writes.
    """

    def __init__(self, lake: str, state_dir: Path, name: str, log: Callable[[str], None], held: "TableLock | None" = None) -> None:
        self.lake = lake
        self.stack = contextlib.ExitStack()
        self.assets_stack = contextlib.ExitStack()
        self.held = held or _unheld
        self.written: dict[tuple[str, str], Written] = {}
        self.lease: Lease | None = None
        self._state_dir = self._shared_dir = state_dir
        self._name = name
        self._log = log
        self._spark: SparkSession | None = None
        self._assets_spark: SparkSession | None = None

    def table(self, *parts: str) -> LakeTable:
        return LakeTable(self.lake, *parts)

    @property
    def spark(self) -> "SparkSession":
        """The session of the container at hand: a new one for each that the run writes, whose settings are nobody else's."""
        if self._spark is None:
            from incremental_assets.spark.session import open_session

            self._spark = self.stack.enter_context(open_session(self._state_dir, name=self._name, on_progress=self._log))
        return self._spark

    @property
    def assets_spark(self) -> "SparkSession":
        """The session of the user's own assets, shared by what they load and what they ask the resource ``spark`` for: Spark refuses to
        join frames of two. No container is written in it, as a sync sets what suits its rows, and an asset whatever it likes."""
        if self._assets_spark is None:
            from incremental_assets.spark.session import open_session

            opened = open_session(self._shared_dir, name=self._name, on_progress=self._log)
            self._assets_spark = self.assets_stack.enter_context(opened)
        return self._assets_spark

    def close_assets_spark(self) -> None:
        """Gives it back. Who asks again gets another one."""
        self._assets_spark = None
        self.assets_stack.close()

    def begin(self) -> None:
        """Gives back what an earlier attempt of this run still holds: its lock, its snapshot, its session."""
        self.stack.close()
        self._spark = self.lease = None
        self._state_dir = self._shared_dir

    def open_apart(self) -> bool:
        """From now on, a Spark server of this run's own, so that nobody else is harmed when it ends. A new one where that has ended.

        False where SPARK_REMOTE names one, and there is no other.
        """
        self._spark = None  # the session itself is on the stack
        if os.environ.get("SPARK_REMOTE"):
            return False
        if self._state_dir == self._shared_dir:
            self._state_dir = self._shared_dir / "apart" / uuid.uuid4().hex
            self.stack.callback(_end_server, self._state_dir)
        else:
            from incremental_assets.spark.embedded.server import wait_until_gone

            wait_until_gone(self._state_dir, seconds=10)
        return True

    def is_server_gone(self) -> bool:
        """Whether the session can no longer be used."""
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
        """Right before a write. Raises LakeMoved where another host may have taken over."""
        if self.lease is not None:
            self.lease.expect_held()

    def interrupt(self) -> None:
        """Ends what is running on the server."""
        for session in (self._spark, self._assets_spark):
            if session is not None:
                from pyspark.errors import PySparkException

                with contextlib.suppress(PySparkException):  # the server is gone, and the query with it
                    session.interruptAll()


def _end_server(state_dir: Path) -> None:
    from incremental_assets.spark.session import stop_server

    stop_server(state_dir)
    shutil.rmtree(state_dir, ignore_errors=True)
    with contextlib.suppress(OSError):  # another run's is beside it
        state_dir.parent.rmdir()
