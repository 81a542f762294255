"""DuckDB reads the tables of the lake: the same rows and values as Spark and delta-rs, compared as exact values.

Belongs here: readers that are neither Spark nor delta-rs. Does not belong: what delta-rs reads (``test_local_histories``, and all tests
that compare lake and source).

Nothing was found that DuckDB 1.4.4 misreads. It does not read a lake whose path has a percent sign, as it takes two digits after it for a
byte; and where those are no UTF-8, its program may end. Tables with types that were widened are not tried.
"""

import json
import math
import os
import shutil
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from assets_tests.databases.test_types import TYPES, create, insert
from assets_tests.delta import test_local_histories as histories
from assets_tests.harness import Project
from incremental_assets.delta import replaced_files
from incremental_assets.delta.engine import READ_BY, WRITE_BY
from incremental_assets.delta.table import double_quoted, query
from incremental_assets.spark.session import open_session

pytestmark = pytest.mark.long

SIDE = Path(__file__).with_name("duckdb_side.py")
Rows = Counter[tuple[str | None, ...]]


@dataclass(frozen=True)
class DuckDB:
    """DuckDB and polars, in a folder of packages beside the project's environment. Each table is read by a process of its own."""

    packages: Path

    def rows(self, path: str, columns: Sequence[tuple[str, str]], by: str = "duckdb") -> Rows:
        environment = {**os.environ, "PYTHONPATH": str(self.packages)}
        done = subprocess.run(
            [sys.executable, str(SIDE)],
            env=environment,
            input=json.dumps([path, columns, by]),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise NotRead(f"exit code {done.returncode}: {done.stderr.strip()[-2000:]}")
        return Counter(map(tuple, json.loads(done.stdout)))


class NotRead(Exception):
    """DuckDB does not read a table. The message has what it says."""


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory: pytest.TempPathFactory) -> DuckDB:
    folder = tmp_path_factory.mktemp("duckdb")
    listed = ["--no-deps", "--only-binary=:all:", "--requirement", str(SIDE.with_name("duckdb.txt"))]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *listed], check=True)
    return DuckDB(folder)


