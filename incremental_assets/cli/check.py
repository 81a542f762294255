"""The command ``check``, which says whether the project is well formed."""

import sys
from typing import Any

import typer

from incremental_assets.cli.app import Json, Project, app, examples, project_of
from incremental_assets.cli.terminal import out, print_table, say


@app.command(
    rich_help_panel="The project",
    epilog=examples(
        ("check", "before a commit"),
        ("check --json", "for a program"),
    ),
)
def check(as_json: Json = False, project_dir: Project = None) -> None:
    """Say whether the project is well formed: all its defs.yaml files, with each other and with the stored catalogs.

    No source is asked, Spark is not started, and nothing is written, so that it runs where there are no credentials: the variables that
    only addresses refer to need not be set. The exit code is 2 if something is wrong, and then each problem is printed with its place.
    """
    from incremental_assets.operations.check import check_lines
    from incremental_assets.project.folders import read_project

    sys.dont_write_bytecode = True  # not even beside the project's own modules
    project = project_of(project_dir)
    read_project(project)
    records = check_lines(project)
    if as_json:
        for record in records:
            out(record)
    else:
        _show(records)
    raise typer.Exit(2 if any(record["problems"] for record in records) else 0)


def _show(records: list[dict[str, Any]]) -> None:
    rows = [{**record, "problems": len(record["problems"]) or None} for record in records if record["file"] is not None]
    print_table("check", rows, ("name", "kind", "problems", "message", "file", "containers", "rules"))
    problems = [problem for record in records for problem in record["problems"]]
    for problem in problems:
        place = "" if problem["file"] is None else f"{problem['file']}:{problem['line'] or ''}".rstrip(":") + ": "
        say(f"{place}{problem['text']}")
    if not problems:
        say("the project is well formed")
