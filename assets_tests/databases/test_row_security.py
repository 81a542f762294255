"""Row security of PostgreSQL: a role that is not the owner, and policies that hide rows from it.

Belongs here: the refusal, its words, and ``row_security: accept``. Does not belong: other privileges (``test_bad_input``), and other
settings of a role (``test_role_settings``).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from assets_tests.harness import Project, long
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.plan import Mode
from incremental_assets.databases.postgres import arrow_columns, extract
from incremental_assets.delta.engine import READ_BY
from incremental_assets.delta.properties import set_property_without_spark
from incremental_assets.delta.table import STATE_PROPERTY
from incremental_assets.runs.adapters.choose import adapter_of
from incremental_assets.runs.partitions import container_key
from incremental_assets.runs.records.metadata import plain
from incremental_assets.runs.runner import SyncOptions

MakeProject = Callable[..., Project]
HALF = "alter table o enable row level security; create policy half on o using (id % 2 = 0);"
TABLES = """create table o (id int primary key, at timestamptz not null default now(), v text);
    insert into o (id, v) select n, 'a' from generate_series(1, 100) n;
    create table other (id int primary key); insert into other values (1);"""
INCREMENTAL = ["public.o:id:integer!upsert", "public.other:id:integer!upsert"]


def with_role(shop: Project, role: str) -> None:
    """Makes a role, which belongs to all databases of a server, and lets it read all tables; it owns none."""
    if shop.source.execute("select 1 from pg_roles where rolname = %s", [role]).rowcount == 0:
        shop.execute(f"create role {role} login password 'x'")
    shop.execute(f"alter role {role} nobypassrls; grant select on all tables in schema public to {role}")


def as_reader(shop: Project) -> None:
    """Lets the project connect as such a role."""
    with_role(shop, "narrow")
    shop.url = shop.url.replace(shop.url.split("//")[1].split("@")[0], "narrow:x")


def filled(project: MakeProject, more: str = "", **attributes: Any) -> Project:
    shop = project(**{"incremental": INCREMENTAL, **attributes})
    shop.execute(TABLES + more)
    as_reader(shop)
    return shop


def refused(line: dict[str, Any]) -> str:
    assert line["status"] == "failed", line
    return line["message"]


def test_policies_from_the_start_are_refused_and_the_other_containers_go_on(project: MakeProject) -> None:
    """Half of the rows would be loaded, and the sync and its audit would say that all is well."""
    shop = filled(project, HALF)
    lines = shop.sync()
    message = refused(lines["o"])
    assert '"o"' in message and "half" in message and "ALTER ROLE narrow BYPASSRLS" in message and "row_security: accept" in message
    assert lines["other"]["status"] == "synced" and shop.table("o").head() is None
    shop.execute("alter role narrow bypassrls")
    assert shop.one("o")["rows_inserted"] == 100


@pytest.mark.parametrize(
    ("incremental", "options"),
    [
        ("public.o:id:integer!upsert", {"safety_lag": 1000}),
        *long(
            ("public.o:id:integer!upsert", {"deletes": "sweep", "deletes_every": "1 second"}),
            ("public.o:id:integer", {"safety_lag": 1000, "readers": 3}),
            (None, {}),
        ),
    ],
)
def test_policies_between_two_syncs_take_no_row_away(project: MakeProject, incremental: str | None, options: dict[str, Any]) -> None:
    """A lag window, a sweep or a snapshot would delete the rows that the policy hides from now on."""
    named = ["public.other:id:integer!upsert", *([incremental] if incremental else [])]
    shop = filled(project, incremental=named, containers={"o": options})
    shop.one("o")
    shop.execute(HALF + "insert into o (id, v) values (101, 'b'), (102, 'b')")
    for asked in (SyncOptions(), SyncOptions(mode=Mode.REFRESH), SyncOptions(reset=True)):
        lines = shop.sync(asked=asked)
        assert "policies half" in refused(lines["o"]) and lines["other"]["status"] != "failed", asked
    assert len(shop.rows("o")) == 100
    audited = shop.audit("o")["o"]
    assert audited["status"] == "failed" and "ALTER ROLE narrow BYPASSRLS" in audited["message"]
    shop.execute("alter role narrow bypassrls")
    shop.one("o")
    shop.assert_equal("o")
    assert shop.audit("o")["o"]["status"] == "equal"


@pytest.mark.long
def test_the_owner_is_not_refused_unless_the_policies_are_forced(project: MakeProject) -> None:
    """PostgreSQL hides nothing from an owner, whose lakes must go on."""
    shop = filled(project, HALF)
    shop.execute("alter table o owner to narrow")
    assert shop.one("o")["rows_inserted"] == 100
    shop.execute("alter table o force row level security; insert into o values (101), (102)")
    assert "policies half" in refused(shop.one("o", ok=False))


def test_accepted_policies_leave_rows_out_and_everything_says_so(project: MakeProject) -> None:
    """Whoever reads the table, or a report of its audit, must see that it has not all rows."""
    shop = filled(project, HALF, row_security="accept", containers={"other": {"row_security": "refuse"}})
    assert shop.one("o")["rows_inserted"] == 50
    events = shop.instance().fetch_materializations(container_key(shop.definition("o").container), limit=1)
    event = events.records[0].asset_materialization
    assert event is not None
    assert plain(event.metadata)["sync/row_security"] == "public.o (read as narrow; policies half)"
    audited = shop.audit("o")["o"]
    assert audited["status"] == "equal" and "row security hides" in audited["message"] and "half" in audited["message"]
    spec = adapter_of(shop.definition("o")).asset_spec()
    assert "row security" in (spec.description or "")
    assert shop.one("o")["status"] == "skipped"


def test_other_accepted_policies_load_the_container_anew(project: MakeProject) -> None:
    """Rows below the watermark would stay hidden, or stay in the lake, for ever."""
    shop = filled(project, HALF, row_security="accept")
    shop.one("o")
    shop.execute("create policy first on o using (id = 1); create policy others on o for update using (true)")
    assert shop.one("o")["rows_read"] == 51
    shop.execute("create policy not_ours on o to pg_monitor using (true)")
    assert shop.one("o")["status"] == "skipped", "this policy does not change what the role sees"
    shop.execute("drop policy first on o; alter policy half on o using (id % 4 = 0)")
    line = shop.one("o")
    assert line["rows_read"] == 25 and len(shop.rows("o")) == 25
    shop.execute("alter role narrow bypassrls")
    shop.one("o")
    shop.assert_equal("o")
    shop.configure(row_security="refuse")
    assert shop.one("o")["status"] == "skipped"


@pytest.mark.long
def test_rows_that_were_hidden_come_once_they_may_be_seen(project: MakeProject) -> None:
    """A lake that was filled with some rows must not go on as if they were all, once the role sees all of them."""
    shop = filled(project, HALF, row_security="accept")
    shop.one("o")
    shop.configure(row_security="refuse")
    assert "half" in refused(shop.one("o", ok=False)) and len(shop.rows("o")) == 50
    shop.execute("alter role narrow bypassrls")
    shop.one("o")
    shop.assert_equal("o")


@pytest.mark.long
def test_a_refresh_of_some_partitions_does_not_pass_for_one_of_all(project: MakeProject) -> None:
    """The other partitions still have the rows of the policies before."""
    shop = filled(project, HALF, row_security="accept", containers={"o": {"partition_by": 50}})
    shop.one("o")
    shop.execute("alter policy half on o using (true)")
    shop.one("o", mode=Mode.REFRESH, keys=("0", "0"))
    assert len(shop.rows("o")) < 100
    shop.one("o")
    shop.assert_equal("o")


VIEWS = """create table hidden (id int primary key, v text); insert into hidden select n, 'a' from generate_series(1, 10) n;
    alter table hidden enable row level security; create policy few on hidden using (id < 3);
    create view direct as select * from hidden; create view outer_view as select * from direct;
    create function all_hidden() returns setof hidden language plpgsql stable as 'begin return query select * from hidden; end';
    create view by_function as select * from all_hidden();
    create view invoker with (security_invoker = true) as select * from hidden;"""


@pytest.mark.parametrize("view", ["outer_view", *long("direct", "invoker", "by_function")])
def test_views_over_tables_with_policies_are_refused(project: MakeProject, view: str) -> None:
    """A view shows its owner's rows, or those of the role that reads it: to go by the view's name would not find the policy."""
    shop = filled(project, VIEWS, incremental=[])
    owner = "narrow"
    if view in ("direct", "outer_view"):
        owner = "view_owner"
        with_role(shop, owner)
        shop.execute("grant create on schema public to view_owner; alter view direct owner to view_owner")
    message = refused(shop.one(view, ok=False))
    assert "public.hidden" in message and f"read as {owner}; policies few" in message and f"ALTER ROLE {owner} BYPASSRLS" in message
    shop.configure(row_security="accept")
    assert shop.one(view)["rows_inserted"] == 2
    shop.execute(f"alter role {owner} bypassrls")
    shop.configure(row_security="refuse")
    shop.one(view)
    assert len(shop.rows(view)) == 10


@pytest.mark.parametrize("read_by", ["local", *long("arrow", "jdbc")])
def test_a_role_that_loses_its_right_while_it_reads_is_refused(project: MakeProject, monkeypatch: pytest.MonkeyPatch, read_by: str) -> None:
    """Each reader has a connection of its own, which has to refuse as the plan's does."""
    shop = filled(project, HALF)
    shop.execute("alter role narrow bypassrls")
    if read_by != "local":
        monkeypatch.setenv(READ_BY, read_by)
    begin = extract.reader_statements

    def begun(reader: Any) -> str:
        shop.execute("alter role narrow nobypassrls")
        return begin(reader)

    monkeypatch.setattr(extract, "reader_statements", begun)
    monkeypatch.setattr(arrow_columns, "reader_statements", begun)
    message = refused(shop.one("o", ok=False))
    assert "policies half" in message and "ALTER ROLE narrow BYPASSRLS" in message


