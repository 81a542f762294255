"""The attribute ``audit`` of the YAML."""

import re

import dagster as dg
from pydantic import Field

from incremental_assets.core.container import AuditSettings
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.dagster.components.cron import checked_cron

_PARTITIONS = re.compile(r"(newest|rotating) ([1-9][0-9]*)")


class AuditEntry(dg.Model):
    """The attributes under ``audit:``: regular audits of a container, or of all containers of a datastore."""

    schedule: str | None = Field(default=None, description="cron; runs by default")
    repair: bool = Field(default=False, description="refresh the partitions that differ")
    partitions: str | None = Field(
        default=None, description="newest N: the N newest ones; rotating N: N others each time; left out: all rows"
    )

    def settings(self, label: str) -> AuditSettings:
        """The attributes as settings. ``label``: the datastore's or container's name, for messages. Raises ConfigurationError."""
        found = _PARTITIONS.fullmatch(self.partitions or "newest 1")
        if found is None:
            raise ConfigurationError(f"{label}: audit: partitions is {self.partitions!r}; write newest N or rotating N, or leave it out.")
        number = None if self.partitions is None else int(found[2])
        newest, rotating = (number, None) if found[1] == "newest" else (None, number)
        return AuditSettings(checked_cron(label, "audit: schedule", self.schedule), self.repair, newest, rotating)


def settings_of_all(datastore: str, entry: AuditEntry | None) -> AuditSettings | None:
    """The regular audits of all containers of a datastore. Raises ConfigurationError for what only a container can have."""
    if entry is not None and entry.partitions is not None:
        raise ConfigurationError(f"{datastore}: audit: partitions belongs to a container: write it under containers.")
    return None if entry is None else entry.settings(datastore)


AUDIT_RESOLVER = dg.Resolver(
    lambda context, value: None if value is None else AuditEntry(**context.resolve_value(value.model_dump())),
    model_field_type=AuditEntry | None,
)
