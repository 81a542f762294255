"""Says who reads and writes the rows of a container, as far as its option ``engine`` decides it."""

import functools
import logging
import os

from incremental_assets.core.container import Engine
from incremental_assets.spark.embedded.launch import has_other_machines

log = logging.getLogger(__name__)

READ_BY = "INCREMENTAL_ASSETS_READ_BY"
WRITE_BY = "INCREMENTAL_ASSETS_WRITE_BY"
FILES_BY = "INCREMENTAL_ASSETS_FILES_BY"
"""The environment variables that said it for all containers, until there was ``engine``. They go with version 1."""
_SAID = {READ_BY: ("jdbc",), WRITE_BY: ("spark",), FILES_BY: ("spark",)}
"""With which values they leave rows to Spark."""


def why_spark_reads(engine: Engine) -> str | None:
    """Why Spark reads the rows of a database's container, however few they are; None if ``engine`` leaves it open or says otherwise."""
    return _why(engine, READ_BY)


def why_spark_writes(engine: Engine) -> str | None:
    """Why Spark writes, creates and alters a container's table; None if ``engine`` leaves it open or says otherwise."""
    return _why(engine, WRITE_BY)


def why_spark_reads_files(engine: Engine) -> str | None:
    """Why Spark reads a container's files; None if ``engine`` leaves it open or says otherwise."""
    return _why(engine, FILES_BY)


def are_read_into_files(engine: Engine) -> bool:
    """Whether even few rows of a database are read into files, which only the old variable can ask for: the tests of that way do."""
    return engine is Engine.AUTO and _old(READ_BY) == "arrow"


def have_tasks(engine: Engine) -> bool:
    """Whether Spark's tasks read many rows into files, rather than this process."""
    return engine is not Engine.ARROW and has_other_machines()


def _why(engine: Engine, variable: str) -> str | None:
    if engine is Engine.SPARK:
        return "engine: spark says so"
    return f"{variable} says so" if engine is Engine.AUTO and _old(variable) in _SAID[variable] else None


def _old(variable: str) -> str:
    """The value of one of the old variables."""
    value = os.environ.get(variable, "")
    if value:
        _warn(variable, value)
    return value


@functools.cache
def _warn(variable: str, value: str) -> None:
    log.warning(
        "%s=%s will have no meaning from version 1 on: write engine: %s, for a datastore or a container",
        variable, value, "spark" if value in _SAID[variable] else "arrow",
    )  # fmt: skip
