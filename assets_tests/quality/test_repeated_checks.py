"""What a run that writes nothing leaves of the checks of its container: their state.

Belongs here: audits. Does not belong: syncs that are skipped (``test_scans``).
"""

from collections.abc import Callable

import dagster as dg

from assets_tests.harness import Project
from incremental_assets.runs.partitions import container_key


def test_an_audit_leaves_a_broken_rule_broken(project: Callable[..., Project]) -> None:
    """The page of the asset would show all checks as passed after an audit, which looks at none of them, while anomalies are open."""
    rules = [{"rule": "min", "column": "seats", "min": 1}]
    shop = project(incremental=["public.t:at:date"], containers={"t": {"partition_by": "month", "checks": rules}})
    shop.execute("create table t (id int primary key, at date, seats int)")
    shop.execute("insert into t values (1, '2026-01-05', 0), (2, '2026-02-05', 3), (3, '2026-03-05', 3)")
    shop.sync()
    assert shop.audit("t")["t"]["status"] == "equal"
    check = dg.AssetCheckKey(container_key(shop.definition("t").container), "min_seats")
    with shop.instance() as instance:
        newest = instance.event_log_storage.get_asset_check_execution_history(check, limit=1)
    event = newest[0].event
    assert event is not None and event.dagster_event is not None
    known = event.dagster_event.asset_check_evaluation_data
    assert not known.passed, known
