"""Tells by the tags of a run who or what has started it.

Belongs here: reading these tags. Does not belong: setting them (``jobs``, ``runs.ordinary_run``).
"""

from collections.abc import Mapping


def started_by(tags: Mapping[str, str]) -> str:
    """The person or mechanism that started a run, by the run's tags."""
    by_itself = "schedule" if "dagster/schedule_name" in tags else "sensor" if "dagster/sensor_name" in tags else "UI"
    return tags.get("incremental_assets/started_by") or tags.get("user") or by_itself


def schedule_of(tags: Mapping[str, str]) -> str | None:
    """The name of the schedule or sensor that started a run; None where neither did."""
    return tags.get("dagster/schedule_name") or tags.get("dagster/sensor_name")
