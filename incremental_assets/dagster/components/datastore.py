"""Defines what the components of all kinds of datastores share: common attributes of the YAML, and building the Dagster definitions."""

import math
import zlib
from abc import ABC
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import dagster as dg
from dagster.components import DefsStateConfigArgs, ResolvedDefsStateConfig
from pydantic import Field

from incremental_assets.catalog.definition import CatalogSettings, ContainerDefinition
from incremental_assets.catalog.state import Catalog
from incremental_assets.core.duration import seconds_of
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.dagster.assets import container_spec
from incremental_assets.dagster.catalog_asset import catalog_definitions
from incremental_assets.dagster.components.cron import checked_cron
from incremental_assets.dagster.datastore import datastore_definitions
from incremental_assets.delta.folders import OPERATIONS_FOLDER
from incremental_assets.project.catalogued import CataloguedComponent
from incremental_assets.project.folders import current_project, wanted
from incremental_assets.runs.catalog_run import kinds_of
from incremental_assets.runs.collisions import collisions, names_of
from incremental_assets.runs.container_run import sync_container


class CatalogEntry(dg.Model):
    """The attributes under ``catalog:`` in the YAML: the options of the catalog operation."""

    schedule: str | None = Field(default=None, description="cron; runs by default")
    name: str | None = Field(default=None, description="the schedule's, shown with its runs")
    prune: bool = Field(default=False, description="forget containers that are gone from the source; their Delta tables stay")
    recreate: bool = Field(default=False, description="bring back those that `catalog remove` has hidden")
    include: list[Literal["table", "view"]] = Field(default_factory=lambda: ["table", "view"], description="what becomes a container")

    def settings(self, datastore: str) -> CatalogSettings:
        """The attributes as settings. ``datastore``: its name, for messages. Raises ConfigurationError where ``include`` is empty, or
        ``schedule`` is no cron expression."""
        if not self.include:
            raise ConfigurationError(f"{datastore}: catalog: include is empty, which leaves no container; it takes table, view, or both.")
        schedule = checked_cron(datastore, "catalog: schedule", self.schedule)
        return CatalogSettings(schedule, self.name, self.prune, self.recreate, kinds_of(self.include))


def maintenance_cron(datastore: str, word: str | None) -> str | None:
    """The cron expression of the attribute ``maintenance``; None: no schedule.

    ``word``: ``daily`` means a minute between 2:00 and 6:00 UTC that depends on the datastore's name, so that several datastores are not
    all maintained at once. ``off`` and None mean never. All else is a cron expression itself.
    """
    if word in (None, "off"):
        return None
    minute = zlib.crc32(datastore.encode()) % 240
    return f"{minute % 60} {2 + minute // 60} * * *" if word == "daily" else checked_cron(datastore, "maintenance", word)


def checked_days(datastore: str, days: int | None) -> int | None:
    """The attribute ``keep_days``; None: everything is kept. Raises ConfigurationError for less than 1."""
    if days is not None and days < 1:
        raise ConfigurationError(f"{datastore}: keep_days is {days}; it is at least 1, or null, which keeps everything for ever.")
    return days


def checked_duration(label: str, what: str, text: str | None) -> int | None:
    """A duration such as ``36 hours``, in seconds; None: none is set. ``label``, ``what``: the container and the attribute, for messages.

    Raises ConfigurationError where it is none.
    """
    try:
        return None if text is None else seconds_of(what, text)
    except ValueError as error:
        raise ConfigurationError(f"{label}: {error}.") from error


def freshness_of(label: str, text: str | None) -> int | None:
    """The attribute ``freshness`` of a container in seconds, of which Dagster wants at least 60. Raises ConfigurationError."""
    seconds = checked_duration(label, "freshness", text)
    if seconds is not None and seconds < 60:
        raise ConfigurationError(f"{label}: freshness is {text}; it is at least 1 minute.")
    return seconds


CATALOG_RESOLVER = dg.Resolver(
    lambda context, value: CatalogEntry(**context.resolve_value(value.model_dump())), model_field_type=CatalogEntry
)


