"""The words of SQL Server for the shared tests.

Belongs here: SQL Server's ``ServerSQL``. Does not belong: what a word is for (``servers.sql``), and the statements of the product
(``databases.sqlserver.statements``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assets_tests.databases.servers.sql import PLAIN_USER
from assets_tests.databases.sqlserver.known import OTHER_VALUES, VALUES


@dataclass(frozen=True)
class TransactSQL:
    """The ``ServerSQL`` of SQL Server."""

    numbered: str = "int identity primary key"
    numbered_wide: str = "bigint identity primary key"
    counted: str = "int"
    text: str = "nvarchar(20)"
    long_text: str = "nvarchar(max)"
    created: str = "datetime2(6) not null default sysutcdatetime()"
    created_coarse: str = "datetime2(3) not null default sysutcdatetime()"
    changed: str = "rowversion"
    changed_type: str = "integer"
    now: str = "sysutcdatetime()"
    begin: str = "if @@trancount = 0 begin transaction"
    commit: str = "if @@trancount > 0 commit transaction"
    rollback: str = "if @@trancount > 0 rollback transaction"
    short_lock_wait: str = "set lock_timeout 1000"
    pause: str = "waitfor delay '00:00:01.1'"

    @property
    def values(self) -> Mapping[str, Sequence[str]]:
        return {type_: [literal, *OTHER_VALUES.get(kind, ())] for kind, (type_, literal) in VALUES.items() if type_ != "rowversion"}

    def literal(self, value: str) -> str:
        return f"N'{value}'"

    def repeated(self, value: str, times: int) -> str:
        return f"replicate(cast(N'{value}' as nvarchar(max)), {times})"

    def renamed(self, old: str, new: str) -> str:
        return f"exec sp_rename '{old}', '{new}'"

    def with_column(self, table: str, name: str, type_: str) -> str:
        return f"alter table {table} add {name} {type_}"

    def with_default(self, table: str, name: str, type_: str, value: int) -> str:
        return f"alter table {table} add {name} {type_} default {value} with values"

    def without_column(self, table: str, name: str) -> str:
        return f"alter table {table} drop column {name}"

    def plain_user(self, database: str, password: str) -> Sequence[str]:
        return (
            f"if suser_id(N'{PLAIN_USER}') is not null drop login {PLAIN_USER}",
            f"create login {PLAIN_USER} with password = N'{password}', check_policy = off",
            f"create user {PLAIN_USER} for login {PLAIN_USER}",
            f"grant select, view definition on schema::dbo to {PLAIN_USER}",
        )
