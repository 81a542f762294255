"""``incremental-assets add`` and ``remove``: writes the ``defs.yaml`` of a new datastore from what its source shows, or deletes one.

All that the source has a say in (names, defaults, triggers) is quoted, or stands in a comment of one line; a name that Dagster would read
as a template is left out.
"""

import glob
import re
import shutil
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import dagster as dg
import dotenv

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.container import Heirs, Kind, SourceTable
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.yaml_text import TEMPLATE, comment_text, flow
from incremental_assets.databases.definition import TableDefinition
from incremental_assets.operations.catalog import catalog_records, name_collisions
from incremental_assets.project.defs_files import place_of
from incremental_assets.project.folders import enter_project
from incremental_assets.runs.loading import find_datastore, load_datastores

COMPONENTS = {
    "postgresql": "PostgresDatastore",
    "postgres": "PostgresDatastore",
    "mysql": "MySQLDatastore",
    "mariadb": "MySQLDatastore",
    "sqlserver": "SQLServerDatastore",
    "mssql": "SQLServerDatastore",
}
"""The components of databases, by the schemes of their URLs."""
MIGRATIONS = frozenset(
    (
        "schema_migrations", "ar_internal_metadata", "alembic_version", "django_migrations", "flyway_schema_history", "databasechangelog",
        "databasechangeloglock", "knex_migrations", "knex_migrations_lock", "goose_db_version", "_prisma_migrations", "SequelizeMeta",
        "__EFMigrationsHistory",
    )
)  # fmt: skip
"""Tables in which tools keep which migrations they have made: nobody asks a lake for them."""
VIEWS_EVERY = "1 hour"
"""The proposal for ``every`` of views."""
CATALOG_SCHEDULE = "7 * * * *"
"""When the source is looked at for new tables and columns: each hour, and not at the minute at which everything else begins."""
_WIDTH = 120
_VARIABLE = re.compile(r"""["']?\{\{\s*env\.([A-Za-z_]\w*)\s*\}\}""")


@dataclass(frozen=True)
class NewDatastore:
    """A datastore that is to be added. ``variable``: the environment variable with the URL. ``is_known``: it is set already. ``only``,
    ``exclude``: patterns of tables that are synced, and of such as are not."""

    name: str
    component: str
    variable: str
    url: str
    schema: str | None
    is_known: bool
    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        url: str,
        name: str | None,
        schema: str | None,
        environment: dict[str, str],
        only: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> "NewDatastore":
        """``url``: the URL of a database, or the name of an environment variable that has it. ``name``: None: that of the database.

        Raises ConfigurationError if it is neither, or if the name is no name for a folder and a datastore.
        """
        variable = url if re.fullmatch(r"[A-Za-z_]\w*", url) else None
        if variable is not None:
            if variable not in environment:
                raise ConfigurationError(f"{url} is neither a URL nor an environment variable that is set. {_SUPPORTED}")
            url = environment[variable]
        scheme, slashes, rest = url.partition("://")
        if not slashes or scheme not in COMPONENTS:
            raise ConfigurationError(f"{'the value of ' + variable if variable else 'this'} is no URL of a database. {_SUPPORTED}")
        database = unquote(rest.split("?")[0].rpartition("/")[2])
        if name is None:
            name = re.sub(r"\W+", "_", database.lower(), flags=re.ASCII).strip("_")
        if not re.fullmatch(r"[A-Za-z]\w*", name, flags=re.ASCII):
            raise ConfigurationError(
                f"a datastore cannot be called {name!r}; say --name with letters, digits and underscores, a letter first."
            )
        return cls(
            name, COMPONENTS[scheme], variable or f"{name.upper()}_URL", url, schema, variable is not None, tuple(only), tuple(exclude)
        )


_SUPPORTED = "Write postgresql://user:password@host:port/database, or a URL that begins with mysql:// or sqlserver://."


