"""The commands ``status``, one screen that says how each container is, and ``alerts``, which says what is wrong."""

import sys
import time
from datetime import datetime, timezone
from typing import Annotated, Any

import typer
from rich.console import Group

from incremental_assets.catalog.definition import is_outgrown
from incremental_assets.cli.app import Json, Project, Selection, Tags, app, enter, examples, expect_catalogs
from incremental_assets.cli.terminal import Records, as_table, line, out, say, show, whole_screen
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.shown_text import counted

_COLUMNS = ("container", "result", "broken", "open", "synced", "looked at", "watermark", "audit", "next", "newest row")


@app.command(
    rich_help_panel="What moves",
    epilog=examples(
        ("status", "all containers"),
        ("status shop --watch 5", "again every 5 seconds"),
        ("status --prometheus", "for Prometheus"),
    ),
)
def status(
    selection: Selection = None,
    tag: Tags = None,
    watch: Annotated[
        float | None, typer.Option("--watch", metavar="SECONDS", min=0.5, help="Shows it again every so many seconds, until interrupted.")
    ] = None,
    as_json: Json = False,
    prometheus: Annotated[bool, typer.Option("--prometheus", help="Prints the figures once, in Prometheus' text format.")] = False,
    project_dir: Project = None,
) -> None:
    """Show how each container is: its last sync, how far it is behind, watermark, open anomalies, last audit, and next tick.

    ``broken`` is the number of rules of severity error that rows in the lake break, also where the sync has succeeded; ``open`` is that of
    all open anomalies. ``looked at`` is the lag: how long ago the source was last looked at and the lake had all of it. ``newest row`` is
    the age of the watermark, which grows while nothing happens in the source. ``synced`` and ``audit`` say how long ago, ``next`` in how
    long. Neither the sources nor the tables are asked. A sentence says if no daemon evaluates the schedules and sensors that are switched
    on, and one which new tables are not synced.
    """
    from incremental_assets.operations.alerts.current import missing_daemon
    from incremental_assets.operations.alerts.new_tables import new_tables_line
    from incremental_assets.operations.figures import prometheus_text
    from incremental_assets.operations.status import status_lines
    from incremental_assets.runs.loading import load_datastores, select
    from incremental_assets.runs.ordinary_run import command_line_instance

    if prometheus and (as_json or watch is not None):
        raise ConfigurationError("--prometheus prints the figures once, in a format of its own: leave --json and --watch out.")
    project = enter(project_dir)
    datastores = load_datastores(project)
    expect_catalogs(datastores, selection)
    chosen = [definition for _, definition in select(datastores, selection or [], tag or [])]
    with command_line_instance() as instance:

        def lines() -> list[dict[str, Any]]:
            return status_lines(instance, chosen, datetime.now(timezone.utc))

        def sentences() -> list[str]:
            asked = [store for store in datastores if not tag and (not selection or store.name in selection)]
            return [one for one in (new_tables_line(asked), missing_daemon(instance, chosen)) if one is not None]

        if prometheus:
            for one in prometheus_text(lines()).removesuffix("\n").split("\n"):
                line(one)
            return
        if as_json:
            for sentence in sentences():
                say(sentence)
            while True:
                for record in lines():
                    out(record)
                if watch is None:
                    return
                time.sleep(watch)
        if watch is None:
            show(screen_of(lines()))
            for one in filter(is_outgrown, chosen):
                say(f"{one.container.label} has become large and is synced whole; this reads only what is new: {one.entry}")
            for sentence in sentences():
                say(sentence)
            return
        with whole_screen() as screen:
            while True:
                screen.update(Group(screen_of(lines()), *sentences()), refresh=True)
                time.sleep(watch)


@app.command(
    rich_help_panel="What moves",
    epilog=examples(
        ("alerts", "for people, and for cron"),
        ("alerts --json", "for a script"),
    ),
)
def alerts(as_json: Json = False, project_dir: Project = None) -> None:
    """Show what is wrong now: what the project's Alerts would report, and whether Dagster's daemon is at work.

    Alerts are sent by Dagster's daemon, so that only somebody else can say that the daemon is down. Let cron run this command: if
    nothing is wrong, it prints nothing and its exit code is 0; otherwise it prints one problem a line, and the exit code is 1. It sends
    nothing itself, and shows each problem as long as it lasts.
    """
    from incremental_assets.operations.alerts.current import problems_now
    from incremental_assets.runs.loading import load_project
    from incremental_assets.runs.ordinary_run import command_line_instance

    loaded = load_project(enter(project_dir))
    with command_line_instance() as instance:
        problems = problems_now(loaded, instance)
    for one in problems:
        if as_json:
            out(one.record)
        else:
            line(one.line)
    if not problems and sys.stderr.isatty():  # cron sends whatever is printed by mail
        say("nothing is wrong")
    raise typer.Exit(1 if problems else 0)


def screen_of(records: list[dict[str, Any]]) -> Records:
    """The records as a table."""
    return as_table("status", map(_row, records), _COLUMNS)


def _row(record: dict[str, Any]) -> dict[str, Any]:
    """The record as the table shows it. Times are shown as spans, which are shorter, and are what people compare."""
    return {
        **record,
        "synced": None if record["age_seconds"] is None else _span(record["age_seconds"]),
        "looked at": None if record["lag_seconds"] is None else _span(record["lag_seconds"]),
        "watermark": record["watermark"] if isinstance(record["watermark"], int) else (record["watermark"] or "")[:16],
        "newest row": None if record["newest_row_age_seconds"] is None else _span(record["newest_row_age_seconds"]),
        "broken": counted(len(record["broken_rules"]), "rule") if record["broken_rules"] else None,
        "open": record["open_anomalies"] or None,
        "audit": None if record["audited_at"] is None else f"{record['audit']} {_span(_seconds_since(record['audited_at']))}",
        "next": None if record["next_tick"] is None else _span(-_seconds_since(record["next_tick"])),
    }


def _seconds_since(moment: str) -> float:
    return (datetime.now(timezone.utc) - datetime.fromisoformat(moment)).total_seconds()


def _span(seconds: float) -> str:
    """A number of seconds in the largest unit of which there are at least two."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:,.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
