"""Folders that are Delta, Iceberg or Hudi tables: their files are not their rows, so they are refused, and all else goes on.

Belongs here: what shows a table, and which containers are refused. Elsewhere: listing other folders (``test_file_listing``).
"""

from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from assets_tests.harness import Folder
from incremental_assets.core.errors import SourceError
from incremental_assets.files.listing import FolderAddress

Make = Callable[..., Folder]


def made_delta_table(path: Path) -> None:
    """A table whose files have four rows, and which has two: one was deleted, and its file is still there."""
    write_deltalake(str(path), pa.table({"id": [1, 2], "region": ["eu", "eu"]}), partition_by=["region"])
    write_deltalake(str(path), pa.table({"id": [3], "region": ["us"]}), mode="append")
    DeltaTable(str(path)).delete("id = 2")


def test_the_files_of_a_delta_table_are_refused_and_the_others_go_on(folder: Make) -> None:
    """Otherwise deleted rows come back, and each compaction doubles all rows, without a word."""
    project = folder(settle_seconds=0, containers={"sales": {"glob": "sales/**/*.parquet"}, "customers": {"glob": "customers/*.csv"}})
    made_delta_table(project.root / "sales")
    project.put("customers/a.csv", "id,name\n1,x\n")
    lines = project.sync()
    assert lines["customers"]["status"] == "synced", lines
    refused = lines["sales"]
    assert refused["status"] == "failed" and project.table("sales").head() is None, refused
    assert "landing: 'sales' in" in refused["message"] and "is a Delta table, as _delta_log in it shows" in refused["message"]


@pytest.mark.long
def test_a_container_that_was_filled_before_keeps_its_rows_once_its_folder_is_seen_to_be_a_table(folder: Make) -> None:
    """A lake of an earlier version has such containers. Their rows must neither go nor be loaded anew, and a sync says what is wrong."""
    project = folder(settle_seconds=0, prune_files=True)
    for number in range(2):
        pq.write_table(pa.table({"id": [1, 2]}), project.put(f"sales/eu/part-{number}.parquet", ""))
    project.put("customers.csv", "id\n1\n")
    assert project.one("sales_eu_part")["status"] == "synced"
    project.put("sales/_delta_log/00000000000000000000.json", "{}")
    (project.root / "sales/eu/part-0.parquet").unlink()
    lines = project.sync()
    assert lines["sales_eu_part"]["status"] == "failed" and "is a Delta table" in lines["sales_eu_part"]["message"]
    assert lines["customers"]["status"] == "synced" and len(project.rows("sales_eu_part")) == 4


TREE = {
    "delta/_delta_log/00000000000000000000.json": "delta",
    "delta/region=eu/part-0.snappy.parquet": "delta",
    "delta/notes.csv": None,
    "hudi/.hoodie/hoodie.properties": "hudi",
    "hudi/2024/01/a_0-1-0_1.parquet": "hudi",
    "iceberg/metadata/00001-2f0b7c1e-8d9e-4b8e-9d0f-2f6c1b7f3c11.metadata.json": "iceberg",
    "iceberg/metadata/snap-1-1-2f0b7c1e.avro": "iceberg",
    "iceberg/data/region=eu/0-0.parquet": "iceberg",
    "hadoop/metadata/v3.gz.metadata.json": "hadoop",
    "hadoop/data/0-0.parquet": "hadoop",
    "plain/metadata/orders.metadata.json": None,
    "plain/data.parquet": None,
    "plain/_delta_log.parquet": None,
    "a.parquet": None,
}
READ = {path for path, table in TREE.items() if table is None and not path.startswith("plain/_")}


@pytest.mark.parametrize("remote", [False, True])
def test_tables_are_recognized_wherever_a_listing_begins(tmp_path: Path, remote: bool) -> None:
    """Otherwise a container of one partition's folder reads the table all the same; or one table ends the catalog of a whole folder."""
    files = fsspec.filesystem("memory" if remote else "file")
    root = f"/{tmp_path.name}" if remote else str(tmp_path)
    for path in TREE:
        files.makedirs(f"{root}/{path}".rpartition("/")[0], exist_ok=True)
        files.pipe_file(f"{root}/{path}", b"x")
    address = FolderAddress.parse("landing", f"memory:/{root}" if remote else root)
    troubles: dict[str, str] = {}
    assert {path for path, _ in address.list("", troubles)} == READ
    assert sorted(troubles) == ["delta", "hadoop", "hudi", "iceberg"]
    assert "is an Iceberg table, as metadata/v3.gz.metadata.json in it shows" in troubles["hadoop"]
    assert "is a Hudi table, as .hoodie in it shows" in troubles["hudi"]
    for glob, table in (
        ("delta/region=eu/*.parquet", "delta"),
        ("hudi/2024/01/*", "hudi"),
        ("iceberg/data/**", "iceberg"),
        ("hadoop/metadata/*.json", "hadoop"),
    ):
        with pytest.raises(SourceError, match=f"landing: '{table}' in .* table, as .* Its files are not its rows"):
            list(address.list("", None, [glob]))
    assert [path for path, _ in address.list("", None, ["delta/*.csv"])] == ["delta/notes.csv"]


def test_a_folder_that_is_a_table_itself_is_refused(tmp_path: Path) -> None:
    made_delta_table(tmp_path)
    with pytest.raises(SourceError, match=rf"landing: the folder {tmp_path} is a Delta table, as _delta_log in it shows"):
        list(FolderAddress.parse("landing", str(tmp_path)).list())
