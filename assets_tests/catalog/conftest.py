"""What tests of the catalog share: small tables that were made a moment ago count as large ones that have been used for weeks."""

import datetime
from collections.abc import Iterator

import pytest

from incremental_assets.catalog import detect


@pytest.fixture(scope="module")
def long_used() -> Iterator[None]:
    """Whatever the size of a table and the time since which it is counted, they hold nothing back. ``test_written_once`` has the limits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detect, "WHOLE_BYTES", -1)
        patch.setattr(detect, "ENOUGH_COUNTED", datetime.timedelta(0))
        patch.setattr(detect, "ENOUGH_DAYS", 0)
        yield
