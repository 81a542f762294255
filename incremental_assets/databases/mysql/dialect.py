"""Implements the protocol of a kind of database (``databases.dialect``) for MySQL and MariaDB."""

from collections.abc import Sequence
from dataclasses import dataclass

from incremental_assets.core.container import Container, ContainerOptions, SourceColumn, SourceTable
from incremental_assets.core.schema import Column
from incremental_assets.core.window import Window
from incremental_assets.databases.dialect import SourceSettings, expect_one_reader
from incremental_assets.databases.mysql.queries import scope_predicate
from incremental_assets.databases.mysql.rows import select_of
from incremental_assets.databases.mysql.source import MySQLSource
from incremental_assets.databases.mysql.types import carried_columns, is_known
from incremental_assets.databases.source import SourceDatabase


@dataclass(frozen=True)
class MySQLDialect:
    """The ``Dialect`` of MySQL and MariaDB. ``zero_dates_are_null``: see ``MySQLSource``."""

    zero_dates_are_null: bool = False

    @property
    def kind(self) -> str:
        return "mysql"

    def source(self, settings: SourceSettings, container: Container) -> MySQLSource:
        return MySQLSource(
            settings.address,
            container,
            timezone=container.timezone,
            margin_seconds=settings.watermark_margin_seconds,
            zero_dates_are_null=self.zero_dates_are_null,
        )

    def check(self, label: str, table: SourceTable, container: Container) -> None:
        expect_one_reader(label, "containers of MySQL and MariaDB yet", container)

    def reason_against(self, column: SourceColumn, options: ContainerOptions) -> str | None:
        return None if is_known(column) else f"{column.type}, which cannot be carried"

    def canonical(self, container: Container) -> Sequence[str]:
        return ()

    def columns(self, container: Container) -> Sequence[Column]:
        return [one.column for one in carried_columns(container)]

    def describe_read(self, container: Container, windows: Sequence[Window], include_nulls: bool) -> str:
        return select_of(container, carried_columns(container), scope_predicate(container, windows, include_nulls))

    def captured_names(self, source: SourceDatabase, settings: SourceSettings) -> Sequence[str]:
        return ()
