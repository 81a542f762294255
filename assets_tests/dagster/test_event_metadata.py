"""What the event of a sync shows, and that events of older versions are still read.

Belongs here: the form of the metadata. Does not belong: the numbers in it (``test_dagster``, ``test_sync``).
"""

from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
import pytest

from assets_tests.harness import Project
from incremental_assets.core.cursor_type import json_value
from incremental_assets.runs.records.metadata import ALL_INTERNALS, IN_WORDS, as_event_metadata, as_metadata, plain
from incremental_assets.runs.records.watermarks import history, newest_event, newest_watermark, reported_version

HOLDERS = [{"id": "3/17", "since": "2026-07-02T10:00:00+00:00", "who": "shop checkout"}]
VALUES: dict[str, Any] = {
    "sync/status": "synced",
    "sync/mode": "incremental",
    "sync/strategy": "append",
    "sync/range": "[2026-07-01, ∞)",
    "sync/rows_read": 1200,
    "sync/rows_inserted": 20,
    "sync/rows_updated": None,
    "sync/rows_deleted": 0,
    "sync/seconds": 1.25,
    "sync/delta_version": 7,
    "sync/message": "held back by shop checkout",
    "dagster/uri": "/lake/shop/orders",
    "watermark/new": "2026-07-02",
    "watermark/previous": "2026-07-01",
    "watermark/identifier": "day:date:append",
    "watermark/held_back_by": HOLDERS,
}
WORDS = """\
**synced** by append, in 1.2 s

- rows: 1,200 read, 20 inserted, 0 deleted
- window: [2026-07-01, ∞)
- watermark: 2026-07-01 → 2026-07-02

held back by shop checkout"""


def test_a_person_reads_what_happened_before_the_figures_and_nothing_else_between_them() -> None:
    """The page of an asset has thirty entries otherwise, among which nobody finds how many rows there were."""
    found = as_event_metadata(VALUES)
    figures = {"sync/rows_read": 1200, "sync/rows_inserted": 20, "sync/rows_deleted": 0, "sync/seconds": 1.25, "sync/delta_version": 7}
    places = {"dagster/uri": "/lake/shop/orders", "watermark/new": "2026-07-02", "watermark/previous": "2026-07-01"}
    assert list(found) == [IN_WORDS, *(name for name in VALUES if name in {**figures, **places}), ALL_INTERNALS]
    values = {name: getattr(value, "value", value) for name, value in found.items()}
    assert isinstance(found[IN_WORDS], dg.MarkdownMetadataValue) and values[IN_WORDS] == WORDS
    assert {name: values[name] for name in {**figures, **places}} == {**figures, **places}
    assert set(values[ALL_INTERNALS]) == set(VALUES) - set(figures) - set(places) - {"sync/rows_updated"}


@pytest.mark.parametrize("convert", [as_event_metadata, as_metadata], ids=["this version", "the one before"])
def test_events_are_read_whichever_version_has_written_them(convert: Callable[[Any], Any]) -> None:
    """The watermark that counts is in events of before the upgrade, too: without it the next sync would load the whole table."""
    known = {name: value for name, value in VALUES.items() if value is not None}
    assert {name: value for name, value in plain(convert(VALUES)).items() if name != IN_WORDS} == known


def test_what_is_said_of_one_partition_counts_for_it() -> None:
    """A file that was refused makes its own partition a warning."""
    assert plain({**as_event_metadata(VALUES), "sync/status": "warning"})["sync/status"] == "warning"


@pytest.fixture
def shop(project: Callable[..., Project]) -> Iterator[Project]:
    made = project(incremental=["public.orders:day:date"], containers={"orders": {"partition_by": "month"}})
    made.execute("create table orders (id int primary key, day date); insert into orders values (1, '2026-01-05'), (2, '2026-02-05')")
    yield made


def test_watermarks_and_their_history_go_on_over_an_upgrade(shop: Project) -> None:
    """Events of both versions lie beside each other in one log. The newest one counts, whoever has written it."""
    shop.sync()
    container = shop.definition("orders").container
    assert container.cursor_type is not None
    with shop.instance() as instance:
        before = newest_event(instance, container)
        events = [one.asset_materialization for one in instance.fetch_materializations(dg.AssetKey(["shop", "orders"]), limit=5).records]
        shown = {one.partition: list(one.metadata) for one in events if one is not None}
        assert {one: (names[0], names[-1]) for one, names in shown.items()} == dict.fromkeys(shown, (IN_WORDS, ALL_INTERNALS))
        assert {"2026-01-01", "2026-02-01"} <= set(shown)
        event = events[0]
        assert event is not None and before is not None and before.watermark is not None
        values = plain(event.metadata) | {"watermark/new": json_value(container.cursor_type, before.watermark - 1)}
        old = as_metadata({name: value for name, value in values.items() if name.startswith(("sync/", "watermark/"))})
        instance.report_runless_asset_event(dg.AssetMaterialization(["shop", "orders"], partition="2026-02-01", metadata=old))
        assert newest_watermark(instance, container) == before.watermark - 1
        assert reported_version(instance, container) == values["sync/delta_version"]
        assert [one["new"] for one in history(instance, container)][:2] == ["2026-02-04", "2026-02-05"]
    shop.execute("insert into orders values (3, '2026-02-06')")
    line = shop.one("orders")
    assert (line["rows_read"], line["strategy"], line["watermark"]["previous"]) == (2, "append", "2026-02-04")
