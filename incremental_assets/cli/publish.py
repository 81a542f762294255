"""The command ``publish``: gives the tables of the lake names in a metastore."""

from typing import Annotated

import typer

from incremental_assets.cli.app import Json, Project, Selection, Tags, app, enter, examples, expect_catalogs
from incremental_assets.cli.terminal import out, print_table


@app.command(
    rich_help_panel="What moves",
    epilog=examples(
        ("publish shop --catalog unity", "all tables of shop"),
    ),
)
def publish(
    selection: Selection = None,
    tag: Tags = None,
    catalog: Annotated[
        str, typer.Option("--catalog", metavar="NAME", help="A catalog of the Spark server; that of a Hive metastore is spark_catalog.")
    ] = "spark_catalog",
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="NAME", help="The schema of the names; by default the name of the datastore.")
    ] = None,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Register the Delta tables in a metastore, as external tables that SQL finds by name.

    The metastore is that of the Spark server. A table is registered once: later syncs need no other registration.
    """
    from incremental_assets.operations.publish import publish_lines
    from incremental_assets.runs.loading import load_datastores, select

    datastores = load_datastores(enter(project_dir))
    expect_catalogs(datastores, selection)
    chosen = [definition for _, definition in select(datastores, selection or [], tag or [])]
    records = []
    for record in publish_lines(chosen, catalog, schema):
        records.append(record)
        if as_json:
            out(record)
    if not as_json:
        print_table("published", records, ("container", "name", "status", "message"))
    raise typer.Exit(1 if any(record["status"] == "failed" for record in records) else 0)
