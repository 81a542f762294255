"""A session with a source over one connection, which plans a sync and then holds the snapshot that its rows are read from."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from incremental_assets.core.container import Container
from incremental_assets.core.errors import SourceError
from incremental_assets.databases.limits import Limits
from incremental_assets.databases.snapshot_watch import WatchedSnapshot


class HeldConnection(Protocol):
    """A connection. ``is_open``: it was neither closed nor lost, as far as is known."""

    @property
    def is_open(self) -> bool: ...

    def close(self) -> None: ...


ConnectionT = TypeVar("ConnectionT", bound=HeldConnection)
_Self = TypeVar("_Self", bound="HeldSession[Any]")


def _nothing() -> None:
    """The default for ``HeldSession.interrupt``: no write is running that would have to be cancelled."""


class HeldSession(ABC, Generic[ConnectionT]):
    """A connection to the source for one container, used as a context manager. All methods raise SourceError if a query fails.

    ``timezone``: the time zone of columns without one. ``margin_seconds``: how far the watermark of a time stays below the source's clock.
    """

    def __init__(self, container: Container, *, timezone: str, margin_seconds: float = 0.0) -> None:
        self.container = container
        self.timezone, self.margin_seconds = timezone, margin_seconds
        self.limits = Limits()
        self.interrupt: Callable[[], None] = _nothing
        """Cancels the write that reads from the snapshot. It is called if the snapshot had to be ended."""
        self.snapshot_seconds = 0.0
        """For how many seconds snapshots have been held so far."""
        self._watch: WatchedSnapshot[ConnectionT] | None = None
        self._connection: ConnectionT | None = None

    @abstractmethod
    def _connect(self) -> ConnectionT:
        """A new connection. Raises SourceError."""

    @abstractmethod
    def rows(self, query: str) -> Any:
        """The rows of one query."""

    def __enter__(self: _Self) -> _Self:
        self._connection = self._connect()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection, and with it a snapshot that is still held."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def live(self) -> ConnectionT:
        """The connection. Raises SourceError if it is lost."""
        if self._connection is None or not self._connection.is_open:
            raise SourceError(f"{self.container.label}: the connection to the source is lost; nothing half-read was written; sync again.")
        return self._connection

    def still_there(self) -> None:
        """Raises SourceError if the connection that holds the snapshot is lost or a limit is passed. This is the last check before a
        commit."""
        if self._watch is not None:
            self._watch.check()
        self.rows("select 1")

    @contextlib.contextmanager
    def _watched(self, watch: WatchedSnapshot[ConnectionT]) -> Iterator[None]:
        """Watches the snapshot during the block. If the watch has ended it, the block's error is raised as SourceError with the reason."""
        self._watch = watch
        watch.start()
        try:
            yield
        except Exception as error:
            if watch.reason is not None:
                raise SourceError(watch.reason) from error
            raise
        finally:
            watch.stop()
            self.snapshot_seconds += watch.seconds
            self._watch = None
