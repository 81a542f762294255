"""What can go wrong, one class for each kind of remedy. Messages say what happened, to which container, and what to do.

Belongs here: the exceptions every room may raise. Does not belong: how they are shown (the command line) or stored (Dagster).
"""


class SyncError(Exception):
    """Base of all errors a user is meant to read: the message is complete without a stack trace."""


class ConfigurationError(SyncError):
    """Remedy: change the YAML or the command."""


class MisfitError(ConfigurationError):
    """Remedy: change what the YAML says of this one container; the others are not concerned."""

    def __init__(self, container: str, message: str) -> None:
        super().__init__(message)
        self.container = container


class ContainerMissing(SyncError):
    """Remedy: bring the container back in the source, or forget it; its rows stay in the lake."""


class SourceError(SyncError):
    """Remedy: make the source reachable, or grant what is missing; nothing was written."""


class SourceUnreachable(SourceError):
    """Remedy: make the source reachable; none of its containers can be synced until then."""


class OutOfTime(SourceError):
    """Remedy: none is needed where somebody asks again with more time; else make the query quicker."""


class SourceInterrupted(SourceError):
    """Remedy: free the disk, or repair disk or network, and sync again; no file and no row is at fault, and nothing was written."""


class LakeError(SyncError):
    """Remedy: repair or free the place the table is to be written to; the next sync heals what is half done."""


class RebuildNeeded(SyncError):
    """Remedy: load the container anew with ``--reset-watermarks``; the lake and the source no longer fit together."""


class EmptyRefused(SyncError):
    """Remedy: look whether the source is really empty, then say ``--allow-empty``."""


class LakeMoved(SyncError):
    """Remedy: sync again; somebody else wrote to the table while this sync was reading."""


class ContainerBusy(SyncError):
    """Remedy: wait for the sync that holds the container (named in the message), or end it."""


_STOP = "`python -m incremental_assets.spark.embedded.server stop` ends it"
_NO_CONNECTOR = (
    "Spark has no connector for this store: name its packages in INCREMENTAL_ASSETS_SPARK_CONF, as docs/object-stores.md tells. A server "
    f"that runs does not load them; {_STOP}."
)
_NO_CREDENTIALS = f"Spark has no valid credentials for this store. Its server keeps the variables AWS_* that it was started with; {_STOP}."
_STORE_REMEDIES = {
    "S3AFileSystem not found": _NO_CONNECTOR,
    "AzureBlobFileSystem not found": _NO_CONNECTOR,
    "GoogleHadoopFileSystem not found": _NO_CONNECTOR,
    "No FileSystem for scheme": _NO_CONNECTOR,
    "No AWS Credentials provided": _NO_CREDENTIALS,
    "InvalidAccessKeyId": _NO_CREDENTIALS,
    "SignatureDoesNotMatch": _NO_CREDENTIALS,
    "ExpiredToken": _NO_CREDENTIALS,
    "when conditional put is disabled": "Two hosts could overwrite each other's commits. Unset AWS_CONDITIONAL_PUT, or let it be etag.",
}
"""By what the message of Spark or delta-rs contains."""


def store_remedy(message: str) -> str | None:
    """What to do where a message of Spark or delta-rs tells that it cannot work with an object store at all, whatever the object."""
    return next((remedy for mark, remedy in _STORE_REMEDIES.items() if mark in message), None)