def test_the_catalog_goes_on_beside_a_table_with_policies(project: MakeProject) -> None:
    """One table that cannot be looked at must not keep new tables from being found."""
    shop = filled(project, HALF)
    outcome = shop.component.take_catalog(None)
    assert "policies half" in outcome.troubles["o"] and {one.table.name for one in outcome.catalog.entries} == {"o", "other"}


@pytest.mark.parametrize("where", ["datastore", "container"])
def test_capture_is_refused_with_accepted_policies(project: MakeProject, where: str) -> None:
    """The log would not tell when a row comes into view."""
    accept = {"row_security": "accept"}
    of_all, of_one = (accept, {}) if where == "datastore" else ({}, {"containers": {"o": accept}})
    shop = filled(project, HALF, capture="log", **of_all, **of_one)
    with pytest.raises(ConfigurationError, match="row_security: accept"):
        shop.catalog()


@pytest.mark.long
def test_a_lake_of_an_earlier_version_is_not_loaded_anew_and_may_be_compared(project: MakeProject) -> None:
    """An earlier version did not notice that rows were hidden: nothing but a comparison can tell whether it has all of them."""
    shop = filled(project, row_security="accept")
    shop.execute(HALF)
    shop.one("o")
    forget_policies(shop, "o")
    shop.execute("insert into o values (101), (102)")
    assert shop.one("o")["rows_read"] < 10, "it is not loaded anew"
    forget_policies(shop, "o")
    shop.configure(row_security="refuse")
    shop.execute("alter role narrow bypassrls; insert into o values (103)")
    line = shop.one("o")
    assert line["status"] == "warning" and "incremental-assets audit shop/o --repair" in line["message"]
    assert shop.audit("o", repair=True)["o"]["status"] == "repaired"
    shop.assert_equal("o")
    shop.execute("insert into o values (104)")
    assert shop.one("o")["status"] == "synced"


def forget_policies(shop: Project, name: str) -> None:
    """Lets the state of a table be that of an earlier version."""
    table = shop.table(name)
    head = table.head()
    assert head is not None
    container = shop.definition(name).container
    state = head.state(container)
    assert state is not None and state.policies is not None
    older = replace(state, policies=None).to_json(container.cursor_type)
    assert set_property_without_spark(table, head.version, STATE_PROPERTY, older)
