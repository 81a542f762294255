"""The settings of PostgreSQL on which a read depends: what each of our transactions begins with, whatever server or role have set.

They are set by ``set local``, for one transaction, as a connection pooler hands sessions on to the application. What PostgreSQL sends as
text, and what it makes of our literals, then is the same for every role. Settings that only cost time or order rows otherwise are left
out, and so are those by which an application says what it means (``lc_monetary``, ``default_text_search_config``).
"""

from collections.abc import Mapping

from incremental_assets.core.container import RowSecurity

READ = {
    # How values are printed.
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "xmlbinary": "base64",
    "xmloption": "content",
    "quote_all_identifiers": "off",
    # How conditions are understood, and which rows fulfil them: with a limit, an index of type GIN returns some of them, at random.
    "transform_null_equals": "off",
    "array_nulls": "on",
    "gin_fuzzy_search_limit": "0",
    "standard_conforming_strings": "on",
}
"""The settings and their values."""
OF_SESSION = {"idle_session_timeout": "0", "standard_conforming_strings": "on"}
"""Settings that have no effect, or not always, if they are set for one transaction: PostgreSQL ends a session between two transactions, and
reads the literals of a message before it executes the first statement in it."""
NOT_SET = " or ".join(f"(name = '{name}' and setting <> '{value}')" for name, value in OF_SESSION.items())
"""A condition for those rows of ``pg_settings`` that are otherwise."""
SEARCH_PATH = (
    "pg_catalog.set_config('search_path', case when pg_catalog.texteq(pg_catalog.left(pg_catalog.current_setting('search_path'), 10),"
    " 'pg_catalog') then pg_catalog.current_setting('search_path') else pg_catalog.concat_ws(', ', 'pg_catalog',"
    " nullif(pg_catalog.current_setting('search_path'), '')) end, true)"
)
"""An expression that sets where names without schema are looked up: in the role's own schemas, as a condition in the YAML may mean them,
but behind PostgreSQL's own, whose tables and functions our queries mean. To evaluate it takes a snapshot."""
_ROW_SECURITY = {RowSecurity.REFUSE: "off", RowSecurity.ACCEPT: "on"}


def of_session(server_version: int, backend_pid: int) -> str:
    """The statement that makes the settings of a session. ``backend_pid``: its process, as the server has said it at the beginning.

    Behind a pooler, which says a number of its own, nothing is set: the session would keep it when the application has it.
    """
    known = [name for name in OF_SESSION if name != "idle_session_timeout" or server_version >= 140000]
    chosen = ", ".join(f"pg_catalog.set_config('{name}', '{OF_SESSION[name]}', false)" for name in known)
    return f"select {chosen} where pg_catalog.int4eq(pg_catalog.pg_backend_pid(), {backend_pid})"


def of_transaction(row_security: RowSecurity, limits: Mapping[str, str]) -> str:
    """The statements with which a transaction begins, divided by semicolons. They take no snapshot.

    Where row security is refused, PostgreSQL fails a query from which a policy would hide rows. ``limits``: further settings.
    """
    settings = {"row_security": _ROW_SECURITY[row_security], **READ, **limits}
    return "; ".join(f"set local {name} = '{value}'" for name, value in settings.items())
