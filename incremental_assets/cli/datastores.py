"""The commands that add datastores to a project, remove them, and rename what they have in the lake: init, add, remove, adopt."""

import itertools
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from incremental_assets.cli.app import Json, Project, app, enter, examples
from incremental_assets.cli.terminal import out, print_catalog, print_table, say, say_privileges
from incremental_assets.core.errors import ConfigurationError, SyncError

Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="What the datastore is called; by default as its database.")]
Schema = Annotated[
    str | None, typer.Option("--schema", metavar="NAME", help="The schema that is read, where it is not public (SQL Server: dbo).")
]
Only = Annotated[list[str] | None, typer.Option("--only", metavar="PATTERN", help="Tables that are synced, as in 'sales_*'; else all.")]
Exclude = Annotated[list[str] | None, typer.Option("--exclude", metavar="PATTERN", help="Tables that are not synced, as in 'tmp_*'.")]
Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="postgresql://user:password@host:port/database, mysql://…, sqlserver://…; or an environment variable that has the URL.",
    ),
]


@app.command(
    rich_help_panel="The project",
    epilog=examples(
        ("init lake", "in the new folder lake"),
        ("init lake --url SHOP_URL", "with a datastore"),
        ("init --deploy", "what puts this project on a machine"),
    ),
)
def init(
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", show_default=False, help="The folder of the project, new or without one.")
    ] = None,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="Add the datastore of this URL, as the command add does.")] = None,
    name: Name = None,
    schema: Schema = None,
    deploy: Annotated[
        bool,
        typer.Option("--deploy", help="Write the files that put the project on a machine; DIR may be left out, or be a project already."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="With --deploy: overwrite files that are there and say something else.")] = False,
) -> None:
    """Write a minimal project that works at once; with --url, one that has a datastore; with --deploy, what puts it on a machine.

    With --deploy: an image and a compose file, units of systemd, the variables that the project needs, a workflow that checks it, and
    DEPLOY.md, which says what to do with them. What is there already stays as it is.
    """
    from incremental_assets.project.folders import is_project

    if url is None and (name is not None or schema is not None):
        raise ConfigurationError("--name and --schema go with --url.")
    if force and not deploy:
        raise ConfigurationError("--force goes with --deploy.")
    if directory is None and not deploy:
        raise ConfigurationError("name the folder of the project: incremental-assets init DIR")
    is_there = directory is None or is_project(directory)
    if is_there and url is not None and deploy:
        raise ConfigurationError("the project is there already. Add its datastore first: incremental-assets add URL")
    if directory is not None and not (deploy and is_there):
        _init(directory, url, name, schema)
    if deploy:
        _deploy(enter(directory), force)


