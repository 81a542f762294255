"""What the services get from the process that starts them: its environment without what names other places, and this Python's programs.

Belongs here: that. Does not belong: the variables of each service (``local``).
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from deploy.cluster.processes import ClusterError

REPOSITORY = Path(__file__).resolve().parents[2]
_NOT_OURS = ("DAGSTER_", "INCREMENTAL_ASSETS_", "SPARK_", "AWS_")


def plain_environment() -> dict[str, str]:
    """The environment of this process without the variables that would name another lake, store or server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}
    kept |= {name: os.environ[name] for name in ("INCREMENTAL_ASSETS_TOOLS",) if name in os.environ}
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**kept, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def program(name: str) -> str:
    """The path of a program of this environment. Raises ClusterError if it is not installed."""
    for folder in (Path(sysconfig.get_path("scripts")), Path(sys.executable).parent):
        if (folder / name).exists():
            return str(folder / name)
    raise ClusterError(f"{name} is not installed here. `make cluster` installs it (or pip install 'incremental-assets[cluster]').")


def own_command(words: Sequence[str]) -> list[str]:
    """The command line whose first word is a program of this environment. Raises ClusterError if it is not installed."""
    return [program(words[0]), *words[1:]]
