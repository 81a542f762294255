"""``checks suggest`` as a new user meets it: it says what is lacking, and the command that makes it.

Belongs here: the messages. Does not belong: which rules are proposed (``test_profiles``).
"""

import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from assets_tests.harness import Project

MakeProject = Callable[..., Project]


@pytest.fixture
def shop(project: MakeProject) -> Project:
    made = project()
    made.execute("create table orders (id int primary key, note text); insert into orders select i, 'n' from generate_series(1, 50) i")
    made.execute("create table labels (code text primary key); insert into labels values ('a'), ('b')")
    made.write()
    return made


def suggest(shop: Project, *names: str, spark: bool = False) -> tuple[int, str, str]:
    """The exit code, what is printed, and what is said. Without ``spark`` there is no Spark server, so that the answer is immediate."""
    command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(shop.path), "checks", "suggest", *names]
    done = subprocess.run(command, env=shop.environment(spark), capture_output=True, text=True, timeout=180, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.long
def test_what_is_lacking_is_said_with_the_command_that_makes_it(shop: Project) -> None:
    """Each of these commands is to be pasted as it is. One that does not help is the end of a first try."""
    assert "incremental-assets catalog shop" in suggest(shop, "shop/orders")[2], "there is no catalog"
    shop.cli("catalog", spark=False)
    code, _, said = suggest(shop, "shop/ordres")
    assert code == 2 and "shop has no container 'ordres'" in said and "orders" in said, said
    code, _, said = suggest(shop)
    assert code == 2 and "checks suggest shop/orders" in said, said
    code, _, said = suggest(shop, "shop/orders")
    wanted = "it has no table yet. Run: incremental-assets sync shop/orders && incremental-assets profile shop/orders"
    assert code == 2 and wanted in said, said
    shop.one("orders")
    shop.one("labels")
    code, _, said = suggest(shop, "shop/orders")
    assert code == 2 and "it has no profile yet. Run: incremental-assets profile shop/orders" in said, said
    shop.cli("profile", "shop/labels")  # it has a column of texts alone
    code, printed, said = suggest(shop, "shop", spark=True)
    assert code == 2 and "shop/orders: it has no profile yet" in said, "the others are proposed all the same"
    assert printed.startswith("# shop/labels"), printed
    shop.cli("profile", "shop/orders")
    code, printed, said = suggest(shop, "shop/orders", spark=True)
    assert code == 0 and printed.startswith("# shop/orders") and "To renew" not in said, said
    shop.execute("insert into orders values (51, 'n')")
    shop.one("orders")
    code, printed, said = suggest(shop, "shop/orders", spark=True)
    assert code == 0 and re.search("from its profile of 20..-..-.., and its table has changed since", said), said
