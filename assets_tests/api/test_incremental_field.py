"""Setting the incremental field of a container: what is written into the YAML, and that the next sync goes by it.

Belongs here: what is written. Does not belong: what must not be (``test_attacks``).
"""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from assets_tests.api.service import READ, service
from assets_tests.harness import Project
from incremental_assets.api.yaml_entry import YamlPlace, with_entry
from incremental_assets.core.errors import ConfigurationError

MakeProject = Callable[..., Project]
COMMENTED = """\
# The shop. Ask Anna before changing it.
type: incremental_assets.PostgresDatastore
attributes:
  name: shop
  url: '{{ env.SHOP_URL }}'   # the password is in .env
  settle_seconds: 0.2
  incremental:
    # rows are only added here
    - public.visits:id:integer      # from the web server
    - {table: public.orders, column: at, type: timestamp}   # orders change
  exclude: [tmp]   # nobody needs it
"""


def changed(text: str, table: str, entry: object) -> str:
    return with_entry(YamlPlace(Path("defs.yaml"), text, 0), "public", table, entry)  # pyright: ignore[reportArgumentType]


def test_comments_quotes_and_order_of_the_file_stay() -> None:
    """People write why something is so into this file. A service that rewrote it without that would destroy their work."""
    new = changed(COMMENTED, "orders", "public.orders:changed:timestamp!upsert")
    expected = COMMENTED.replace("{table: public.orders, column: at, type: timestamp}", '"public.orders:changed:timestamp!upsert"')
    # A comment behind an entry that has become longer keeps its text, and not its column.
    assert [line.split() for line in new.splitlines()] == [line.split() for line in expected.splitlines()]
    added = changed(COMMENTED, "region", "public.region:id:integer")
    assert [line for line in COMMENTED.splitlines() if line not in added.splitlines()] == []
    assert yaml.safe_load(added)["attributes"]["incremental"][2] == "public.region:id:integer"
    removed = changed(COMMENTED, "orders", None)
    assert yaml.safe_load(removed)["attributes"]["incremental"] == ["public.visits:id:integer"] and "Ask Anna" in removed


@pytest.mark.parametrize("incremental", ["  incremental: []\n", "  incremental:\n", ""])
def test_the_first_entry_of_a_file_is_added(incremental: str) -> None:
    """A datastore begins without entries."""
    text = f"type: x\nattributes:\n  name: shop\n{incremental}  exclude: [tmp]\n"
    assert yaml.safe_load(changed(text, "a", "public.a:id:integer"))["attributes"] == {
        "name": "shop", "incremental": ["public.a:id:integer"], "exclude": ["tmp"],
    }  # fmt: skip


@pytest.mark.parametrize(
    "column", ["a: {b}\n- c # d", "yes", "*x", "&x", "!!python/object:os.system", "- x", "é\u2028", "\u0085", "'\"", "null"]
)
def test_any_name_of_a_column_is_written_as_that_name(column: str) -> None:
    """A source may have any names. None of them may mean something else in YAML."""
    entry = {"table": "public.orders", "column": column, "type": "timestamp"}
    assert yaml.safe_load(changed(COMMENTED, "orders", entry))["attributes"]["incremental"][1] == entry


def test_what_would_change_more_than_the_entry_is_refused() -> None:
    """A list that another datastore of the file shares by an anchor is not this container's alone."""
    shared = "type: x\nattributes:\n  name: shop\n  incremental: &all\n    - public.a:id:integer\n  other: *all\n"
    with pytest.raises(ConfigurationError, match="by hand"):
        changed(shared, "b", "public.b:id:integer")


@pytest.mark.long
def test_the_field_is_set_and_the_container_shows_it(project: MakeProject, tmp_path: Path) -> None:
    """Seed 000: the field is looked at and configured by the API, and what runs then goes by it."""
    made = project()
    made.execute("create table orders (id int primary key, at timestamptz, changed timestamptz)")
    made.write()
    file = made.path / "defs" / "shop" / "defs.yaml"
    file.write_text("# ask Anna\n" + file.read_text(encoding="utf-8"), encoding="utf-8")
    file.chmod(0o640)
    made.cli("catalog", spark=False)
    with service(made, tmp_path) as api:
        before = api.get("/api/containers/shop/orders")
        assert (before["incremental_field"], before["strategy"], before["status"]["result"]) == (None, "snapshot", "never")
        path = "/api/containers/shop%2Forders"
        assert api.send("PUT", path, {"incremental_field": "at", "start": "2026-01-01"})[1]["incremental_field"] == "at"
        assert "public.orders:at:timestamp@2026-01-01" in file.read_text(encoding="utf-8")
        status, found = api.send("PATCH", path, {"strategy": "upsert"})
        assert status == 200 and (found["incremental_field"], found["strategy"]) == ("at", "upsert"), found
        assert "public.orders:at:timestamp@2026-01-01!upsert" in file.read_text(encoding="utf-8"), "PATCH keeps what is not sent"
        status, found = api.send("PUT", path, {"incremental_field": ["at", "changed"], "strategy": "upsert"})
        assert status == 200 and found["incremental_field"] == ["at", "changed"], found
        assert api.get("/api/containers?datastore=shop")["items"][0]["incremental_field"] == ["at", "changed"]
        text = file.read_text(encoding="utf-8")
        assert text.startswith("# ask Anna\n") and stat.S_IMODE(file.stat().st_mode) == 0o640
        _, shown, _ = made.cli("catalog", "--json", spark=False)
        assert shown[0]["strategy"] == "upsert", "the command line reads what the service has written"
        assert api.send("PUT", path, {"incremental_field": None})[1]["incremental_field"] is None
        assert api.send("PATCH", path, {"strategy": "upsert"})[0] == 422
        assert api.send("PUT", path, {"incremental_field": "at"}, token=READ)[0] == 403
