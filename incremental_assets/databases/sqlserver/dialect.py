"""Implements the protocol of a kind of database (``databases.dialect``) for SQL Server."""

from collections.abc import Sequence
from dataclasses import dataclass

from incremental_assets.core.container import Container, ContainerOptions, SourceColumn, SourceTable
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.schema import Column
from incremental_assets.core.window import Window
from incremental_assets.databases.dialect import SourceSettings, expect_one_reader
from incremental_assets.databases.source import SourceDatabase
from incremental_assets.databases.sqlserver.queries import ROWVERSION, scope_predicate
from incremental_assets.databases.sqlserver.source import SQLServerSource
from incremental_assets.databases.sqlserver.statements import select_of
from incremental_assets.databases.sqlserver.types import NO_KEY, REFUSED, carried_columns, is_known


@dataclass(frozen=True)
class SQLServerDialect:
    """The ``Dialect`` of SQL Server. ``cuts_times``: see ``rows.read_batches``."""

    cuts_times: bool = False

    @property
    def kind(self) -> str:
        return "sqlserver"

    def source(self, settings: SourceSettings, container: Container) -> SQLServerSource:
        return SQLServerSource(
            settings.address,
            container,
            timezone=container.timezone,
            margin_seconds=settings.watermark_margin_seconds,
            cuts_times=self.cuts_times,
        )

    def check(self, label: str, table: SourceTable, container: Container) -> None:
        expect_one_reader(label, "containers of SQL Server yet", container)
        types = {column.name: column.base for column in table.columns}
        for name in container.primary_key:
            if types.get(name) in NO_KEY:
                raise ConfigurationError(f"{label}: the key {name!r} is {types[name]}, by which rows cannot be found. Name another key.")
        identifier = container.identifier
        if identifier is not None:
            found = {types.get(name) for name in identifier.columns}
            if len(found) > 1 and found & {"datetime", ROWVERSION}:
                different = ", ".join(sorted(map(str, found)))
                raise ConfigurationError(
                    f"{label}: the identifier's columns {', '.join(identifier.columns)} are of different types ({different})"
                    ", which SQL Server compares with different precision. Name one of them, or make their types the same."
                )

    def canonical(self, container: Container) -> Sequence[str]:
        return ()

    def reason_against(self, column: SourceColumn, options: ContainerOptions) -> str | None:
        way = f" ({REFUSED[column.base]})" if column.base in REFUSED else ""
        return None if is_known(column) else f"{column.type}, which cannot be carried{way}"

    def columns(self, container: Container) -> Sequence[Column]:
        return [one.column for one in carried_columns(container)]

    def describe_read(self, container: Container, windows: Sequence[Window], include_nulls: bool) -> str:
        return select_of(container, carried_columns(container), scope_predicate(container, windows, include_nulls))

    def captured_names(self, source: SourceDatabase, settings: SourceSettings) -> Sequence[str]:
        return ()
