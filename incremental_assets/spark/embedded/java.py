"""The command ``python -m incremental_assets.spark.embedded.java install|path``."""

import logging
import sys

from incremental_assets.spark.embedded.java_home import JavaMissing, find_java
from incremental_assets.spark.embedded.java_install import install

log = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """``path`` prints the folder of the Java in use, ``install`` installs one if there is none. Returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    if arguments not in (["path"], ["install"]):
        sys.stderr.write("usage: python -m incremental_assets.spark.embedded.java install|path\n")
        return 2
    try:
        if arguments == ["path"]:
            sys.stdout.write(f"{find_java().home}\n")
            return 0
        log.info("Spark runs with %s", install())
    except JavaMissing as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
