"""A project over SQL Server without a server: it writes each statement of a test to a file, and every answer is empty.

Belongs here: that project. Does not belong: what becomes of the statements (``test_tsql_of_tests``). The tests themselves are played with
it, but without their assertions (``python -O``), so that each statement is the one that a real server would get.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets_tests.databases.sqlserver.project import SQLServerProject
from incremental_assets.core.watermark import OpenTransactions
from incremental_assets.databases.sqlserver.connection import SQLServerAddress

SCHEME = "record:"
"""``SQLSERVER_URL=record:/path/of/file`` chooses this project."""
_URL = "sqlserver://nobody:nothing@nowhere.invalid:1433/none"


class Empty(dict[str, Any]):
    """An answer that has another empty answer under each name."""

    def __missing__(self, key: str) -> "Empty":
        return Empty()


@dataclass(frozen=True)
class Recording:
    """A session and its cursor. ``test``: whose statements they are."""

    file: Path
    test: str

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def cursor(self) -> "Recording":
        return self

    def execute(self, statement: str) -> None:
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"test": self.test, "statement": statement}) + "\n")

    def fetchall(self) -> list[tuple[Any, ...]]:
        return []

    def close(self) -> None:
        return None


class RecordedProject(SQLServerProject):
    """A ``SQLServerProject`` that only records."""

    def __init__(self, path: Path, spark_home: Path, recording: Recording, *, has_snapshots: bool, **attributes: Any) -> None:
        self.recording = recording
        super().__init__(path, SQLServerAddress.parse("tests", _URL), spark_home, has_snapshots=has_snapshots, **attributes)

    def session(self) -> Recording:
        return self.recording

    @property
    def server_errors(self) -> tuple[type[BaseException], ...]:
        return ()

    def catalog(self) -> list[Any]:
        return []

    def refusal(self) -> str:
        return ""

    def sync(self, *names: str, **kwargs: Any) -> dict[str, dict[str, Any]]:
        return Empty()

    def audit(self, *names: str, **kwargs: Any) -> dict[str, dict[str, Any]]:
        return Empty()

    def rows(self, name: str, columns: str = "*", where: str = "true") -> list[tuple[Any, ...]]:
        return []

    def rows_as_known(self, name: str) -> list[tuple[Any, ...]]:
        return []

    def assert_equal(self, name: str, columns: str = "id, value") -> None:
        self.ask(f"select {columns} from {name}")

    def differing_rows(self, name: str) -> tuple[bool, int]:
        return True, 0

    def hash_of_rows(self, name: str) -> int:
        return 0

    def noted(self, name: str) -> OpenTransactions:
        return OpenTransactions()

    def still_open(self, name: str, noted: OpenTransactions) -> OpenTransactions:
        return noted

    def sync_that_fails(self, stage: str) -> None:
        return None

    def prepare_to_die(self) -> None:
        return None

    def sync_that_dies(self, stage: str) -> None:
        return None


@contextlib.contextmanager
def recorded_projects(
    url: str, test: str, folder: Path, spark_home: Path, *, has_snapshots: bool
) -> Iterator[Callable[..., RecordedProject]]:
    """As ``sqlserver_projects``. ``url``: names the file; ``test``: the test that is played."""
    recording = Recording(Path(url.removeprefix(SCHEME)), test)
    yield lambda **attributes: RecordedProject(folder, spark_home, recording, has_snapshots=has_snapshots, **attributes)
