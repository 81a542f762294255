"""The settings of MySQL and MariaDB on which a read depends: what each of our sessions has, whatever the server sets for all.

Settings that only cost time are left out, and so are those by which an application says what it means (``lc_time_names``). *default* is
mostly the value of the server, and so none of those here.
"""

from collections.abc import Mapping

LOCK_WAIT_SECONDS = 30
"""How long a statement waits behind somebody's ALTER or TRUNCATE of the table."""
IDLE_SECONDS = 28_800
"""After so many seconds without a statement the server ends a session; a snapshot may be held for longer (``session``)."""
SQL_MODE = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
"""The mode of our sessions. With others, ``||`` or ``"a"`` in the YAML's ``where:`` would mean something else, and ``char`` would be
padded."""
_NO_LIMIT = "18446744073709551615"


def of_session(is_mariadb: bool, version: int, silence: int) -> Mapping[str, str]:
    """The settings and their values, as SQL. ``version``: that of ``MySQLConnection``. ``silence``: how many seconds the server waits until
    the next bytes of an answer are taken."""
    settings = {
        # How values are printed, and conditions understood.
        "time_zone": "'+00:00'",
        "sql_mode": f"'{SQL_MODE}'",
        "sql_auto_is_null": "0",
        # How many rows a query returns or may look at, and how much of a text.
        "sql_select_limit": _NO_LIMIT,
        "sql_big_selects": "1",
        "group_concat_max_len": "1048576",
        # When a transaction begins and ends. A chain would leave one open, and its snapshot would age.
        "autocommit": "1",
        "completion_type": "'NO_CHAIN'",
        # Time-outs.
        "lock_wait_timeout": str(LOCK_WAIT_SECONDS),
        "wait_timeout": str(IDLE_SECONDS),
        "net_write_timeout": str(silence),
        "net_read_timeout": "60",
    }
    if is_mariadb and version >= 100300:
        settings["system_versioning_asof"] = "default"  # the present; of this setting it is not the value of the server
    if is_mariadb:
        return settings | {"max_statement_time": "0", "idle_transaction_timeout": "0", "idle_readonly_transaction_timeout": "0"}
    settings["max_execution_time"] = "0"
    return settings | ({"information_schema_stats_expiry": "0"} if version >= 80000 else {})
