"""A lake on Azure: a real server of its blob protocol on loopback (Azurite), delta-rs and obstore, Spark with Hadoop's connector.

Belongs here: what differs from a lake on a disk and on S3. Does not belong: the addresses alone (``test_store_urls``). ``make test-s3``
runs it. Spark speaks to the server as to a flat account; the interface of hierarchical ones, which Azurite lacks, is not tried.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import obstore
import pytest
from obstore.store import from_url
from pyspark.errors import PySparkException

from assets_tests.delta import azure_server
from assets_tests.delta.s3_server import OTHERS
from assets_tests.harness import Project
from incremental_assets.core.errors import ContainerBusy, LakeError, SourceUnreachable
from incremental_assets.delta import replaced_files, store
from incremental_assets.delta.engine import WRITE_BY
from incremental_assets.delta.lease import Lease, held, this_holder
from incremental_assets.delta.maintenance import maintain
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import LakeTable
from incremental_assets.files.listing import FolderAddress
from incremental_assets.spark.embedded.launch import CONF
from incremental_assets.spark.embedded.server import Home
from incremental_assets.spark.session import open_session, stop_server

pytestmark = pytest.mark.s3
Make = Callable[..., Project]
TABLES = """CREATE TABLE orders (id bigint PRIMARY KEY, note text); CREATE TABLE visits (at timestamptz, page text);
    INSERT INTO orders SELECT n, 'old' FROM generate_series(1, 100) n;
    INSERT INTO visits SELECT timestamptz '2026-01-01 00:00Z' + n * interval '1 hour', 'p' || n FROM generate_series(1, 100) n"""
INCREMENTAL = ["public.orders:id:integer!upsert", "public.visits:at:timestamp"]
MORE = """INSERT INTO visits SELECT timestamptz '2026-02-01 00:00Z' + n * interval '1 hour', 'new' FROM generate_series(1, 10) n;
    INSERT INTO orders SELECT n, 'new' FROM generate_series(101, 110) n; UPDATE orders SET note = 'changed' WHERE id = 100"""


@pytest.fixture(scope="module")
def spark_home(azure: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For a Spark server with the connector; in the place of the session's."""
    home = tmp_path_factory.mktemp("spark-azure")
    yield home
    stop_server(home)


def objects(container: str, below: str = "") -> list[str]:
    return [one["path"] for found in obstore.list(from_url(f"az://{container}"), below or None) for one in found]


def expect_equal(shop: Project, *names: str) -> None:
    for name in names:
        assert sorted(shop.rows(name), key=repr) == sorted(shop.source.execute(f"table {name}".encode()).fetchall(), key=repr)


