"""The settings of the component ``Alerts``, and what operations ask of it."""

from abc import abstractmethod
from dataclasses import dataclass, field

import dagster as dg

from incremental_assets.operations.alerts.messages import Urls
from incremental_assets.operations.alerts.page import page_url
from incremental_assets.operations.alerts.problems import Limits, Severity


@dataclass(frozen=True)
class Settings:
    """The attributes of the YAML. ``to``: apprise's URLs. ``on``: which messages are sent. ``base_url``: without a slash at the end.
    ``samples``: whether messages have values and keys of rows."""

    name: str
    to: tuple[str, ...]
    on: frozenset[Severity]
    limits: Limits = field(default_factory=Limits)
    every_seconds: int = 60
    base_url: str | None = None
    samples: bool = True

    @property
    def urls(self) -> Urls | None:
        """The addresses of Dagster's UI, if they are known."""
        return None if self.base_url is None else Urls(self.base_url, page_url(self.name, self.base_url))


class AlertsComponent(dg.Component):
    """What operations ask of ``incremental_assets.Alerts``, which Dagster loads. ``samples``: whether values of rows may be shown."""

    samples: bool

    @abstractmethod
    def settings(self) -> Settings:
        """The settings of the YAML. Raises ConfigurationError."""

    @abstractmethod
    def ui(self) -> str | None:
        """Where Dagster's UI is, without a slash at the end; None if that is not known. Raises ConfigurationError."""

    @abstractmethod
    def limits(self) -> Limits:
        """From where on something is a problem. Raises ConfigurationError."""
