"""How many requests a sync of few rows sends to an object store, and one that finds nothing to do.

Belongs here: upper bounds of their numbers, counted by a proxy. Does not belong: how long they take (``benchmarks.store``), and when what
was seen of a table no longer holds (``test_seen``).
"""

import os
import shutil
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from assets_tests.harness import Project
from benchmarks.store_proxy import proxy
from incremental_assets.delta import seen

pytestmark = pytest.mark.s3


def test_few_rows_and_no_rows_take_few_requests(
    project: Callable[..., Project], s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch, as_another_process: Callable[[], None]
) -> None:
    """A store that is far away takes a tenth of a second for each. Those of the lease and of ``_operations`` are included."""
    with proxy(urlsplit(os.environ["AWS_ENDPOINT_URL"]).netloc) as proxied, monkeypatch.context() as through:
        through.setenv("AWS_ENDPOINT_URL", f"http://{proxied.address}")
        shop = project(incremental=["public.appended:id:integer", "public.merged:id:integer!upsert"])
        shop.lake = f"s3://{bucket}/lake"
        monkeypatch.setattr(seen, "_folders", [shop.home / "seen"])
        for name in ("appended", "merged"):
            shop.execute(f"create table {name} (id int primary key, note text); insert into {name} select generate_series(1, 1000), 'a'")
        shop.sync()

        def expect_at_most(most: int, name: str, status: str) -> None:
            as_another_process()
            proxied.requests.clear()
            assert shop.one(name, stale=True)["status"] == status
            assert proxied.requests.total() <= most, "\n".join(f"{count} {kind}" for kind, count in sorted(proxied.requests.items()))

        for number in range(2):
            for name in ("appended", "merged"):
                first = 1001 + 10 * number
                shop.execute(f"insert into {name} select generate_series({first}, {first + 9}), 'b'")
                if name == "merged":
                    shop.execute(f"update merged set note = 'c' where id = {first - 1}")
                expect_at_most(25, name, "synced")
        for name in ("appended", "merged"):
            expect_at_most(3, name, "skipped")
        shutil.rmtree(shop.home / "seen")
        for name in ("appended", "merged"):
            expect_at_most(20, name, "skipped")
    for name in ("appended", "merged"):
        shop.assert_equal(name)
