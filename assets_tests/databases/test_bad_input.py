"""Bad input gets a clear error that says what to do, and nothing is lost: the exit codes and messages of the command line, as a process.

Belongs here: mistakes in the YAML and on the command line, and things that a sync needs and that are missing. Does not belong: killed
processes (``test_kill``), full disks (``test_full_disks``), changes of the YAML (``test_schema_changes``), and the text of the grammar's
errors (``test_model_grammar``).
"""

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from assets_tests.harness import Project

MakeProject = Callable[..., Project]
Answer = tuple[int, list[dict[str, Any]], str]
SHOP = """create table orders (id int primary key, day date, note text, at timestamptz);
insert into orders values (1, '2024-10-01', 'a', '2024-10-01'), (2, '2024-10-02', 'b', '2024-10-02');
create table customer (id int primary key, name text); insert into customer values (1, 'x')"""


def ask(project: Project, *arguments: str, **environment: str) -> Answer:
    """The exit code, the JSON lines and stderr of a call of the command line, whether it succeeds or not."""
    return project.cli(*arguments, check=None) if not environment else _with(project, environment, *arguments)


def _with(project: Project, environment: dict[str, str], *arguments: str) -> Answer:
    before = project.environment
    project.environment = lambda spark=True: before(spark) | environment  # type: ignore[method-assign]
    try:
        return project.cli(*arguments, check=None)
    finally:
        project.environment = before  # type: ignore[method-assign]


def containers_of(project: Project) -> list[Path]:
    """The datastores that have folders in the lake. The history of commands is there, too, as it holds those that were refused."""
    return [folder for folder in project.lake_root.glob("*") if folder.name != "_operations"]


@pytest.fixture
def shops(project: MakeProject) -> Callable[..., Project]:
    """Makes projects over one small database and writes their files: ``shops(incremental=[…])``."""
    first: list[bool] = []

    def make(**attributes: Any) -> Project:
        url = attributes.pop("url", None)
        made = project(**attributes)
        if url is not None:
            made.configure(url=url)
        if not first:
            made.execute(SHOP)
            first.append(True)
        made.write()
        return made

    return make


@pytest.mark.long
def test_a_wrong_configuration_is_refused_before_anything_runs(shops: Callable[..., Project]) -> None:
    """A typing error in the YAML must not sync something else, nor end in a stack trace."""
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"incremental": ["public.orders:day:dat"]}, ["unknown type 'dat'", "schema.table:column:type", "^"]),
        ({"incremental": ["public.orders:day"]}, ["a type is missing", "^"]),
        ({"incremental": ["public.order:day:date"]}, ["'order'", "Nearest: orders", "incremental-assets catalog shop"]),
        ({"incremental": ["public.orders:dya:date"]}, ["shop/orders", "there is no column 'dya'", "Nearest: day"]),
        ({"incremental": ["public.orders:day:integer"]}, ["'day' is declared integer but the column is date", "Write 'date'"]),
        ({"incremental": ["public.orders:note:timestamp"]}, ["'note'", "text", "Choose a date, timestamp or integer column"]),
        ({"incremental": ["sales.orders:day:date"]}, ["sales.orders", "the datastore's schema is 'public'"]),
        ({"incremental": ["public.orders:day:date@tomorrow"]}, ["shop/orders", "start", "'tomorrow' is not a date such as 2025-01-08"]),
        ({"containers": {"orders": {"partition_by": "month"}}}, ["shop/orders", "partition_by needs an incremental identifier"]),
        ({"containers": {"orders": {"partition": "month"}}}, ["partition", "defs.yaml"]),
        ({"containers": {"ordres": {"readers": 2}}}, ["'ordres'", "Nearest: orders"]),
        ({"incremental": ["public.orders:day:date"], "containers": {"orders": {"partition_by": "fortnight"}}}, ["hour, day, week, month"]),
        ({"incremental": ["public.orders:day:date", "public.orders:at:timestamp"]}, ["orders is listed twice", "column: ["]),
        ({"schema": "sales"}, ["there is no schema 'sales'", "public"]),
        ({"timezone": "Berlin"}, ["shop: there is no time zone 'Berlin'"]),
        ({"containers": {"orders": {"timezone": "Berlin"}}}, ["shop/orders: there is no time zone 'Berlin'"]),
        ({"url": "mysql://localhost/shop"}, ["postgresql://user:password@host:port/database"]),
    ]  # fmt: skip
    projects = [shops(**dict(attributes)) for attributes, _ in cases]
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda made: ask(made, "sync", "--json"), projects))
    for (attributes, words), (code, lines, stderr), made in zip(cases, answers, projects, strict=True):
        assert (code, lines) == (2, []), (attributes, stderr)
        assert not [word for word in words if word not in stderr], (attributes, stderr)
        assert "Traceback" not in stderr
        assert containers_of(made) == []


