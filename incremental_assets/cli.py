"""The command line: arguments in, lines out. One object a line on stdout with --json, everything else on stderr.

Belongs here: words on a terminal and exit codes. Does not belong: any work (``orchestration.loading``, ``orchestration.runner``).

Exit codes: 0 nothing failed; 1 some container failed, the others still ran; 2 wrong usage or configuration, nothing ran; 130 interrupted.
"""

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from incremental_assets.embedded_spark.launch import SparkUnavailable
from incremental_assets.model.errors import ConfigurationError, SyncError
from incremental_assets.terminal import out, print_catalog, print_scans, print_syncs, print_table, say, short

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=(__doc__ or "").splitlines()[0])
Selection = Annotated[list[str] | None, typer.Argument(metavar="DATASTORE[/CONTAINER] …", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="One object a line on stdout.")]
Project = Annotated[Path | None, typer.Option("--project", metavar="DIR", help="Default: found upwards from here.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="K=V", help="Only containers with this tag.")]


class Options:
    project: Path | None = None


@app.callback()
def options(project: Project = None) -> None:
    Options.project = project


def _enter(named: Path | None) -> Path:
    """The project that ``--project`` names, before or after the command; or the one found upwards."""
    from incremental_assets.orchestration.project import enter_project, find_project

    named = named or Options.project
    if named is not None and not named.is_dir():
        raise ConfigurationError(f"--project {named}: there is no such folder.")
    project = find_project(named)
    enter_project(project)
    return project


@app.command()
def init(directory: Annotated[Path, typer.Argument(metavar="DIR")]) -> None:
    """Write a minimal project that works at once."""
    from incremental_assets.orchestration.scaffold import write_project

    for path in write_project(directory):
        say(f"wrote {path}")


@app.command()
def catalog(
    words: Annotated[list[str] | None, typer.Argument(metavar="[DATASTORE …] | remove DATASTORE/CONTAINER …", show_default=False)] = None,
    prune: Annotated[bool | None, typer.Option(help="Forget containers that are gone from the source; their Delta tables stay.")] = None,
    recreate: Annotated[bool | None, typer.Option(help="Bring back containers that were removed.")] = None,
    include: Annotated[list[str] | None, typer.Option(metavar="table|view", help="Look only at these.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Only show the differences.")] = False,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Find out what is in the datastores and what has changed, and keep it for the project to load with."""
    from incremental_assets.orchestration.catalog_command import catalog_records, remove_containers
    from incremental_assets.orchestration.loading import find_datastore, load_datastores
    from incremental_assets.orchestration.ordinary_run import command_line_instance

    project = _enter(project_dir)
    datastores = load_datastores(project)
    names = words or []
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
    with command_line_instance() as instance:
        for store in chosen:
            try:
                records = catalog_records(store, instance, config, dry_run, say)
            except ConfigurationError:
                raise
            except SyncError as error:
                failed = True
                say(str(error))
                continue
            if as_json:
                for record in records:
                    out(record)
            else:
                print_catalog(store.name, records)
    raise typer.Exit(1 if failed else 0)


@app.command()
def sync(
    selection: Selection = None,
    tag: Tags = None,
    mode: Annotated[str | None, typer.Option(help="incremental (default), or refresh: all partitions, read whole.")] = None,
    partition: Annotated[str | None, typer.Option(metavar="KEY", help="Refresh this partition.")] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="KEY", help="Refresh from this partition …")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="KEY", help="… to this one, both included.")] = None,
    reset_watermarks: Annotated[bool, typer.Option(help="Load the containers anew, whole; the history stays.")] = False,
    allow_empty: Annotated[bool, typer.Option(help="A refresh may empty what was not empty.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Only print ranges, SQL and row counts; no Spark.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Containers side by side.")] = 2,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Move what changed. With --partition or --from … --to: read those partitions whole."""
    from incremental_assets.orchestration.loading import ensure_catalog, find_datastore, load_datastores, load_definitions, select
    from incremental_assets.orchestration.runner import Asked, Runner, command_line_instance, sync_side_by_side

    asked = Asked(_mode(mode), _keys(partition, from_, to), reset_watermarks, allow_empty)
    if reset_watermarks and (asked.keys or mode):
        raise ConfigurationError("--reset-watermarks loads whole containers; it goes with neither --mode nor partitions.")
    project = _enter(project_dir)
    datastores = load_datastores(project)
    if not datastores:
        raise ConfigurationError(f"the project {project.name} has no datastore yet: write defs/<name>/defs.yaml (see the README).")
    wanted = {name.partition("/")[0] for name in selection or []}
    for name in wanted:
        find_datastore(datastores, name)
    with command_line_instance() as instance:
        for store in datastores:
            if not wanted or store.name in wanted:
                ensure_catalog(project, store, instance, say)
    chosen = select(datastores, selection or [], tag or [])
    failed = False
    records: list[dict[str, Any]] = []

    def report(record: dict[str, Any]) -> None:
        nonlocal failed
        failed = failed or record["status"] == "failed"
        records.append(record)
        if as_json:
            out(record)
        else:
            say(f"{record['container']}: {record['status']}: {record['message']}")

    from incremental_assets.orchestration.result import line

    with command_line_instance() as instance:
        for store in datastores:
            if store.trouble is not None and (not wanted or store.name in wanted):
                known = [d.container.label for s, d in chosen if s is store]
                for label in known if store.definitions else [store.name]:
                    report(line(label, "failed", message=str(store.trouble)))
        ready = [definition for store, definition in chosen if store.trouble is None]
        definitions = load_definitions(project)  # what Dagster refuses is told before anything runs
        if dry_run:
            from incremental_assets.orchestration.dry_run import dry_run_lines

            for record in dry_run_lines(ready, asked, instance):
                failed = failed or record.get("status") == "failed"
                out(record) if as_json else say("\n  ".join([record.pop("container"), *(f"{k}: {short(v)}" for k, v in record.items())]))
            raise typer.Exit(1 if failed else 0)
        if ready:
            alone = jobs == 1 or len(ready) == 1
            found = Runner(definitions, instance).sync(ready, asked) if alone else None
            for record in found or sync_side_by_side(project, ready, asked, instance, jobs):
                report(record)
    if not as_json:
        print_syncs(records)
    raise typer.Exit(1 if failed else 0)


def _mode(text: str | None) -> Any:
    from incremental_assets.orchestration.plan import Mode

    if text is None:
        return None
    if text not in ("incremental", "refresh"):
        raise ConfigurationError(f"--mode {text}: it is incremental or refresh.")
    return Mode(text)


def _keys(partition: str | None, from_: str | None, to: str | None) -> tuple[str, str] | None:
    if partition is not None and (from_ or to):
        raise ConfigurationError("say either --partition or --from … --to.")
    if (from_ is None) != (to is None):
        raise ConfigurationError("--from and --to go together; both are included.")
    if partition is not None:
        return partition, partition
    return (from_, to) if from_ is not None and to is not None else None


@app.command()
def watermarks(
    selection: Selection = None,
    history: Annotated[bool, typer.Option("--history", help="All of them, newest first.")] = False,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Show how far each container is known to be in the lake."""
    from incremental_assets.orchestration.loading import load_datastores, select
    from incremental_assets.orchestration.ordinary_run import command_line_instance
    from incremental_assets.orchestration.project import lake_root
    from incremental_assets.orchestration.watermarks import current
    from incremental_assets.orchestration.watermarks import history as history_of

    project = _enter(project_dir)
    datastores = load_datastores(project)
    _expect_catalogs(datastores, selection)
    chosen = select(datastores, selection or [], [])
    records: list[dict[str, Any]] = []
    with command_line_instance() as instance:
        for _, definition in chosen:
            found = history_of(instance, definition.container)
            records += found if history else [current(instance, definition.container, lake_root(project), next(found, None))]
    if history:
        records.sort(key=lambda record: record["completed_at"], reverse=True)
    if as_json:
        for record in records:
            out(record)
    else:
        print_table("watermarks", records, ("container", "column", "previous", "new", "rows", "run_id", "completed_at"))


@app.command()
def scan(
    selection: Selection = None,
    tag: Tags = None,
    incremental: Annotated[bool, typer.Option("--incremental", help="Only what is new since the last scan, or above a threshold.")] = False,
    greater_than_time: Annotated[str | None, typer.Option(metavar="T", help="The threshold, for containers that go by time.")] = None,
    greater_than_batch: Annotated[str | None, typer.Option(metavar="N", help="The threshold, for containers that go by integers.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="All rows (default): the catch-up; the next incremental scan begins after it.")
    ] = False,
    partition: Annotated[str | None, typer.Option(metavar="KEY", help="Scan this partition.")] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="KEY", help="Scan from this partition …")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="KEY", help="… to this one, both included.")] = None,
    auto_resolve: Annotated[
        bool, typer.Option("--auto-resolve-passed-anomalies", help="Resolve anomalies that are looked at again and not found.")
    ] = False,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Ask the rules of quality of rows that are in the lake."""
    from incremental_assets.orchestration.quality.command import AskedScan, scan_lines

    asked = AskedScan(incremental, greater_than_time, greater_than_batch, _keys(partition, from_, to), auto_resolve)
    records = _looked(project_dir, selection, tag, asked, full, as_json, scan_lines)
    if not as_json:
        print_scans(records)
    raise typer.Exit(1 if any(record["status"] == "failed" for record in records) else 0)


@app.command()
def profile(
    selection: Selection = None,
    tag: Tags = None,
    incremental: Annotated[bool, typer.Option("--incremental", help="What is new since the last profile, or above a threshold.")] = False,
    greater_than_time: Annotated[str | None, typer.Option(metavar="T", help="The threshold, for containers that go by time.")] = None,
    greater_than_batch: Annotated[str | None, typer.Option(metavar="N", help="The threshold, for containers that go by integers.")] = None,
    full: Annotated[bool, typer.Option("--full", help="All rows (default).")] = False,
    partition: Annotated[str | None, typer.Option(metavar="KEY", help="Profile this partition.")] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="KEY", help="Profile from this partition …")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="KEY", help="… to this one, both included.")] = None,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Count and measure the columns, partition by partition; the table's profile is a merge of those."""
    from incremental_assets.orchestration.quality.command import AskedScan, profile_lines

    asked = AskedScan(incremental, greater_than_time, greater_than_batch, _keys(partition, from_, to))
    records = _looked(project_dir, selection, tag, asked, full, as_json, profile_lines)
    if not as_json:
        print_table("profile", records, ("container", "status", "rows_profiled", "partitions", "page"))
    raise typer.Exit(1 if any(record["status"] == "failed" for record in records) else 0)


@app.command()
def checks(
    words: Annotated[list[str], typer.Argument(metavar="suggest DATASTORE/CONTAINER …", show_default=False)],
    project_dir: Project = None,
) -> None:
    """Propose rules from a profile, as YAML to paste under checks:."""
    from incremental_assets.orchestration.loading import load_datastores, select
    from incremental_assets.orchestration.ordinary_run import command_line_instance
    from incremental_assets.orchestration.quality.command import lake_scope
    from incremental_assets.orchestration.quality.profiles import suggested_checks

    if words[0] != "suggest" or not words[1:]:
        raise ConfigurationError("write: incremental-assets checks suggest DATASTORE/CONTAINER")
    project = _enter(project_dir)
    datastores = load_datastores(project)
    _expect_catalogs(datastores, words[1:])
    with command_line_instance() as instance, lake_scope(say) as scope:
        for _, definition in select(datastores, words[1:], []):
            sys.stdout.write(f"# {definition.container.label}\n{suggested_checks(definition, instance, scope, say)}")


def _looked(project_dir: Path | None, selection: Any, tag: Any, asked: Any, full: bool, as_json: bool, lines: Any) -> list[dict[str, Any]]:
    """The records of a scan or a profile of what is selected, told as they come."""
    from incremental_assets.orchestration.loading import load_datastores, load_definitions, select
    from incremental_assets.orchestration.ordinary_run import command_line_instance

    if (asked.after_time or asked.after_batch) and not asked.incremental:
        raise ConfigurationError("a threshold goes with --incremental.")
    if sum((asked.incremental, full, asked.keys is not None)) > 1:
        raise ConfigurationError("say one of --incremental, --full, and partitions.")
    project = _enter(project_dir)
    datastores = load_datastores(project)
    _expect_catalogs(datastores, selection)
    chosen = [definition for _, definition in select(datastores, selection or [], tag or [])]
    definitions = load_definitions(project)
    records: list[dict[str, Any]] = []
    with command_line_instance() as instance:
        for record in lines(definitions, chosen, asked, instance):
            records.append(record)
            if as_json:
                out(record)
            else:
                say(f"{record['container']}: {record['status']}: {record['message']}")
    return records


def _expect_catalogs(datastores: Any, selection: list[str] | None) -> None:
    named = {name.partition("/")[0] for name in selection or []}
    for store in datastores:
        if store.catalog is None and (not named or store.name in named):
            raise ConfigurationError(f"{store.name} has no catalog yet. Sync it, or run: incremental-assets catalog {store.name}")


@app.command()
def anomalies(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[DATASTORE[/CONTAINER] …] | acknowledge|resolve|discard ID …", show_default=False)
    ] = None,
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help="active, acknowledged, resolved, discarded, or all; default: open ones.")
    ] = None,
    comment: Annotated[str | None, typer.Option(metavar="TEXT", help="Kept in the anomaly's history.")] = None,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Show what scans have found broken; say of one that it is known, mended, or none."""
    from incremental_assets.model.anomalies import State
    from incremental_assets.orchestration.loading import load_datastores, select
    from incremental_assets.orchestration.quality.command import VERBS, anomaly_lines, change_anomaly

    project = _enter(project_dir)
    datastores = load_datastores(project)
    names = words or []
    if names[:1] and names[0] in VERBS and not any(store.name == names[0] for store in datastores):
        if state is not None:
            raise ConfigurationError(f"anomalies {names[0]} takes ids, not --state.")
        if not names[1:]:
            raise ConfigurationError(f"anomalies {names[0]}: of which one? Its id is the first column of: incremental-assets anomalies")
        for name in names[1:]:
            record = change_anomaly([store.name for store in datastores], names[0], name, comment)
            out(record) if as_json else say(f"{record['id']}: {record['container']} {record['rule']}: {record['state']}")
        return
    if comment is not None:
        raise ConfigurationError("--comment goes with acknowledge, resolve or discard.")
    known = [one.value for one in State]
    if state not in (None, "all", *known):
        raise ConfigurationError(f"--state {state}: it is {', '.join(known)} or all.")
    states = [one for one in State if state == "all" or one.value == state or (state is None and one.is_open)]
    _expect_catalogs(datastores, names)
    records = anomaly_lines([definition for _, definition in select(datastores, names, [])], states)
    if as_json:
        for record in records:
            out(record)
    else:
        print_table(
            "anomalies",
            records,
            ("id", "container", "rule", "partition", "key", "rows", "state", "severity", "first_seen", "changed_by", "comment"),
        )


@app.command()
def operations(
    id: Annotated[str | None, typer.Argument(metavar="ID", show_default=False)] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="So many, the newest first.")] = 20,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Show the operations, also those that are going on: catalogs, syncs, scans, profiles."""
    from incremental_assets.orchestration.operations import operation
    from incremental_assets.orchestration.operations import operations as newest
    from incremental_assets.orchestration.ordinary_run import command_line_instance

    _enter(project_dir)
    with command_line_instance() as instance:
        records = [operation(instance, id)] if id is not None else newest(instance, most)
    if as_json:
        for record in records:
            out(record)
    elif id is not None:
        for name, value in records[0].items():
            say(f"{name}: {value}")
    else:
        print_table("operations", records, ("id", "type", "of", "created", "result", "triggered_by", "schedule", "message"))


