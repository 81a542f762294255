"""The protocol of a kind of database: what the datastore, its containers and Dagster ask of PostgreSQL, or of MySQL and MariaDB."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from incremental_assets.core.container import Arrays, Container, ContainerOptions, HoldBack, RowSecurity, SourceColumn, SourceTable
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.schema import Column
from incremental_assets.core.window import Window
from incremental_assets.databases.source import SourceDatabase


class SourceSettings(Protocol):
    """What a dialect needs of a datastore's settings (``databases.definition.DatastoreSettings``, which say what each means)."""

    @property
    def address(self) -> Any: ...
    @property
    def schema(self) -> str: ...
    @property
    def watermark_margin_seconds(self) -> float: ...
    @property
    def slot(self) -> str: ...


class Dialect(Protocol):
    """One kind of database. A datastore's settings have it, so that all that is made of them knows where to ask."""

    @property
    def kind(self) -> str:
        """Dagster's kind of the assets that stand for the database's tables, for their icons: ``postgres``."""
        ...

    def source(self, settings: SourceSettings, container: Container) -> AbstractContextManager[SourceDatabase]:
        """A connection to the source for one container, which is closed at the end of the block. Raises SourceUnreachable."""
        ...

    def check(self, label: str, table: SourceTable, container: Container) -> None:
        """Raises ConfigurationError if this kind of database cannot do what the YAML asks for this container. ``label``: its name."""
        ...

    def canonical(self, container: Container) -> Sequence[str]:
        """Those columns of the key in which equal values may look different, and of which this kind of database has a canonical form."""
        ...

    def reason_against(self, column: SourceColumn, options: ContainerOptions) -> str | None:
        """What a column of the source is that the lake cannot have, with a way out if there is one; None: the lake can have it."""
        ...

    def columns(self, container: Container) -> Sequence[Column]:
        """The columns of the container in the lake, in the order of those of the source; last, if there is one, that of the marks."""
        ...

    def describe_read(self, container: Container, windows: Sequence[Window], include_nulls: bool) -> str:
        """The SQL of a read, for ``--dry-run``. Nothing is run."""
        ...

    def captured_names(self, source: SourceDatabase, settings: SourceSettings) -> Sequence[str]:
        """The tables whose changes the source keeps for this datastore."""
        ...


def expect_one_reader(label: str, whose: str, container: Container, apart: Mapping[str, bool] | None = None) -> None:
    """Raises ConfigurationError if a container asks for more than one connection can do that does not know who has written to a table.

    ``whose``: the containers of which kind of database. ``apart``: what else is refused, and whether it is asked for.
    """
    options = container.options
    refused = {
        "hold_back: writers": options.hold_back is HoldBack.WRITERS,
        "readers above 1": (options.readers or 1) > 1,
        "row_security: accept": options.row_security is RowSecurity.ACCEPT,
        "binary_columns": bool(options.binary_columns),
        "arrays: list": options.arrays is Arrays.LIST,
        "inherited": options.inherited is not None,
        **(apart or {}),
    }
    for what, is_asked in refused.items():
        if is_asked:
            raise ConfigurationError(f"{label}: {what} is not possible for {whose}. Leave it out.")