@pytest.mark.long
def test_a_wrong_command_line_is_refused_before_anything_runs(shops: Callable[..., Project], tmp_path: Path) -> None:
    """A wrong word on the command line must not sync everything, or the wrong partition, or nothing with exit code 0."""
    made = shops(incremental=["public.orders:day:date"], containers={"orders": {"partition_by": "month", "tags": {"tier": "gold"}}})
    assert ask(made, "catalog")[0] == 0
    cases: list[tuple[list[str], list[str]]] = [
        (["sync", "shop/customer", "--mode", "incremental"], ["shop/customer", "incremental field not configured"]),
        (["sync", "shop/customer", "--partition", "2024-10-01"], ["shop/customer", "incremental field not configured"]),
        (["sync", "shop/orders", "--partition", "1999-01-01"], ["shop/orders", "there is no partition '1999-01-01'", "2024-10-01"]),
        (["sync", "shop/orders", "--partition", "2024-10-02"], ["there is no partition '2024-10-02'", "by month"]),
        (["sync", "shop/orders", "--partition", "' OR 1=1 -- "], ["there is no partition"]),
        (["sync", "shop/orders", "--from", "2024-10-01"], ["--from and --to go together"]),
        (["sync", "shop/orders", "--from", "2024-11-01", "--to", "2024-10-01"], ["--from 2024-11-01 lies after --to 2024-10-01"]),
        (["sync", "shop/orders", "--mode", "full"], ["incremental or refresh"]),
        (["sync", "shop/orders", "--reset-watermarks", "--partition", "2024-10-01"], ["--reset-watermarks"]),
        (["sync", "shop/ordres"], ["has no container 'ordres'", "Nearest: orders"]),
        (["sync", "shep"], ["there is no datastore 'shep'", "Nearest: shop"]),
        (["sync", "--tag", "gold"], ["K=V"]),
        (["sync", "--tag", "tier=silver"], ["tier=silver"]),
        (["sync", "--nonsense"], ["No such option"]),
        (["catalog", "shep"], ["there is no datastore 'shep'"]),
        (["watermarks", "shop/ordres"], ["has no container 'ordres'"]),
    ]
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda case: ask(made, *case[0]), cases))
    for (arguments, words), (code, lines, stderr) in zip(cases, answers, strict=True):
        assert (code, lines) == (2, []), (arguments, stderr)
        assert not [word for word in words if word not in re.sub(r"\s*[│╭╮╰╯─]+\s*", " ", stderr)], (arguments, stderr)
        assert "Traceback" not in stderr
    assert containers_of(made) == []
    other = made.path / "defs" / "again"
    other.mkdir()
    (other / "defs.yaml").write_text((made.path / "defs" / "shop" / "defs.yaml").read_text())
    code, lines, stderr = ask(made, "sync")
    assert code == 2 and "two datastores are called 'shop'" in stderr
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    made.path = nowhere
    code, lines, stderr = ask(made, "sync")
    assert code == 2 and "no project found" in stderr and "incremental-assets init DIR" in stderr


@pytest.mark.long
def test_a_table_that_is_newer_than_the_catalog_can_be_synced(shops: Callable[..., Project]) -> None:
    """After the YAML names a new table, the project must still load, so that the catalog or a sync can find that table."""
    made = shops()
    assert ask(made, "catalog")[0] == 0
    made.execute("create table refunds (id int, day date); insert into refunds values (1, '2024-10-01')")
    made.configure(incremental=["public.refunds:day:date"])
    made.write()
    code, lines, stderr = ask(made, "watermarks", "shop/refunds")
    assert code == 2 and "incremental names 'refunds'" in stderr
    code, lines, stderr = ask(made, "sync", "shop/refunds", "--json")
    assert code == 0 and lines[0]["rows_inserted"] == 1, stderr
    assert ask(made, "catalog")[0] == 0


