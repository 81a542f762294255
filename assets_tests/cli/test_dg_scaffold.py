"""``dg scaffold defs incremental_assets.PostgresDatastore``, as a person runs it who knows Dagster and nothing of this product.

Belongs here: dg's command itself. Does not belong: what ``incremental-assets add`` writes (``test_add``).
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from assets_tests.harness import Project

DG = str(Path(sys.executable).with_name("dg"))


def scaffold(shop: Project, name: str) -> Path:
    """Runs the command, and returns the file that it wrote."""
    command = [DG, "scaffold", "defs", "incremental_assets.PostgresDatastore", name]
    environment = shop.environment(spark=False)
    done = subprocess.run(command, cwd=shop.path, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return shop.path / "defs" / name / "defs.yaml"


@pytest.mark.long
def test_the_file_works_once_two_values_are_filled_in(project: Callable[..., Project]) -> None:
    """A file without attributes fails to load, and the person has to find out from the pages what belongs there."""
    shop = project()
    shop.execute("create schema sales; create table sales.orders (id int primary key, at timestamptz not null default now())")
    shop.execute("insert into sales.orders select generate_series(1, 5)")
    shop.write()
    shutil.rmtree(shop.path / "defs" / "shop")
    text = scaffold(shop, "shop").read_text(encoding="utf-8")
    # The first value, SHOP_URL, is in the environment of the commands.
    (shop.path / "defs" / "shop" / "defs.yaml").write_text(text.replace("schema: public", "schema: sales"), encoding="utf-8")
    _, lines, said = shop.cli("sync", "shop", "--json")
    assert [(line["container"], line["status"], line["rows_inserted"]) for line in lines] == [("shop/orders", "synced", 5)], said
    assert 'name: web_shop\n  url: "{{ env.WEB_SHOP_URL }}"' in scaffold(shop, "web-shop").read_text(encoding="utf-8")
