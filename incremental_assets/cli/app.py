"""This module holds what several commands share: the application, the project, and common arguments."""

from pathlib import Path
from typing import Annotated, Any

import typer

from incremental_assets.cli.terminal import line
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.stored_format import product_version

_ABOUT = "Keep Delta tables in step with their sources. With --json, one object a line on stdout; everything else goes to stderr."
app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=_ABOUT,
)
_SELECTION = "Datastores, or single containers of them; all containers of the project where nothing is named."
Selection = Annotated[list[str] | None, typer.Argument(metavar="DATASTORE[/CONTAINER] …", show_default=False, help=_SELECTION)]
Json = Annotated[bool, typer.Option("--json", help="Prints one JSON object a line on stdout.")]
Project = Annotated[
    Path | None,
    typer.Option(
        "--project", metavar="DIR", help="The project's folder; by default the nearest project upwards from the working directory."
    ),
]
Tags = Annotated[
    list[str] | None, typer.Option("--tag", metavar="K=V", help="Only containers with this tag; of several tags, a container needs all.")
]


def examples(*commands: tuple[str, str]) -> str:
    """The end of the help of a command: examples, each with what it does, on a line that fits 80 columns."""
    return "\n\n".join(["Examples:", *(f"incremental-assets {command}  # {what}" for command, what in commands)])


class Options:
    """Options that stand before the command, as ``incremental-assets --project DIR sync``."""

    project: Path | None = None


def _version(asked: bool) -> None:
    """Print the version of this product, and end."""
    if asked:
        line(product_version() or "unknown: it is not installed")
        raise typer.Exit


@app.callback()
def options(
    project: Project = None,
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_version, help="Prints the version, and ends.")] = False,
) -> None:
    Options.project = project


def enter(named: Path | None) -> Path:
    """Find the project, as ``project_of`` does, make it the current one, and return its folder."""
    from incremental_assets.project.folders import enter_project

    project = project_of(named)
    enter_project(project)
    return project


def project_of(named: Path | None) -> Path:
    """Find the project, and return its folder.

    The search goes upwards from the folder that ``--project`` names, after the command or before it, or else from the working directory.
    Raises ConfigurationError if there is no project.
    """
    from incremental_assets.project.folders import find_project

    # The option of the command takes precedence over the one before the command.
    named = named or Options.project
    if named is not None and not named.is_dir():
        raise ConfigurationError(f"--project {named}: there is no such folder.")
    return find_project(named)


def no_datastore(project: Path) -> ConfigurationError:
    """The error for a project in which nothing can be synced yet."""
    return ConfigurationError(
        f"the project {project.name} has no datastore yet. Add a database: incremental-assets add URL; or write defs/<name>/defs.yaml "
        f"(see the README)."
    )


def keys(partition: str | None, from_: str | None, to: str | None) -> tuple[str, str] | None:
    """Return the first and the last partition key that the options name, both included; None if they name no partitions.

    Raises ConfigurationError if the options do not go together.
    """
    if partition is not None and (from_ or to):
        raise ConfigurationError("say either --partition or --from … --to.")
    if (from_ is None) != (to is None):
        raise ConfigurationError("--from and --to go together; both are included.")
    if partition is not None:
        return partition, partition
    return (from_, to) if from_ is not None and to is not None else None


def expect_catalogs(datastores: Any, selection: list[str] | None) -> None:
    """Raise ConfigurationError if a selected datastore has no catalog yet. An empty selection stands for all datastores."""
    named = {name.partition("/")[0] for name in selection or []}
    for store in datastores:
        if store.catalog is None and (not named or store.name in named):
            raise ConfigurationError(f"{store.name} has no catalog yet. Sync it, or run: incremental-assets catalog {store.name}")
