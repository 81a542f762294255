"""The command ``show``: prints rows of a table of the lake."""

from datetime import date, datetime
from typing import Annotated, Any

import typer

from incremental_assets.cli.app import Json, Project, app, enter, examples, expect_catalogs
from incremental_assets.cli.terminal import out, print_table, say
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.shown_text import counted

_NULL = "NULL"


@app.command(
    rich_help_panel="What moves",
    epilog=examples(
        ("show shop/orders", "the first 20 rows"),
        ('show shop/orders --sql "SELECT id FROM orders"', "a query"),
        ("show shop/orders --version 3 --json", "as it was"),
    ),
)
def show(
    container: Annotated[str, typer.Argument(metavar="DATASTORE/CONTAINER", show_default=False, help="The container of the table.")],
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql", metavar="QUERY", help='A query of DataFusion. The table has the name of the container; with capitals, "Orders".'
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="ROWS", min=1, help="At most so many rows.")] = 20,
    version: Annotated[
        int | None, typer.Option("--version", metavar="NUMBER", min=0, help="An older version of the table; by default the newest one.")
    ] = None,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Show rows of a table of the lake. No Spark is needed."""
    from incremental_assets.delta.shown_rows import shown_rows
    from incremental_assets.delta.table import LakeTable
    from incremental_assets.project.folders import lake_root
    from incremental_assets.runs.loading import load_datastores, select

    datastores = load_datastores(enter(project_dir))
    expect_catalogs(datastores, [container])
    chosen = [definition.container for _, definition in select(datastores, [container], [])]
    if len(chosen) != 1:
        raise ConfigurationError(
            f"{container} has {counted(len(chosen), 'container')}. Name one, as in: incremental-assets show {chosen[0].label}"
        )
    (one,) = chosen
    found = shown_rows(one.label, LakeTable(lake_root(), *one.key_path), one.name, sql, limit, version)
    records = [{name: _shown(value) for name, value in zip(found.columns, row, strict=True)} for row in found.rows]
    if as_json:
        for record in records:
            out(record)
    else:
        cells = [{name: _NULL if value is None else str(value) for name, value in record.items()} for record in records]
        print_table(f"{one.label}, version {found.version}", cells, found.columns, whole=True)
    if found.more:
        say(f"There are more rows; --limit shows more than {limit}.")


def _shown(value: Any) -> Any:
    """The value as JSON can have it exactly: what has no type there is a text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and value == value and abs(value) != float("inf"):
        return value
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [_shown(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _shown(each) for name, each in value.items()}
    return str(value)
