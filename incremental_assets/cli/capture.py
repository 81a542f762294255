"""The command of ``capture: log``: capture setup, capture status, capture drop."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from incremental_assets.cli.app import Json, Project, app, enter, examples
from incremental_assets.cli.terminal import out, print_table, say
from incremental_assets.core.errors import ConfigurationError

if TYPE_CHECKING:
    from incremental_assets.catalog.definition import ContainerDefinition
    from incremental_assets.databases.definition import TableDefinition

_FAILED = ("needed", "missing", "lost", "failed")
"""The statuses of steps, slots and containers that make the exit code 1."""


@app.command(
    rich_help_panel="What moves",
    epilog=examples(
        ("capture setup shop", "once, before the first sync"),
        ("capture status", "how far each container has come"),
    ),
)
def capture(
    action: Annotated[
        str,
        typer.Argument(
            metavar="setup|status|drop",
            show_default=False,
            help="setup: make what is missing. status: show how far each container has followed the log. drop: take it away again.",
        ),
    ],
    datastores: Annotated[
        list[str] | None,
        typer.Argument(metavar="DATASTORE …", show_default=False, help="All that have captured containers, where none is named."),
    ] = None,
    as_json: Json = False,
    project_dir: Project = None,
) -> None:
    """Set up how containers follow the log of their source (capture: log), and look at it.

    setup makes the publication and the replication slot, as far as they are missing; where the datastore's role may not do it, the SQL for
    an administrator is printed. status also says how much of its log the server keeps. The exit code is 1 if somebody else has to do
    something first, or if a container cannot follow.
    """
    from incremental_assets.operations import capture as work
    from incremental_assets.project.folders import lake_root

    if action not in ("setup", "status", "drop"):
        raise ConfigurationError(f"capture {action}: it is setup, status or drop.")
    if action == "drop" and not datastores:
        raise ConfigurationError("capture drop: name the datastore.")
    records: list[dict[str, Any]] = []
    for chosen in _chosen(work.droppable if action == "drop" else work.captured, datastores, project_dir):
        if action == "status":
            records += _reported(work.status(chosen, lake_root()), as_json, lambda _: None)
        else:
            records += _reported(work.set_up(chosen) if action == "setup" else work.drop(chosen[0]), as_json, _say_step)
    if action == "status" and not as_json:
        slots = [record for record in records if record["container"] is None]
        print_table("slots", slots, ("datastore", "slot", "status", "message", "retained_bytes", "lsn", "retained_limit_bytes"))
        containers = [record for record in records if record["container"] is not None]
        print_table("containers", containers, ("container", "status", "message", "changes_waiting", "lag_seconds", "lag_bytes", "lsn"))
    raise typer.Exit(1 if any(record["status"] in _FAILED for record in records) else 0)


def _reported(records: Iterator[dict[str, Any]], as_json: bool, shown: Any) -> list[dict[str, Any]]:
    """Prints each record as it comes, and returns them all."""
    found: list[dict[str, Any]] = []
    for record in records:
        found.append(record)
        out(record) if as_json else shown(record)
    return found


def _say_step(step: dict[str, Any]) -> None:
    say(f"{step['datastore']}: {step['step']}: {step['status']}" + (f": {step['message']}" if step["message"] else ""))
    if step["status"] == "needed" and step["sql"]:
        say(f"  {step['sql']};")


def _chosen(
    able: "Callable[[Sequence[ContainerDefinition]], list[TableDefinition]]", datastores: list[str] | None, project_dir: Any
) -> "Sequence[Sequence[TableDefinition]]":
    """Those of the containers of each datastore that ``able`` returns, which raises ConfigurationError where there are none."""
    from incremental_assets.runs.current_catalogs import select_current
    from incremental_assets.runs.loading import load_project

    loaded = load_project(enter(project_dir))
    selected = select_current(loaded, datastores or [], [], say)
    found = able(selected.ready)
    names = list(dict.fromkeys(one.settings.name for one in found))
    return [[one for one in found if one.settings.name == name] for name in names]
