"""A project over a database of a server under test, which is what the shared tests know of that server.

Belongs here: what is the same for each server. Does not belong: connections and users (``mysql.project``, ``sqlserver.project``), and the
words of each server's SQL (``servers.sql``).
"""

import contextlib
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder

from assets_tests.databases.servers.sql import By, ServerSQL, entry
from assets_tests.databases.servers.stages import ends_by_error
from assets_tests.harness import Workspace
from incremental_assets.core.comparison import HashedRows, RowScope, compare
from incremental_assets.core.errors import SourceError
from incremental_assets.core.watermark import OpenTransactions
from incremental_assets.databases.source import SourceDatabase
from incremental_assets.delta.hashed_rows import LakeHashedRows
from incremental_assets.delta.table import LakeTable
from incremental_assets.spark.session import open_session

Run = Callable[[str], None]
"""Runs a statement in a session."""


class ServerProject(Workspace):
    """One datastore called ``shop`` over a database of a server. It has no safety lag unless a test sets one.

    ``rows_module``: the module of the product that reads the server's rows. ``url``: the database's; a test may set another user's.
    """

    store = "shop"
    place: Mapping[str, str] = {"url": "{{ env.SHOP_URL }}"}
    sql: ServerSQL
    rows_module: ModuleType

    def __init__(self, path: Path, spark_home: Path, url: str, database: str, **attributes: Any) -> None:
        without_lags = {"settle_seconds": 0.3, "watermark_margin_seconds": 0, "safety_lag_seconds": 0}
        super().__init__(path, spark_home, **{**without_lags, **attributes})
        self.url, self.database = url, database
        self.source = self.session()

    # ------------------------------------------------------------------ the server
    @abstractmethod
    def session(self) -> Any:
        """A further session of an application, which commits each statement outside of a transaction."""

    @property
    @abstractmethod
    def server_errors(self) -> tuple[type[BaseException], ...]:
        """What the driver raises, for example where a session has waited too long for a lock."""

    @abstractmethod
    def url_of(self, user: str | None, password: str) -> str:
        """The database's URL with another user and password; with None for the user, with another password alone."""

    @property
    def variables(self) -> dict[str, str]:
        return {"SHOP_URL": self.url}

    def execute(self, *statements: str) -> None:
        """Runs SQL statements in the source and commits them at once."""
        with self.source.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with self.source.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    @contextlib.contextmanager
    def opened(self) -> Iterator[Run]:
        """Runs statements in a session with an open transaction, which is rolled back at the end, unless it was committed."""
        with contextlib.closing(self.session()) as session, session.cursor() as cursor:
            cursor.execute(self.sql.begin)
            yield cursor.execute
            cursor.execute(self.sql.rollback)

    # ------------------------------------------------------------------ the datastore
    def entry(self, table: str, by: By) -> str:
        return entry(self.sql, table, by)

    def is_exact(self, by: By) -> bool:
        """Whether the server itself says of such an identifier below which value nobody is open, so that nobody holds the watermark."""
        return by is By.CHANGED and self.sql.changed_type == "integer"

    @property
    def reads_past_locks(self) -> bool:
        """Whether a sync reads rows that an open transaction has changed, as they were before."""
        return True

    def refusal(self) -> str:
        """The message of the SourceError that a new catalog raises."""
        try:
            self.catalog()
        except SourceError as error:
            return str(error)
        raise AssertionError("the catalog was taken")

    # ------------------------------------------------------------------ the source and the lake
    def assert_equal(self, name: str, columns: str = "id, value") -> None:
        """Asserts that the lake has the rows of the source, each as often."""

        def listed(rows: list[tuple[Any, ...]]) -> list[str]:
            # A `bigint unsigned` of MariaDB is a decimal in the lake.
            return sorted(repr(tuple(int(v) if isinstance(v, Decimal) else v for v in row)) for row in rows)

        assert listed(self.rows(name, columns)) == listed(self.ask(f"select {columns} from {name}"))

    def rows_as_known(self, name: str) -> list[tuple[Any, ...]]:
        """The rows in the lake of a table that the source may no longer have."""
        table = LakeTable(self.lake, "shop", name).opened()
        assert table is not None
        found = QueryBuilder().register("lake", table).execute("select * from lake").read_all()
        return [tuple(row.values()) for row in pa.table(found).to_pylist()]

    def differing_rows(self, name: str) -> tuple[bool, int]:
        """Compares the hashes of both sides, those of the source in a snapshot. Returns whether they are equal, and the number of rows."""
        definition, table = self.definition(name), self.table(name)
        head = table.head()
        assert head is not None
        container = definition.container
        with open_session(self.spark_home, name="hashed rows") as spark, self._opened_source(name) as source, source.snapshot():
            in_source: HashedRows = source.snapshot_rows(container, ()).hashed_rows(head.columns)
            in_lake = LakeHashedRows(lambda: spark, table, head.version, container, head.columns)
            found = compare(in_source, in_lake, None, RowScope())
        return found.equal, found.rows

    def hash_of_rows(self, name: str) -> int:
        """The sum of the hashes of all rows in the source."""
        definition = self.definition(name)
        with self._opened_source(name) as source:
            columns = definition.settings.dialect.columns(definition.container)
            return source.snapshot_rows(definition.container, ()).hashed_rows(columns).by_partition(RowScope())[None].total

    # ------------------------------------------------------------------ who is at work
    def noted(self, name: str) -> OpenTransactions:
        """The transactions that a sync of the container would note as open now."""
        with self._opened_source(name) as source:
            return source.transactions.settle(0, 0)[0]

    def still_open(self, name: str, noted: OpenTransactions) -> OpenTransactions:
        """What is left of them now."""
        with self._opened_source(name) as source:
            return noted.still_open(source.transactions.settle(0, 0)[1])

    def _opened_source(self, name: str) -> contextlib.AbstractContextManager[SourceDatabase]:
        definition = self.definition(name)
        return definition.settings.dialect.source(definition.settings, definition.container)

    # ------------------------------------------------------------------ syncs that end at a stage
    def sync_that_fails(self, stage: str) -> None:
        """A sync of all containers that ends at a stage by an error, as far as it comes there."""
        with ends_by_error(self.kind, stage):
            self.sync(stale=True)

    def prepare_to_die(self) -> None:
        """Writes the project's files, with a catalog, for ``sync_that_dies``."""
        self.write()
        self.cli("catalog", "shop", spark=False)

    def sync_that_dies(self, stage: str) -> None:
        """A process of the command line that syncs, and ends itself by SIGKILL at a stage."""
        arguments = [self.kind, stage, "--project", str(self.path), "sync"]
        command = [sys.executable, "-m", "assets_tests.databases.servers.dying_sync", *arguments]
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode != 0, done.stdout + done.stderr