@pytest.mark.long
def test_a_source_that_refuses_or_does_not_answer_is_named_with_a_remedy(shops: Callable[..., Project]) -> None:
    """The message must say whether network, password, database or rights are wrong, and the lake must stay as it was."""
    made = shops(incremental=["public.orders:id:integer"])
    made.execute("""drop role if exists clerk; create role clerk login password 'right'; grant usage on schema public to clerk;
        grant select on orders, customer to clerk""")
    server = made.url
    made.url = re.sub(r"//.*@", "//clerk:right@", server)
    code, lines, stderr = ask(made, "sync", "--json")
    assert code == 0 and {line["status"] for line in lines} == {"synced"}, stderr
    before = sorted(made.rows("orders"))
    made.execute("revoke select on orders from clerk; insert into customer values (2, 'y')")
    code, lines, stderr = ask(made, "sync", "--json")
    by_name = {line["container"]: line for line in lines}
    assert code == 1 and by_name["shop/customer"]["status"] == "synced"
    assert by_name["shop/orders"]["status"] == "failed" and "permission denied for table orders" in by_name["shop/orders"]["message"]
    assert "GRANT SELECT" in by_name["shop/orders"]["message"] and "clerk" in by_name["shop/orders"]["message"]
    right = made.url
    for url, words in (
        (right.replace("right", "wrong"), ["password authentication failed", "Check user and password"]),
        (re.sub(r":\d+/", ":1/", right), ["Check host and port", "postgresql://clerk@"]),
        (right.replace(right.rsplit("/", 1)[1], "no_such_database"), ["no_such_database", "Check the name"]),
    ):
        made.url = url
        for arguments in (["sync", "--json"], ["sync", "--dry-run", "--json"]):
            code, lines, stderr = ask(made, *arguments)
            assert code == 1 and {line["status"] for line in lines} == {"failed"} and len(lines) == 2, (url, lines, stderr)
            assert not [word for word in words if word not in lines[0]["message"]], lines
        code, _, stderr = ask(made, "catalog")
        assert code == 1 and not [word for word in words if word not in stderr], stderr
    made.url = server
    assert sorted(made.rows("orders")) == before


def test_a_source_that_is_lost_during_a_read_leaves_nothing_half_read(project: MakeProject) -> None:
    """Half of the rows must not be taken for all of them."""
    made = project(incremental=["public.v:id:integer"])
    made.execute("""create table base (id int); insert into base select generate_series(1, 40);
        create view v as select id, pg_sleep(0.05)::text as slow from base; create table t (id int); insert into t values (1)""")
    done: dict[str, Any] = {}
    runs = threading.Thread(target=lambda: done.update(made.one("v", ok=False)))
    runs.start()
    deadline = time.monotonic() + 120
    ended = 0
    while not ended and time.monotonic() < deadline:
        time.sleep(0.2)
        row = made.source.execute(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'incremental-assets'"
            " and datname = current_database() and query ilike '%as \"c1\"%'"
        ).fetchone()
        ended = row[0] if row else 0
    runs.join()
    assert ended and done["status"] == "failed" and "shop/v: " in done["message"] and "ync again" in done["message"], done
    assert "terminating connection" in done["message"] or "I/O error" in done["message"], done
    head = made.table("v").head()
    assert head is None or made.rows("v") == []
    made.execute("create or replace view v as select id, ''::text as slow from base")
    assert made.one("v")["rows_inserted"] == 40
    made.assert_equal("v")