def test_files_of_a_container_are_listed_and_read(azure: str, container: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise files on Azure need a driver that nobody tried. A key that the driver cannot name hides its folder, and no other one."""
    names = ["a b.csv", "100%.csv", "[x]/ü 漢.csv", "deep/er/y.csv"]
    for name in names:
        obstore.put(from_url(f"az://{container}"), f"in/{name}", b"id\n1\n")
    for address in (f"az://{container}/in", f"abfss://{container}@{azure_server.ACCOUNT}.dfs.core.windows.net/in"):
        folder = FolderAddress.parse("landing", address)
        before = dict(folder.list())
        assert sorted(before) == sorted(names) and {folder.head(name, 9) for name in names} == {b"id\n1\n"}
        assert len({stamp.etag for stamp in before.values()} - {None}) == len(names)
    obstore.put(from_url(f"az://{container}"), "in/a b.csv", b"id\n2\n")
    after = dict(folder.list())
    assert after["a b.csv"].etag != before["a b.csv"].etag and folder.head("a b.csv", 9) == b"id\n2\n"
    azure_server.put(f"{azure}/{container}/in/deep//lost.csv", b"id\n3\n")
    troubles: dict[str, str] = {}
    assert dict(folder.list(unseen=troubles)).keys() == after.keys() - {"deep/er/y.csv"}
    assert list(troubles) == ["deep"] and "has an object whose name hides all others of the folder" in troubles["deep"]
    with pytest.raises(SourceUnreachable, match="is not there"):
        list(FolderAddress.parse("landing", f"az://{container}/nothing").list())
    with pytest.raises(SourceUnreachable, match=r"ContainerNotFound.*Make the container, or correct the path"):
        list(FolderAddress.parse("landing", "az://no-such-container/in").list())
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME")
    with pytest.raises(SourceUnreachable, match="Set AZURE_STORAGE_ACCOUNT_NAME"):
        list(FolderAddress.parse("landing", f"az://{container}/in").list())


def secrets_in(folder: Path) -> list[Path]:
    """The files that contain the account's key or a signature."""
    marks = (azure_server.KEY.encode(), azure_server.signature().rpartition("sig=")[2].encode())
    return [file for file in folder.rglob("*") if file.is_file() and any(mark in file.read_bytes() for mark in marks)]


def test_the_command_line_syncs_to_a_lake_on_azure_without_spark(
    project: Make, container: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rows, state, operations and leases go there, and the key goes nowhere."""
    shop = project(incremental=INCREMENTAL)
    shop.lake = f"az://{container}/lake"
    shop.write()
    shop.execute(TABLES)
    environment = {key: value for key, value in shop.environment(spark=False).items() if key != "SPARK_REMOTE"}
    environment["INCREMENTAL_ASSETS_LAKE"] = shop.lake
    monkeypatch.setattr(shop, "environment", lambda spark: environment)
    said = ""
    for change, statuses in (("SELECT 1", {"synced"}), ("SELECT 1", {"skipped"}), (MORE, {"synced"})):
        shop.execute(change)
        _, planned, told = shop.cli("sync", "shop", "--dry-run", "--json", spark=False)
        _, lines, stderr = shop.cli("sync", "shop", "--json", spark=False)
        assert {line["status"] for line in lines} == statuses, (lines, stderr)
        said += f"{planned}{told}{lines}{stderr}"
        expect_equal(shop, "orders", "visits")
    found = objects(container, "lake")
    for table in ("shop/orders", "_leases/shop/orders", "_operations/operations", "_operations/watermarks"):
        assert f"lake/{table}/_delta_log/{0:020}.json" in found, found
    assert Home(shop.home).record() is None, "a Spark server was started"
    assert azure_server.KEY not in said and secrets_in(tmp_path) == []


@pytest.mark.parametrize("written", ["anew", "marked"])
def test_few_rows_go_to_a_lake_on_azure_without_spark(project: Make, container: str, monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    """Deleted rows, a new column, and deletion vectors."""
    monkeypatch.setattr(LakeScope, "spark", property(lambda _: pytest.fail("Spark was asked for")))
    if written == "marked":
        monkeypatch.setattr(replaced_files, "MOST_WRITTEN_BYTES", 0)
        monkeypatch.setattr(store, "READ_WHOLE", 0)
    options = {"deletes": "sweep", "deletes_every": "1 second", "deletion_vectors": written == "marked"}
    shop = project(incremental=INCREMENTAL, containers={"orders": options})
    shop.lake = f"az://{container}/lake"
    shop.execute(TABLES)
    for change in (
        "SELECT 1",
        MORE,
        "UPDATE orders SET note = 'again' WHERE id = 110; DELETE FROM orders WHERE id in (3, 101)",
        "ALTER TABLE orders ADD column more int; UPDATE orders SET more = id WHERE id = 110",
    ):
        shop.execute(change)
        for name, options in {"orders": {"sweep": True}, "visits": {}}.items():
            assert shop.one(name, **options)["status"] in ("synced", "skipped")
        expect_equal(shop, "orders", "visits")
    if written == "marked":
        table = shop.table("orders").opened()
        assert table is not None and table.deletion_vectors().read_all().num_rows > 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("credentials", ["key", "signature"])
def test_spark_writes_to_a_lake_on_azure(
    project: Make, container: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, credentials: str
) -> None:
    """An upsert by Spark between syncs of this process, a checkpoint, and maintenance. No log and no file of the server has the key."""
    if credentials == "signature":
        monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
        monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", azure_server.signature())
    shop = project(incremental=INCREMENTAL)
    shop.spark_home, shop.lake = tmp_path / "spark", f"az://{container}/lake"
    shop.execute(TABLES)
    try:
        assert [one["status"] for one in shop.sync().values()] == ["synced", "synced"]
        with monkeypatch.context() as patch:
            patch.setenv(WRITE_BY, "spark")
            shop.execute(MORE)
            assert [one["status"] for one in shop.sync().values()] == ["synced", "synced"]
        expect_equal(shop, "orders", "visits")
        for number in range(4):  # past a checkpoint
            shop.execute(f"UPDATE orders SET note = 'round {number}' WHERE id = 110")
            assert shop.one("orders")["rows_updated"] == 1
        assert "lake/shop/orders/_delta_log/_last_checkpoint" in objects(container, "lake/shop/orders")
        with open_session(shop.spark_home, name="maintain") as spark:
            kept = maintain(lambda: spark, shop.table("orders"), shop.definition("orders").container)
        assert kept is not None and kept.files_after == 1
        assert shop.one("orders")["status"] == "skipped"
        expect_equal(shop, "orders")
        assert secrets_in(tmp_path) == []
    finally:
        stop_server(shop.spark_home)


def test_spark_that_lacks_the_connector_says_what_to_do(
    project: Make, container: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that only Spark can write must not end with a class that is not found, and nothing of it may count as written."""
    monkeypatch.setenv(CONF, "spark.jars.excludes=org.apache.hadoop:hadoop-azure")  # as a cluster's server that nobody has prepared
    monkeypatch.setenv(WRITE_BY, "spark")
    shop = project(incremental=INCREMENTAL)
    shop.spark_home, shop.lake = tmp_path / "spark", f"az://{container}/lake"
    shop.execute(TABLES)
    try:
        line = shop.one("orders", ok=False)
    finally:
        stop_server(shop.spark_home)
    assert line["status"] == "failed" and "INCREMENTAL_ASSETS_SPARK_CONF" in line["message"], line
    assert not objects(container, "lake/shop/orders")


def test_what_spark_commits_replaces_no_version_on_azure(
    azure: str, container: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another host was there first: its commit stays, whichever way Delta then takes."""
    url = LakeTable(f"az://{container}/t").url
    with azure_server.beaten(azure) as endpoint, monkeypatch.context() as patch:
        patch.setenv("AZURE_STORAGE_ENDPOINT", endpoint)
        try:
            with open_session(tmp_path / "spark", name="beaten") as spark:
                spark.sql(f"CREATE TABLE delta.`{url}` (id int) USING delta")
                with contextlib.suppress(PySparkException):  # Delta may refuse to go on behind the other commit
                    spark.sql(f"INSERT INTO delta.`{url}` VALUES (1)")
        finally:
            stop_server(tmp_path / "spark")
    first = bytes(obstore.get(from_url(f"az://{container}/t"), f"_delta_log/{1:020}.json").bytes())
    assert first == OTHERS


def test_of_two_hosts_one_holds_a_container_of_a_lake_on_azure(container: str, tmp_path: Path) -> None:
    """The store keeps their commits of one version apart, by a put with a condition."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = (this_holder(tmp_path / name, f"run-{name}") for name in ("one", "two"))

    def taken(me: object) -> contextlib.AbstractContextManager[Lease]:
        place = f"az://{container}/lake", ("shop", "orders")
        return held("shop/orders", *place, me, time.monotonic(), lambda _: None, lambda: None)  # pyright: ignore[reportArgumentType]

    for _ in range(2):
        with taken(one) as lease:
            with pytest.raises(ContainerBusy, match="it is being synced by run run-one on host"), taken(two):
                pass
            lease.expect_held()
        with taken(two):
            pass
    assert len(objects(container, "lake/_leases/shop/orders/_delta_log")) > 8


@pytest.mark.parametrize(
    ("variables", "container_name", "remedy"),
    [
        ({}, "none-such", "Make the container"),
        ({"AZURE_STORAGE_ACCOUNT_KEY": azure_server.KEY[:-4] + "AAA="}, None, "Correct AZURE_STORAGE_ACCOUNT_KEY"),
        ({"AZURE_STORAGE_ACCOUNT_KEY": "no Base64!"}, None, "AZURE_STORAGE_ACCOUNT_KEY is no key"),
        ({"AZURE_STORAGE_ACCOUNT_NAME": None}, None, "Set AZURE_STORAGE_ACCOUNT_NAME"),
        ({"AZURE_STORAGE_ACCOUNT_KEY": None, "AZURE_STORAGE_SAS_TOKEN": "sv=2020-12-06&sig=of-nobody"}, None, "AZURE_STORAGE_SAS_TOKEN"),
        ({"AZURE_ALLOW_HTTP": None}, None, "AZURE_ALLOW_HTTP=true"),
    ],
    ids=["container", "another key", "no key", "no account", "signature", "http"],
)  # fmt: skip
def test_a_lake_on_azure_that_cannot_be_reached_is_reported_with_a_remedy(
    container: str, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str | None], container_name: str | None, remedy: str
) -> None:
    for name, value in variables.items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    with pytest.raises(LakeError, match=remedy) as told:
        LakeTable(f"az://{container_name or container}/lake", "a", "b").head()
    assert "\x1b" not in str(told.value) and azure_server.KEY[:20] not in str(told.value) and "of-nobody" not in str(told.value)