_Limit = TypeVar("_Limit", int, int | None)


def run_limit(label: str, seconds: _Limit) -> _Limit:
    """The attribute ``max_runtime_seconds`` of a datastore or container. ``label``: its name, for messages.

    Raises ConfigurationError for less than 1.
    """
    if seconds is not None and seconds < 1:
        raise ConfigurationError(f"{label}: max_runtime_seconds is {seconds}; it is at least 1.")
    return seconds


def numeric_attributes(component: type) -> dict[str, tuple[type, tuple[object, ...]]]:
    """The numeric attributes of a component, by name: the type (int or float), and the other values that are allowed (None, ``auto``)."""
    found: dict[str, tuple[type, tuple[object, ...]]] = {}
    for name, hint in get_type_hints(component).items():
        parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
        for kind in (int, float):
            if kind in parts:
                found[name] = (kind, (*words, *([None] if NoneType in parts else [])))
    return found


def local_state() -> ResolvedDefsStateConfig:
    """The default place of the state: a file of the project. Dagster does not refresh it in development; only the operation writes it."""
    return DefsStateConfigArgs(key=None, management_type=DefsStateConfigArgs.local_filesystem().management_type, refresh_if_dev=False)


class DatastoreComponent(CataloguedComponent, ABC):
    """The base class of the components: a datastore whose containers become assets.

    A project may use a subclass that overrides ``get_asset_spec`` or ``sync``. Components of other Dagster integrations have methods like
    these.
    """

    def get_asset_spec(self, container: ContainerDefinition) -> dg.AssetSpec:
        """The spec of the container's asset. Override it to change tags, owners, group, description, metadata or automation condition.

        The asset key must stay: the table, the watermark and the history are found by it.
        """
        return container_spec(container)

    def sync(self, context: dg.AssetExecutionContext, container: ContainerDefinition) -> Iterator[dg.Output[Any]]:
        """Syncs the container in a run of its asset. Override it to do something before or after ``yield from super().sync(…)``."""
        yield from sync_container(context, container)

    # ------------------------------------------------------------------
    def expect_name(self) -> None:
        """Raises ConfigurationError where the name cannot be that of a datastore."""
        if not self.name.strip():
            raise ConfigurationError("a datastore needs a name.")
        if self.name == OPERATIONS_FOLDER:
            raise ConfigurationError(f"{self.name}: this name is the product's own; choose another for the datastore.")

    def read_numbers(self) -> None:
        """Converts the values of the numeric attributes to numbers. Raises ConfigurationError where one is no such number.

        Dagster accepts any text for a numeric attribute, because the text may come from a template such as ``{{ env.ROWS }}``.
        """
        for name, (kind, others) in numeric_attributes(type(self)).items():
            value = getattr(self, name)
            if value in others:
                continue
            try:
                if isinstance(value, bool) or not isinstance(value, int | float | str):
                    raise ValueError
                number = kind(value)
                if number != float(value) or not math.isfinite(number):
                    raise ValueError
            except (ValueError, OverflowError):
                what = "a whole number" if kind is int else "a number"
                either = "".join(f", or {word}" for word in others if word is not None)
                raise ConfigurationError(f"{self.name}: {name} is {value!r}; write {what}{either}.") from None
            setattr(self, name, number)

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        settings = self.settings()
        known = None if state_path is None else self.definitions(Catalog.load(state_path))
        if known is not None:
            others = context.component_tree.get_all_components(CataloguedComponent)
            refused = collisions(self, others, lambda one: names_of(one, one.store(current_project()).load(None)))
            known = [definition for definition in known if definition.container.name not in refused]
        own = catalog_definitions(self, settings, known)
        if known is None:
            return own
        labels = wanted([definition.container.label for definition in known])
        chosen = [definition for definition in known if definition.container.label in labels]
        return dg.Definitions.merge(own, datastore_definitions(settings, chosen, self.get_asset_spec, self.sync, all_of=known))
