"""The exceptions that users see: one class for each kind of remedy. A message says what happened, to which container, and what to do."""

import contextlib
from collections.abc import Callable, Generator


class SyncError(Exception):
    """The base class of all errors that are meant for users: the message is complete without a stack trace."""


class ConfigurationError(SyncError):
    """Remedy: change the YAML or the command."""


class MisfitError(ConfigurationError):
    """Remedy: change the YAML of this one container (``container``: its name). The other containers are not affected."""

    def __init__(self, container: str, message: str) -> None:
        super().__init__(message)
        self.container = container


Refuse = Callable[[ConfigurationError], None]
"""What is done with an error of a part of the YAML: it is raised (``raise_it``), or collected, and the other parts go on."""


def raise_it(error: ConfigurationError) -> None:
    """Raises the error: the first part that is wrong ends all."""
    raise error


@contextlib.contextmanager
def refused_to(refuse: Refuse) -> Generator[None, None, None]:
    """Hands a ConfigurationError of the block to ``refuse``."""
    try:
        yield
    except ConfigurationError as error:
        refuse(error)


class ContainerMissing(SyncError):
    """Remedy: restore the container in the source, or remove it from the catalog; its rows stay in the Delta table."""


class SourceError(SyncError):
    """Remedy: make the source reachable, or grant the missing privilege. Nothing was written."""


class SourceUnreachable(SourceError):
    """Remedy: make the source reachable. No container of the datastore can be synced until then."""


class SourceWaits(SourceError):
    """The source itself cannot read the container, such as a view. Remedy: repair it there; the next sync then reads it by itself."""


class OutOfTime(SourceError):
    """A query was cancelled at the deadline of ``core.time_limit``. Remedy: none if a later attempt has more time; else a faster query."""


class SourceInterrupted(SourceError):
    """Remedy: free space on the disk, or repair disk or network, and sync again. No file and no row is at fault; nothing was written."""


class LogLost(SourceError):
    """The source has removed log that containers have not read yet. Remedy: make the replication slot anew."""


class LakeError(SyncError):
    """Remedy: repair the location of the Delta table, or free space there. The next sync completes what was left half done."""


class RebuildNeeded(SyncError):
    """The Delta table and the source no longer fit together. Remedy: load the container again with ``--reset-watermarks``."""


class NewerFormat(SyncError):
    """A newer version of this product wrote the stored state, which this version cannot read. Remedy: upgrade. Nothing was written."""


class EmptyRefused(SyncError):
    """Rows would be lost because the source has none in their place, or cannot be listed completely. They were not deleted.

    Remedy: check whether the source is really empty, then sync with ``--allow-empty``.
    """


class FrameRefused(SyncError):
    """The rows that a user's own asset returned do not fit its table or its partitions. Remedy: correct the asset. Nothing was written."""


class ConcurrentWriteError(SyncError):
    """A concurrent write: another writer committed to the Delta table while this sync was reading. Remedy: sync again."""


class ContainerBusy(SyncError):
    """Another process holds the lock of the container; the message names it. Remedy: wait for it, or end it."""


_STOP = "`python -m incremental_assets.spark.embedded.server stop` ends it"
_NO_CONNECTOR = (
    "Spark has no connector for this store. The embedded server loads those for S3 and Azure by itself, where the lake or a defs.yaml "
    "names s3://, az:// or abfss://; a cluster (SPARK_REMOTE) needs its own, and other stores, such as gs://, need packages in "
    "INCREMENTAL_ASSETS_SPARK_CONF (docs/object-stores.md). For az:// set AZURE_STORAGE_ACCOUNT_NAME, as Spark knows abfss:// only. A "
    f"server that is running does not load them; {_STOP}."
)
_NO_CREDENTIALS = (
    f"Spark has no valid credentials for this store. Its server keeps the variables AWS_* and AZURE_* that it was started with; {_STOP}."
)
_STORE_REMEDIES = {
    "S3AFileSystem not found": _NO_CONNECTOR,
    "AzureBlobFileSystem not found": _NO_CONNECTOR,
    "GoogleHadoopFileSystem not found": _NO_CONNECTOR,
    "No FileSystem for scheme": _NO_CONNECTOR,
    "No AWS Credentials provided": _NO_CREDENTIALS,
    "InvalidAccessKeyId": _NO_CREDENTIALS,
    "SignatureDoesNotMatch": _NO_CREDENTIALS,
    "ExpiredToken": _NO_CREDENTIALS,
    "detected for fs.azure.": _NO_CREDENTIALS,
    'Operation failed: "Server failed to authenticate': _NO_CREDENTIALS,
    "when conditional put is disabled": "Two hosts could overwrite each other's commits. Unset AWS_CONDITIONAL_PUT, or let it be etag.",
}
"""Remedies for object stores, by a text that the message of Spark or delta-rs contains."""


def store_remedy(message: str) -> str | None:
    """The remedy if a message of Spark or delta-rs says that it cannot use an object store at all, whatever the object; else None."""
    return next((remedy for mark, remedy in _STORE_REMEDIES.items() if mark in message), None)
