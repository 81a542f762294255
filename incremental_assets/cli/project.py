"""The commands about the project as a whole: show what it has run, play the demo, and show it in the UI."""

from typing import Annotated

import typer

from incremental_assets.cli.app import Json, Project, app, enter, examples, project_of
from incremental_assets.cli.terminal import out, print_table, say


@app.command(
    rich_help_panel="The project",
    epilog=examples(
        ("operations --limit 50", "the newest 50"),
        ("operations 3f2a --json", "one, by the beginning of its id"),
    ),
)
def operations(
    id: Annotated[
        str | None, typer.Argument(metavar="ID", show_default=False, help="One operation by its id, or by the beginning of its id.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "--most", metavar="N", min=1, help="How many are shown, the newest first.")] = 20,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Show the operations that have run or are running: catalogs, syncs, scans, profiles, maintenance."""
    from incremental_assets.operations.history import operation
    from incremental_assets.operations.history import operations as newest
    from incremental_assets.runs.ordinary_run import command_line_instance

    enter(project_dir)
    with command_line_instance() as instance:
        records = [operation(instance, id)] if id is not None else newest(instance, limit)
    if as_json:
        for record in records:
            out(record)
    elif id is not None:
        for name, value in records[0].items():
            say(f"{name}: {value}")
    else:
        print_table("operations", records, ("id", "type", "of", "result", "created", "triggered_by", "schedule", "message"), cut="message")


@app.command(
    rich_help_panel="The project",
    epilog=examples(
        ("demo", "the whole demo, on this machine"),
        ("demo --scale 1", "with 6 million rows in its largest table"),
    ),
)
def demo(
    scale: Annotated[float, typer.Option(metavar="NUMBER", help="TPC-H's scale factor.")] = 0.1,
    project_dir: Project = None,
) -> None:
    """Run the demo: an embedded PostgreSQL with TPC-H data, syncs, and a comparison of source and lake row by row.

    It begins from nothing each time.
    """
    from incremental_assets.demo.run import run_demo

    raise typer.Exit(run_demo(project_of(project_dir), scale))


@app.command(
    rich_help_panel="The project",
    epilog=examples(
        ("dev", "the UI on http://127.0.0.1:3000, and the daemon"),
        ("dev --port 3010 --read-only", "a UI that changes nothing"),
    ),
)
def dev(
    port: Annotated[int, typer.Option(metavar="N", min=1, max=65535, help="The port of the UI on 127.0.0.1.")] = 3000,
    read_only: Annotated[bool, typer.Option("--read-only", help="The UI changes nothing; schedules still run.")] = False,
    project_dir: Project = None,
) -> None:
    """Start Dagster's UI on 127.0.0.1, with its schedules and sensors running.

    No other web page can use it. The embedded Spark server ends with it.
    """
    from incremental_assets.dagster.web.serve import serve

    raise typer.Exit(serve(enter(project_dir), port, read_only))
