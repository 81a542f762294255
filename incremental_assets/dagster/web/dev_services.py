"""``dagster dev`` with this package's webserver in place of Dagster's. Dagster's command has no option for that."""

from collections.abc import Sequence
from subprocess import Popen
from typing import Any

import dagster._cli.dev as dagster_dev

DAGSTERS, OURS = "dagster_webserver", "incremental_assets.dagster.web.webserver"
"""The modules of the two webservers, which are run with ``python -m``."""


def main() -> None:
    """The command line of ``dagster dev``. It starts its webserver as a module, by name, in a process of its own; this name is replaced."""
    start = dagster_dev.open_ipc_subprocess  # pyright: ignore[reportPrivateImportUsage]

    def start_ours(parts: Sequence[str], **kwargs: Any) -> "Popen[Any]":
        return start([OURS if part == DAGSTERS else part for part in parts], **kwargs)

    dagster_dev.open_ipc_subprocess = start_ours  # pyright: ignore[reportPrivateImportUsage]
    dagster_dev.dev_command(auto_envvar_prefix="DAGSTER_CLI_DEV")


if __name__ == "__main__":
    main()
