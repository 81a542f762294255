"""Inheritance in PostgreSQL: a query on a table also returns the rows of the tables that inherit from it.

Belongs here: ``inherited: only | include``, the refusal of a table for which neither is said, and what ``add`` writes. Does not belong:
partitions, which are read through their table (``test_containers``), and the log (``assets_tests/capture``).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

from assets_tests.harness import Project, long
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.plan import Mode
from incremental_assets.delta.properties import set_property_without_spark
from incremental_assets.delta.table import STATE_PROPERTY
from incremental_assets.operations.new_datastore import NewDatastore, yaml_of
from incremental_assets.runs.runner import SyncOptions

MakeProject = Callable[..., Project]
FAMILY = """create table base (id int primary key, v text, at timestamptz not null default now());
    create table kid (extra int) inherits (base); create table other (id int primary key);
    insert into base (id, v) select n, 'base' from generate_series(1, 10) n;
    insert into kid (id, v) select n, 'kid' from generate_series(1, 10) n; insert into other values (1);"""
INCREMENTAL = ["public.base:id:integer!upsert", "public.kid:id:integer", "public.other:id:integer!upsert"]
AS_ROWS = "public.base:id:integer"


def family(project: MakeProject, inherited: str | None, incremental: str | None = INCREMENTAL[0], **options: Any) -> Project:
    """A table and one that inherits from it, both with the same ids, as a datastore."""
    said = {} if inherited is None else {"inherited": inherited}
    shop = project(incremental=[*([incremental] if incremental else []), *INCREMENTAL[1:]], containers={"base": {**said, **options}})
    shop.execute(FAMILY)
    return shop


def rows_of(shop: Project, query: str) -> list[tuple[Any, ...]]:
    return sorted(shop.source.execute(query.encode()).fetchall())  # type: ignore[arg-type]


def in_lake(shop: Project) -> list[tuple[Any, ...]]:
    return sorted(shop.rows("base", "id, v"))


def test_a_table_that_others_inherit_from_is_refused_until_the_yaml_says_how(project: MakeProject) -> None:
    """Its rows would be doubled, or its merge would fail for ever, and nobody would know whose rows it has."""
    shop = family(project, None)
    lines = shop.sync()
    message = lines["base"]["message"]
    assert lines["base"]["status"] == "failed" and "inherited: only" in message and "inherited: include" in message, lines
    assert lines["other"]["status"] == "synced" and lines["kid"]["rows_inserted"] == 10 and shop.table("base").head() is None


@pytest.mark.parametrize(
    ("incremental", "options"),
    [
        ("public.base:id:integer!upsert", {"safety_lag": 5}),
        *long(
            ("public.base:id:integer!upsert", {"safety_lag": 5, "deletes": "sweep", "deletes_every": "1 hour"}),
            ("public.base:id:integer", {"safety_lag": 5, "readers": 3}),
            ("public.base:at:timestamp!upsert", {}),
            (None, {}),
        ),
    ],
)
def test_only_its_own_rows_are_read(project: MakeProject, incremental: str | None, options: dict[str, Any]) -> None:
    """Rows of a child would be merged over those of the parent that have the same key."""
    shop = family(project, "only", incremental, **options)
    shop.sync()
    assert in_lake(shop) == rows_of(shop, "select id, v from only base")
    shop.execute("update only base set v = 'new', at = now() where id > 8; insert into base (id, v) values (11, 'base'); "
                 "insert into kid (id, v) values (12, 'kid'); update kid set v = 'kid', id = 40 where id = 3")  # fmt: skip
    line = shop.one("base", **({"sweep": True} if "deletes" in options else {}))
    assert in_lake(shop) == rows_of(shop, "select id, v from only base") and line["watermark"]["new"] != 40
    assert shop.audit("base")["base"]["status"] == "equal"
    shop.execute("insert into kid (id, v) values (50, 'kid')")
    assert shop.one("base")["status"] == "skipped"
    shop.one("base", asked=SyncOptions(mode=Mode.REFRESH))
    assert in_lake(shop) == rows_of(shop, "select id, v from only base")


@pytest.mark.parametrize("incremental", [AS_ROWS, *long(None)])
def test_included_rows_are_read_whole_and_never_by_key(project: MakeProject, incremental: str | None) -> None:
    """A key holds in each of the tables alone: merged by it, a row of the child would replace that of the parent."""
    shop = family(project, "include", incremental, safety_lag=5)
    shop.sync()
    assert len(in_lake(shop)) == 20 and in_lake(shop) == rows_of(shop, "select id, v from base")
    shop.execute("insert into kid (id, v) values (10, 'again'), (11, 'kid'); insert into base (id, v) values (11, 'base')")
    shop.one("base")
    assert len(in_lake(shop)) == 23 and in_lake(shop) == rows_of(shop, "select id, v from base")
    assert shop.audit("base")["base"]["status"] == "equal" and shop.one("base")["status"] == "skipped"
    for by_key in ({"incremental": [INCREMENTAL[0]]}, {"containers": {"base": {"inherited": "include", "capture": "log"}}}):
        shop.configure(**by_key)
        with pytest.raises(ConfigurationError, match="inherited: include"):
            shop.catalog()


def test_read_the_other_way_before_it_is_loaded_anew(project: MakeProject) -> None:
    """Rows of the child would stay in the lake, or be missing below the watermark, for ever."""
    shop = family(project, "include", AS_ROWS)
    shop.one("base")
    shop.configure(containers={"base": {"inherited": "only"}})
    assert shop.one("base")["rows_read"] == 10
    assert in_lake(shop) == rows_of(shop, "select id, v from only base")
    assert shop.one("base")["status"] == "skipped"
    shop.configure(containers={"base": {"inherited": "include"}})
    shop.one("base")
    assert in_lake(shop) == rows_of(shop, "select id, v from base")


@pytest.mark.long
def test_a_refresh_of_chosen_partitions_leaves_the_others_to_be_loaded(project: MakeProject) -> None:
    """The other partitions still have the rows that were read the other way."""
    shop = family(project, "include", AS_ROWS, partition_by=5)
    shop.one("base")
    shop.configure(containers={"base": {"inherited": "only", "partition_by": 5}})
    shop.one("base", keys=("0", "0"))
    assert len(in_lake(shop)) == 16
    shop.one("base")
    assert in_lake(shop) == rows_of(shop, "select id, v from only base")


def test_a_child_between_two_syncs_is_refused_and_no_row_of_it_is_read(project: MakeProject) -> None:
    """A catalog that was taken before it does not know of it."""
    shop = family(project, "only", AS_ROWS)
    shop.execute("alter table kid no inherit base")
    shop.configure(containers={})
    shop.one("base")
    shop.execute("alter table kid inherit base; insert into base (id, v) values (11, 'base')")
    for stale in (True, False):
        line = shop.one("base", ok=False, stale=stale)
        assert line["status"] == "failed" and "inherited: only" in line["message"], line
    shop.configure(containers={"base": {"inherited": "only"}})
    assert shop.one("base")["rows_read"] == 2, "it had no child when it was read"
    assert in_lake(shop) == rows_of(shop, "select id, v from only base")
    shop.configure(containers={"base": {"inherited": "include"}})
    assert shop.one("base")["rows_read"] == 21
    assert in_lake(shop) == rows_of(shop, "select id, v from base")


def test_a_lake_of_an_earlier_version_goes_on_with_all_rows(project: MakeProject) -> None:
    """It has read the rows of the children, too; nothing may be loaded anew for that."""
    shop = family(project, "include", AS_ROWS)
    shop.one("base")
    forget(shop)
    shop.execute("insert into kid (id, v) values (11, 'kid')")
    assert shop.one("base")["rows_read"] < 5
    assert in_lake(shop) == rows_of(shop, "select id, v from base")
    forget(shop)
    shop.configure(containers={"base": {"inherited": "only"}})
    assert shop.one("base")["rows_read"] == 10
    assert in_lake(shop) == rows_of(shop, "select id, v from only base")


@pytest.mark.long
def test_a_temporary_child_is_no_child(project: MakeProject) -> None:
    """Other sessions cannot read its rows, and a report that makes one would stop the syncs of its parent."""
    shop = family(project, None)
    shop.execute("alter table kid no inherit base")
    shop.sync()
    shop.source.execute("create temp table report () inherits (base)")
    shop.source.execute("insert into report (id, v) values (1, 'report')")
    shop.execute("insert into base (id, v) values (11, 'base')")
    assert shop.one("base")["rows_inserted"] == 1


def test_add_includes_the_children_of_an_empty_parent(project: MakeProject) -> None:
    """TimescaleDB and pg_partman keep all rows in children; who adds such a database must not have to know."""
    shop = project()
    shop.execute(
        FAMILY
        + """
        create table measures (at timestamptz not null default now(), id bigserial, primary key (at, id));
        create table m1 () inherits (measures);
        create table chunked (at timestamptz not null default now(), id bigint, primary key (at, id));
        create schema _timescaledb_catalog; create table _timescaledb_catalog.hypertable (schema_name name, table_name name);
        insert into _timescaledb_catalog.hypertable values ('public', 'chunked');
        insert into m1 (at) select now() from generate_series(1, 2000); select pg_stat_force_next_flush()"""
    )
    text = yaml_of(NewDatastore.of(shop.url, "shop", None, {}), shop.catalog())
    written = yaml.safe_load(text)["attributes"]["containers"]
    assert {name for name, one in written.items() if one.get("inherited") == "include"} == {"measures", "chunked"}, text
    assert "base" not in written and "base: other tables inherit from it" in text, text


@pytest.mark.parametrize("what", ["create view base as select 1 as id", *long("create table base (id int) partition by list (id)")])
def test_a_table_without_children_of_its_own_cannot_have_it(project: MakeProject, what: str) -> None:
    """It would be taken and do nothing."""
    shop = project(containers={"base": {"inherited": "only"}})
    shop.execute(what)
    with pytest.raises(ConfigurationError, match="inherited"):
        shop.catalog()


def forget(shop: Project) -> None:
    """Lets the table's state be one of an earlier version, which did not say whether rows of children were read."""
    container, table = shop.definition("base").container, shop.table("base")
    head = table.head()
    assert head is not None
    state = head.state(container)
    assert state is not None and state.inherited is not None
    older = replace(state, inherited=None).to_json(container.cursor_type)
    assert set_property_without_spark(table, head.version, STATE_PROPERTY, older)
