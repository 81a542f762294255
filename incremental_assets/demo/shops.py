"""The demo's shop, whichever database it is in: what its applications and the steps of the demo ask of it.

Belongs here: the protocols. Does not belong: an implementation (``postgres_shop``, ``mariadb_shop``), and what happens in the shop in a
day (``business_day``). The product does not know this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from incremental_assets.demo.compare import Comparison


class Session(Protocol):
    """A session of one of the shop's applications. All that it does is one transaction until it commits.

    Values are named in statements by ``%(name)s``, and a percent sign is written twice. ``||`` joins texts.
    """

    @property
    def pid(self) -> int:
        """The number by which the database knows the session."""
        ...

    def change(self, statement: str, values: Mapping[str, object] | None = None) -> int:
        """Execute a statement, and return how many rows it has inserted, deleted or looked at to update them."""
        ...

    def rows(self, query: str) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a query, which has no values."""
        ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class Shop(Protocol):
    """The database of the demo's shop. ``url``: where it is, once it was filled.

    ``name`` and ``origin``: what the database is, and where its programs come from. ``has_log``: whether ``capture: log`` can follow it.
    ``has_files``: whether the project has the landing folder. ``afterwards``: what the last line of the demo says of the server.
    """

    name: str
    origin: str
    afterwards: str
    has_log: bool
    has_files: bool
    url: str

    def fill(self, scale: float) -> dict[str, int]:
        """Start the server if it does not run, and make the database anew. Return the number of rows of each table."""
        ...

    def session(self, application: str = "shop") -> AbstractContextManager[Session]:
        """A session, which commits at the end of the block, and is rolled back after an error."""
        ...

    def containers(self) -> list[str]:
        """The names of the tables and views."""
        ...

    def compare(self, container: str, lake: Path) -> Comparison:
        """Compare a table or view with the Delta table in ``lake``, row by row."""
        ...

    # ------------------------------------------------------------------ what the databases call differently
    @property
    def now(self) -> str:
        """The time of the statement, in SQL."""
        ...

    def numbers(self, name: str, most: int) -> str:
        """The numbers from 1 to ``most`` as a table in SQL with one column, which is called ``name``."""
        ...

    def json_object(self, key: str, value: str) -> str:
        """A JSON object with one key, in SQL. ``value`` is an expression."""
        ...
