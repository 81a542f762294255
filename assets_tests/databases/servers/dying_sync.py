"""The command line, which ends itself by SIGKILL at a stage of a sync.

``python -m assets_tests.databases.servers.dying_sync KIND STAGE …``, where ``KIND`` is the component of the datastore, and the rest of the
arguments are those of ``incremental-assets``. Nothing of Python runs any more after the signal: no ``finally``, no rollback, no message to
the server or to Spark.

Belongs here: that process. Does not belong: the stages (``stages``), and who starts it (``project``).
"""

import os
import signal
import sys

from assets_tests.databases.servers.stages import ending


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    from incremental_assets.cli import main

    setattr(*ending(sys.argv[1], sys.argv[2], die))
    sys.argv = ["incremental-assets", *sys.argv[3:]]
    main()
