"""The commands that catalog datastores and move rows: catalog, sync, watermarks."""

import contextlib
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from incremental_assets.cli.app import Json, Project, Selection, Tags, app, enter, examples, expect_catalogs, keys, no_datastore
from incremental_assets.cli.terminal import out, print_catalog, print_syncs, print_table, say, say_privileges, say_record, short
from incremental_assets.core.errors import ConfigurationError, SyncError


@app.command(
    rich_help_panel="What moves",
    epilog=examples(
        ("catalog shop", "what there is, and what has changed"),
        ("catalog shop --explain", "with all reasons"),
        ("catalog --dry-run --json", "only look, for a script"),
    ),
)
def catalog(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATASTORE …] | remove DATASTORE/CONTAINER …",
            show_default=False,
            help="Datastores, all where nothing is named; or the word remove and the containers to hide.",
        ),
    ] = None,
    prune: Annotated[
        bool | None,
        typer.Option(help="Forget containers that are gone from the source; their Delta tables stay. By default as the YAML says."),
    ] = None,
    recreate: Annotated[
        bool | None, typer.Option(help="Bring back containers that catalog remove has hidden. By default as the YAML says.")
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(metavar="table|view", help="Look only at tables, or only at views; the others stay as they are known."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run/--no-dry-run", help="Only show the differences, and keep nothing.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print all that is known of each container, and why it is synced so.")] = False,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Find out which containers the datastores have, and what has changed since the last time.

    Columns, types, keys, sizes, and the first and last identifiers are stored, so that the project loads without the source. For each
    container an identifier is proposed.

    With the word remove it hides containers until they are recreated; their Delta tables stay.
    """
    from incremental_assets.operations.catalog import catalog_records, missing_privileges, name_collisions, remove_containers
    from incremental_assets.runs.loading import find_datastore, load_datastores
    from incremental_assets.runs.ordinary_run import command_line_instance
    from incremental_assets.runs.records.operation_log import recorded_together

    project = enter(project_dir)
    datastores = load_datastores(project)
    names = words or []
    # ``remove`` is a subcommand, unless a datastore has this name.
    if names[:1] == ["remove"] and not any(store.name == "remove" for store in datastores):
        if prune is not None or recreate is not None or include or dry_run or as_json:
            raise ConfigurationError("catalog remove takes names only.")
        with command_line_instance() as instance:
            for label in remove_containers(datastores, names[1:], instance):
                say(f"{label}: removed from the catalog; its Delta table stays. To bring it back: incremental-assets catalog --recreate")
        return
    wrong = [word for word in include or [] if word not in ("table", "view")]
    if wrong:
        raise ConfigurationError(f"--include {wrong[0]}: it is table or view.")
    config = {k: v for k, v in (("prune", prune), ("recreate", recreate), ("include", include)) if v is not None}
    failed = False
    chosen = [find_datastore(datastores, name) for name in names] or datastores
    found: dict[str, list[dict[str, Any]]] = {}
    missing: dict[str, Sequence[str]] = {}
    try:
        with command_line_instance() as instance, recorded_together():
            for store in chosen:
                try:
                    found[store.name] = catalog_records(store, instance, config, dry_run, say)
                    missing[store.name] = () if dry_run else missing_privileges(store, instance)
                except ConfigurationError:
                    raise
                except SyncError as error:
                    failed = True
                    say(str(error))
    finally:
        # Which names collide is known once all catalogs are there.
        name_collisions(datastores, [record for records in found.values() for record in records])
        for name, records in found.items():
            if as_json:
                for record in records:
                    out(record)
            else:
                print_catalog(name, records, explain=explain)
                say_privileges(name, missing.get(name, ()))
    raise typer.Exit(1 if failed else 0)


@app.command(
    rich_help_panel="What moves",
    epilog=examples(
        ("sync", "what is new, of all containers"),
        ("sync shop/orders --from 2026-01 --to 2026-03", "refresh"),
        ("sync shop --dry-run", "what a sync would do"),
    ),
)
def sync(
    selection: Selection = None,
    tag: Tags = None,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="incremental|refresh",
            help="incremental: read what is new; a container without identifier is refused. refresh: read all "
            "partitions again and replace them. By default what is new, and containers without identifier whole.",
        ),
    ] = None,
    partition: Annotated[str | None, typer.Option(metavar="KEY", help="Refresh this partition: read it whole and replace it.")] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="KEY", help="Refresh from this partition …")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="KEY", help="… to this one, both included.")] = None,
    reset_watermarks: Annotated[
        bool,
        typer.Option("--reset-watermarks/--no-reset-watermarks", help="Load the containers anew, whole; the history of watermarks stays."),
    ] = False,
    allow_empty: Annotated[
        bool,
        typer.Option(
            "--allow-empty/--no-allow-empty",
            help="Allow a refresh to empty a table or a partition that has rows, and a sweep to delete more than max_deleted_share.",
        ),
    ] = False,
    sweep: Annotated[
        bool, typer.Option("--sweep/--no-sweep", help="Find the rows that the source has deleted, where deletes says so; due or not.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run/--no-dry-run", help="Only print ranges, SQL and row counts, without Spark and without a run.")
    ] = False,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="How many containers are synced at the same time, at most.")] = 2,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Bring the Delta tables up to date with their sources.

    It runs the catalog first where there is none, and where the source's tables have changed.
    """
    from incremental_assets.cli.live import live_lines
    from incremental_assets.runs.current_catalogs import select_current
    from incremental_assets.runs.loading import load_project
    from incremental_assets.runs.loggers import warnings_once
    from incremental_assets.runs.ordinary_run import command_line_instance
    from incremental_assets.runs.parallel_sync import sync_beside_workers
    from incremental_assets.runs.records.metadata import line
    from incremental_assets.runs.records.operation_log import recorded_together
    from incremental_assets.runs.runner import Runner, SyncOptions

    options = SyncOptions(_mode(mode), keys(partition, from_, to), reset_watermarks, allow_empty, sweep)
    if reset_watermarks and (options.keys or mode):
        raise ConfigurationError("--reset-watermarks loads whole containers; it goes with neither --mode nor partitions.")
    if sweep and (options.keys or reset_watermarks or mode == "refresh"):
        raise ConfigurationError("--sweep goes with an incremental sync; a refresh finds deleted rows of its partitions by itself.")
    project = enter(project_dir)
    loaded = load_project(project)
    if not loaded.datastores:
        raise no_datastore(project)
    selected = select_current(loaded, selection or [], tag or [], say)
    if sweep and not any(definition.container.options.sweeps for definition in selected.ready):
        raise ConfigurationError("--sweep: none of these containers has deletes: sweep or deletes: soft in the YAML.")
    failed = False
    records: list[dict[str, Any]] = []

    def report(record: dict[str, Any]) -> None:
        nonlocal failed
        failed = failed or record["status"] == "failed"
        records.append(record)
        if as_json:
            out(record)
        else:
            say_record(record)

    with command_line_instance() as instance, recorded_together(), warnings_once():
        for label, reason in selected.failed:
            report(line(label, "failed", message=str(reason)))
        # Definitions that Dagster refuses are reported before anything runs.
        definitions = loaded.definitions(selected.ready)
        if dry_run:
            from incremental_assets.operations.dry_run import dry_run_lines

            for record in dry_run_lines(selected.ready, options, instance):
                failed = failed or record.get("status") == "failed"
                out(record) if as_json else say("\n  ".join([record.pop("container"), *(f"{k}: {short(v)}" for k, v in record.items())]))
            raise typer.Exit(1 if failed else 0)
        if selected.ready:
            with live_lines() if not as_json else contextlib.nullcontext():
                sync_beside_workers(Runner(definitions, instance), project, selected.ready, options, jobs, report)
    if not as_json:
        print_syncs(records)
    raise typer.Exit(1 if failed else 0)


def _mode(text: str | None) -> Any:
    """Return the ``Mode`` that ``--mode`` names; None if it is not given."""
    from incremental_assets.core.plan import Mode

    if text is None:
        return None
    if text not in ("incremental", "refresh"):
        raise ConfigurationError(f"--mode {text}: it is incremental or refresh.")
    return Mode(text)


@app.command(
    rich_help_panel="What moves",
    epilog=examples(
        ("watermarks shop", "the one of each container"),
        ("watermarks shop/orders --history", "how it has moved"),
    ),
)
def watermarks(
    selection: Selection = None,
    history: Annotated[bool, typer.Option("--history", help="Print all watermarks, the newest first.")] = False,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Show the watermark of each container: everything below it is in the lake."""
    from incremental_assets.databases.slot_counts import SlotCounts
    from incremental_assets.operations.capture import with_lag
    from incremental_assets.project.folders import lake_root
    from incremental_assets.runs.loading import load_datastores, select
    from incremental_assets.runs.ordinary_run import command_line_instance
    from incremental_assets.runs.partitions import container_partitions
    from incremental_assets.runs.records.watermarks import current
    from incremental_assets.runs.records.watermarks import history as history_of

    project = enter(project_dir)
    datastores = load_datastores(project)
    expect_catalogs(datastores, selection)
    chosen = select(datastores, selection or [], [])
    records: list[dict[str, Any]] = []
    lake = lake_root(project)
    counts = SlotCounts([definition for _, definition in chosen], lake)
    with command_line_instance() as instance:
        for _, definition in chosen:
            found = history_of(instance, definition.container)
            if history:
                records += found
            else:
                partitions = container_partitions(definition, instance)
                newest = current(instance, definition.container, lake, next(found, None), partitions)
                records.append(with_lag(newest, definition, lake, counts))
    if history:
        records.sort(key=lambda record: record["completed_at"], reverse=True)
    if as_json:
        for record in records:
            out(record)
    else:
        columns = ("container", "column", "new", "previous", "rows", "completed_at", "run_id")
        more = ("lsn", "lag_bytes", "lag_seconds") if any(record["lsn"] is not None for record in records) else ()
        needed = ("refresh_needed",) if any(record["refresh_needed"] for record in records) else ()
        print_table("watermarks", records, (*columns, *more, *needed))
