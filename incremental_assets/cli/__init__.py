"""The command line. It reads arguments and prints results: with --json one object a line on stdout, and everything else on stderr.

Belongs here: the text on a terminal, and exit codes. Does not belong: any work (``runs.loading``, ``runs.runner``,
``operations.scans``).

Exit codes: 0, nothing failed; 1, a container failed, and the others still ran; 2, wrong usage or configuration, and nothing ran; 130,
interrupted.
"""

import signal
import sys
from typing import Any

import typer

# Importing these modules registers their commands with ``app``.
from incremental_assets.cli import api, audit, capture, check, datastores, export, moving, project, publish, quality, show, status
from incremental_assets.cli.app import app
from incremental_assets.cli.terminal import say
from incremental_assets.core.collector import collect_less_often
from incremental_assets.core.errors import ConfigurationError, SyncError
from incremental_assets.spark.embedded.launch import SparkUnavailable

_INTERRUPTED = 130
__all__ = [
    "api",
    "app",
    "audit",
    "capture",
    "check",
    "datastores",
    "export",
    "main",
    "moving",
    "project",
    "publish",
    "quality",
    "show",
    "status",
]


def main() -> None:
    """Run the command line. This is the entry point. Expected errors are printed as messages, without a stack trace."""

    collect_less_often()  # before the commands import what they need

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    # Both signals need the same handler, because a Dagster run assigns one signal's handler to the other when it ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        code = app(standalone_mode=False) or 0
    except typer.Exit as finished:  # typer makes one with this code of KeyboardInterrupt, too, without a word
        code = finished.exit_code
    except KeyboardInterrupt:
        code = _INTERRUPTED
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
        show = getattr(error, "show", None)  # click's usage errors print themselves
        if show is None:
            raise
        show()
        sys.exit(2)
    if code == _INTERRUPTED:
        say("interrupted; what is committed stays, and the next run of the command does the rest")
        sys.stdout.flush()
    sys.exit(code)


def _trouble_with_home(error: Exception) -> str | None:
    """Return a message if Dagster's databases cannot be used, else None.

    The error is recognised by its class: nothing else that runs here reaches a database through SQLAlchemy. The class is looked up without
    an import, because SQLAlchemy has not raised anything if it is not loaded.
    """
    exceptions = sys.modules.get("sqlalchemy.exc")
    if exceptions is None or not isinstance(error, exceptions.OperationalError):
        return None
    from incremental_assets.project.folders import dagster_home

    return (
        f"Dagster's databases in {dagster_home()} cannot be used: {getattr(error, 'orig', None) or error}. "
        "Free space there, or grant the right to write, then run the command again; the next sync completes what an earlier one has begun."
    )
