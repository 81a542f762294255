"""The commands about the quality of what is in the lake: scan, profile, checks, anomalies."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from incremental_assets.cli.app import Json, Project, Selection, Tags, app, enter, examples, expect_catalogs, keys
from incremental_assets.cli.terminal import out, print_scans, print_table, say
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.yaml_text import comment_text

AfterTime = Annotated[
    str | None,
    typer.Option(metavar="T", help="With --incremental: what is above this time; for containers whose identifier is a time."),
]
AfterBatch = Annotated[
    str | None,
    typer.Option(metavar="N", help="With --incremental: what is above this value; for containers whose identifier is an integer."),
]


@app.command(
    rich_help_panel="Quality",
    epilog=examples(
        ("scan shop/orders", "all rows"),
        ("scan shop --incremental", "what is new since the last one"),
    ),
)
def scan(
    selection: Selection = None,
    tag: Tags = None,
    incremental: Annotated[
        bool,
        typer.Option(
            "--incremental",
            help="Only what is new since the last scan, or above a threshold; containers without identifier are left out.",
        ),
    ] = False,
    greater_than_time: AfterTime = None,
    greater_than_batch: AfterBatch = None,
    full: Annotated[
        bool, typer.Option("--full", help="All rows, which is the default; the next incremental scan begins after them.")
    ] = False,
    partition: Annotated[str | None, typer.Option(metavar="KEY", help="Scan this partition.")] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="KEY", help="Scan from this partition …")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="KEY", help="… to this one, both included.")] = None,
    auto_resolve: Annotated[
        bool, typer.Option("--auto-resolve-passed-anomalies", help="Resolve anomalies that this scan looks at again and does not find.")
    ] = False,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Check rows that are in the lake against the rules of quality.

    A sync does so by itself, for the partitions that it wrote.
    """
    from incremental_assets.operations.scans import ScanOptions, scan_lines

    options = ScanOptions(incremental, greater_than_time, greater_than_batch, keys(partition, from_, to), auto_resolve)
    records = _scan_or_profile(project_dir, selection, tag, options, full, as_json, scan_lines)
    if not as_json:
        print_scans(records)
    raise typer.Exit(1 if any(record["status"] == "failed" for record in records) else 0)


@app.command(
    rich_help_panel="Quality",
    epilog=examples(
        ("profile shop/orders", "all rows"),
        ("profile shop --incremental", "what is new since the last"),
    ),
)
def profile(
    selection: Selection = None,
    tag: Tags = None,
    incremental: Annotated[
        bool,
        typer.Option(
            "--incremental",
            help="Only what is new since the last profile, or above a threshold; containers without identifier are left out.",
        ),
    ] = False,
    greater_than_time: AfterTime = None,
    greater_than_batch: AfterBatch = None,
    full: Annotated[bool, typer.Option("--full", help="All rows, which is the default.")] = False,
    partition: Annotated[str | None, typer.Option(metavar="KEY", help="Profile this partition.")] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="KEY", help="Profile from this partition …")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="KEY", help="… to this one, both included.")] = None,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Measure the columns by partition, in one pass, and merge that into the table's profile, which has a page of plots."""
    from incremental_assets.operations.scans import ScanOptions, profile_lines

    options = ScanOptions(incremental, greater_than_time, greater_than_batch, keys(partition, from_, to))
    records = _scan_or_profile(project_dir, selection, tag, options, full, as_json, profile_lines)
    if not as_json:
        print_table("profile", records, ("container", "status", "page", "rows_profiled", "partitions"))
    raise typer.Exit(1 if any(record["status"] == "failed" for record in records) else 0)


@app.command(
    rich_help_panel="Quality",
    epilog=examples(
        ("checks suggest shop/orders", "after: profile shop/orders"),
        ("checks suggest shop > checks.yaml", "of all containers"),
    ),
)
def checks(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="suggest DATASTORE/CONTAINER …", show_default=False, help="The word suggest, and containers with a profile."
        ),
    ],
    project_dir: Project = None,
) -> None:
    """Propose rules from a profile, as YAML to paste under checks.

    The profile is made before: incremental-assets profile. Of containers that lack something, it says what, and which command makes it; the
    exit code is then 2.
    """
    from incremental_assets.dagster.profiles import suggested_checks
    from incremental_assets.operations.scans import lake_scope
    from incremental_assets.runs.loading import load_datastores, select
    from incremental_assets.runs.ordinary_run import command_line_instance

    if words[0] != "suggest" or not words[1:]:
        raise ConfigurationError("write: incremental-assets checks suggest DATASTORE/CONTAINER, such as: checks suggest shop/orders")
    project = enter(project_dir)
    datastores = load_datastores(project)
    expect_catalogs(datastores, words[1:])
    with command_line_instance() as instance, lake_scope(say) as scope:
        lacking = False
        for _, definition in select(datastores, words[1:], []):
            try:
                found = suggested_checks(definition, instance, scope, say)
            except ConfigurationError as error:  # the others may have a profile
                say(str(error))
                lacking = True
                continue
            sys.stdout.write(f"# {comment_text(definition.container.label)}\n{found}")
    raise typer.Exit(2 if lacking else 0)


