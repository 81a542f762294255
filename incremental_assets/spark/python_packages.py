"""Says whether the Python workers of a Spark server can run functions of ours, and which packages they have."""

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from incremental_assets.spark.exceptions import spark_exception

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_answers: dict[tuple[str, tuple[str, ...]], str | None] = {}
"""The answer of each session, by the session's id and the packages that were asked for."""


def missing_packages(spark: "SparkSession", modules: tuple[str, ...]) -> str | None:
    """Why functions that import these modules cannot run on the server's Python workers; None if they can.

    A worker is started and asked once a session.
    """
    key = (spark.session_id, modules)
    if key not in _answers:
        _answers[key] = _ask(spark, modules)
    return _answers[key]


def _ask(spark: "SparkSession", modules: tuple[str, ...]) -> str | None:
    try:
        rows = spark.range(0, 1, 1, 1).mapInArrow(_importing(modules), "missing string").collect()
    except spark_exception() as error:
        # Another version of Python than here, none at all, or a server that permits no functions: the rest of the sync works without.
        return f"Spark's Python workers cannot run our functions ({_line(error)})"
    missing = json.loads(rows[0][0])
    return f"Spark's Python workers have no {', '.join(missing)}" if missing else None


def _importing(modules: tuple[str, ...]):
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib
        import json

        import pyarrow

        missing: list[str] = []
        for _ in batches:
            for name in modules:
                try:
                    importlib.import_module(name)
                except ImportError:
                    missing.append(name)
        yield pyarrow.RecordBatch.from_pydict({"missing": [json.dumps(missing)]})

    return run


def _line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]