@app.command()
def demo(scale: Annotated[float, typer.Option(help="TPC-H scale factor.")] = 0.1, project_dir: Project = None) -> None:
    """Show all of it on an embedded PostgreSQL with TPC-H data."""
    from incremental_assets.demo.run import run_demo

    raise typer.Exit(run_demo(_enter(project_dir), scale))


@app.command()
def dev(port: Annotated[int, typer.Option(help="Of the UI, on 127.0.0.1.")] = 3000, project_dir: Project = None) -> None:
    """The Dagster UI on 127.0.0.1:3000 with schedules running; the embedded Spark server ends with it."""
    from incremental_assets.orchestration.serve import serve

    raise typer.Exit(serve(_enter(project_dir), port))


def main() -> None:
    """Entry point. Errors are messages for the reader, not stack traces."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    # Both alike: a Dagster run sets the one to the other when it ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        code = app(standalone_mode=False)
        sys.exit(code or 0)
    except typer.Exit as finished:
        sys.exit(finished.exit_code)
    except KeyboardInterrupt:
        say("interrupted")
        sys.stdout.flush()
        sys.exit(130)
    except (typer.Abort, ConfigurationError) as error:
        say(str(error) or "aborted")
        sys.exit(2)
    except (SyncError, SparkUnavailable) as error:
        say(str(error))
        sys.exit(1)
    except Exception as error:
        show = getattr(error, "show", None)  # click's usage errors
        if show is None:
            raise
        show()
        sys.exit(2)


if __name__ == "__main__":
    main()
