"""Text of sources that looks like a part of SQL stays text: names, comments, keys and nested fields, on the real parts.

Belongs here: what Spark or PostgreSQL would take for a variable, a quotation's end or a call. Elsewhere: random histories with such text
(``test_property``, ``test_files_property``), and the lint that keeps unquoted names out (``test_sql_text``).
"""

import os
from collections.abc import Callable
from pathlib import Path

from assets_tests.harness import Project
from incremental_assets.spark import open_session

MakeProject = Callable[..., Project]


def log_of(project: Project, name: str) -> str:
    """All that Delta's log of the table says."""
    return "\n".join(path.read_text() for path in sorted((project.lake_root / "shop").glob(f"{name}*/_delta_log/*.json")))


def test_a_name_that_spark_takes_for_a_variable_stays_a_name(project: MakeProject) -> None:
    """Otherwise a table's comment or column writes the server's environment, passwords and all, into the lake."""
    secret = os.environ["PATH"]
    shop = project()
    shop.execute(
        'create table orders (id int primary key, "${env:PATH}" text, "${spark.sql.shuffle.partitions}" int);'
        "comment on table orders is 'from ${env:PATH}, ${system:user.home} and ${nothing}';"
        """insert into orders values (1, '${env:PATH}', 5), (2, '${nothing}', null)"""
    )
    shop.one("orders")
    shop.execute("""insert into orders values (3, '${env:HOME}', 7)""")
    shop.one("orders")
    shop.assert_equal("orders")
    log = log_of(shop, "orders")
    assert "${env:PATH}" in log and "${nothing}" in log and "${spark.sql.shuffle.partitions}" in log
    assert secret not in log


def test_a_merge_key_that_spark_takes_for_a_variable_is_found_again(project: MakeProject) -> None:
    """Otherwise the bounds of a MERGE miss the key, and each sync adds another copy of its row without a word."""
    shop = project(
        incremental=["public.pages:changed:timestamp!upsert"], containers={"pages": {"safety_lag": 600, "partition_by": "month"}}
    )
    shop.execute(
        "create table pages (key text primary key, changed timestamptz, body text);"
        "insert into pages values ('mail.${lang}.html', '2024-05-01', 'a')"
    )
    shop.one("pages")
    shop.execute("update pages set body = 'b', changed = '2024-05-02'")
    shop.one("pages")
    assert shop.rows("pages", "key, body") == [("mail.${lang}.html", "b")]


def test_no_session_replaces_variables(spark_home: Path) -> None:
    """Otherwise one of the ways to a session is left open: the setting holds for each, also where a cluster's server is used."""
    with open_session(spark_home, name="settings") as spark:
        assert spark.sql("select '${env:PATH}', '${x}'").collect()[0][0:2] == ("${env:PATH}", "${x}")
