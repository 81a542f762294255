"""The commands of ``capture: log``: capture setup, capture status, capture drop.

Belongs here: their arguments, and what they print. Does not belong: the work (``dagster.capture``).
"""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from incremental_assets.cli.app import Json, Project, app, enter
from incremental_assets.cli.terminal import out, print_table, say
from incremental_assets.core.errors import ConfigurationError

capture = typer.Typer(no_args_is_help=True, help="Set up how containers follow the log of their source (capture: log), and look at it.")
app.add_typer(capture, name="capture", rich_help_panel="What moves")
Datastores = Annotated[
    list[str] | None,
    typer.Argument(metavar="DATASTORE …", show_default=False, help="Datastores; all that have captured containers where none is named."),
]


@capture.command()
def setup(datastores: Datastores = None, as_json: Json = False, project_dir: Project = None) -> None:
    """Make the publication and the replication slot, as far as they are missing.

    Where the datastore's role may not do it, the SQL for an administrator is printed, and the exit code is 1.
    """
    from incremental_assets.dagster.capture import set_up

    steps = [step for chosen in _chosen(datastores, project_dir) for step in _shown(set_up(chosen), as_json)]
    raise typer.Exit(1 if any(step["status"] == "needed" for step in steps) else 0)


@capture.command()
def status(datastores: Datastores = None, as_json: Json = False, project_dir: Project = None) -> None:
    """Show how far each container has followed the log, and how much of it the server keeps.

    The exit code is 1 if a slot is missing or lost, or if a container cannot follow.
    """
    from incremental_assets.dagster import capture as work
    from incremental_assets.dagster.project import lake_root

    records: list[dict[str, Any]] = []
    for chosen in _chosen(datastores, project_dir):
        for record in work.status(chosen, lake_root()):
            records.append(record)
            if as_json:
                out(record)
    if not as_json:
        slots = [record for record in records if record["container"] is None]
        print_table("slots", slots, ("datastore", "slot", "status", "lsn", "retained_bytes", "retained_limit_bytes", "message"))
        containers = [record for record in records if record["container"] is not None]
        print_table("containers", containers, ("container", "status", "lsn", "changes_waiting", "lag_bytes", "lag_seconds", "message"))
    raise typer.Exit(1 if any(record["status"] in ("missing", "lost", "failed") for record in records) else 0)


@capture.command()
def drop(datastores: Datastores = None, as_json: Json = False, project_dir: Project = None) -> None:
    """Drop the publication and the replication slot; the server then keeps no log for them.

    A container that has capture: log in the YAML still cannot be synced without them.
    """
    from incremental_assets.dagster import capture as work

    if not datastores:
        raise ConfigurationError("capture drop: name the datastore.")
    steps = [step for chosen in _chosen(datastores, project_dir) for step in _shown(work.drop(chosen[0]), as_json)]
    raise typer.Exit(1 if any(step["status"] == "needed" for step in steps) else 0)


def _shown(steps: Any, as_json: bool) -> list[dict[str, Any]]:
    """Prints the steps as they are taken, and returns them."""
    taken: list[dict[str, Any]] = []
    for step in steps:
        taken.append(step)
        if as_json:
            out(step)
            continue
        message = f": {step['message']}" if step["message"] else ""
        say(f"{step['datastore']}: {step['step']}: {step['status']}{message}")
        if step["status"] == "needed" and step["sql"]:
            say(f"  {step['sql']};")
    return taken


def _chosen(datastores: list[str] | None, project_dir: Any) -> Sequence[Sequence[Any]]:
    """The captured containers of each datastore. Raises ConfigurationError where there are none."""
    from incremental_assets.dagster.capture import captured
    from incremental_assets.dagster.loading import load_project, select_current

    loaded = load_project(enter(project_dir))
    selected = select_current(loaded, datastores or [], [], say)
    found = captured(selected.ready)
    names = list(dict.fromkeys(one.settings.name for one in found))
    return [[one for one in found if one.settings.name == name] for name in names]
