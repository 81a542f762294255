"""Random histories of a table with rules: rows go bad, are mended, move and vanish; they are synced, refreshed, scanned in part or whole.

Belongs here: after every scan the open anomalies of the partitions that were looked at are what a full recomputation finds there, and those
of the others are as they were; by `append`, and by `upsert`, where a row takes its anomaly along. Some rows have no date, and are of no
partition. Does not belong: the life of an anomaly by itself, in thousands of histories (``test_anomalies``).
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from assets_tests.harness import Project
from incremental_assets.core.plan import Mode
from incremental_assets.quality.records import Records

MONTHS = [f"2026-0{month}-01" for month in range(1, 5)]
PLACES = [*MONTHS, None]
CHECKS = [
    {"rule": "not_null", "columns": ["customer"]},
    {"rule": "between", "column": "price", "min": 0, "max": 100, "filter": "kind <> 'free'"},
    {"rule": "unique", "columns": ["code"], "scope": "table"},
    {"rule": "metric", "expression": "count(*)", "name": "rows", "max": 14},
]
Open = set[tuple[str, str | None]]


def place_of(row: dict[str, Any]) -> str | None:
    return f"{row['day']:%Y-%m}-01" if row["day"] is not None else None


def truth(project: Project) -> tuple[dict[str | None, Open], dict[str, str | None]]:
    """What is broken in the lake as it is now, by partition, computed without Spark and without our rules; and where each row is."""
    rows: list[dict[str, Any]] = [
        dict(zip(("id", "day", "customer", "price", "kind", "code"), row, strict=True))
        for row in project.rows("orders", "id, day, customer, price, kind, code")
    ]
    codes = [row["code"] for row in rows]
    found: dict[str | None, Open] = {month: set() for month in PLACES}
    where: dict[str, str | None] = {}
    for row in rows:
        month, key = place_of(row), f'{{"id":"{row["id"]}"}}'
        where[key] = month
        if row["customer"] is None:
            found[month].add(("not_null_customer", key))
        if row["kind"] is not None and row["kind"] != "free" and row["price"] is not None and not 0 <= row["price"] <= 100:
            found[month].add(("between_price", key))
        if row["code"] is not None and codes.count(row["code"]) > 1:
            found[month].add(("unique_code", key))
    for month in PLACES:
        if sum(1 for row in rows if place_of(row) == month) > 14:
            found[month].add(("rows", month))
    return found, where


def opened(project: Project) -> dict[str | None, Open]:
    """The open anomalies on record, by partition."""
    found: dict[str | None, Open] = {}
    for one in Records(project.lake, "shop").anomalies("shop/orders").values():
        if one.is_open:
            found.setdefault(one.partition, set()).add((one.rule, one.key or one.partition))
    return found


def play(project: Project, chance: random.Random, steps: int, upsert: bool) -> None:
    project.execute(
        """create table orders (id int primary key, day date, customer int, price int, kind text, code int);
        insert into orders select i, date '2026-01-01' + i * 3, i, i, 'paid', i from generate_series(0, 39) i;"""
    )
    project.one("orders")
    for step in range(steps):
        for _ in range(chance.randint(1, 4)):
            project.execute(_change(chance))
        before, (looked_at, what) = opened(project), _look(project, chance)
        now, (right, where) = opened(project), truth(project)
        # A row that moved is in two partitions until both are read again, and has one anomaly: so the partitions are taken together.
        found = {one for month in looked_at for one in now.get(month, set())}
        broken = {one for month in looked_at for one in right[month]}
        assert found == broken, f"step {step} ({what})"
        for month in set(PLACES) - set(looked_at):
            away = {one for one in before.get(month, set()) if upsert and where.get(one[1] or "", month) in looked_at}
            kept = before.get(month, set()) - broken - away
            assert now.get(month, set()) == kept, f"step {step} ({what}), partition {month} was not looked at"


def _change(chance: random.Random) -> str:
    row, day = chance.randrange(48), f"'2026-0{chance.randint(1, 4)}-{chance.randint(10, 28)}'"
    return chance.choice(
        [
            f"update orders set price = {chance.choice((-5, 7, 300))} where id = {row}",
            f"update orders set customer = {chance.choice(('null', '3'))} where id = {row}",
            f"update orders set kind = {chance.choice(('null', chr(39) + 'free' + chr(39), chr(39) + 'paid' + chr(39)))} where id = {row}",
            f"update orders set code = {chance.choice(('null', str(chance.randrange(48)), str(row)))} where id = {row}",
            f"update orders set day = {day} where id = {row}",
            f"update orders set day = {chance.choice(('null', day))} where id in ({row}, {(row + 1) % 48})",
            f"delete from orders where id = {row}",
            f"insert into orders values ({row}, {day}, 1, 1, 'paid', {row}) on conflict do nothing",
        ]
    )  # fmt: skip


def _look(project: Project, chance: random.Random) -> tuple[list[str | None], str]:
    """A sync or a scan: the partitions that were looked at."""
    first, last = sorted(chance.choices(MONTHS, k=2))
    between = [month for month in MONTHS if first <= month <= last]
    match chance.randrange(5):
        case 0:
            line = project.one("orders", allow_empty=True)
            return [*line["partitions"], None] if line["checks"] is not None else [], "incremental sync"
        case 1:
            line = project.one("orders", keys=(first, last), allow_empty=True)
            return sorted({*line["partitions"], *between}), f"refresh of {first} to {last}"
        case 2:
            project.one("orders", mode=Mode.REFRESH, allow_empty=True)
            return PLACES, "refresh of all"
        case 3:
            project.scan("orders", keys=(first, last))
            return [*between], f"scan of {first} to {last}"
        case _:
            project.scan("orders")
            return PLACES, "scan of all"


def _made(project: Callable[..., Project], upsert: bool) -> Any:
    return project(
        incremental=[f"public.orders:day:date{'!upsert' if upsert else ''}"],
        containers={"orders": {"partition_by": "month", "safety_lag": 40 * 86_400, "auto_resolve": True, "checks": CHECKS}},
    )


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("upsert", [False, True], ids=["append", "upsert"])
def test_a_history_of_scans_lists_exactly_what_is_broken(
    project: Callable[..., Project], pytestconfig: pytest.Config, upsert: bool
) -> None:
    """Without it, something stays on the list after it was mended, or goes from it while it is broken."""
    seed, steps = (int(str(pytestconfig.getoption(name))) for name in ("--seed", "--steps"))
    play(_made(project, upsert), random.Random(seed), steps, upsert)