def add_datastore(project: Path, new: NewDatastore, instance: dg.DagsterInstance, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """Adds the datastore to the project, and returns the records of its catalog (``catalog_command``).

    The source is looked at before anything stays: where that fails, the project is as it was before. Raises ConfigurationError or
    SourceError.
    """
    folder = project / "defs" / new.name
    if folder.exists():
        raise ConfigurationError(f"{folder} is already there. Say --name with another name, or: incremental-assets remove {new.name}")
    if any(store.name == new.name for store in load_datastores(project)):
        raise ConfigurationError(f"a datastore is called {new.name!r} already. Say --name with another name.")
    undo = [] if new.is_known else [_set_variable(project / ".env", new)]
    folder.mkdir(parents=True)
    undo.append(lambda: shutil.rmtree(folder))
    try:
        enter_project(project)  # reads .env
        file = folder / "defs.yaml"
        file.write_text(yaml_of(new, ()), encoding="utf-8")
        store = find_datastore(load_datastores(project), new.name)
        catalog_records(store, instance, {}, False, progress)
        file.write_text(yaml_of(new, store.definitions), encoding="utf-8")
        # The entries are read as a user would read them, and the ends of the identifiers that they name are looked up.
        datastores = load_datastores(project)
        records = catalog_records(find_datastore(datastores, new.name), instance, {}, False, progress)
        name_collisions(datastores, records)
        return records
    except BaseException:
        for step in reversed(undo):
            step()
        raise


def remove_datastore(project: Path, name: str) -> list[str]:
    """Deletes the datastore's ``defs.yaml``, and the variable with its URL where nothing else uses it. Returns what was done, in words.

    Its tables in the lake, its catalog and its history stay. Raises ConfigurationError where there is no such file, or where it
    is not the datastore's alone.
    """
    place = place_of(project / "defs", name)
    if place.components > 1:
        raise ConfigurationError(f"{place.file} has several components: take {name} out of it yourself.")
    file = place.file
    others = [path for path in file.parent.iterdir() if path != file and path.name != "__pycache__"]
    if others:
        raise ConfigurationError(f"{file.parent} has other files, such as {others[0].name}: delete {file.name} there yourself.")
    shutil.rmtree(file.parent)
    done = [f"deleted {file}"]
    found, env = _VARIABLE.search(place.text), project / ".env"
    if found is not None and found[1] in dotenv.dotenv_values(env, interpolate=False):
        files = [*project.glob("*.y*ml"), *(project / "defs").glob("**/*.y*ml")]
        rest = [path.read_text(encoding="utf-8", errors="replace") for path in files if path.is_file()]
        if not any(f"env.{found[1]}" in other for other in rest):
            dotenv.unset_key(env, found[1])
            done.append(f"deleted {found[1]} from {env}")
    return done


def yaml_of(new: NewDatastore, containers: Sequence[ContainerDefinition]) -> str:
    """The text of the new ``defs.yaml``. ``containers``: as the first catalog has found them."""
    found = [definition for definition in containers if isinstance(definition, TableDefinition)]
    migrations = [definition.table.name for definition in found if definition.table.name in MIGRATIONS]
    views = [one.table.name for one in found if one.table.kind is Kind.VIEW and not TEMPLATE.search(one.table.name)]
    views = [name for name in views if name not in new.only]  # who names a view wants it
    tables = [definition for definition in found if definition.table.name not in (*migrations, *views)]
    excluded = [*new.exclude, *migrations, *(glob.escape(name) for name in views)]
    why = "   # also views, and what migration tools keep for themselves" if migrations or views else ""
    lines = [
        "# Written by `incremental-assets add`. Every table that the schema has now is synced: those under `incremental` by what is new in",
        "# them, all others whole each time. What nothing proves is not used unasked: those entries are comments.",
        f"type: incremental_assets.{new.component}",
        "attributes:",
        f"  name: {new.name}",
        f'  url: "{{{{ env.{new.variable} }}}}"' + ("" if new.is_known else "   # its value, with the password, is in .env"),
        *([] if new.schema is None else [f"  schema: {flow(new.schema)}"]),
        *([f"  only: {flow(list(new.only))}"] if new.only else []),
        *([f"  exclude: {flow(excluded)}{why}"] if excluded else []),
        f"  catalog: {{schedule: {flow(CATALOG_SCHEDULE)}}}   # looks for new tables and columns",
        "  on_new_table: announce   # is reported, and synced once this file names it; load: small ones are synced at once",
    ]
    entries = [(definition, definition.entry) for definition in tables if definition.entry is not None]
    used = [(definition, entry) for definition, entry in entries if definition.proposal.trusted and not TEMPLATE.search(entry)]
    empty = "  incremental: []" + ("   # before you use an entry of the comments, take the [] away" if entries else "")
    lines.append("  incremental:" if used else empty)
    for definition, entry in entries:
        proposal, is_used = definition.proposal, (definition, entry) in used
        lines += _comment(f"{definition.table.name}: {'; '.join(proposal.reasons)}")
        if TEMPLATE.search(entry):
            lines += _comment("It is not written here, as Dagster would read its name as a template.")
        else:
            lines.append(f"    {'' if is_used else '# '}- {entry}")
    sized = {one.table.name: one.proposal.partition_by for one, _ in used if one.proposal.about is None and one.proposal.partition_by}
    said = [line for definition in tables for line in _container(definition.table, sized.get(definition.table.name))]
    if views:
        lines += _comment(
            "What has changed in a view cannot be seen, so that each sync reads it whole. To sync one, take it out of `exclude`, and say "
            f"under `containers` how often: {flow(views[0])}: {{every: {VIEWS_EVERY}}}"
        )
    return "\n".join([*lines, *(["  containers:", *said] if said else [])]) + "\n"


def _container(table: SourceTable, partition_by: str | int | None) -> list[str]:
    """The lines of a table under ``containers``; none if nothing is said of it."""
    options = [] if partition_by is None else [f"partition_by: {partition_by}"]
    comment: list[str] = []
    if table.heirs is Heirs.BESIDE:
        comment = _comment(
            f"{table.name}: other tables inherit from it, and it is not synced until this says whose rows it has: inherited: only for its "
            f"own ones, inherited: include for all of them."
        )
    elif table.heirs is not None:
        comment = _comment(f"{table.name}: its rows are in tables that inherit from it.")
        options.append("inherited: include")
    if TEMPLATE.search(table.name):
        options = []
    return [*comment, *([f"    {flow(table.name)}: {{{', '.join(options)}}}"] if options else [])]


def _comment(text: str) -> list[str]:
    """The text as lines of comment, whatever is in it."""
    return [f"    # {line}" for line in textwrap.wrap(comment_text(text), _WIDTH, break_on_hyphens=False)]


def _set_variable(env: Path, new: NewDatastore) -> Callable[[], object]:
    """Writes the URL into ``.env``, which only its owner can read then. Returns what undoes it.

    Raises ConfigurationError if the variable has another value there, or if the URL has characters that no URL has.
    """
    before = env.read_text(encoding="utf-8") if env.exists() else None
    known = dotenv.dotenv_values(env, interpolate=False).get(new.variable)
    if known is not None and known != new.url:
        raise ConfigurationError(f"{env} has another {new.variable} already. Say --name with another name, or `add {new.variable}`.")
    if not re.fullmatch(r"[!-~]+", new.url) or re.search(r"""["'\\]|\$\{""", new.url):
        raise ConfigurationError("the URL has characters that a URL writes as %XX, such as spaces or quotes; write them so.")
    env.touch(mode=0o600)
    env.chmod(0o600)
    dotenv.set_key(env, new.variable, new.url)
    env.chmod(0o600)
    return env.unlink if before is None else lambda: env.write_text(before, encoding="utf-8")
