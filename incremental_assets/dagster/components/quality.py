"""``auto_resolve:``, ``samples:``, ``checks:``, ``scan:`` and ``profile:`` of a container's YAML.

A rule is validated by itself and not as a part of the component's model. Dagster allows a template in place of each field, so for an error
anywhere inside ``containers`` it can only report the line of ``containers``.
"""

from pathlib import Path
from typing import Any, Literal

import dagster as dg
from pydantic import Field, TypeAdapter, ValidationError

from incremental_assets.core.container import RegularScan
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.names import nearest
from incremental_assets.core.rules.checks import AnyRule
from incremental_assets.core.rules.rule import Rule
from incremental_assets.dagster.components.cron import checked_cron

_RULES: TypeAdapter[Rule] = TypeAdapter(AnyRule)
_PLACE = "place"
"""The key under which a rule's place in the file is added to it."""


class ScanEntry(dg.Model):
    """The attributes under ``scan:`` or ``profile:``: regular scans or profiles of a container, or of all containers of a datastore."""

    schedule: str = Field(description="cron; runs by default")
    looks: Literal["incremental", "full"] = Field(default="incremental", description="at what is new, or at all rows")


def regular_scan(label: str, attribute: str, entry: ScanEntry | None) -> RegularScan | None:
    """The attributes as settings. ``label``: the datastore's or container's name, for messages. Raises ConfigurationError."""
    if entry is None:
        return None
    checked_cron(label, f"{attribute}: schedule", entry.schedule)
    return RegularScan(entry.schedule, entry.looks == "full")


SCAN_RESOLVER = dg.Resolver(
    lambda context, value: None if value is None else ScanEntry(**context.resolve_value(value.model_dump())),
    model_field_type=ScanEntry | None,
)


class QualityEntry(dg.Model):
    """The options of every kind of container that are about quality."""

    scan: ScanEntry | None = Field(default=None, description="regular scans, beside those of the datastore")
    profile: ScanEntry | None = Field(default=None, description="regular profiles, beside those of the datastore")

    auto_resolve: bool = Field(default=False, description="anomalies that a later scan no longer finds are resolved")
    samples: bool = Field(default=True, description="records keep failed rows as they were, profiles keep values of texts")
    checks: list[Any] = Field(default_factory=list, description="rules of quality, asked of the partitions that a run wrote")


def scans_of(label: str, entry: QualityEntry) -> dict[str, RegularScan | None]:
    """The container's regular scans and profiles, by the names of the options. ``label``: the container's, for messages.

    Raises ConfigurationError if there is nothing to be scanned, or if a schedule is no cron expression.
    """
    if entry.scan is not None and not entry.checks:
        raise ConfigurationError(f"{label}: scan evaluates the rules of a container, and this one has none. Add checks, or remove scan.")
    return {what: regular_scan(label, what, one) for what, one in (("scan", entry.scan), ("profile", entry.profile))}


def placed_checks(context: dg.ResolutionContext, name: str, entry: QualityEntry) -> list[Any]:
    """The rules of a container as the YAML has them, with templates resolved.

    The place of each (``shop/defs.yaml:12``) is added under ``place``. ``name``: the container's key under ``containers:``.
    """
    checks = entry.model_dump(mode="json")["checks"]
    return [
        {**_filled(context, rule), _PLACE: _place(context, [name, "checks", number])} if isinstance(rule, dict) else rule
        for number, rule in enumerate(checks)
    ]


def rules_of(label: str, entry: QualityEntry) -> tuple[Rule, ...]:
    """The rules of the entry. ``label``: the container's, for messages.

    Raises ConfigurationError with the place of the first rule that is not valid.
    """
    rules: list[Rule] = []
    for number, words in enumerate(entry.checks):
        try:
            rules.append(_RULES.validate_python(words))
        except ValidationError as error:
            place = words.get(_PLACE) if isinstance(words, dict) else None
            at = f"{place}: " if place else ""
            raise ConfigurationError(
                f"{at}{label}: checks, entry {number + 1}: {'; '.join(_error_in_words(one) for one in error.errors())}."
            ) from error
    return tuple(rules)


def _error_in_words(error: Any) -> str:
    """An error of pydantic in words of the YAML."""
    kind, where = error["type"], ".".join(str(part) for part in error["loc"][1:])
    if kind == "union_tag_invalid":
        known = [word.strip(" '") for word in error["ctx"]["expected_tags"].split(",")]
        return f"there is no rule {error['ctx']['tag']!r}.{nearest(error['ctx']['tag'], known)}".rstrip(".")
    if kind == "union_tag_not_found":
        return "it does not say which rule it is; write rule: not_null, or another"
    if kind in ("model_attributes_type", "dataclass_type"):
        return "it is no rule; write {rule: not_null, columns: [<column>]}, or another"
    if kind == "unexpected_keyword_argument":
        return f"{error['loc'][0]} has no {where!r}"
    if kind == "missing":
        return f"{error['loc'][0]} needs {where!r}"
    text = str(error["msg"]).removeprefix("Value error, ")
    return f"{where}: {text}" if where else text


def _filled(context: dg.ResolutionContext, value: Any) -> Any:
    """Resolves the templates in a rule, and only in texts that contain one.

    Dagster turns each resolved text that reads as a Python value into that value; a pattern such as ``[0-9]`` must stay text.
    """
    if isinstance(value, dict):
        return {key: _filled(context, inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(context, inner) for inner in value]
    return context.resolve_value(value) if isinstance(value, str) and "{{" in value else value


def _place(context: dg.ResolutionContext, path: list[str | int]) -> str | None:
    """The folder, file and line of a value in the YAML; None where the component was not loaded from a file."""
    tree = context.source_position_tree
    if tree is None:
        return None
    position, _ = tree.lookup_closest_and_path([*context.path, *path], trace=None)
    file = Path(position.filename)
    return f"{file.parent.name}/{file.name}:{position.start.line}"
