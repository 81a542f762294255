"""The command line, which ends itself by SIGKILL at a stage of a sync: ``python -m assets_tests.capture.dying_sync STAGE CALL WHEN …``.

Belongs here: that process. Does not belong: the stages (``test_capture.STAGES``), and who starts it (``test_histories``).

``CALL``: at which call of the stage's function. ``WHEN``: ``before`` the call, or ``after`` it. The rest are the arguments of
``incremental-assets``. Nothing of Python runs any more after the signal: no ``finally``, no rollback, no message to PostgreSQL or Spark.
"""

import os
import signal
import sys
from typing import Any

from assets_tests.capture.test_capture import STAGES
from incremental_assets.cli import main
from incremental_assets.databases import capture_sync


def die_at(stage: str, call: int, *, afterwards: bool) -> None:
    """Lets this process end at the stage's function."""
    owner, name = STAGES[stage]
    real, left = getattr(owner, name), call

    def dies(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        found = real(*arguments, **named) if left or afterwards else None
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(owner, name, dies)


if __name__ == "__main__":
    capture_sync.KEYS_A_COMMIT, capture_sync.SETTLE_SECONDS = 7, 0.3
    die_at(sys.argv[1], int(sys.argv[2]), afterwards=sys.argv[3] == "after")
    sys.argv = ["incremental-assets", *sys.argv[4:]]
    main()
