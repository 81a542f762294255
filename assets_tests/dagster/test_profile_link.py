"""The link from an asset to the page with its profile, as a browser follows it.

Belongs here: the address and its answer. Does not belong: what is on the page (``test_profile_page``).
"""

from collections.abc import Callable, Iterator

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from assets_tests.harness import Project
from incremental_assets.dagster.web.webserver import profile
from incremental_assets.runs.quality.pages import PROFILES, page_link, page_path


@pytest.fixture
def shop(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    made = project()
    made.execute('create table "order items" (id int primary key)')
    monkeypatch.setenv("INCREMENTAL_ASSETS_LAKE", str(made.lake_root))
    yield made


@pytest.fixture
def browser() -> TestClient:
    return TestClient(Starlette(routes=[Route(f"{PROFILES}/{{datastore}}/{{container}}", profile)]))


def test_the_link_leads_to_the_profile(shop: Project, browser: TestClient) -> None:
    """A path on another machine is of no use to a person in a browser."""
    container = shop.definition("order items").container
    link = page_link(container).url
    assert link is not None
    before = browser.get(link)
    assert before.status_code == 404 and "There is no profile of shop/order_U20_items at " in before.text
    page = page_path(shop.lake, container.key_path)
    page.parent.mkdir(parents=True)
    page.write_text("<b>profile</b>", encoding="utf-8")
    found = browser.get(link)
    assert (found.status_code, found.text, found.headers["content-type"]) == (200, "<b>profile</b>", "text/html; charset=utf-8")
    assert found.headers["content-security-policy"] == "sandbox allow-scripts", "a value with a script in it would act as the user"


@pytest.mark.parametrize("names", ["shop/%2e%2e", "%2e%2e%2fshop/orders", "shop/a.b"])
def test_no_other_file_is_shown(shop: Project, browser: TestClient, names: str) -> None:
    """The webserver may read what no user of the UI may."""
    (shop.lake_root / "shop" / "_quality" / "pages").mkdir(parents=True)
    for name in ("shop__...html", "shop__a.b.html", "orders.html"):
        (shop.lake_root / "shop" / "_quality" / "pages" / name).write_text("secret")
    answer = browser.get(f"{PROFILES}/{names}")
    assert answer.status_code == 404 and "secret" not in answer.text
