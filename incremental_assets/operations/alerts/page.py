"""The page of Dagster's UI that lists what is open: the newest event of an asset that the sensor of the alerts reports.

An event is stored when a problem begins or is over, and each hour while one lasts, as the texts have durations. It has no value and no key
of a row: Dagster deletes events with their run, and these have none.
"""

import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace

import dagster as dg

from incremental_assets.core.shown_text import on_one_line
from incremental_assets.operations.alerts.problems import Problem, Severity, asset_page

OPEN, _NUMBER, _DIGEST = "alerts/open", "alerts/number", "alerts/digest"
"""The metadata keys of the page, of the number of problems, and of a digest by which two pages are compared."""
_AGAIN_SECONDS = 3600
_MOST_LINES = 500
_MARKUP, _ESCAPED = re.compile(r"[\\`*_\[\]<>|~#&!]"), r"\\\g<0>"


def page_asset(name: str) -> dg.AssetSpec:
    """The asset of the page. ``name``: that of the alerts."""
    return dg.AssetSpec(
        page_key(name),
        group_name=name,
        description="What is wrong now, with containers, rules, schedules and sensors: the metadata of its newest event. Nothing syncs it.",
    )


def page_key(name: str) -> dg.AssetKey:
    """The key of the asset of the page."""
    return dg.AssetKey([name, "open_problems"])


def page_url(name: str, base_url: str) -> str:
    """The address of the page."""
    return base_url + asset_page(page_key(name).path)


def report(instance: dg.DagsterInstance, name: str, problems: Mapping[str, Problem], base_url: str) -> None:
    """Stores an event with the page, if what is open has changed, or if the newest event is old."""
    key, page = page_key(name), markdown(problems, base_url)
    digest = hashlib.sha256(json.dumps(sorted((name, one.severity.value) for name, one in problems.items())).encode()).hexdigest()[:16]
    newest = next(iter(instance.fetch_materializations(key, limit=1).records), None)
    if newest is not None and newest.asset_materialization is not None:
        # Anybody may report an event of the asset in the UI, without this metadata.
        before = {name: value.value for name, value in newest.asset_materialization.metadata.items()}
        is_current = before.get(OPEN) == page or time.time() - newest.timestamp < _AGAIN_SECONDS
        if before.get(_DIGEST) == digest and is_current:
            return
    metadata = {OPEN: dg.MetadataValue.md(page), _NUMBER: len(problems), _DIGEST: digest}
    instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata=metadata))


def markdown(problems: Mapping[str, Problem], base_url: str) -> str:
    """The page: a list of the problems, failures first. Names and messages of a source are no markup in it."""
    if not problems:
        return "Nothing is wrong."
    ordered = sorted(problems.values(), key=lambda one: (one.severity is not Severity.FAILURE, one.text))
    lines = [_line(one, base_url) for one in ordered[:_MOST_LINES]]
    if len(ordered) > _MOST_LINES:
        lines.append(f"- and {len(ordered) - _MOST_LINES:,} more: incremental-assets alerts")
    return "\n".join(lines)


def _line(one: Problem, base_url: str) -> str:
    # The UI shows the page in a narrow column, in which a table would be all line breaks.
    link = f" [look]({base_url}{one.link})" if one.link else ""
    text = on_one_line(replace(one, example="").in_words)
    return f"- **{one.severity.value}**: {_MARKUP.sub(_ESCAPED, text)}{link}"
