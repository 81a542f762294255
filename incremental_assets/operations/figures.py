"""The figures of ``status`` in Prometheus' text format, for ``status --prometheus`` and the API's ``/metrics``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from incremental_assets.core.errors import ConfigurationError

_PREFIX = "incremental_assets_"
_FAILED = ("failure", "missing")
_CHANGES = ("read", "inserted", "updated", "deleted")
_OF_CONTAINERS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], float | None]]] = {
    "rows": ("Rows of the table after the last sync.", lambda one: one["rows"]),
    "lag_seconds": ("How far the lake is behind: since the source was last found covered.", lambda one: one["lag_seconds"]),
    "newest_row_age_seconds": ("How far the watermark is behind the clock.", lambda one: one["newest_row_age_seconds"]),
    "held_back_seconds": ("For how long open transactions hold the watermark back.", lambda one: one["held_back_seconds"] or 0),
    "seconds_since_success": ("How long ago the last successful sync ended.", lambda one: one["success_age_seconds"]),
    "last_sync_failed": ("1 if the last sync has failed, or the container is gone from the source.", lambda one: one["result"] in _FAILED),
    "open_anomalies": ("Anomalies that are active or acknowledged.", lambda one: one["open_anomalies"]),
    "failed_checks": ("Rules that the last sync's scan found broken, or could not evaluate.", lambda one: one["failed_checks"]),
    "audit_differs": ("1 if the last audit has found differences.", lambda one: _is(one["audit"], "different")),
}
"""By the name of a metric, its help text and its value for a record of ``status --json``; None: the container has none."""


def prometheus_text(records: Sequence[Mapping[str, Any]]) -> str:
    """The figures of the records of ``status --json``. Raises ConfigurationError where ``prometheus_client`` is not installed."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.core import GaugeMetricFamily
    except ImportError:
        raise ConfigurationError("the figures are written by prometheus_client. Run: pip install 'incremental-assets[metrics]'") from None

    class Collector:
        """What a registry asks for metrics."""

        def collect(self) -> Iterator[GaugeMetricFamily]:
            for name, help_text, labels, values in _metrics(records):
                metric = GaugeMetricFamily(f"{_PREFIX}{name}", help_text, labels=labels)
                for of, value in values:
                    metric.add_metric(of, value)
                yield metric

    registry = CollectorRegistry()
    registry.register(Collector())
    return generate_latest(registry).decode()


def _metrics(records: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, list[str], list[tuple[list[str], float]]]]:
    """Name, help text and labels of each metric, with its values by those of the labels."""
    named = [([*_names(one)], one) for one in records]
    labels = ["datastore", "container"]
    for name, (text, figure) in _OF_CONTAINERS.items():
        yield name, text, labels, [(of, float(value)) for of, one in named if (value := figure(one)) is not None]
    rows = [([*of, change], one[f"rows_{change}"]) for of, one in named for change in _CHANGES]
    text = "Rows that the last sync has read and changed."
    yield "last_sync_rows", text, [*labels, "change"], [(of, number) for of, number in rows if number is not None]
    retained = {of[0]: one["retained_bytes"] for of, one in named if one["retained_bytes"] is not None}
    text = "Log that the source keeps for the datastore's replication slot, as the last sync has found it."
    yield "retained_log_bytes", text, ["datastore"], [([store], number) for store, number in retained.items()]


def _names(record: Mapping[str, Any]) -> tuple[str, str]:
    datastore, _, container = record["container"].partition("/")
    return datastore, container


def _is(value: str | None, word: str) -> bool | None:
    return None if value is None else value == word
