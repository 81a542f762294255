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
