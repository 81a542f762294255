"""Implements the protocol of a kind of database (``databases.dialect``) for any database with a JDBC driver."""

from collections.abc import Sequence
from dataclasses import dataclass

from incremental_assets.core.container import Container, ContainerOptions, SourceColumn, SourceTable, WhenRecreated
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.schema import Column
from incremental_assets.core.window import Window
from incremental_assets.databases.dialect import SourceSettings, expect_one_reader
from incremental_assets.databases.jdbc.queries import scope_predicate
from incremental_assets.databases.jdbc.reader import select_of
from incremental_assets.databases.jdbc.session import JdbcSession
from incremental_assets.databases.jdbc.source import JdbcSource
from incremental_assets.databases.jdbc.types import can_be_text, carried_columns, reason_against
from incremental_assets.databases.source import SourceDatabase


@dataclass(frozen=True)
class JdbcDialect:
    """The ``Dialect`` of a database with a JDBC driver."""

    @property
    def kind(self) -> str:
        return "sql"

    def source(self, settings: SourceSettings, container: Container) -> JdbcSource:
        session = JdbcSession(settings.address, container.label)
        return JdbcSource(session, container, timezone=container.timezone, margin_seconds=settings.watermark_margin_seconds)

    def check(self, label: str, table: SourceTable, container: Container) -> None:
        apart = {
            "partition_by with another column than the identifier": container.partitioned_on is not None,
            "when_recreated: reload or adopt": container.when_recreated is not WhenRecreated.REFUSE,
        }
        expect_one_reader(label, "containers that are read through JDBC", container, apart)
        if container.identifier is not None and container.lag_is_auto:
            unit = "seconds" if container.identifier.cursor_type.is_time else "values"
            raise ConfigurationError(
                f"{label}: safety_lag is missing. Through JDBC nobody knows which transactions are open, so that rows which are committed "
                f"late are found by the lag alone. Write how many {unit} your longest transaction may lie behind: "
                f"containers: {{{table.name}: {{safety_lag: <{unit}>}}}}"
            )

    def reason_against(self, column: SourceColumn, options: ContainerOptions) -> str | None:
        why = reason_against(column)
        if why is None or not can_be_text(column):
            return why
        return None if column.name in options.text_columns else f"{why} (text_columns: [{column.name}] carries it as text)"

    def canonical(self, container: Container) -> Sequence[str]:
        return ()

    def columns(self, container: Container) -> Sequence[Column]:
        return [one.column for one in carried_columns(container)]

    def describe_read(self, container: Container, windows: Sequence[Window], include_nulls: bool) -> str:
        return select_of(container, carried_columns(container), scope_predicate(container, windows, include_nulls))

    def captured_names(self, source: SourceDatabase, settings: SourceSettings) -> Sequence[str]:
        return ()
