"""``--partition 2026-03``: the beginning of keys stands for all partitions that begin with it.

Belongs here: which partitions are meant. Does not belong: what a refresh does to them (``test_sync``).
"""

from collections.abc import Callable

import pytest

from assets_tests.harness import Project
from incremental_assets.core.errors import ConfigurationError


@pytest.mark.parametrize("by", ["day", "month"])
def test_the_beginning_of_keys_is_enough(project: Callable[..., Project], by: str) -> None:
    """The key of March is 2026-03-01, which nobody knows by heart; and of a container by day, March would take 31 commands."""
    made = project(incremental=["public.orders:at:date"], containers={"orders": {"partition_by": by}})
    made.execute("""create table orders (id int primary key, at date not null);
        insert into orders select n, date '2026-01-10' + n from generate_series(1, 90) n""")
    made.one("orders")
    assert made.one("orders", keys=("2026-03", "2026-03"))["rows_read"] == 31
    assert made.one("orders", keys=("2026-02", "2026-03"))["rows_read"] == 28 + 31
    one = "2026-03-01"
    assert made.one("orders", keys=(one, one))["rows_read"] == (1 if by == "day" else 31), "a whole key is itself"
    with pytest.raises(ConfigurationError, match="there is no partition '1999-03'"):
        made.one("orders", keys=("1999-03", "1999-03"))
