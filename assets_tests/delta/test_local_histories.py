"""Random histories of two tables: one is written by this process where it can, the other one by Spark alone, and users alter both.

After each step, both have exactly the rows of a model, whether Spark or delta-rs reads them, whole or by a condition on which files are
skipped. ``pytest assets_tests/delta/test_local_histories.py --seed 7`` begins with history 7.

Belongs here: what one write batch after another makes of a table, whatever its columns, values and properties are. Does not belong: the
source, and the watermark (``test_property``).
"""

import contextlib
import decimal
import functools
import itertools
import json
import math
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from assets_tests import hostile
from assets_tests.core.test_model_container import resolved
from assets_tests.delta.test_add_files import HeldRows, ReadIntoFiles
from assets_tests.harness import long
from incremental_assets.core.container import Identifier
from incremental_assets.core.cursor_type import CursorType, IdentifierType
from incremental_assets.core.errors import ConcurrentWriteError, EmptyRefused
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.names import backticked, literal
from incremental_assets.core.schema import Column
from incremental_assets.core.window import EVERYTHING, Window
from incremental_assets.databases.stored_state import fresh_state
from incremental_assets.delta import create, local_rows, replaced_files
from incremental_assets.delta.counts import row_count
from incremental_assets.delta.engine import WRITE_BY
from incremental_assets.delta.guards import newest
from incremental_assets.delta.local_query import readable_here
from incremental_assets.delta.local_rows import key_texts, local_frame
from incremental_assets.delta.properties import set_property_without_spark
from incremental_assets.delta.table import LakeTable, double_quoted, query
from incremental_assets.delta.write import commit
from incremental_assets.delta.write_batch import InWindows, NotHere, RowsInFiles, WriteBatch
from incremental_assets.spark.session import SparkSession, open_session

D = decimal.Decimal
Row = tuple[Any, ...]
"""The values of a row; days and microseconds since 1970 are integers."""
MICROS = [-210_866_803_200_000_000, -62_135_596_800_000_001, -62_135_596_800_000_000, -2_208_988_800_000_001, -1, 0, 1_700_000_000_123_456,
          1_700_000_000_123_999, 253_402_300_799_999_999, 253_402_300_800_000_000, 9_223_371_331_199_999_999]  # fmt: skip
DAYS = [-2_440_588, -719_163, -719_162, -141_438, -141_427, -1, 0, 20_000, 2_932_896, 2_932_897, 2_145_031_948]
TEXTS = ["", " ", "a", "A", "ä", "\uffff", "\U00010000", "\U0010ffff", "x" * 32, "x" * 33, "x" * 32 + "\U0010ffff", "\U0010ffff" * 33,
         "\U00020bb7",
         "it's", "\\", "1", "NaN", "NULL", "%2F"]  # fmt: skip
