"""`python -m incremental_assets.demo start|stop|remove [PROJECT]`: starts or ends the demo's PostgreSQL, or removes it with all its data.

Here belongs what a Makefile needs beside `incremental-assets demo`, which plays the demo itself.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from incremental_assets.demo.postgres import DEMO_FOLDER, demo_server


def main(arguments: list[str]) -> int:
    """Run the command that the arguments name, and return the exit code: 2 for wrong usage."""
    if not 1 <= len(arguments) <= 2 or arguments[0] not in ("start", "stop", "remove"):
        print(__doc__, file=sys.stderr)
        return 2
    project = Path(arguments[1] if len(arguments) == 2 else ".").absolute()
    server = demo_server(project)
    if server.folder.exists():
        if arguments[0] == "start":
            server.start()
        elif arguments[0] == "stop":
            server.stop()
        else:
            server.remove()
            shutil.rmtree(project / DEMO_FOLDER.parent)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
