"""The command line: arguments in, lines out. One object a line on stdout with --json, everything else on stderr.

Belongs here: words on a terminal and exit codes. Does not belong: any work (``dagster.loading``, ``dagster.runner``).

Exit codes: 0 nothing failed; 1 some container failed, the others still ran; 2 wrong usage or configuration, nothing ran; 130 interrupted.
"""

import signal
import sys
from typing import Any

import typer

from incremental_assets.cli import moving, project, quality  # each adds its commands
from incremental_assets.cli.app import app
from incremental_assets.cli.terminal import say
from incremental_assets.core.errors import ConfigurationError, SyncError
from incremental_assets.spark.embedded.launch import SparkUnavailable

__all__ = ["app", "main", "moving", "project", "quality"]


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
        trouble = _trouble_with_home(error)
        if trouble is not None:
            say(trouble)
            sys.exit(1)
        show = getattr(error, "show", None)  # click's usage errors
        if show is None:
            raise
        show()
        sys.exit(2)


def _trouble_with_home(error: Exception) -> str | None:
    """What to say where Dagster's databases cannot be used: of all that runs here, only they are reached through SQLAlchemy."""
    exceptions = sys.modules.get("sqlalchemy.exc")
    if exceptions is None or not isinstance(error, exceptions.OperationalError):
        return None
    from incremental_assets.dagster.project import dagster_home

    return (
        f"Dagster's databases in {dagster_home()} cannot be used: {getattr(error, 'orig', None) or error}. Free space or rights there, "
        "then run the command again; what a sync had begun heals with the next one."
    )
