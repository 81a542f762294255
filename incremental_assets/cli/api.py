"""The command ``api``, which serves operations over HTTP."""

from typing import Annotated

import typer

from incremental_assets.cli.app import Project, app, enter, examples
from incremental_assets.cli.terminal import say


@app.command(
    rich_help_panel="The project",
    epilog=examples(
        ("api --port 3001", "the API on 127.0.0.1"),
    ),
)
def api(
    host: Annotated[
        str, typer.Option(metavar="HOST", help="The address to listen on; others than 127.0.0.1 need a proxy with TLS.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=1, max=65535, help="The port to listen on.")] = 3001,
    project_dir: Project = None,
) -> None:
    """Serve operations over HTTP: launch, list, abort, rerun and resume them, and set incremental fields.

    The environment variables INCREMENTAL_ASSETS_API_READ_TOKEN and INCREMENTAL_ASSETS_API_WRITE_TOKEN have the tokens that callers send.
    Runs are launched into the queue of Dagster's daemon, which `incremental-assets dev` starts.
    """
    from incremental_assets.api.server import serve

    raise typer.Exit(serve(enter(project_dir), host, port, say))
