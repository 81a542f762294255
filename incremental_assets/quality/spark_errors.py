"""What Spark's errors say of a rule: its fault, and in which words; or the fault of the server or the storage."""

import re
from typing import TYPE_CHECKING

from incremental_assets.delta.errors import server_is_gone

if TYPE_CHECKING:
    from pyspark.errors import PySparkException


def explain(error: "PySparkException") -> str:
    """Return Spark's error message on one line, at most 400 characters, without the query plan that follows it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = _WHERE.sub("", lines[0]) if lines else type(error).__name__
    return kept.split(" SQLSTATE:")[0][:400].rstrip(". ;") + "."


def reraise_if_gone(error: "PySparkException") -> None:
    """Raise the error again if the Spark server or its storage is the cause, because then no rule is at fault.

    It is recognised by the error condition if there is one. The message text is only searched otherwise, because it may quote the user's
    SQL.
    """
    condition = error.getCondition()
    if condition.startswith(_SERVER) if condition else (server_is_gone(error) or any(f"[{mark}" in str(error) for mark in _SERVER)):
        raise error
    if "OutOfMemoryError" in str(error):
        raise error


_WHERE = re.compile(r"Job aborted due to stage failure: .*?: (?=[\w.]+(Exception|Error))")
"""The beginning of a message of a failed Spark job, up to the name of the exception that a task raised."""
_SERVER = (
    "OPERATION_CANCELED",
    "SPARK_JOB_CANCELLED",
    "FAILED_READ_FILE",
    "DELTA_",
    "INVALID_HANDLE",
    "INVALID_CURSOR",
    "RETRIES_EXCEEDED",
)
"""Beginnings of the error conditions of failures that no rule can cause."""