@app.command(
    rich_help_panel="The project",
    epilog=examples(
        ("add SHOP_URL --name shop", "the variable has the URL"),
        ("add SHOP_URL --only 'sales_*'", "these; or --exclude"),
    ),
)
def add(
    url: Url,
    name: Name = None,
    schema: Schema = None,
    only: Only = None,
    exclude: Exclude = None,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Add a database as a datastore: look at it, and write its defs.yaml with the identifiers that were detected and why.

    The URL is written into .env and not into the YAML. A password in a command line is seen by others on the machine, and kept by the
    shell; name an environment variable instead. Views, and tables in which migration tools keep what they have done, are excluded by
    themselves.
    """
    _add(enter(project_dir), url, name, schema, (only or (), exclude or ()), as_json=as_json)


@app.command(
    rich_help_panel="The project",
    epilog=examples(
        ("remove shop", "its tables stay"),
    ),
)
def remove(
    datastore: Annotated[str, typer.Argument(metavar="DATASTORE", help="The datastore that is to be removed.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    project_dir: Project = None,
) -> None:
    """Remove a datastore from the project: its defs.yaml, and its URL from .env. Its Delta tables, catalog and history stay."""
    from incremental_assets.operations.new_datastore import remove_datastore
    from incremental_assets.runs.loading import find_datastore, load_datastores

    project = enter(project_dir)
    store = find_datastore(load_datastores(project), datastore)
    if any(definition.container.is_captured for definition in store.definitions):
        say(f"{store.name} follows the log of its source, which keeps it until: incremental-assets capture drop {store.name}")
    if not yes:
        typer.confirm(f"Delete the defs.yaml of {store.name}? Its Delta tables stay in the lake.", abort=True, err=True)
    for line in remove_datastore(project, store.name):
        say(line)


def _init(directory: Path, url: str | None, name: str | None, schema: str | None) -> None:
    from incremental_assets.project.scaffold import write_project

    for path in write_project(directory):
        say(f"wrote {path}")
    if url is not None:
        try:
            _add(directory, url, name, schema, ((), ()), as_json=False)
        except SyncError:
            said = {"--name": name, "--schema": schema}
            words = ["incremental-assets", "add", "URL", *(word for option, value in said.items() if value for word in (option, value))]
            say(f"the project is there, and has no datastore. Add it: cd {shlex.quote(str(directory))} && {shlex.join(words)}")
            raise


def _deploy(project: Path, force: bool) -> None:
    from incremental_assets.project.deployment import deployment_of, write_deployment

    done = write_deployment(project, deployment_of(project), force=force)
    for path in done.written:
        say(f"wrote {path}")
    for path in done.kept:
        say(f"kept {path}: it says something else; --force overwrites it")
    if not done.written and not done.kept:
        say("all files are there, and as they would be written")
    say("next, on the machine: cp .env.example .env, fill it in, and go on as DEPLOY.md says")


def _add(
    project: Path, url: str, name: str | None, schema: str | None, patterns: tuple[Sequence[str], Sequence[str]], *, as_json: bool
) -> None:
    """``patterns``: of tables that are synced, and of such as are not."""
    from incremental_assets.operations.catalog import missing_privileges
    from incremental_assets.operations.new_datastore import NewDatastore, add_datastore
    from incremental_assets.project.folders import enter_project
    from incremental_assets.runs.loading import find_datastore, load_datastores
    from incremental_assets.runs.ordinary_run import command_line_instance

    project = project.resolve()
    enter_project(project)
    new = NewDatastore.of(url, name, schema, dict(os.environ), *patterns)
    with command_line_instance() as instance:
        records = add_datastore(project, new, instance, say)
        missing = missing_privileges(find_datastore(load_datastores(project), new.name), instance)
    if as_json:
        for record in records:
            out(record)
        return
    print_catalog(new.name, records, is_first=True)
    say_privileges(new.name, missing)
    if not records:
        say(
            f"{new.name}: no table was found in the schema that was read, or the role may read none. "
            f"To read another schema: incremental-assets remove {new.name}, and add again with --schema NAME"
        )
    say(f"wrote {project / 'defs' / new.name / 'defs.yaml'}, with all reasons: look at it, and then: incremental-assets sync {new.name}")


@app.command(
    rich_help_panel="The project",
    epilog=examples(
        ("adopt shop", "its database was moved, upgraded or restored"),
        ("adopt shop/orders", "the table was made anew"),
        ("adopt store --from shop", "shop is called store now"),
    ),
)
def adopt(
    selection: Annotated[
        list[str],
        typer.Argument(metavar="DATASTORE[/CONTAINER] …", show_default=False, help="Whose tables go on."),
    ],
    old: Annotated[
        str | None,
        typer.Option("--from", metavar="OLD", help="The name that the datastore had until now; its tables are moved."),
    ] = None,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Let Delta tables go on whose source was moved, upgraded, restored or made anew, or whose datastore was renamed.

    Where a table was filled from another database, schema or table than the one that is there now, its rows are compared with the source's
    first. If they are equal, the next sync goes on at its watermark; if not, the differences are named, and nothing is changed.
    """
    from incremental_assets.operations.adopt import adopt_lines
    from incremental_assets.runs.current_catalogs import select_current
    from incremental_assets.runs.loading import load_project
    from incremental_assets.runs.ordinary_run import command_line_instance
    from incremental_assets.runs.records.operation_log import recorded_together

    project = load_project(enter(project_dir))
    if any(store.name == old for store in project.datastores):
        raise ConfigurationError(f"{old} is a datastore of this project. Rename it in the YAML first; its tables are adopted afterwards.")
    if old is not None and len({name.partition("/")[0] for name in selection}) > 1:
        raise ConfigurationError("--from goes with one datastore.")
    chosen = select_current(project, selection, [], say)
    refused = [{"container": name, "status": "failed", "message": str(error)} for name, error in chosen.failed]
    records: list[dict[str, Any]] = []
    with command_line_instance() as instance, recorded_together():
        for record in itertools.chain(refused, adopt_lines(old, chosen.ready, instance, say)):
            records.append(record)
            out(record) if as_json else say(f"{record['container']}: {record['status']}: {record['message']}")
    if not as_json:
        print_table("adopted", records, ("container", "status", "message"))
    raise typer.Exit(1 if any(record["status"] in ("different", "failed") for record in records) else 0)
