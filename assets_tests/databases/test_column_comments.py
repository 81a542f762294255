"""The comments of the source's columns stand in the Delta table's schema, and follow their changes.

Belongs here: comments of columns, whoever writes the table. Does not belong: the columns themselves (``test_schema_changes``).
"""

from collections.abc import Callable

import pytest
from psycopg import sql

from assets_tests.harness import Project, long
from incremental_assets.core.container import Engine
from incremental_assets.spark.session import open_session

MakeProject = Callable[..., Project]
HOSTILE = "it's \"the\" key\\'; -- DROP TABLE t\n${x} {0} `é` \U0001f600 \U00020bb7"
BY_WHOM = [Engine.ARROW, *long(Engine.SPARK)]


def comment(shop: Project, table: str, column: str, text: str | None) -> None:
    """Gives a column of the source this comment."""
    statement = sql.SQL("comment on column {} is {}").format(sql.Identifier(table, column), sql.Literal(text))
    shop.execute(statement.as_string(None).lstrip())


def comments(shop: Project, table: str) -> dict[str, str | None]:
    """The comments of the columns in the lake, as a reader of the table finds them."""
    head = shop.table(table).head()
    assert head is not None
    return {column.name: column.comment for column in head.columns}


def changes(shop: Project, table: str) -> int:
    """How many commits were made only to change columns of the table."""
    return sum(commit.operation.startswith("CHANGE COLUMN") for commit in shop.table(table).commits(30))


@pytest.mark.parametrize("engine", BY_WHOM)
def test_comments_are_there_from_the_first_sync_and_follow_their_changes(project: MakeProject, engine: Engine) -> None:
    """Who reads the lake would not know what a column means, or would go by what it meant last year."""
    shop = project(incremental=["public.orders:at:timestamp!upsert"], engine=engine.value)
    shop.execute("create table orders (id int primary key, at timestamptz default clock_timestamp(), v text)")
    comment(shop, "orders", "id", HOSTILE)
    comment(shop, "orders", "v", "the first meaning")
    shop.execute("insert into orders (id, v) select i, 'v' || i from generate_series(1, 20) i")
    shop.one("orders")
    assert comments(shop, "orders") == {"id": HOSTILE, "at": None, "v": "the first meaning"}

    comment(shop, "orders", "v", f"{HOSTILE} and more")
    comment(shop, "orders", "id", None)
    head = shop.table("orders").head()
    assert shop.one("orders")["status"] == "skipped" and shop.table("orders").head() == head, "a comment alone is no reason to write"
    shop.execute("insert into orders (id, v) values (21, 'new')")
    shop.one("orders")
    assert comments(shop, "orders") == {"id": None, "at": None, "v": f"{HOSTILE} and more"}

    shop.execute("alter table orders add price numeric(10,2); insert into orders (id, price) values (22, 1)")
    comment(shop, "orders", "price", HOSTILE)
    shop.execute("insert into orders (id, price) values (23, 2)")
    shop.one("orders")
    assert comments(shop, "orders") == {"id": None, "at": None, "v": f"{HOSTILE} and more", "price": HOSTILE}
    assert changes(shop, "orders") == (1 if engine is Engine.SPARK else 0)
    shop.assert_equal("orders")


@pytest.mark.parametrize("engine", BY_WHOM)
def test_a_table_that_is_read_whole_or_loaded_anew_keeps_its_comments(project: MakeProject, engine: Engine) -> None:
    """A load anew puts the source's columns in place of the table's, and the comments would be gone with them."""
    shop = project(engine=engine.value)
    shop.execute("create table codes (code int, name text, gone text)")
    comment(shop, "codes", "name", HOSTILE)
    shop.execute("insert into codes select i, 'c' || i from generate_series(1, 5) i")
    shop.one("codes")
    shop.execute("insert into codes values (6, 'c6')")
    shop.one("codes")
    assert comments(shop, "codes") == {"code": None, "name": HOSTILE, "gone": None}
    comment(shop, "codes", "code", "of the customs")
    shop.execute("insert into codes values (7, 'c7')")
    shop.one("codes")
    shop.execute("alter table codes drop gone")
    for _ in range(2):
        shop.one("codes", reset=True)
        assert comments(shop, "codes") == {"code": "of the customs", "name": HOSTILE}
    assert changes(shop, "codes") == (1 if engine is Engine.SPARK else 0), "only Spark's syncs make a commit for a changed comment"
    shop.assert_equal("codes")
    with open_session(shop.spark_home, name="test") as spark_session:
        shown = spark_session.sql(f"DESCRIBE {shop.table('codes').sql_name}").collect()
    assert [tuple(row) for row in shown if row[0] == "name"] == [("name", "string", HOSTILE)]
