"""The command line, which ends itself by SIGKILL at a stage of a sync: ``python -m assets_tests.databases.mysql.dying_sync STAGE …``.

Belongs here: that process and its stages. Does not belong: who starts it (``test_mysql_histories``). The rest of the arguments are those of
``incremental-assets``. Nothing of Python runs any more after the signal: no ``finally``, no rollback, no message to MariaDB or Spark.
"""

import os
import signal
import sys
from typing import Any

from incremental_assets.dagster import container_output
from incremental_assets.databases.mysql import rows
from incremental_assets.databases.mysql.source import MySQLSource
from incremental_assets.delta import write

STAGES: dict[str, tuple[Any, str]] = {
    "while rows are read": (rows, "_in_lake"),
    "before the rows are committed": (MySQLSource, "still_there"),
    "between rows and state": (write, "set_property"),
    "before the event": (container_output, "commit"),
}


def die_at(stage: str) -> None:
    """Lets this process end at the stage's function: after it for the last one, and before it for all others."""
    owner, name = STAGES[stage]
    real = getattr(owner, name)

    def dies(*arguments: Any, **named: Any) -> Any:
        if stage == "before the event":
            real(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, dies)


if __name__ == "__main__":
    from incremental_assets.cli import main

    die_at(sys.argv[1])
    sys.argv = ["incremental-assets", *sys.argv[2:]]
    main()