def _scan_or_profile(
    project_dir: Path | None, selection: Any, tag: Any, options: Any, full: bool, as_json: bool, lines: Any
) -> list[dict[str, Any]]:
    """Run a scan or a profile of the selected containers, print each record as soon as it is there, and return all records.

    Raises ConfigurationError if the options do not go together.
    """
    from incremental_assets.operations.scans import by_identifier
    from incremental_assets.runs.loading import load_project, select
    from incremental_assets.runs.ordinary_run import command_line_instance
    from incremental_assets.runs.records.operation_log import recorded_together

    if (options.after_time or options.after_batch) and not options.incremental:
        raise ConfigurationError("a threshold goes with --incremental.")
    if sum((options.incremental, full, options.keys is not None)) > 1:
        raise ConfigurationError("say one of --incremental, --full, and partitions.")
    project = enter(project_dir)
    loaded = load_project(project)
    datastores = loaded.datastores
    expect_catalogs(datastores, selection)
    chosen = [definition for _, definition in select(datastores, selection or [], tag or [])]
    if options.incremental:
        chosen, whole = by_identifier(chosen, selection or [])
        if whole:
            say(f"left out, as they have no identifier and --incremental goes by it: {', '.join(one.container.label for one in whole)}")
    definitions = loaded.definitions(chosen)
    records: list[dict[str, Any]] = []
    with command_line_instance() as instance, recorded_together():
        for record in lines(definitions, chosen, options, instance):
            records.append(record)
            if as_json:
                out(record)
            else:
                say(f"{record['container']}: {record['status']}: {record['message']}")
    return records


@app.command(
    rich_help_panel="Quality",
    epilog=examples(
        ("anomalies shop", "those that are open"),
        ('anomalies acknowledge 3f2a91 --comment "known"', "one"),
    ),
)
def anomalies(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATASTORE[/CONTAINER] …] | acknowledge|resolve|discard ID …",
            show_default=False,
            help="Datastores or containers whose anomalies are shown, all where nothing is named; or what is said of which anomalies.",
        ),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE",
            help="active, acknowledged, resolved, discarded or all; by default those that are open: active and acknowledged.",
        ),
    ] = None,
    comment: Annotated[
        str | None, typer.Option(metavar="TEXT", help="With acknowledge, resolve or discard: kept in the anomaly's history.")
    ] = None,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Show the anomalies, the newest change first; or acknowledge, resolve or discard some of them."""
    from incremental_assets.core.anomalies import State
    from incremental_assets.operations.scans import VERBS, anomaly_lines, change_anomalies
    from incremental_assets.runs.loading import load_datastores, select

    project = enter(project_dir)
    datastores = load_datastores(project)
    names = words or []
    # A verb is a subcommand, unless a datastore has this name.
    if names[:1] and names[0] in VERBS and not any(store.name == names[0] for store in datastores):
        if state is not None:
            raise ConfigurationError(f"anomalies {names[0]} takes ids, not --state.")
        if not names[1:]:
            raise ConfigurationError(
                f"anomalies {names[0]}: name an anomaly by its id, which is the first column of: incremental-assets anomalies"
            )
        containers = [one for store in datastores for one in store.definitions]
        for record in change_anomalies([store.name for store in datastores], containers, names[0], names[1:], comment):
            out(record) if as_json else say(f"{record['id']}: {record['container']} {record['rule']}: {record['state']}")
        return
    if comment is not None:
        raise ConfigurationError("--comment goes with acknowledge, resolve or discard.")
    known = [one.value for one in State]
    if state not in (None, "all", *known):
        raise ConfigurationError(f"--state {state}: it is {', '.join(known)} or all.")
    states = [one for one in State if state == "all" or one.value == state or (state is None and one.is_open)]
    expect_catalogs(datastores, names)
    records = anomaly_lines([definition for _, definition in select(datastores, names, [])], states)
    if as_json:
        for record in records:
            out(record)
    else:
        print_table(
            "anomalies",
            records,
            ("id", "container", "rule", "state", "severity", "value", "rows", "key", "partition", "comment", "first_seen", "changed_by"),
        )
