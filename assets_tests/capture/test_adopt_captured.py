"""``adopt`` of tables that follow the log of their source: they go on with it, or are refused.

Belongs here: the slot, which is called after the datastore. Does not belong: the rest of the command (``dagster.test_adopt``).
"""

import pytest

from assets_tests.capture.test_capture import PARTITIONED, SLOT, TABLE, MakeProject, set_up
from assets_tests.dagster.test_adopt import adopted

pytestmark = pytest.mark.long


def test_a_table_goes_on_with_the_log_of_its_old_slot(project: MakeProject) -> None:
    """The slot of the new name does not have the changes since the last sync, so that the table would be loaded anew."""
    shop = project(incremental=PARTITIONED, containers={"orders": {"partition_by": "month"}}, capture="log")
    shop.execute(TABLE)
    set_up(shop, "orders")
    shop.one("orders")
    shop.execute("update orders set note = 'changed' where id = 1; delete from orders where id = 2")
    record = adopted(shop)["orders"]
    assert record["status"] == "failed" and f"capture_slot: {SLOT}" in record["message"], record
    shop.configure(name="shop", capture_slot=SLOT)
    assert adopted(shop)["orders"]["status"] == "adopted"
    line = shop.one("orders")
    assert "loads the whole container" not in line["message"] and (line["rows_updated"], line["rows_deleted"]) == (1, 1), line
    shop.assert_equal("orders")