KINDS: Mapping[str, tuple[pa.DataType, Sequence[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "smallint": (pa.int16(), [-(2**15), -1, 0, 2**15 - 1]),
    "int": (pa.int32(), [-(2**31), -1, 0, 2**31 - 1]),
    "bigint": (pa.int64(), [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1]),
    "float": (pa.float32(), [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), 1e-45]),
    "double": (pa.float64(), [0.0, -0.0, 0.1, float("inf"), float("-inf"), float("nan"), 5e-324, 1.7976931348623157e308]),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff\xfe", b"\x00" * 40]),
    "string": (pa.string(), TEXTS),
    "date": (pa.date32(), DAYS),
    "timestamp": (pa.timestamp("us", "UTC"), MICROS),
    "timestamp_ntz": (pa.timestamp("us"), MICROS),
    "decimal(5,2)": (pa.decimal128(5, 2), [D("999.99"), D("-999.99"), D("0.00"), D("0.01")]),
    "decimal(18,18)": (pa.decimal128(18, 18), [D("0.999999999999999999"), D("-0.000000000000000001")]),
    "decimal(20,4)": (pa.decimal128(20, 4), [D("9999999999999999.9999"), D("-0.0001"), D("9007199254740993.0000")]),
    "decimal(38,0)": (pa.decimal128(38, 0), [D(10**38 - 1), D(-(10**38) + 1), D(0), D(2**63)]),
    "decimal(38,38)": (pa.decimal128(38, 38), [D("0." + "9" * 38), D("-0." + "0" * 37 + "1")]),
}
CURSORS = {
    "int": CursorType.INTEGER, "smallint": CursorType.INTEGER, "bigint": CursorType.INTEGER, "date": CursorType.DATE,
    "timestamp": CursorType.TIMESTAMP, "timestamp_ntz": CursorType.TIMESTAMP_NTZ,
}  # fmt: skip
NAMES = [
    "x",
    "a.b",
    ".a",
    "we`ird",
    'q"uote',
    "it's",
    "ünï",
    "😀",
    "\U00020bb7",
    "aB",
    "a-b",
    "select",
    "${x}",
    "%2F",
    "_c0",
    "min.x",
    "rows",
    "n_1",
    "\\",
]
MAPPED_NAMES = ["with space", "a,b", "(x)"]
QUIET = [
    ("delta.enableDeletionVectors", ["true", "false"]), ("delta.dataSkippingNumIndexedCols", ["0", "1", "3", "-1"]),
    ("delta.checkpointInterval", ["1", "2", "3"]), ("delta.checkpoint.writeStatsAsStruct", ["true", "false"]),
    ("delta.checkpoint.writeStatsAsJson", ["true", "false"]), ("delta.randomizeFilePrefixes", ["true", "false"]),
    ("delta.isolationLevel", ["Serializable"]), ("delta.logRetentionDuration", ["interval 1 days"]), ("user.own", ["it's", "${x}", "é"]),
]  # fmt: skip
"""Properties that a user may set, after which this process still writes."""
FEATURES = [
    ("delta.enableChangeDataFeed", ["true"]), ("delta.enableRowTracking", ["true"]), ("delta.enableInCommitTimestamps", ["true"]),
    ("delta.columnMapping.mode", ["name"]), ("delta.enableTypeWidening", ["true"]), ("delta.checkpointPolicy", ["v2"]),
]  # fmt: skip
"""Properties that ask more of a writer."""


@dataclass
class Rows(HeldRows):
    """The rows that a batch has read. ``is_local``: whether this process holds them. ``many``: how they are read into files; None: only
    Spark reads them. ``meanwhile``: what another writer does right before the commit."""

    rows: pa.Table
    is_local: bool
    many: "ReadIntoFiles | None" = None
    gone: tuple[Window, ...] = ()
    meanwhile: Callable[[], None] | None = None

    def still_there(self) -> None:
        if self.meanwhile is not None:
            act, self.meanwhile = self.meanwhile, None
            act()

    def frame(self, spark: Any) -> Any:
        return local_frame(spark, self.rows)

    def local(self) -> pa.Table:
        if not self.is_local:
            raise NotHere("there are many rows")
        return self.rows

    def in_files(self) -> RowsInFiles:
        return super().in_files() if self.many is None else self.many

    def emptied(self) -> tuple[Window, ...]:
        return self.gone


@dataclass
class Source:
    """The rows of a source by their keys, and the lookups that an upsert makes."""

    layout: "Layout"
    rows: dict[Row, Row] = field(default_factory=dict)

    def by_key(self, spark: Any, keys: Sequence[Sequence[str]]) -> Any:
        texts = {tuple(key) for key in keys}
        return local_frame(spark, self.layout.table([row for key, row in self.rows.items() if self.layout.key_texts(key) in texts]))

    def existing(self, keys: Sequence[Sequence[str]]) -> Iterable[int]:
        known = {self.layout.key_texts(key) for key in self.rows}
        return [i for i, key in enumerate(keys) if tuple(key) in known]


@dataclass(frozen=True)
class Layout:
    """The columns of a table (name and type), how many of the first ones are the key, and which ones the identifier (their places)."""

    columns: tuple[tuple[str, str], ...]
    keys: int
    identifier: tuple[int, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, KINDS[type_][0]) for name, type_ in self.columns])

    def table(self, rows: Sequence[Row]) -> pa.Table:
        columns = [as_arrow([row[i] for row in rows], type_) for i, (_, type_) in enumerate(self.columns)]
        return pa.table(columns, schema=self.schema)

    def key_texts(self, key: Row) -> tuple[str, ...]:
        return next(key_texts(self.table([(*key, *[None] * (len(self.columns) - self.keys))]).select(range(self.keys))))

    def at(self, row: Row) -> int | None:
        return max((row[i] for i in self.identifier if row[i] is not None), default=None)

    def rows_of(self, found: pa.Table) -> Counter[Row]:
        """The rows of a table that was read, each with a value that tells it apart bit by bit."""
        columns = [exact(found.column(name), type_) for name, type_ in self.columns]
        return Counter(zip(*columns, strict=True))


