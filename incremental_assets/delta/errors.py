"""Turns exceptions of Spark, Delta and delta-rs into errors of this product, whose messages say what to do."""

import contextlib
import re
from collections.abc import Iterator

from deltalake.exceptions import DeltaError
from obstore.exceptions import BaseError

from incremental_assets.core.errors import ConcurrentWriteError, LakeError, SourceError, store_remedy
from incremental_assets.delta.store_errors import reason
from incremental_assets.spark.exceptions import connection_exception, rpc_exception, spark_exception

# Parts of the messages of Spark and Delta, which contain the class of the exception or its error condition.
_CONFLICTS = ("DELTA_CONCURRENT", "ConcurrentAppend", "ConcurrentModification", "ConcurrentDelete", "ConcurrentWrite", "MetadataChanged",
              "DELTA_METADATA_CHANGED", "ProtocolChanged", "DELTA_PROTOCOL_CHANGED", "ConcurrentTransaction")  # fmt: skip
_WRITE_REMEDY = "Free space there, or grant the right to write, then sync again."
_PLACE = ("Permission denied", "No space left", "Read-only file system", "Disk quota", "AccessDenied", "Mkdirs failed", "NoSuchBucket",
          "Not a directory", "File exists", "FileAlreadyExists", "DELTA_CANNOT_CREATE_LOG_PATH")  # fmt: skip


@contextlib.contextmanager
def lake_errors(label: str, url: str) -> Iterator[None]:
    """Raises Spark's errors inside the block as ConcurrentWriteError, SourceError or LakeError, with the cause in one line.

    ConcurrentWriteError: Delta refused a commit because of a concurrent write. SourceError: the JDBC driver failed while Spark read from
    the source. LakeError: everything else, such as a location that cannot be written or a Spark server that has ended.
    """
    try:
        yield
    except (spark_exception(), rpc_exception()) as error:
        text = str(error)
        if any(mark in text for mark in _CONFLICTS):
            raise ConcurrentWriteError(
                f"{label}: another writer committed to {url} at the same time; this sync's commit was refused. Sync again."
            ) from error
        if "PSQLException" in text or "org.postgresql" in text:
            raise SourceError(
                f"{label}: the source failed while Spark was reading: {first_line(text, 'PSQLException: ')} Sync again."
            ) from error
        remedy = store_remedy(text)
        if remedy is not None:
            raise LakeError(f"{label}: {url} cannot be used. {remedy}") from error
        if any(mark in text for mark in _PLACE):
            raise LakeError(f"{label}: {url} cannot be written: {first_line(text, *_PLACE)} {_WRITE_REMEDY}") from error
        if server_is_gone(error):
            raise LakeError(
                f"{label}: the Spark server ended during the run. Sync again: the next sync completes what this one has begun."
            ) from error
        if "Python worker exited unexpectedly" in text:
            raise LakeError(
                f"{label}: a process of Spark's that read rows has ended, as memory was short or its connection to the source was lost. "
                f"None of them were committed. Sync again; with fewer `readers`, less memory is needed."
            ) from error
        if "AMBIGUOUS_REFERENCE" in text and "`_metadata`" in text:
            raise LakeError(
                f"{label}: it has a column _metadata, as Spark itself has in each table, so that Spark cannot change its rows; nothing was "
                f"written. Give the column another name: in the source, in a view of it, or in the files."
            ) from error
        raise LakeError(f"{label}: Spark failed on {url}: {first_line(text)}") from error


@contextlib.contextmanager
def place_errors(url: str) -> Iterator[None]:
    """Raises the errors of delta-rs and of obstore inside the block, which writes to ``url``, as LakeError."""
    try:
        yield
    except (DeltaError, OSError, BaseError) as error:
        remedy = store_remedy(str(error)) or _WRITE_REMEDY
        raise LakeError(f"{url} cannot be written: {reason(error)} {remedy}") from error


def server_is_gone(error: Exception) -> bool:
    """Whether the error means that the Spark server has ended, rather than that the server found something wrong with a query."""
    text = str(error)
    if "stopped SparkContext" in text:  # the server is shutting down and still answers
        return True
    return (isinstance(error, rpc_exception() | connection_exception())) and any(
        mark in text
        for mark in ("UNAVAILABLE", "INVALID_HANDLE", "Connection refused", "SESSION_CLOSED", "SESSION_NOT_FOUND", "Connection reset")
    )


def first_line(text: str, *after: str) -> str:
    """One line of at most 300 characters from a long message: the text at the first mark of ``after`` that is found, else the first line.

    A mark that ends in ``": "`` is left out itself.
    """
    for mark in after:
        position = text.find(mark)
        if position >= 0:
            start = position + len(mark) if mark.endswith(": ") else position
            return text[start:].splitlines()[0][:300].rstrip(". ") + "."
    lines = [line for line in text.splitlines() if line.strip()] or ["no message"]
    return re.sub(r"\s+", " ", lines[0])[:300].rstrip(". ") + "."
