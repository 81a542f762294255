"""Files and lakes on S3: a real server on loopback, obstore and delta-rs as they come, Spark with the connector of its own Hadoop.

Belongs here: what differs from a local disk. ``make test-s3`` brings what it needs.
"""

import gzip
import hashlib
import io
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assets_tests.dagster.test_adopt import adopted
from assets_tests.harness import Folder, Project
from incremental_assets.core.errors import ContainerBusy, LakeError, SourceError, SourceInterrupted, SourceUnreachable, store_remedy
from incremental_assets.core.files import encode_path
from incremental_assets.databases import rows
from incremental_assets.databases.postgres import source
from incremental_assets.delta import replaced_files, store
from incremental_assets.delta.engine import READ_BY
from incremental_assets.delta.lease import Holder, Lease, held, this_holder
from incremental_assets.delta.log import write_version
from incremental_assets.delta.maintenance import maintain
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.shown_rows import shown_rows
from incremental_assets.delta.table import LakeTable
from incremental_assets.files.listing import FolderAddress
from incremental_assets.spark.session import open_session, stop_server

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def spark_home(s3: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For a Spark server with the connector; in the place of the session's."""
    home = tmp_path_factory.mktemp("spark-s3")
    yield home
    stop_server(home)


class Bucket(Folder):
    """Files below ``s3://bucket/landing``."""

    def on(self, s3: Any, bucket: str) -> "Bucket":
        self.s3, self.bucket = s3, bucket
        self.attributes = {"settle_seconds": 0.0, **self.attributes}
        return self

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/landing"

    def place_file(self, name: str, content: bytes | str) -> None:
        body = content.encode() if isinstance(content, str) else content
        self.s3.put_object(Bucket=self.bucket, Key=f"landing/{name}", Body=body)


Make = Callable[..., Bucket]


@pytest.fixture
def landing(tmp_path: Path, spark_home: Path, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a project over an empty place in a bucket; ``lake``: a URL, or a local folder."""
    for name in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT"):
        monkeypatch.delenv(name, raising=False)

    def make(lake: str | None = None, **attributes: Any) -> Bucket:
        project = Bucket(tmp_path, spark_home, **attributes).on(s3, bucket)
        project.location = project.url
        if lake is not None:
            project.lake = lake
        return project

    return make


def parquet(**columns: list[Any]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


# ------------------------------------------------------------------------------------------------ files on S3
HOSTILE = [
    "a b.csv", " lead.csv", "trail .csv", "it's.csv", 'say "x".csv', "a...b.csv", "ünï 漢字 🎉.csv", "100%.csv", "a%20b.csv", "%41.csv",
    "a+b.csv", "semi;colon,comma.csv", "[abc].csv", "star*.csv", "what?.csv", "{a,b}.csv", "colon:c.csv", "hash#.csv", "=eq&.csv",
    "$x `y`.csv", "~.csv", "back\\slash.csv", "d/x.csv", "D/x.csv", "deep/er/and/deep er/x.csv", "n" * 200 + ".csv",
]  # fmt: skip


def test_a_listing_finds_unusual_keys_on_all_pages(s3: Any, bucket: str) -> None:
    """Otherwise rows of a file with a strange name never come, or the files after the first thousand."""
    names = [*HOSTILE, *(f"below/{name}/x.csv" for name in HOSTILE), *(f"many/part-{number:05d}.csv" for number in range(1100))]
    for name in names:
        s3.put_object(Bucket=bucket, Key=f"in/{name}", Body=name.encode())
    s3.put_object(Bucket=bucket, Key="in/d/", Body=b"")  # what consoles make of "new folder"
    s3.put_object(Bucket=bucket, Key="inside/x.csv", Body=b"")  # begins the same, and is another folder
    address = FolderAddress.parse("landing", f"s3://{bucket}/in")
    found = dict(address.list())
    assert sorted(found) == sorted(names)
    assert len(dict(address.list("many"))) == 1100
    for name in names[: 2 * len(HOSTILE)]:
        assert address.head(name, 1000) == name.encode()

    before = found["a b.csv"]
    modified = s3.head_object(Bucket=bucket, Key="in/a b.csv")["LastModified"].timestamp()
    assert before.etag is not None and abs(before.modified / 1e6 - modified) < 1
    s3.put_object(Bucket=bucket, Key="in/a b.csv", Body=b"b a.csv")  # as long, and perhaps within the same second
    s3.put_object(Bucket=bucket, Key="in/new.csv", Body=b"")
    after = dict(address.list())  # by the same driver, which remembers what it has listed
    assert after["a b.csv"].etag != before.etag and after["a b.csv"].size == before.size
    assert set(after) - set(found) == {"new.csv"}
    assert address.head("a b.csv", 1000) == b"b a.csv"


def test_keys_that_spark_cannot_read_are_reported(s3: Any, bucket: str) -> None:
    """Otherwise their rows are missing without a message. Nor does such a key hide the others of its folder, or change their stamps."""
    address = FolderAddress.parse("landing", f"s3://{bucket}/in")
    for key in ("ok 1%.csv", "d/ok.csv", "a/ok.csv"):
        s3.put_object(Bucket=bucket, Key=f"in/{key}", Body=b"")
    before = dict(address.list())
    assert len(before) == 3 and all(stamp.etag for stamp in before.values())
    for key in ("a//lost.csv", "a/./lost.csv", "a/../lost.csv", "tab\t.csv", "tab\tfolder/x.csv", "d/tab\tfolder/x.csv", "../up.csv"):
        s3.put_object(Bucket=bucket, Key=f"in/{key}", Body=b"")
    troubles: dict[str, str] = {}
    assert dict(address.list(unseen=troubles)) == before
    assert sorted(troubles) == ["a/", "d/tab\tfolder", "tab\t.csv", "tab\tfolder"]
    assert "has keys with // in them" in troubles["a/"] and "'tab\\t.csv' in" in troubles["tab\t.csv"]
    assert "has control characters in its name" in troubles["tab\t.csv"]


def test_an_object_that_is_replaced_while_it_is_read_is_not_read_as_a_mixture(s3: Any, bucket: str) -> None:
    """Otherwise the first half of the old file and the second half of the new one are taken for one file."""
    old, new = b"old," * 1_000_000, b"new," * 1_000_000
    address = FolderAddress.parse("landing", f"s3://{bucket}/in")
    s3.put_object(Bucket=bucket, Key="in/large.csv", Body=old)
    assert address.head("large.csv", 8) == b"old,old," and address.sha256("large.csv") == hashlib.sha256(old).hexdigest()
    with address.open("large.csv") as stream:
        assert stream.seek(-4, io.SEEK_END) == len(old) - 4 and stream.read() == b"old,"
    with pytest.raises(SourceError, match=r"the file 'gone.csv' in s3://\S+ cannot be read: No such object\. "):
        address.head("gone.csv", 8)
    with pytest.raises(SourceError, match="precondition"), address.open("large.csv") as stream:
        assert stream.read(4) == b"old,"
        s3.put_object(Bucket=bucket, Key="in/large.csv", Body=new)
        stream.read()


@pytest.mark.parametrize(
    ("unset", "endpoint", "remedy"),
    [
        ("AWS_ALLOW_HTTP", None, "AWS_ALLOW_HTTP=true permits that"),
        ("AWS_ACCESS_KEY_ID", None, "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        (None, "http://127.0.0.1:9", "AWS_ENDPOINT_URL names it"),
    ],
)
def test_files_of_a_store_that_cannot_be_reached_are_reported_with_a_remedy(
    s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch, unset: str | None, endpoint: str | None, remedy: str
) -> None:
    """The files are not at fault: otherwise a wrong setting refuses them all, until they change."""
    s3.put_object(Bucket=bucket, Key="in/a.csv", Body=b"id\n1\n")
    address = FolderAddress.parse("landing", f"s3://{bucket}/in")
    if unset is not None:
        monkeypatch.delenv(unset)
    if endpoint is not None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(SourceUnreachable, match=f"landing: the folder s3://{bucket}/in cannot be read: .*{remedy}") as listed:
        list(address.list())
    with pytest.raises((SourceInterrupted, SourceUnreachable), match=f"landing: the f.*{remedy}") as opened:
        address.head("a.csv", 3)
    assert not any("Debug" in text or "do-not-tell" in text for text in (str(listed.value), str(opened.value)))


def test_a_missing_bucket_or_folder_is_reported(s3: Any, bucket: str) -> None:
    with pytest.raises(SourceUnreachable, match="an object store has no empty folders"):
        list(FolderAddress.parse("landing", f"s3://{bucket}/in").list())
    s3.put_object(Bucket=bucket, Key="in/", Body=b"")  # what consoles make of "new folder"
    assert not list(FolderAddress.parse("landing", f"s3://{bucket}/in").list())
    with pytest.raises(SourceUnreachable, match=r"NoSuchBucket: .*Make the bucket, or correct the path"):
        list(FolderAddress.parse("landing", "s3://no-such-bucket/in").list())


def test_csv_files_on_s3_are_added_changed_and_removed(landing: Make) -> None:
    project = landing(containers={"all": {"glob": "**/*.csv"}})
    for number, name in enumerate(HOSTILE):
        project.place_file(name, f"n,name\n{number},x\n")
    first = project.one("all")
    assert (first["status"], first["rows_read"]) == ("synced", len(HOSTILE)), first
    assert {key: n for n, key in project.rows("all", "n, _file")} == {encode_path(name): n for n, name in enumerate(HOSTILE)}
    assert project.one("all")["status"] == "skipped"

    project.place_file("a b.csv", "n,name\n1000,y\n1001,y\n")
    project.place_file("later.csv.gz", gzip.compress(b"n,name\n2000,z\n"))
    project.configure(containers={"all": {"glob": "**/*.csv*", "format": "csv"}})
    second = project.one("all")
    assert sorted(second["partitions"]) == [encode_path("a b.csv"), "later.csv.gz"], second
    assert sorted(project.rows("all", "n", "n >= 1000")) == [(1000,), (1001,), (2000,)]
    assert len(project.files("all")) == len(HOSTILE) + 1 and (0,) not in project.rows("all", "n")


def test_parquet_from_s3_is_read_and_replaced(landing: Make) -> None:
    project = landing(containers={"parts": {"glob": "parts/*.parquet"}})
    project.place_file("parts/one 1.parquet", parquet(id=[1, 2], price=[1.5, None]))
    project.place_file("parts/two%20.parquet", parquet(id=[3], price=[3.5]))
    assert project.one("parts")["rows_read"] == 3
    project.place_file("parts/one 1.parquet", parquet(id=[9], price=[9.5]))
    project.place_file("parts/broken.parquet", b"no parquet")
    line = project.one("parts")
    assert line["status"] == "warning" and "broken.parquet" in line["message"], line
    assert sorted(project.rows("parts", "id, price")) == [(3, 3.5), (9, 9.5)], line["message"]


# ------------------------------------------------------------------------------------------------ a lake on S3
def beside(project: Bucket, *parts: str) -> list[dict[str, Any]]:
    """Rows of a table that the product keeps beside a container's."""
    table = LakeTable(project.lake, project.store, *parts).opened()
    assert table is not None
    return table.to_pyarrow_table().to_pylist()


def test_a_lake_on_s3_keeps_rows_state_manifest_and_rejected_rows(landing: Make, s3: Any, bucket: str) -> None:
    project = landing(lake=f"s3a://{bucket}/lake", containers={"sales": {"glob": "sales/*.csv", "columns": {"amount": "bigint"}}})
    project.place_file("sales/a 1.csv", "id,amount\n1,10\n2,much\n")
    project.place_file("sales/2.csv", "id,amount\n3,30\n")
    first = project.one("sales")
    assert first["status"] == "warning" and first["rows_read"] == 2 and "1 row of 1 file did not fit" in first["message"], first
    keys = {entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket, Prefix="lake/")["Contents"]}
    for table in ("sales", "_files/sales", "_rejected/sales"):
        assert f"lake/landing/{table}/_delta_log/{0:020d}.json" in keys, keys

    head = project.table("sales").head()
    assert head is not None and head.owner == "landing/sales"
    state = head.state(project.definition("sales").container)
    assert state is not None and state.watermark is not None
    files = beside(project, "_files", "sales")
    assert {row["file"]: (row["rows"], row["rejected"]) for row in files} == {encode_path("sales/a 1.csv"): (1, 1), "sales/2.csv": (1, 0)}
    assert [(row["_file"], row["line"]) for row in beside(project, "_rejected", "sales")] == [(encode_path("sales/a 1.csv"), "2,much")]

    assert project.one("sales")["status"] == "skipped"
    project.place_file("sales/a 1.csv", "id,amount\n1,10\n2,20\n")
    project.place_file("sales/3.csv", "id,amount,note\n4,40,new\n")
    third = project.one("sales")
    assert sorted(third["partitions"]) == ["sales/3.csv", encode_path("sales/a 1.csv")], third
    assert sorted(project.rows("sales", "id, amount, note")) == [(1, 10, None), (2, 20, None), (3, 30, None), (4, 40, "new")]
    assert not beside(project, "_rejected", "sales")


def test_tables_of_a_database_go_to_a_lake_on_s3(project: Callable[..., Project], s3: Any, bucket: str) -> None:
    shop = project(incremental=["public.orders:id:integer!upsert"])
    shop.lake = f"s3a://{bucket}/lake"
    shop.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
    shop.execute("INSERT INTO orders SELECT n, 'old' FROM generate_series(1, 100) n")
    assert shop.one("orders")["rows_read"] == 100
    assert shop.one("orders")["status"] == "skipped"
    shop.execute("INSERT INTO orders SELECT n, 'new' FROM generate_series(101, 110) n; UPDATE orders SET note = 'changed' WHERE id = 100")
    assert shop.one("orders")["status"] == "synced"
    assert shop.rows("orders", "note, count(*) as n", "true group by note order by note") == [("changed", 1), ("new", 10), ("old", 99)]

    for number in range(4):  # past Delta's checkpoint, which is an object that is replaced from time to time
        shop.execute(f"UPDATE orders SET note = 'round {number}' WHERE id = 110")
        assert shop.one("orders")["rows_updated"] == 1
    table = shop.table("orders")
    head = table.head()
    assert head is not None and head.version > 10
    assert s3.head_object(Bucket=bucket, Key="lake/shop/orders/_delta_log/_last_checkpoint")
    with open_session(shop.spark_home, name="maintain") as spark:
        kept = maintain(lambda: spark, table, shop.definition("orders").container)
    assert kept is not None and kept.files_after == 1
    assert shop.one("orders")["status"] == "skipped"
    assert shop.rows("orders", "note", "id = 110") == [("round 3",)]


@pytest.mark.parametrize("written", ["anew", "marked", "into files"])
def test_rows_go_to_a_lake_on_s3_without_spark(
    project: Callable[..., Project], bucket: str, monkeypatch: pytest.MonkeyPatch, as_another_process: Callable[[], None], written: str
) -> None:
    """Otherwise ten rows take ten seconds, and half a minute more where no Spark server runs, as soon as the lake leaves the laptop."""
    monkeypatch.setattr(LakeScope, "spark", property(lambda _: pytest.fail("Spark was asked for")))
    if written != "anew":
        monkeypatch.setattr(replaced_files, "MOST_WRITTEN_BYTES", 0)
        monkeypatch.setattr(store, "READ_WHOLE", 0)
    if written == "into files":
        monkeypatch.setattr(rows, "MOST_LOCAL_ROWS", 0)
        monkeypatch.setattr(rows, "MOST_COMPARED_ROWS", 0)
    shop = project(
        incremental=["public.orders:id:integer!upsert", "public.visits:at:timestamp"],
        containers={"orders": {"deletes": "sweep", "deletes_every": "1 second", "deletion_vectors": written != "anew"}},
    )
    shop.lake = f"s3://{bucket}/lake"
    shop.execute("""CREATE TABLE orders (id bigint PRIMARY KEY, note text); CREATE TABLE visits (at timestamptz PRIMARY KEY, page text);
        INSERT INTO orders SELECT n, 'old' FROM generate_series(1, 100) n;
        INSERT INTO visits SELECT timestamptz '2026-01-01 00:00Z' + n * interval '1 hour', 'p' || n FROM generate_series(1, 100) n""")

    def expect_equal(**of_orders: bool) -> None:
        for name, options in {"orders": of_orders, "visits": {}}.items():
            as_another_process()
            assert shop.one(name, **options)["status"] in ("synced", "skipped")
            assert sorted(shop.rows(name), key=repr) == sorted(shop.source.execute(f"table {name}".encode()).fetchall(), key=repr)

    expect_equal()
    shop.execute("UPDATE visits SET page = 'first' WHERE page = 'p100'")
    expect_equal()
    for change in (
        "INSERT INTO visits SELECT timestamptz '2026-02-01 00:00Z' + n * interval '1 hour', 'new' FROM generate_series(1, 10) n",
        "INSERT INTO orders SELECT n, 'new' FROM generate_series(101, 110) n; UPDATE orders SET note = 'changed' WHERE id = 100",
        "UPDATE orders SET note = 'again' WHERE id = 110; DELETE FROM orders WHERE id in (3, 101)",
        "ALTER TABLE orders ADD column more int; UPDATE orders SET more = id WHERE id = 110",
    ):
        shop.execute(change)
        expect_equal(sweep=True)
    as_another_process()
    for version in (None, 1):
        assert shown_rows("shop/orders", shop.table("orders"), "orders", None, 5, version).more, "the rows are in the bucket"
    if written != "anew":
        table = shop.table("orders").opened()
        assert table is not None and table.deletion_vectors().read_all().num_rows > 0


def test_tasks_of_spark_write_to_a_lake_on_s3_themselves(
    project: Callable[..., Project], bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each large load is read through JDBC and written by Spark, which takes twice as long as on a disk."""
    monkeypatch.setenv(READ_BY, "arrow")
    shop = project(incremental=["public.visits:at:timestamp"])
    shop.lake = f"s3://{bucket}/lake"
    shop.execute("""CREATE TABLE visits (at timestamptz, page text);
        INSERT INTO visits SELECT timestamptz '2026-01-01 00:00Z' + n * interval '1 minute', 'p' || n FROM generate_series(1, 5000) n""")
    for read_by_spark in (lambda *_: pytest.fail("it is read through JDBC"), source.read_windows):
        monkeypatch.setattr(source, "read_windows", read_by_spark)
        assert shop.one("visits")["status"] == "synced"
        assert sorted(shop.rows("visits")) == sorted(shop.source.execute(b"table visits").fetchall())
        shop.execute("""INSERT INTO visits
            SELECT timestamptz '2026-03-01 00:00Z' + n * interval '1 minute', 'p' || n FROM generate_series(1, 5000) n""")


def test_of_two_hosts_one_holds_a_container_of_a_lake_on_s3(s3: Any, bucket: str, tmp_path: Path) -> None:
    """The store keeps their commits of one version apart, by a put with a condition."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = (this_holder(tmp_path / name, f"run-{name}") for name in ("one", "two"))

    def taken(me: Holder) -> AbstractContextManager[Lease]:
        place = f"s3a://{bucket}/lake", ("shop", "orders")
        return held("shop/orders", *place, me, time.monotonic(), lambda _: None, lambda: None)

    for _ in range(2):
        with taken(one) as lease:
            with pytest.raises(ContainerBusy, match="it is being synced by run run-one on host"), taken(two):
                pass
            lease.expect_held()
        with taken(two):
            pass
    assert s3.list_objects_v2(Bucket=bucket, Prefix="lake/_leases/shop/orders/_delta_log/")["KeyCount"] > 8


def test_a_store_without_conditional_puts_is_refused(s3: Any, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts' commits would overwrite each other there."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", os.environ["S3_CARELESS"])
    with pytest.raises(LakeError, match="lets one host overwrite the commit of another"):
        hold(bucket, tmp_path)


def test_a_commit_whose_answer_is_lost_is_known_as_ours(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is sent again, and refused. Taken for another writer's, the sync would fail, or commit its rows twice."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", os.environ["S3_FORGETFUL"])
    address, actions = f"s3://{bucket}/lake/t", [{"commitInfo": {"operation": "WRITE"}}]
    assert write_version(address, 0, actions)
    assert not write_version(address, 0, actions), "another writer's commit with the same content was taken for ours"


def test_conditional_puts_that_are_switched_off_are_refused(s3: Any, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    with pytest.raises(LakeError, match="Unset AWS_CONDITIONAL_PUT"):
        hold(bucket, tmp_path)


def hold(bucket: str, home: Path) -> None:
    """Takes a container's lease and gives it back."""
    me = this_holder(home, "run")
    with held("shop/orders", f"s3a://{bucket}/lake", ("shop", "orders"), me, time.monotonic(), lambda _: None, lambda: None):
        pass


def test_a_lake_that_cannot_be_reached_is_reported_with_a_remedy(s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert LakeTable(f"s3a://{bucket}/lake", "a", "b").head() is None
    with pytest.raises(LakeError, match=r"NoSuchBucket|does not exist") as told:
        LakeTable("s3a://no-such-bucket/lake", "a", "b").head()
    assert "\x1b" not in str(told.value)
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(LakeError, match="AWS_ALLOW_HTTP=true"):
        LakeTable(f"s3a://{bucket}/lake", "a", "b").head()


def test_a_spark_server_without_the_connector_refuses_no_file() -> None:
    """Otherwise each file is remembered as one that cannot be read, and is not tried again once Spark has its connector."""
    said = "(java.lang.RuntimeException) java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
    assert "INCREMENTAL_ASSETS_SPARK_CONF" in (store_remedy(said) or "")
    assert store_remedy("software.amazon.awssdk.services.s3.model.S3Exception: At least one of the pre-conditions did not hold") is None


def test_a_renamed_datastore_is_adopted_once_its_objects_were_moved(landing: Make, bucket: str) -> None:
    """A table of which some objects are still under the old name must not count as moved: it would have lost rows."""
    shop = landing(lake=f"s3://{bucket}/lake", containers={"o": {"glob": "*.csv", "columns": {"id": "int"}}})
    shop.place_file("a.csv", "id\n1\n2\n")
    assert shop.sync()["o"]["rows_read"] == 2
    record = adopted(shop)["o"]
    assert record["status"] == "failed" and f"aws s3 mv --recursive s3://{bucket}/lake/landing/o/" in record["message"], record
    found = [one["Key"] for one in shop.s3.list_objects_v2(Bucket=bucket, Prefix="lake/landing/")["Contents"]]
    for number, key in enumerate(found):
        if number == len(found) - 1:  # the tool was killed before its last object
            shop.configure(name="landing")
            assert adopted(shop)["o"]["status"] == "failed"
        place = key.replace("lake/landing/", "lake/store/")
        shop.s3.copy_object(Bucket=bucket, Key=place, CopySource={"Bucket": bucket, "Key": key})
        shop.s3.delete_object(Bucket=bucket, Key=key)
    shop.configure(name="landing")
    assert adopted(shop)["o"]["status"] == "adopted"
    assert shop.sync()["o"]["status"] == "skipped"
    shop.place_file("b.csv", "id\n3\n")
    assert shop.sync()["o"]["rows_read"] == 1
    assert shop.files("o") == {"a.csv": 2, "b.csv": 1}
