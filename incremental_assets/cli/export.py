"""The command that describes tables for other programs: export metadata."""

from typing import Annotated

import typer

from incremental_assets.cli.app import Json, Project, app, enter, examples, expect_catalogs
from incremental_assets.cli.terminal import out, print_table, say
from incremental_assets.core.errors import ConfigurationError


@app.command(
    rich_help_panel="What moves",
    epilog=examples(
        ("export metadata", "documents of all tables"),
        ("export metadata shop/orders --format odcs", "a contract"),
    ),
)
def export(
    what: Annotated[
        str, typer.Argument(metavar="metadata", show_default=False, help="metadata: documents that describe the tables of the lake.")
    ],
    selection: Annotated[
        list[str] | None,
        typer.Argument(metavar="DATASTORE[/CONTAINER] …", show_default=False, help="All containers of the project where nothing is named."),
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format", metavar="cdm|odcs", help="cdm: a manifest of the Common Data Model. odcs: Open Data Contract Standard v3."
        ),
    ] = "cdm",
    output: Annotated[
        str | None,
        typer.Option(
            "--output", metavar="FOLDER", help="Where the documents are written; by default into the datastore's folder of the lake."
        ),
    ] = None,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Write documents that describe the tables of the lake for other programs: types, keys, relationships, files, rules of quality.

    Sources are not queried and Spark is not needed: what is written is the schema of the Delta tables and what the stored catalogs know.
    Where plain readers of Parquet must not read the files of a table, as it may have deletion vectors, the document and the output say so.
    The exit code is 1 if a document could not be written.
    """
    from incremental_assets.core.metadata_documents import MetadataFormat
    from incremental_assets.project.folders import lake_root
    from incremental_assets.runs.loading import load_datastores, select
    from incremental_assets.runs.metadata_export import export_lines

    if what != "metadata":
        raise ConfigurationError(f"export {what}: write export metadata.")
    if format_ not in [one.value for one in MetadataFormat]:
        raise ConfigurationError(f"--format {format_}: it is cdm or odcs.")
    datastores = load_datastores(enter(project_dir))
    expect_catalogs(datastores, selection)
    chosen = [definition for _, definition in select(datastores, selection or [], [])]
    whole = frozenset(name for name in (selection or [one.name for one in datastores]) if "/" not in name)
    records = export_lines(chosen, lake_root(), MetadataFormat(format_), output, whole)
    for record in records:
        if as_json:
            out(record)
        elif record["message"]:
            say(f"{record['container']}: {record['message']}")
    if not as_json:
        print_table("export metadata", records, ("container", "status", "path", "plain_parquet", "format"))
    raise typer.Exit(1 if any(record["status"] == "failed" for record in records) else 0)