def exact(values: pa.ChunkedArray) -> list[str | None]:
    """The values as texts that are equal only where the values are, bit by bit; NaN counts as one value."""
    kind = values.type
    if pa.types.is_date(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    found = values.to_pylist()
    if pa.types.is_floating(kind):
        return [None if v is None else "NaN" if math.isnan(v) else struct.pack("<d", v).hex() for v in found]
    if pa.types.is_boolean(kind):
        return [None if v is None else str(v).lower() for v in found]
    if pa.types.is_decimal(kind):
        return [None if v is None else f"{v:f}" for v in found]
    return [None if v is None else v.hex() if isinstance(v, bytes) else str(v) for v in found]


def rows_of(table: pa.Table) -> Rows:
    return Counter(zip(*map(exact, table.columns), strict=True))


@pytest.mark.parametrize("number", range(10))
def test_duckdb_reads_the_rows_that_a_history_leaves(request: pytest.FixtureRequest, duckdb: DuckDB, tmp_path: Path, number: int) -> None:
    """Somebody who queries the lake by DuckDB would miss rows, or get other values: of rewritten files, deletion vectors, checkpoints, and
    of the least and greatest values of each type."""
    seed = int(request.config.getoption("--seed") or 0) + number
    with pytest.MonkeyPatch.context() as patch:
        history = histories.History(seed, tmp_path, None, patch)
        history.play(12)
    plain = tmp_path / "plain"  # DuckDB takes %ke in the path of a table for a byte
    shutil.copytree(history.here.address, plain)
    want, found = rows_of(history.layout.table(history.rows)), duckdb.rows(str(plain), history.layout.columns)
    assert found == want, (seed, want - found, found - want)


WAYS = {
    "a first load in this process": {},
    "a first load into files, by tasks": {READ_BY: "arrow"},
    "a first load by Spark": {READ_BY: "jdbc", WRITE_BY: "spark"},
    "rows appended": {},
    "rows in files written anew": {},
    "rows marked by deletion vectors": {},
    "rows marked by Spark": {WRITE_BY: "spark"},
}


@pytest.mark.parametrize("way", WAYS)
def test_spark_delta_rs_and_duckdb_read_the_same_of_each_way_of_writing(
    project: Callable[..., Project], duckdb: DuckDB, spark_home: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Values of every type of PostgreSQL would be others, or rows would be missing, for one of those who read the lake."""
    for name, value in WAYS[way].items():
        monkeypatch.setenv(name, value)
    if "deletion vectors" in way:
        monkeypatch.setattr(replaced_files, "MOST_WRITTEN_BYTES", -1)
    strategy, vectors = "" if "append" in way else "!upsert", "anew" not in way
    made = project(incremental=[f"public.t:at:timestamp{strategy}"], containers={"t": {"deletion_vectors": vectors}})
    made.execute(TYPES)
    create(made, "t")
    insert(made, "t")
    made.one("t")
    if not way.startswith("a first load"):
        insert(made, "t", 101, "2024-11-06")
        if strategy:
            made.execute("update t set at = '2024-11-07', text_ = 'changed' || id, num_38_0 = id where id between 2 and 5")
        assert made.one("t")["rows_inserted"] > 0
    made.assert_equal("t")
    table = made.table("t")
    head, delta = table.head(), table.opened()
    assert head is not None and delta is not None
    assert bool(pa.table(delta.deletion_vectors()).num_rows) is ("marked" in way)
    columns = [(column.name, column.type) for column in head.columns]
    by_duckdb = duckdb.rows(table.address, columns)
    by_delta_rs = rows_of(query(delta, f'SELECT {", ".join(double_quoted(name) for name, _ in columns)} FROM "rows"'))
    with open_session(spark_home, name="duckdb") as spark:
        by_spark = rows_of(spark.sql(f"SELECT * FROM {table.sql_name}").toArrow().select([name for name, _ in columns]))
    assert by_duckdb.total() == len(made.rows("t", "id"))
    assert by_duckdb == by_delta_rs, (by_delta_rs - by_duckdb, by_duckdb - by_delta_rs)
    assert by_duckdb == by_spark, (by_spark - by_duckdb, by_duckdb - by_spark)


FEATURES = {
    "none": ("", "reads", "reads", "reads", "reads"),
    "deletion vectors": ("'delta.enableDeletionVectors' = 'true'", "refuses", "reads", "reads", "reads"),
    "column mapping": ("'delta.columnMapping.mode' = 'name'", "reads NULL", "reads", "refuses", "refuses"),
    "type widening": ("'delta.enableTypeWidening' = 'true'", "refuses", "refuses", "refuses", "reads"),
}
"""For each feature of a table, the property that switches it on, and what pandas, deltalake's QueryBuilder, polars and DuckDB do."""


@pytest.mark.parametrize("feature", FEATURES)
def test_the_page_about_readers_says_what_each_of_them_reads(duckdb: DuckDB, spark_home: Path, tmp_path: Path, feature: str) -> None:
    """Users would choose `deletion_vectors: false` for a program that reads them, or would trust values that a program does not have.

    The table is in docs/configuration.md, *Readers of the Delta tables*.
    """
    property_, *want = FEATURES[feature]
    lake, rows = tmp_path / "t", [(f"{i}",) for i in range(10, 20)]
    with open_session(spark_home, name="readers") as spark:
        properties = ", ".join(filter(None, [property_, "" if "Vectors" in property_ else "'delta.enableDeletionVectors' = 'false'"]))
        spark.sql(f"CREATE TABLE delta.`{lake}` (id INT) USING delta TBLPROPERTIES ({properties})")
        spark.sql(f"INSERT INTO delta.`{lake}` SELECT CAST(id AS INT) FROM range(0, 20, 1, 1)")
        spark.sql(f"DELETE FROM delta.`{lake}` WHERE id < 10")
        if "Widening" in property_:
            spark.sql(f"ALTER TABLE delta.`{lake}` ALTER COLUMN id TYPE BIGINT")

    def read(by: Callable[[], Counter[tuple[str | None, ...]]]) -> str:
        try:
            found = by()
        except (NotRead, DeltaError):
            return "refuses"
        return "reads" if found == Counter(rows) else f"reads {'NULL' if set(found) == {(None,)} else 'other values'}"

    def by_pandas() -> Counter[tuple[str | None, ...]]:
        found = DeltaTable(lake).to_pandas()["id"]
        return Counter((None if value != value else str(int(value)),) for value in found)

    found = [
        read(by_pandas),
        read(lambda: Counter((str(row["id"]),) for row in query(DeltaTable(lake), 'SELECT id FROM "rows"').to_pylist())),
        read(lambda: duckdb.rows(str(lake), [("id", "bigint")], by="polars")),
        read(lambda: duckdb.rows(str(lake), [("id", "bigint")])),
    ]
    assert found == want
    said = Path("docs/configuration.md").read_text().split("## Readers of the Delta tables")[1]
    row = next(line for line in said.splitlines() if line.startswith(f"| {feature} |")).split(" | ")[3:]
    assert [cell.strip(" |*") for cell in row] == ["has no values, and does not say so" if one == "reads NULL" else one for one in want]


def test_duckdb_refuses_a_lake_whose_path_has_a_percent_sign(project: Callable[..., Project], duckdb: DuckDB, tmp_path: Path) -> None:
    """The page about limits says that DuckDB does not find such a lake. Where it does by now, that sentence should go; where it reads it
    as an empty one, rows are missing and nobody is told."""
    made = project(incremental=["public.t:id:integer"])
    made.lake = str(tmp_path / "la%ke")
    made.execute("create table t (id int primary key); insert into t values (1)")
    made.one("t")
    made.assert_equal("t")
    with pytest.raises(NotRead, match=r"No such file|UnicodeDecodeError"):
        duckdb.rows(made.table("t").address, [("id", "int")])
