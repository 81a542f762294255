"""The process that Spark forks its Python workers from, in which the packages that our functions need are imported already.

Spark starts this module (``spark.python.daemon.module``) in place of its own, whose function it runs: a worker that imports pyarrow and the
ADBC driver itself begins a second later.
"""

import contextlib
import importlib

from pyspark.daemon import manager

# Where one is missing, the functions that need it say so (``spark.python_packages``).
for package in ("pyarrow.parquet", "adbc_driver_postgresql"):
    with contextlib.suppress(ImportError):
        importlib.import_module(package)

if __name__ == "__main__":
    manager()
