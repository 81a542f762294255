"""The words of MariaDB for the shared tests.

Belongs here: MariaDB's ``ServerSQL``. Does not belong: what a word is for (``servers.sql``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assets_tests.databases.mysql.known import VALUES
from assets_tests.databases.servers.sql import PLAIN_USER


@dataclass(frozen=True)
class MariaDBSQL:
    """The ``ServerSQL`` of MariaDB."""

    numbered: str = "int primary key auto_increment"
    numbered_wide: str = "bigint unsigned primary key auto_increment"
    counted: str = "int unsigned"
    text: str = "varchar(20)"
    long_text: str = "mediumtext"
    created: str = "timestamp(6) not null default current_timestamp(6)"
    created_coarse: str = "datetime(3) not null default current_timestamp(3)"
    changed: str = "timestamp(6) not null default current_timestamp(6) on update current_timestamp(6)"
    changed_type: str = "timestamp"
    now: str = "current_timestamp(6)"
    begin: str = "begin"
    commit: str = "commit"
    rollback: str = "rollback"
    short_lock_wait: str = "set session innodb_lock_wait_timeout = 1"
    pause: str = "do sleep(1.1)"

    @property
    def values(self) -> Mapping[str, Sequence[str]]:
        return {type_: [literal for literal, _ in listed] for type_, listed in VALUES.items()}

    def literal(self, value: str) -> str:
        return f"'{value}'"

    def repeated(self, value: str, times: int) -> str:
        return f"repeat('{value}', {times})"

    def renamed(self, old: str, new: str) -> str:
        return f"rename table {old} to {new}"

    def with_column(self, table: str, name: str, type_: str) -> str:
        return f"alter table {table} add {name} {type_} first"

    def with_default(self, table: str, name: str, type_: str, value: int) -> str:
        return f"alter table {table} add {name} {type_} default {value}"

    def without_column(self, table: str, name: str) -> str:
        return f"alter table {table} drop {name}"

    def plain_user(self, database: str, password: str) -> Sequence[str]:
        return (
            f"create or replace user {PLAIN_USER}@'%' identified by '{password}'",
            f"grant select on `{database}`.* to {PLAIN_USER}@'%'",
        )
