"""``incremental_assets.Alerts``: messages to people, by mail, chat or web hook, as a Dagster component."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import dagster as dg

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.dagster.alerts_sensor import alerts_sensor
from incremental_assets.operations.alerts.page import page_asset
from incremental_assets.operations.alerts.problems import Limits, Severity
from incremental_assets.operations.alerts.send import is_understood
from incremental_assets.operations.alerts.settings import AlertsComponent, Settings

_NAME = re.compile(r"[A-Za-z0-9_]+")
_LEAST_SECONDS = 10


@dataclass(kw_only=True)
class Alerts(AlertsComponent, dg.Resolvable):
    """Says once when something is wrong with a container, a schedule or a sensor, and once when it is over.

    The attributes are those of ``defs.yaml``; docs/alerts.md describes them.
    """

    stand_ins: ClassVar[Mapping[str, str]] = {"to": "json://localhost"}
    to: Annotated[Sequence[str], dg.Resolver.default(description="URLs of apprise", examples=[["{{ env.ALERTS_URL }}"]])]
    send: Annotated[Sequence[Literal["failure", "warning", "success"]], dg.Resolver.default(description="which messages are sent")] = (
        "failure",
        "warning",
    )
    name: Annotated[str, dg.Resolver.default(description="the sensor's name")] = "alerts"
    max_lag_seconds: Annotated[
        int | None, dg.Resolver.default(description="a lake that is further behind a container's source is a warning")
    ] = None
    max_held_back_seconds: Annotated[
        int | None, dg.Resolver.default(description="a watermark that open transactions hold back for longer is a warning")
    ] = 3600
    max_retained_seconds: Annotated[
        int | None, dg.Resolver.default(description="log that a source keeps for a replication slot from the same place on for longer")
    ] = 86_400
    max_retained_bytes: Annotated[
        int | None, dg.Resolver.default(description="more log that a source keeps; by default capture_warning_bytes of the datastore")
    ] = None
    max_overdue_seconds: Annotated[
        int | None, dg.Resolver.default(description="a schedule or sensor that is late by more is a failure")
    ] = 3600
    samples: Annotated[bool, dg.Resolver.default(description="messages name a value and the key of a row that breaks a rule")] = True
    every_seconds: Annotated[int, dg.Resolver.default(description="how often it looks")] = 60
    base_url: Annotated[
        str | None,
        dg.Resolver.default(description="where Dagster's UI is, for links in messages", examples=["https://dagster.example.com"]),
    ] = None

    def settings(self) -> Settings:
        """The settings of the YAML. Raises ConfigurationError that names the attribute which is wrong; no message has a URL."""
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(f"Alerts: name is {self.name!r}; letters, digits and _ can be in the name of a sensor.")
        if not self.to or not self.send:
            raise ConfigurationError(f"{self.name}: to and send cannot be empty: nothing would ever be sent.")
        if isinstance(self.to, str):
            raise ConfigurationError(f"{self.name}: to is a list: write each URL on a line of its own that begins with a hyphen.")
        for number, url in enumerate(self.to, 1):
            if not url:
                raise ConfigurationError(f"{self.name}: URL {number} of to is empty; is the environment variable set that it refers to?")
            if not is_understood(url):
                kind = url.partition("://")[0] if "://" in url else "without ://"
                raise ConfigurationError(f"{self.name}: URL {number} of to ({kind}) is none that apprise understands.")
        if self.every_seconds < _LEAST_SECONDS:
            raise ConfigurationError(f"{self.name}: every_seconds is at least {_LEAST_SECONDS}.")
        on = frozenset(Severity(one) for one in self.send)
        return Settings(self.name, tuple(self.to), on, self.limits(), self.every_seconds, self.ui(), self.samples)

    def ui(self) -> str | None:
        """``base_url`` without a slash at its end. Raises ConfigurationError."""
        if self.base_url is not None and not re.match(r"https?://[^\s/]", self.base_url):
            raise ConfigurationError(f"{self.name}: base_url is {self.base_url!r}; write an address such as https://dagster.example.com.")
        return None if self.base_url is None else self.base_url.rstrip("/")

    def limits(self) -> Limits:
        """From where on something is a problem. Raises ConfigurationError."""
        limits = {
            "lag_seconds": self.max_lag_seconds,
            "held_back_seconds": self.max_held_back_seconds,
            "retained_seconds": self.max_retained_seconds,
            "retained_bytes": self.max_retained_bytes,
            "overdue_seconds": self.max_overdue_seconds,
        }
        for name, limit in limits.items():
            if limit is not None and limit < 0:
                raise ConfigurationError(f"{self.name}: max_{name} cannot be negative.")
        return Limits(**limits)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The sensor, and the asset of the page that lists what is open."""
        return dg.Definitions(assets=[page_asset(self.name)], sensors=[alerts_sensor(self.settings())])