def as_arrow(values: Sequence[Any], type_: str) -> pa.Array:
    arrow = KINDS[type_][0]
    if type_ == "date":
        return pa.array(values, pa.int32()).cast(arrow)
    return pa.array(values, pa.int64()).cast(arrow) if type_.startswith("timestamp") else pa.array(values, arrow)


def exact(values: pa.ChunkedArray, type_: str) -> list[Any]:
    arrow = KINDS[type_][0]
    if pa.types.is_timestamp(values.type) and values.type.tz and not arrow.tz:
        raise AssertionError(f"times with a zone: {values.type}")
    values = values.cast(arrow)
    if type_ == "date":
        values = values.cast(pa.int32())
    elif type_.startswith("timestamp"):
        values = values.cast(pa.int64())
    found = values.to_pylist()
    if type_ in ("float", "double"):
        return [None if v is None else "NaN" if math.isnan(v) else struct.pack("<d", v) for v in found]
    return found


def spark_literal(value: Any, type_: str) -> str | None:
    if type_ == "string":
        return literal(value)
    if type_ == "date":
        return f"date_from_unix_date({value})"
    if type_.startswith("timestamp"):
        return f"timestamp_micros({value})" if type_ == "timestamp" else f"cast(timestamp_micros({value}) AS timestamp_ntz)"
    if type_.startswith("decimal"):
        return f"cast('{value:f}' AS {type_})"
    return f"cast('{value}' AS {type_})" if type_ in ("smallint", "int", "bigint") else None


def delta_rs_literal(value: Any, type_: str) -> str | None:
    if type_ == "string":
        return "'" + value.replace("'", "''") + "'"
    types = {
        "smallint": "Int16", "int": "Int32", "bigint": "Int64", "date": "Date32", "timestamp_ntz": "Timestamp(Microsecond, None)",
        "timestamp": 'Timestamp(Microsecond, Some("UTC"))',
    }  # fmt: skip
    if type_ == "date":
        return f"arrow_cast(arrow_cast({value}, 'Int32'), 'Date32')"
    return f"arrow_cast({value}, '{types[type_]}')" if type_ in types else None


class SparkNeeded(Exception):
    """A history without Spark has come to a point where Spark is needed."""


