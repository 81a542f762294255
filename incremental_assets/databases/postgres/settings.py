"""The settings of PostgreSQL on which a read depends: what each of our transactions begins with, whatever server or role have set.

Belongs here: one list of all such settings, with the values that we need. Does not belong: the limits of a snapshot, which differ from
datastore to datastore (``watch``).

They are set by ``set local``, for one transaction, as a connection pooler hands sessions on to the application. What PostgreSQL sends as
text, and what it makes of our literals, then is the same for every role. Settings that only cost time or order rows otherwise are left
out, and so are those of the locale (``lc_monetary``), which say what the application means.
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
}
"""The settings and their values."""
SEARCH_PATH = (
    "pg_catalog.set_config('search_path', case when pg_catalog.texteq(pg_catalog.left(pg_catalog.current_setting('search_path'), 10),"
    " 'pg_catalog') then pg_catalog.current_setting('search_path') else pg_catalog.concat_ws(', ', 'pg_catalog',"
    " nullif(pg_catalog.current_setting('search_path'), '')) end, true)"
)
"""An expression that sets where names without schema are looked up: in the role's own schemas, as a condition in the YAML may mean them,
but behind PostgreSQL's own, whose tables and functions our queries mean. To evaluate it takes a snapshot."""
_ROW_SECURITY = {RowSecurity.REFUSE: "off", RowSecurity.ACCEPT: "on"}


def of_transaction(row_security: RowSecurity, limits: Mapping[str, str]) -> str:
    """The statements with which a transaction begins, divided by semicolons. They take no snapshot.

    Where row security is refused, PostgreSQL fails a query from which a policy would hide rows. ``limits``: further settings.
    """
    settings = {"row_security": _ROW_SECURITY[row_security], **READ, **limits}
    return "; ".join(f"set local {name} = '{value}'" for name, value in settings.items())
