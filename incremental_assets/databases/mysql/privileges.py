"""What our user may read beside the tables of its database, and the statements that give it what it lacks."""

from incremental_assets.databases.mysql.connection import DENIED, MySQLConnection, driver, number_of
from incremental_assets.databases.mysql.queries import quoted

TRANSACTIONS = "information_schema.innodb_trx"
COUNTERS = "performance_schema.table_io_waits_summary_by_table"
"""Where the server counts updated and deleted rows: each row, also one of a transaction that is rolled back, and none that a foreign key
deletes."""


def may_read(connection: MySQLConnection, relation: str) -> bool:
    """Whether our user may read a table of the server's own. Raises PyMySQL's other errors."""
    return _is_allowed(connection, f"select count(*) from {relation}")


def missing_privileges(connection: MySQLConnection, schema: str, view: str | None) -> tuple[str, ...]:
    """See ``catalog.state.Catalog``. ``view``: one of the database; None: it has none. Raises PyMySQL's errors."""
    user, _, host = str(connection.rows("select current_user()")[0][0]).rpartition("@")
    lacking: list[tuple[str, str]] = []
    if view is not None and not _is_allowed(connection, f"show create view {quoted(schema)}.{quoted(view)}"):
        lacking.append((f"SHOW VIEW ON {quoted(schema)}.*", "how many rows of a view are read is not estimated"))
    if not may_read(connection, TRANSACTIONS):
        lacking.append(("PROCESS ON *.*", "whose transaction is open is not seen: the safety lag alone finds late rows"))
    if connection.rows("select @@performance_schema")[0][0] == "1" and not may_read(connection, COUNTERS):
        lacking.append((f"SELECT ON {COUNTERS}", "append does not warn of rows that were changed below what it reads"))
    return tuple(f"GRANT {what} TO {quoted(user)}@{quoted(host)};  -- without it, {without}" for what, without in lacking)


def _is_allowed(connection: MySQLConnection, query: str) -> bool:
    try:
        connection.rows(query)
    except driver().Error as error:
        if number_of(error) in DENIED:
            return False
        raise
    return True