class History:
    """A random history. All its decisions come from its number."""

    def __init__(self, seed: int, folder: Path, spark: SparkSession | None, patch: pytest.MonkeyPatch) -> None:
        """Without a Spark session, there is only the table that this process writes, and a batch that Spark must write is not written."""
        self.seed, self._spark, self.patch = seed, spark, patch
        self.random = random.Random(seed)
        self.log: list[str] = []
        self.counts: Counter[str] = Counter()
        lake = folder / self.random.choice(["lake", "la ke", "la%ke", "läke", "la'ke", "a+b&c=d;e"])
        lake.mkdir()
        self.here, self.there = LakeTable(str(lake), "here"), LakeTable(str(lake), "there")
        self.tables = [self.here, self.there] if spark is not None and self.random.random() < 0.4 else [self.here]
        self.layout = self._layout()
        self.source = Source(self.layout)
        self.rows: list[Row] = []
        self.past: list[tuple[list[int], list[Row]]] = []
        kind = [Strategy.APPEND, Strategy.UPSERT] if self.layout.identifier else [Strategy.SNAPSHOT]
        self.strategy = self.random.choice(kind)
        identifier = None
        if self.layout.identifier:
            names = tuple(self.layout.columns[i][0] for i in self.layout.identifier)
            type_ = CURSORS[self.layout.columns[self.layout.identifier[0]][1]]
            kinds = {CursorType.INTEGER: IdentifierType.INTEGER, CursorType.DATE: IdentifierType.DATE}
            identifier = Identifier(names, kinds.get(type_, IdentifierType.TIMESTAMP), type_)
        options = replace(resolved().options, deletion_vectors=self.random.random() < 0.7)
        key = tuple(name for name, _ in self.layout.columns[: self.layout.keys])
        if self.strategy is Strategy.APPEND and self.random.random() < 0.3:
            key = ()
        self.container = replace(resolved(), identifier=identifier, primary_key=key, strategy=self.strategy, options=options)
        self.note(f"{self.container.strategy.name}, key {key}, identifier {identifier}, columns {self.layout.columns}, lake {lake.name}")
        self.steps: list[tuple[int, Callable[[], None]]] = [
            (50, self.sync), (4, self.again), (5, self.delete), (5, self.update), (3, self.optimize), (4, self.restore), (2, self.vacuum),
            (5, self.set_property), (1, self.set_feature), (1, self.unset), (1, self.reorganize), (1, self.comment), (1, self.order),
            (1, self.constrain), (2, self.checkpoint),
        ]  # fmt: skip
        if spark is None:
            patch.setattr(create, "_is_left_to_spark", lambda *_: False)  # such as names that are not plain
            self.steps = [(50, self.sync), (5, self.again), (4, self.restore), (5, self.set_property), (3, self.checkpoint)]

    @property
    def spark(self) -> SparkSession:
        if self._spark is None:
            raise SparkNeeded
        return self._spark

    def note(self, text: str) -> None:
        self.log.append(text)

    def _layout(self) -> Layout:
        chance = self.random
        keys = chance.choice([1, 1, 2, 3])
        of_keys = [t for t in KINDS if t not in ("float", "double", "boolean")]
        cursor = chance.choice([None, *CURSORS])
        width = 0 if cursor is None else chance.choice([1, 1, 2]) if cursor.startswith(("date", "timestamp")) else 1
        types = (
            [chance.choice(of_keys) for _ in range(keys)]
            + [str(cursor)] * width
            + [chance.choice(list(KINDS)) for _ in range(chance.randint(0, 5))]
        )
        names = hostile.different(
            len(types), lambda: chance.choice(NAMES if self._spark is None or chance.random() < 0.98 else MAPPED_NAMES)
        )
        columns = [*zip(names, types, strict=True), ("n", "bigint")]
        return Layout(tuple(columns), keys, tuple(range(keys, keys + width)))

    # ------------------------------------------------------------------ the source
    def _value(self, type_: str, nulls: bool = True) -> Any:
        if nulls and self.random.random() < 0.15:
            return None
        values = KINDS[type_][1]
        if self.random.random() < 0.3:
            if type_ == "string":
                return hostile.text(self.random, without="\0", most_bytes=80)
            if type_ in ("smallint", "int", "bigint"):
                return self.random.randint(-20, 20)
            if type_ == "date":
                return 20_000 + self.random.randint(-20, 20)
            if type_.startswith("timestamp"):
                return 1_700_000_000_000_000 + self.random.randint(-20, 20) * 333
        return self.random.choice(values)

    def _change_source(self) -> None:
        for _ in range(self.random.choice([0, 1, 3, 8])):
            key = tuple(self._value(type_, nulls=False) for _, type_ in self.layout.columns[: self.layout.keys])
            rest = [self._value(type_) for _, type_ in self.layout.columns[self.layout.keys : -1]]
            self.source.rows[key] = (*key, *rest, self.random.randint(0, 9))
        for key in self.random.sample(sorted(self.source.rows, key=repr), min(len(self.source.rows), self.random.choice([0, 1, 3]))):
            row = list(self.source.rows[key])
            i = self.random.randrange(self.layout.keys, len(row))
            row[i] = self._value(self.layout.columns[i][1]) if i < len(row) - 1 else self.random.randint(0, 9)
            self.source.rows[key] = tuple(row)
        for key in self.random.sample(sorted(self.source.rows, key=repr), min(len(self.source.rows), self.random.choice([0, 0, 1, 4]))):
            del self.source.rows[key]

    def _windows(self) -> tuple[Window, ...]:
        if not self.layout.identifier:
            return (EVERYTHING,)
        type_ = self.layout.columns[self.layout.identifier[0]][1]
        points = sorted({self._value(type_, nulls=False) for _ in range(4)})
        ends = [*itertools.pairwise(points), (points[-1], None), (None, points[0]), (None, None)]
        return tuple(Window(*ends[i]) for i in self.random.sample(range(len(ends)), min(len(ends), self.random.choice([1, 1, 2]))))

    def _is_inside(self, row: Row, windows: Sequence[Window], nulls: bool) -> bool:
        at = self.layout.at(row)
        if not self.layout.identifier:
            return True
        if at is None:
            return nulls
        return any((w.lower is None or at >= w.lower) and (w.upper is None or at < w.upper) for w in windows)

    # ------------------------------------------------------------------ steps
    def sync(self) -> None:
        self._change_source()
        self.again()

    def again(self) -> None:
        windows, nulls = self._windows(), self.random.random() < 0.5
        read = [row for row in self.source.rows.values() if self._is_inside(row, windows, nulls)]
        gone = () if read else windows
        most, allow = self.random.choice([-1, 3_000, 8 << 20]), self.random.random() < 0.8
        self.patch.setattr(replaced_files, "MOST_WRITTEN_BYTES", most)
        many = self.random.random() < 0.5
        self.patch.setattr(local_rows, "MOST_OLD_ROWS", 2 if many and self.random.random() < 0.5 else 3_000_000)
        self.note(f"sync {windows} nulls={nulls} rows={read} most={most} many={many} allow_empty={allow}")
        meanwhile = self._statement() if self.past and self.random.random() < 0.15 else None
        done: list[bool] = []
        for table in self.tables:
            act = None if meanwhile is None else functools.partial(self._run_beside, table, meanwhile[0])
            own = self.layout.table(read)
            rows = Rows(own, table is self.here and not many, ReadIntoFiles(own) if table is self.here else None, gone, act)
            for last in (False, True):
                try:
                    done.append(self._commit(table, rows, windows, nulls, allow, len(read)))
                    break
                except ConcurrentWriteError as error:
                    assert meanwhile is not None and not last, error
                    self.counts["ConcurrentWriteError"] += 1
                    self.note(f"    {table.url}: {error}")
            if meanwhile is not None and rows.meanwhile is not None:
                self._run_beside(table, meanwhile[0])
                assert not done[-1] or meanwhile[1] is None, "a commit without the last check"
        if meanwhile is not None and meanwhile[1] is not None:
            n = meanwhile[1]
            self.rows = [row for row in self.rows if row[-1] != n]
        assert len(set(done)) == 1, "one way refuses what the other one does not"
        if not done[0]:
            return
        if self.strategy is not Strategy.UPSERT:
            self.rows = [row for row in self.rows if not self._is_inside(row, windows, nulls)] + read
            return
        width = self.layout.keys
        lake = {row[:width]: row for row in self.rows}
        missing = {key for key, row in lake.items() if self._is_inside(row, windows, nulls)} - {row[:width] for row in read}
        lake |= {row[:width]: row for row in read}
        lake |= {key: self.source.rows[key] for key in missing & self.source.rows.keys()}
        self.rows = [row for key, row in lake.items() if key not in missing - self.source.rows.keys()]

    def _statement(self) -> tuple[str, int | None]:
        """A statement of another writer, and the number of the rows that it deletes, if any."""
        n = self.random.randint(0, 9)
        quiet = "ALTER TABLE {t} SET TBLPROPERTIES ('user.own' = '2')"
        return (
            self.random.choice([("OPTIMIZE {t}", None), (quiet, None), (f"DELETE FROM {{t}} WHERE n = {n}", n)])
            if self._spark
            else (quiet, None)
        )

    def _run_beside(self, table: LakeTable, statement: str) -> None:
        self.note(f"    meanwhile: {statement}")
        if self._spark is not None:
            self._spark.sql(statement.format(t=table.sql_name)).collect()
        else:
            assert set_property_without_spark(table, newest(table).version, "user.own", "2")

    def _commit(self, table: LakeTable, rows: Rows, windows: tuple[Window, ...], nulls: bool, allow: bool, read: int) -> bool:
        """Commits a batch. Returns False if it was refused."""
        head = table.head()
        batch = WriteBatch(
            container=self.container, replaces=InWindows(self.container.identifier, windows, nulls),
            columns=tuple(Column(*column) for column in self.layout.columns), base_version=head.version if head else None,
            state=fresh_state(self.container, "1/2"), expected=read, allow_empty=allow,
            commit_metadata={"run_id": len(self.log)}, rows=rows, by_key=self.source,
        )  # fmt: skip
        before = self._metadata(table)
        with self.patch.context() as patch:
            if table is self.there:
                patch.setenv(WRITE_BY, "spark")
            try:
                result = commit(lambda: self.spark, table, batch, lambda _: None)
            except (EmptyRefused, SparkNeeded) as error:
                self.counts[type(error).__name__] += 1
                return False
        assert before is None or self._metadata(table) == before, f"{table.url}: {before} became {self._metadata(table)}"
        if table is self.here and result.data_version:
            by = self._engine(result.data_version)
            self.counts[by] += 1
            self.note(f"    by {by}: {result}")
        return True

    def _engine(self, version: int) -> str:
        delta = DeltaTable(self.here.address)
        found = next((e for e in delta.history(20) if e["version"] == version), {})
        return str(found.get("engineInfo") or found.get("clientVersion") or found.get("operation")).split("/")[0].split(".")[0]

    def _metadata(self, table: LakeTable) -> Any:
        delta = table.opened()
        if delta is None:
            return None
        known, protocol = delta.metadata(), delta.protocol()
        own = {name: value for name, value in known.configuration.items() if not name.startswith(("incremental_assets.", "user."))}
        features = sorted(protocol.reader_features or ()), sorted(protocol.writer_features or ())
        return (known.id, known.name, known.description, known.partition_columns, own, json.loads(delta.schema().to_json()),
                protocol.min_reader_version, protocol.min_writer_version, features)  # fmt: skip

    def _both(self, statement: str) -> None:
        self.note(statement)
        for table in self.tables:
            self.spark.sql(statement.format(t=table.sql_name)).collect()

    def delete(self) -> None:
        n = self.random.randint(0, 9)
        self._both(f"DELETE FROM {{t}} WHERE n = {n}")
        self.rows = [row for row in self.rows if row[-1] != n]

    def update(self) -> None:
        n = self.random.randint(0, 9)
        self._both(f"UPDATE {{t}} SET n = {n + 1} WHERE n = {n}")
        self.rows = [(*row[:-1], n + 1) if row[-1] == n else row for row in self.rows]

    def optimize(self) -> None:
        self._both("OPTIMIZE {t}")

    def reorganize(self) -> None:
        self._both("REORG TABLE {t} APPLY (PURGE)")

    def vacuum(self) -> None:
        self._both("VACUUM {t} RETAIN 0 HOURS")
        self.past = []

    def restore(self) -> None:
        versions, rows = self.random.choice(self.past)
        if any(version == newest(table).version for table, version in zip(self.tables, versions, strict=True)):
            return
        for table, version in zip(self.tables, versions, strict=True):
            self.note(f"restore {table.url} to {version}")
            if self._spark is None:
                DeltaTable(table.address).restore(version)
            else:
                self.spark.sql(f"RESTORE TABLE {table.sql_name} TO VERSION AS OF {version}").collect()
        self.rows = rows

    def _set(self, name: str, value: str) -> None:
        if self._spark is None:
            head = self.here.head()
            assert head is not None and set_property_without_spark(self.here, head.version, name, value)
            self.note(f"{name} = {value}")
            return
        self._both(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({literal(name)} = {literal(value)})".replace("${x}", "${{x}}"))

    def set_property(self) -> None:
        name, values = self.random.choice(QUIET)
        self._set(name, self.random.choice(values))

    def set_feature(self) -> None:
        name, values = self.random.choice(FEATURES)
        self._set(name, self.random.choice(values))

    def unset(self) -> None:
        self._both("ALTER TABLE {t} UNSET TBLPROPERTIES IF EXISTS ('delta.dataSkippingNumIndexedCols', 'user.own')")

    def comment(self) -> None:
        self._both("ALTER TABLE {t} ALTER COLUMN n COMMENT 'it''s a \"comment\"'")

    def order(self) -> None:
        self._both("ALTER TABLE {t} ALTER COLUMN n FIRST")

    def constrain(self) -> None:
        self._both("ALTER TABLE {t} ADD CONSTRAINT " + f"c{len(self.log)}" + " CHECK (n >= 0)")

    def checkpoint(self) -> None:
        for table in self.tables:
            if readable_here(table) is not None:
                self.note(f"checkpoint of {table.url} by delta-rs")
                DeltaTable(table.address).create_checkpoint()

    # ------------------------------------------------------------------ the comparison
    def check(self) -> None:
        layout = self.layout
        want = layout.rows_of(layout.table(self.rows))
        picked = self._picked()
        for table in self.tables:
            if self._spark is not None:
                self._check_by_spark(self._spark, table, want, picked)
            delta = readable_here(table)
            if delta is None:
                continue
            assert row_count(lambda: self.spark, table) == len(self.rows), f"{table.url}, counted by delta-rs"
            self._expect(want, layout.rows_of(query(delta, 'SELECT * FROM "rows"')), f"{table.url}, by delta-rs")
            for column, type_, value, count in picked:
                shown = delta_rs_literal(value, type_)
                if shown is not None:
                    counted = (
                        query(delta, f'SELECT count(*) AS n FROM "rows" WHERE {double_quoted(column)} = {shown}').column("n")[0].as_py()
                    )
                    assert counted == count, f"{table.url}, by delta-rs: {column} = {value!r}: {counted} rows and not {count}"

    def _check_by_spark(
        self, spark: SparkSession, table: LakeTable, want: Counter[Row], picked: Sequence[tuple[str, str, Any, int]]
    ) -> None:
        found = spark.sql(f"SELECT * FROM {table.sql_name}").toArrow()
        self._expect(want, self.layout.rows_of(found), f"{table.url}, by Spark")
        asked = [f"(SELECT count(*) FROM {table.sql_name})"]
        for column, type_, value, _ in picked:
            asked.append(f"(SELECT count(*) FROM {table.sql_name} WHERE {backticked(column)} = {spark_literal(value, type_)})")
        counts = list(spark.sql(f"SELECT {', '.join(f'{q} AS c{i}' for i, q in enumerate(asked))}").collect()[0])
        assert counts == [len(self.rows), *(n for *_, n in picked)], f"{table.url}, by Spark: {picked}, {counts}"

    def _picked(self) -> list[tuple[str, str, Any, int]]:
        picked: list[tuple[str, str, Any, int]] = []
        for row in self.random.sample(self.rows, min(2, len(self.rows))):
            for i in self.random.sample(range(len(row)), min(3, len(row))):
                column, type_ = self.layout.columns[i]
                if row[i] is not None and spark_literal(row[i], type_) is not None:
                    picked.append((column, type_, row[i], sum(other[i] == row[i] for other in self.rows)))
        return picked

    def _expect(self, want: Counter[Row], found: Counter[Row], who: str) -> None:
        if want != found:
            raise AssertionError(f"{who}: lost {list((want - found).elements())[:5]}, and has more {list((found - want).elements())[:5]}")

    def play(self, steps: int) -> None:
        while self.here.head() is None:
            self.sync()
        self.check()
        weights, actions = zip(*self.steps, strict=True)
        for _ in range(steps):
            action = self.random.choices(actions, weights)[0]
            self.past.append(([newest(table).version for table in self.tables], list(self.rows)))
            self.counts[action.__name__] += 1
            action()
            self.check()


@contextlib.contextmanager
def history_session(spark_home: Path, seed: int) -> Iterator[SparkSession]:
    with open_session(spark_home, name="histories") as spark:
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        spark.conf.set("spark.sql.parquet.outputTimestampType", ["TIMESTAMP_MICROS", "INT96"][seed % 5 == 4])
        yield spark


def played(seed: int, steps: int, folder: Path, spark: SparkSession | None) -> Counter[str]:
    with pytest.MonkeyPatch.context() as patch:
        history = History(seed, folder, spark, patch)
        try:
            history.play(steps)
        except Exception as error:  # noqa: BLE001 the test fails, and shows its history
            pytest.fail(f"--seed {seed} --steps {steps}:\n" + "\n".join(history.log) + f"\n{type(error).__name__}: {error}", pytrace=False)
    return history.counts


@pytest.mark.parametrize("number", [0, 1, *long(2, 3)])
def test_a_history_without_spark_leaves_exactly_its_rows(request: pytest.FixtureRequest, tmp_path: Path, number: int) -> None:
    """A row would be lost, doubled or changed, whatever its values and the names of its columns are. Here, only delta-rs reads."""
    seed = int(request.config.getoption("--seed") or 0) + number
    print(dict(played(seed, 12, tmp_path, None)))  # noqa: T201


@pytest.mark.long
@pytest.mark.parametrize("number", range(3))
def test_a_history_leaves_exactly_its_rows(request: pytest.FixtureRequest, tmp_path: Path, spark_home: Path, number: int) -> None:
    """A row would be lost, doubled or changed by a sync that needs no Spark, in a table that users and Spark have changed, too."""
    seed = int(request.config.getoption("--seed") or 0) + number
    with history_session(spark_home, seed) as spark:
        print(dict(played(seed, 10, tmp_path, spark)))  # noqa: T201
