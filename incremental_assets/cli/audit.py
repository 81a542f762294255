"""The command that proves that nothing is missing: audit."""

from typing import Annotated, Any

import typer

from incremental_assets.cli.app import Json, Project, Selection, Tags, app, enter, examples, keys, no_datastore
from incremental_assets.cli.terminal import out, print_table, say, say_record
from incremental_assets.core.errors import ConfigurationError


@app.command(
    rich_help_panel="Quality",
    epilog=examples(
        ("audit shop/orders", "all rows"),
        ("audit shop/orders --partition 2026-03 --repair", "heal it"),
    ),
)
def audit(
    selection: Selection = None,
    tag: Tags = None,
    partition: Annotated[str | None, typer.Option(metavar="KEY", help="Compare this partition.")] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="KEY", help="Compare from this partition …")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="KEY", help="… to this one, both included.")] = None,
    repair: Annotated[
        bool, typer.Option("--repair/--no-repair", help="Refresh the partitions that differ, and compare them again.")
    ] = False,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty/--no-allow-empty", help="Allow the repair to empty a table or a partition that has rows.")
    ] = False,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Prove that the Delta tables have the rows of their sources: all of them, and no others.

    Each container is synced, and then compared with the state of the source that the sync has read, partition by partition, by hashes
    that source and lake compute themselves. Files are read once more for it. Where they differ, the keys of the rows are found. The exit
    code is 1 if something differs.
    """
    from incremental_assets.operations.audit import AuditOptions, audit_lines
    from incremental_assets.runs.current_catalogs import select_current
    from incremental_assets.runs.loading import load_project
    from incremental_assets.runs.loggers import warnings_once
    from incremental_assets.runs.ordinary_run import command_line_instance
    from incremental_assets.runs.records.operation_log import recorded_together
    from incremental_assets.runs.runner import Runner

    options = AuditOptions(keys(partition, from_, to), repair, allow_empty=allow_empty)
    if allow_empty and not repair:
        raise ConfigurationError("--allow-empty goes with --repair: an audit alone changes nothing.")
    project = enter(project_dir)
    loaded = load_project(project)
    if not loaded.datastores:
        raise no_datastore(project)
    selected = select_current(loaded, selection or [], tag or [], say)
    records: list[dict[str, Any]] = []
    for label, reason in selected.failed:
        say(f"{label}: {reason}")
    with command_line_instance() as instance, recorded_together(), warnings_once():
        runner = Runner(loaded.definitions(selected.ready), instance)
        for record in audit_lines(runner, selected.ready, options, instance):
            records.append(record)
            if as_json:
                out(record)
            else:
                say_record(record)
    if not as_json:
        print_table("audit", records, ("container", "status", "missing", "stale", "surplus", "rows", "seconds", "partitions_checked"))
        _print_examples(records)
    wrong = selected.failed or any(record["status"] in ("different", "failed") for record in records)
    raise typer.Exit(1 if wrong else 0)


def _print_examples(records: list[dict[str, Any]]) -> None:
    """Print the keys of some rows that differ."""
    rows = [
        {"container": record["container"], "difference": kind, "key": ", ".join("NULL" if part is None else part for part in key)}
        for record in records
        for kind, found in (record["examples"] or {}).items()
        for key in found
    ]
    if rows:
        print_table("some of the rows that differ", rows, ("container", "difference", "key"))
