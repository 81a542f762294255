"""Implements the protocol of a kind of database (``databases.dialect``) for PostgreSQL."""

from collections.abc import Sequence
from dataclasses import dataclass

from incremental_assets.core.container import Arrays, Container, ContainerOptions, SourceColumn, SourceTable
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.nested_types import element_of
from incremental_assets.core.schema import Column
from incremental_assets.core.window import Window
from incremental_assets.databases.dialect import SourceSettings
from incremental_assets.databases.postgres.capture.slot import captured_names
from incremental_assets.databases.postgres.extract import carried_columns, describe_read
from incremental_assets.databases.postgres.source import PostgresSource
from incremental_assets.databases.postgres.types import canonical_form, carry
from incremental_assets.databases.source import SourceDatabase


@dataclass(frozen=True)
class PostgresDialect:
    """The ``Dialect`` of PostgreSQL."""

    @property
    def kind(self) -> str:
        return "postgres"

    def source(self, settings: SourceSettings, container: Container) -> PostgresSource:
        return PostgresSource(settings.address, container, timezone=container.timezone, margin_seconds=settings.watermark_margin_seconds)

    def check(self, label: str, table: SourceTable, container: Container) -> None:
        if container.options.arrays is Arrays.LIST and not any(element_of(column.type) for column in self.columns(container)):
            raise ConfigurationError(
                f"{label}: arrays: list is about arrays of numbers, texts, times, boolean and uuid outside of the primary key, and it has "
                f"none. Leave it out."
            )

    def canonical(self, container: Container) -> Sequence[str]:
        key = [column for column in container.columns if column.name in container.primary_key and canonical_form(column) is not None]
        return [column.name for column in key if carry(column, container.options.text_columns).column.type == "string"]

    def reason_against(self, column: SourceColumn, options: ContainerOptions) -> str | None:
        return None

    def columns(self, container: Container) -> Sequence[Column]:
        return [one.column for one in carried_columns(container)]

    def describe_read(self, container: Container, windows: Sequence[Window], include_nulls: bool) -> str:
        return describe_read(container, carried_columns(container), windows, include_nulls)

    def captured_names(self, source: SourceDatabase, settings: SourceSettings) -> Sequence[str]:
        assert isinstance(source, PostgresSource)
        return captured_names(source.live, settings.slot, settings.schema)
