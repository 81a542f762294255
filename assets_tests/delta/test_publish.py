"""``publish``: names of tables in a real Hive metastore.

Belongs here: what the command registers, and refuses. Does not belong: the tables themselves.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assets_tests.delta.hive_metastore import HiveMetastore
from assets_tests.harness import Project
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.delta.publish import SPARK_CATALOG, PublishedName
from incremental_assets.operations.publish import publish_lines
from incremental_assets.spark.embedded.launch import CONF
from incremental_assets.spark.session import open_session, stop_server

HOSTILE = "it's; DROP `x`"


@pytest.fixture
def shop(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> Project:
    made = project()
    monkeypatch.setenv("DAGSTER_HOME", "")  # so that what ``published`` sets is undone
    monkeypatch.setenv("INCREMENTAL_ASSETS_LAKE", made.lake)
    made.execute("create table orders (id int primary key)")
    made.execute("insert into orders values (1), (2)")
    return made


def published(shop: Project, schema: str | None, catalog: str = SPARK_CATALOG) -> dict[str, tuple[str, str | None]]:
    os.environ["DAGSTER_HOME"] = str(shop.spark_home)  # whose server the command uses; a sync has set another one
    lines = list(publish_lines(shop.catalog(), catalog, schema))
    return {line["container"].partition("/")[2]: (line["status"], line["name"]) for line in lines}


def numbers(shop: Project, name: str) -> list[int]:
    with open_session(shop.spark_home, name="test") as spark:
        return sorted(row[0] for row in spark.sql(f"select id from {name}").collect())


@pytest.fixture
def hive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a Spark server whose catalog is a Hive metastore."""
    metastore = HiveMetastore(tmp_path / "hive")
    monkeypatch.setenv(CONF, metastore.settings)
    home = tmp_path / "spark-hive"
    yield home
    stop_server(home)
    metastore.stop()


def test_without_a_metastore_nothing_is_published(shop: Project) -> None:
    """The command would say that a name was created which is gone as soon as Spark's server ends."""
    with pytest.raises(ConfigurationError, match="Spark has no metastore"):
        published(shop, "s")
    with pytest.raises(ConfigurationError, match="Spark has no catalog 'unity'"):
        published(shop, "s", "unity")


@pytest.mark.long
def test_a_published_table_is_found_by_its_name_and_follows_the_syncs(hive: Path, shop: Project, tmp_path: Path) -> None:
    """Who queries by name must never have to register anything again."""
    shop.spark_home = hive
    schema = f"s{tmp_path.parent.name[-6:]}_a".replace("-", "_").lower()
    assert published(shop, schema) == {"orders": ("no table", None)}
    shop.sync()
    name = f"spark_catalog.{schema}.orders"
    assert published(shop, schema) == {"orders": ("created", name)}
    assert published(shop, schema) == {"orders": ("there", name)}
    shop.execute("insert into orders values (3)")
    shop.execute("alter table orders add column note text")
    shop.sync()
    assert numbers(shop, name) == [1, 2, 3]
    shop.sync(reset=True)
    assert numbers(shop, name) == [1, 2, 3]


@pytest.mark.long
def test_a_name_of_another_table_is_refused_and_stays(hive: Path, shop: Project, tmp_path: Path) -> None:
    """A name that silently leads to other rows than yesterday is worse than none."""
    shop.spark_home = hive
    schema = f"s{tmp_path.parent.name[-6:]}_b".replace("-", "_").lower()
    shop.execute(f'create table "Orders" (id int primary key); create table "{HOSTILE}" (id int primary key)')
    shop.execute(f'insert into "Orders" values (7); insert into "{HOSTILE}" values (9)')
    shop.sync()
    found = published(shop, schema)
    assert sorted(found[name][0] for name in ("Orders", "orders")) == ["created", "failed"], found
    hostile = PublishedName.of(SPARK_CATALOG, schema, HOSTILE)
    assert found[HOSTILE] == ("created", str(hostile)) and numbers(shop, hostile.sql_name) == [9]
    again = published(shop, schema)
    assert again["Orders"][0] == ("there" if found["Orders"][0] == "created" else "failed")


@pytest.mark.long
def test_a_hive_metastore_keeps_the_name_when_spark_ends(hive: Path, shop: Project) -> None:
    """The metastore is what others look into, and what outlives the server that has registered the table."""
    shop.spark_home = hive
    shop.sync()
    assert published(shop, None) == {"orders": ("created", "spark_catalog.shop.orders")}
    stop_server(hive)
    assert numbers(shop, "spark_catalog.shop.orders") == [1, 2]
    shop.execute("insert into orders values (3)")
    shop.sync()
    assert published(shop, None) == {"orders": ("there", "spark_catalog.shop.orders")}
    assert numbers(shop, "shop.orders") == [1, 2, 3]
