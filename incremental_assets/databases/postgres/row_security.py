"""Finds out which policies of row security hide rows from the role that reads a container."""

import hashlib
import re
from dataclasses import dataclass

import psycopg
from psycopg.rows import args_row

from incremental_assets.core.errors import SourceError
from incremental_assets.databases.postgres.connection import PostgresAddress, ask
from incremental_assets.databases.source import Policies

# The relation and, through views, all that it reads, each with the role whose rights count: that of a view's owner, unless the view goes by
# the rights of those who use it. Functions that a view calls may read tables, too, which PostgreSQL does not tell. So a table may be asked
# for by its name, in whatever schema it is.
_GUARDED = """
with recursive me as (
  select oid from pg_roles where rolname = current_user
), read as (
  select c.oid, c.relkind, c.relowner, me.oid as reader from pg_class c, me
  where c.oid = %(relation)s::regclass or (c.relname = %(named)s and c.relrowsecurity)
  union
  select t.oid, t.relkind, t.relowner, case when exists (
      select from pg_options_to_table(v.reloptions) where option_name = 'security_invoker' and option_value::boolean)
    then me.oid else v.relowner end
  from me, read join pg_class v on v.oid = read.oid join pg_rewrite r on r.ev_class = v.oid
  join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid and d.refclassid = 'pg_class'::regclass
  join pg_class t on t.oid = d.refobjid and t.oid <> v.oid
  where read.relkind = 'v'
)
select distinct format('%%I.%%I', n.nspname, c.relname), c.relname::text, format('%%I', r.rolname),
  not (r.rolsuper or r.rolbypassrls or (pg_has_role(r.oid, c.relowner, 'usage') and not c.relforcerowsecurity)),
  array(select p.polname::text from pg_policy p where {applies} order by 1),
  (select string_agg(format('%%s %%s %%s', p.polname, p.polpermissive, pg_get_expr(p.polqual, p.polrelid)), E'\\n' order by p.polname)
     from pg_policy p where {applies})
from read join pg_class c on c.oid = read.oid join pg_namespace n on n.oid = c.relnamespace join pg_roles r on r.oid = read.reader
where c.relrowsecurity order by 1, 3
""".replace(
    "{applies}",
    "p.polrelid = c.oid and p.polcmd in ('r', '*') and (0 = any(p.polroles) or exists ("
    "select from unnest(p.polroles) x where pg_has_role(r.oid, x, 'usage')))",
)
_REFUSED = re.compile(r"query would be affected by row-level security policy for table \".+?\"")
_NAMED = re.compile(r"[\"«»„“”‘’「]\s*([^\"«»„“”‘’「」]+?)\s*[\"«»“”’」]")


@dataclass(frozen=True)
class _Guarded:
    """A table with row security, as it is read by ``reader``. ``hides``: it may hide rows from that role. ``policies``: the names of the
    policies that hold for that role, and ``text`` what they say."""

    table: str
    name: str
    reader: str
    hides: bool
    policies: list[str]
    text: str | None

    @property
    def said(self) -> str:
        named = f"policies {', '.join(self.policies)}" if self.policies else "no policy, so that all rows are hidden"
        return f"{self.table} (read as {self.reader}; {named})"


def policies_of(connection: psycopg.Connection, relation: str) -> Policies:
    """The policies that hide rows of a table or view from our role. ``relation``: its quoted name. Raises psycopg.Error."""
    found = _guarded(connection, relation, "")
    hiding = [one for one in found if one.hides]
    text = "\n".join(f"{one.table} {one.reader} {one.text or ''}" for one in hiding)
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() if hiding else ""
    return Policies(digest, ", ".join(one.said for one in hiding), tuple(dict.fromkeys(one.table for one in found)))


def is_refused(error: psycopg.Error) -> bool:
    """Whether PostgreSQL has refused a query because a policy would hide rows. Its message may be in any language."""
    return error.diag.source_function == "check_enable_rls"


def refusal(label: str, address: PostgresAddress, relation: str | None, said: str) -> SourceError:
    """The error for such a refusal. ``relation``: the quoted name of what was read, if it is known. ``said``: the server's message."""
    hiding: list[_Guarded] = []
    named = next(iter(_NAMED.findall(said)), "")
    try:  # over a connection of its own, as the transaction of the query has failed
        with address.opened() as connection:
            if relation is not None:
                hiding = [one for one in _guarded(connection, relation, "") if one.hides and named in ("", one.name)]
            hiding = hiding or [one for one in _guarded(connection, None, named) if one.hides]
    except psycopg.Error:
        pass  # the server's own message names the table
    roles = list(dict.fromkeys(one.reader for one in hiding)) or [address.user]
    tables = f" That is {', '.join(one.said for one in hiding)}." if hiding else ""
    return SourceError(
        f"{label}: row security would hide rows: {said}{tables} Nothing was written. Let {' and '.join(roles)} see all rows: "
        f"{' '.join(f'ALTER ROLE {role} BYPASSRLS;' for role in roles)} Or sync the rows that are not hidden: row_security: accept"
    )


def refused_read(label: str, address: PostgresAddress, relation: str, said: str) -> SourceError | None:
    """The same for the message of a read over another connection, in which Spark may have added to it; None if that has failed for another
    reason."""
    found = _REFUSED.search(said)
    return None if found is None else refusal(label, address, relation, f"{found[0]}.")


def _guarded(connection: psycopg.Connection, relation: str | None, named: str) -> list[_Guarded]:
    return ask(connection, _GUARDED, {"relation": relation, "named": named}, args_row(_Guarded))
