"""The core can be imported, and therefore tested and reasoned about, without Dagster, Spark or a database."""

import json
import pkgutil
import subprocess
import sys

import incremental_assets.core

HEAVY = {"dagster", "dagster_shared", "pyspark", "psycopg", "deltalake", "fsspec", "pyarrow", "pandas"}


def test_the_core_imports_neither_dagster_nor_spark() -> None:
    """Otherwise each tick of a schedule, and each tool that only reads a watermark, pays seconds for a framework it does not use."""
    modules = [f"incremental_assets.core.{module.name}" for module in pkgutil.iter_modules(incremental_assets.core.__path__)]
    assert len(modules) >= 9
    program = f"import json, sys, {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert "incremental_assets" in loaded
    assert not loaded & HEAVY