@pytest.mark.long
def test_a_folder_that_holds_something_else_is_left_alone(project: MakeProject, shops: Callable[..., Project]) -> None:
    """A sync must not overwrite files of others, nor write a container's rows to another container's table."""
    made = shops()
    folder = made.lake_root / "shop" / "orders"
    folder.mkdir(parents=True)
    (folder / "precious.txt").write_text("mine")
    code, lines, stderr = ask(made, "sync", "--json")
    by_name = {line["container"]: line for line in lines}
    assert code == 1 and by_name["shop/customer"]["status"] == "synced", stderr
    message = by_name["shop/orders"]["message"]
    assert "not a Delta table" in message and "move it away" in message and [p.name for p in folder.iterdir()] == ["precious.txt"]
    (folder / "precious.txt").unlink()
    folder.rmdir()
    (made.lake_root / "shop" / "customer").rename(folder)
    before = made.table("orders").head()
    message = made.one("orders", ok=False)["message"]
    assert "holds the table of shop/customer" in message and made.table("orders").head() == before
    made.lake = str(made.path / "pyproject.toml" / "lake")  # a folder cannot be made below a file
    failed = made.one("customer", ok=False)
    assert failed["status"] == "failed" and "cannot be written" in failed["message"], failed["message"]


def test_a_delta_table_that_the_product_did_not_make_is_left_alone(project: MakeProject) -> None:
    """The first sync must not replace the rows of a table that another program has made."""
    import pyarrow as pa
    from deltalake import write_deltalake

    made = project()
    made.execute("create table t (id int); insert into t values (1)")
    write_deltalake(str(made.lake_root / "shop" / "t"), pa.table({"id": [7]}))
    for asked in ({}, {"reset": True}):
        failed = made.one("t", ok=False, **asked)
        assert failed["status"] == "failed" and "a Delta table that this product did not make" in failed["message"]
        assert made.rows("t") == [(7,)]


@pytest.mark.long
def test_a_missing_java_is_named_with_what_to_install(shops: Callable[..., Project], tmp_path: Path) -> None:
    """The first sync on a machine without Java must not end in a stack trace of Spark."""
    made = shops()
    elsewhere = {"SPARK_REMOTE": "", "INCREMENTAL_ASSETS_ONLY_OWN_JAVA": "1", "INCREMENTAL_ASSETS_TOOLS": str(tmp_path / "tools")}
    code, lines, stderr = ask(made, "sync", "shop/orders", "--json", **elsewhere, INCREMENTAL_ASSETS_READ_BY="jdbc")
    assert code == 1 and lines[0]["status"] == "failed", stderr
    assert "Install Java 17 or 21" in lines[0]["message"], lines[0]["message"]
    code, lines, stderr = ask(made, "sync", "shop/orders", "--json", **elsewhere)
    assert code == 0 and lines[0]["status"] == "synced", stderr  # few rows need none


@pytest.mark.long
def test_an_upsert_without_a_key_is_refused_with_the_yaml_that_helps(shops: Callable[..., Project]) -> None:
    """Without a key an upsert cannot match rows. The YAML that the message proposes must work as it is printed."""
    made = shops(incremental=["public.loose:day:date!upsert"])
    made.execute("create table loose (a int, day date); insert into loose values (1, '2024-10-01')")
    code, lines, stderr = ask(made, "sync", "shop/loose", "--json")
    assert code == 2 and lines == [] and "shop/loose: upsert needs a primary key" in stderr
    found = re.search(r"containers: (\{.*\})", stderr)
    assert found is not None
    made.configure(containers=yaml.safe_load(found[1].replace("<column>", "a")))
    made.one("loose")
    made.assert_equal("loose")


@pytest.mark.long
def test_a_missing_index_on_the_identifier_is_reported_with_its_statement(project: MakeProject) -> None:
    """Without an index each tick of a schedule scans the table. The statement that the message proposes must work as it is printed."""
    made = project(incremental=["public.t:When:date"])
    made.execute(
        """create table t (id int, "When" date); insert into t select i, '2024-10-01' from generate_series(1, 20000) i; analyze t"""
    )
    message = made.one("t")["message"]
    found = re.search(r"CREATE INDEX[^;]*;", message)
    assert found is not None, message
    made.execute(found[0])
    made.execute("insert into t values (0, '2024-10-02')")
    assert "CREATE INDEX" not in made.one("t")["message"]


@pytest.mark.long
def test_a_missing_environment_variable_is_named(shops: Callable[..., Project]) -> None:
    """The message must name the attribute, where an empty URL would otherwise be reported as a host that cannot be reached."""
    made = shops()
    code, _, stderr = ask(made, "sync", SHOP_URL="")
    assert code == 2 and "url" in stderr and "SHOP_URL" in (made.path / "defs" / "shop" / "defs.yaml").read_text(), stderr
