"""Random histories of a folder: files are added, changed, removed, moved, or given other times, and in the end the lake equals the folder.

Syncs really run, and some end at one of their stages and leave what they have done so far. ``pytest
assets_tests/files/test_files_property.py --seed 7 --steps 400`` plays a longer history.

Belongs here: the product as a whole. Does not belong: the content of files (``test_file_reading``).
"""

import csv
import gzip
import io
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from assets_tests import hostile
from assets_tests.harness import Folder
from incremental_assets.core.files import encode_path
from incremental_assets.core.names import literal
from incremental_assets.core.plan import Mode
from incremental_assets.delta import staged_files, write
from incremental_assets.delta.engine import FILES_BY
from incremental_assets.delta.table import LakeTable
from incremental_assets.files import sync as files_sync
from incremental_assets.files.manifest import Manifest
from incremental_assets.files.readers.local import LocalRows
from incremental_assets.files.readers.local_json import LocalJsonRows
from incremental_assets.files.readers.read import FileRows
from incremental_assets.runs import commit as container_output
from incremental_assets.spark.session import SparkSession, open_session

NAMES = ["a b.csv", "it's.csv", "x%20.csv", "[1].csv", "ü.csv", "d/one.csv", "e/one.csv", "d...csv", "\\' OR true -- .csv", "z.csv.gz"]
POINTS = [
    "before reading",
    "before the rows",
    "between files and commit",
    "after the rows",
    "after the state",
    "before the manifest",
    "after the manifest",
]


class Killed(Exception):
    """Raised where a sync is to end as if it were killed there."""


@contextmanager
def killed_at(point: str | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends the sync of the block at this point."""

    def dies(*_: object, **__: object) -> None:
        raise Killed

    manifest_add = Manifest.add

    def adds_and_dies(*arguments: object) -> None:
        manifest_add(*arguments)  # pyright: ignore[reportArgumentType]
        raise Killed

    with monkeypatch.context() as patch:
        match point:
            case "before reading":
                patch.setattr(FileRows, "__init__", dies)
                patch.setattr(LocalRows, "__init__", dies)
                patch.setattr(LocalJsonRows, "__init__", dies)
            case "between files and commit":
                patch.setattr(staged_files, "commit_files", dies)
                patch.setattr(staged_files, "discard", lambda *_: None)  # a process that is killed removes nothing
            case "before the rows":
                patch.setattr(container_output, "commit", dies)
            case "after the rows":
                patch.setattr(write, "set_property", dies)
            case "after the state":
                patch.setattr(files_sync, "replace_rejected", dies)
            case "before the manifest":
                patch.setattr(Manifest, "add", dies)
            case "after the manifest":
                patch.setattr(Manifest, "add", adds_and_dies)
            case _:
                pass
        yield


class History:
    """A folder with the rows of each file: id, note, and more texts. A row whose id is no number is rejected.

    Names of files and columns, and texts, may be any text; they come from a generator of their own.
    """

    def __init__(self, project: Folder, seed: int, kind: str | None = None, files: int = 6, columns: int = 4) -> None:
        """``files``: how many names of files there are in addition to the usual ones."""
        self.project, self.random, self.texts = project, random.Random(seed), random.Random(f"{seed} texts")
        self.kind = kind or self.texts.choice(["csv", "csv", "json", "parquet"])
        # A header is one line, whose cells are stripped; Hadoop's settings replace ${…} in the names of Parquet's columns.
        without = "\r\n" if self.kind == "csv" else "$" if self.kind == "parquet" else ""
        found = hostile.names(self.texts, 3 * columns, most_bytes=200, without=without)
        taken = ("id", "note", "_file", "_file_modified")
        self.columns = [name for name in found if name == name.strip() and name.lower() not in taken][:columns]
        self.headers = [self.columns, self.columns[::2], []]
        folder = hostile.text(self.texts, most_bytes=200, without="/\0", least=1).lstrip("._") or "f"
        own = hostile.file_names(self.texts, files, f".{self.kind}")
        usual = [name.replace(".csv", f".{self.kind}") for name in NAMES]
        self.names = [*usual, *own[::2], *(f"{folder}/{name}" for name in own[1::2])]
        if self.kind == "parquet":
            self.names = [name for name in self.names if not name.endswith(".gz")]
        self.files: dict[str, list[tuple[str, ...]]] = {}
        self.gone: dict[str, list[tuple[str, ...]]] = {}
        self.next_id, self.log = 0, list[str]()

    def entry(self) -> dict[str, object]:
        """The container's entry in the YAML."""
        types = {"id": "bigint", **dict.fromkeys(["note", *self.columns], "string")}
        options = {"options": {"header": True}} if self.kind == "csv" else {}
        return {"glob": f"**/*.{self.kind}*", "format": self.kind, **options, **({} if self.kind == "parquet" else {"columns": types})}

    def content(self, rows: list[tuple[str, ...]], used: list[str]) -> bytes:
        names, at = ["id", "note", *used], [0, 1, *(2 + self.columns.index(name) for name in used)]
        picked = [[row[i] for i in at] for row in rows]
        if self.kind == "csv":
            out = io.StringIO()
            csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([names, *picked])
            return out.getvalue().encode()
        if self.kind == "json":
            return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in picked).encode()
        made = io.BytesIO()
        columns = {name: pa.array([row[i] for row in picked], pa.string()) for i, name in enumerate(names)}
        pq.write_table(pa.table({**columns, "id": columns["id"].cast(pa.int64())}), made)
        return made.getvalue()

    def text(self) -> str:
        return hostile.text(self.texts, without="\0\r\n" if self.kind == "csv" else "\0")

    def put(self, name: str) -> None:
        rows: list[tuple[str, ...]] = []
        used = self.texts.choice(self.headers)
        for _ in range(self.random.choice([0, 1, 1, 2, 5])):
            self.next_id += 1
            id_ = self.random.choice([str(self.next_id)] * 4 + [f"no{self.next_id}" if self.kind != "parquet" else "0"])
            note = self.random.choice(["", "x", 'a "b", c', "ä"]) + self.texts.choice(["", self.text()])
            rows.append((id_, note, *(self.text() if column in used else "" for column in self.columns)))
        path = self.project.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = self.content(rows, used)
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        self.touch(name)
        self.files[name] = rows
        self.gone.pop(name, None)

    def touch(self, name: str) -> None:
        """Sets an old time, a new one, or one in the future, so that a later file may have an earlier time."""
        at = self.random.choice([time.time() - 1000, time.time() - self.random.randrange(10**6, 10**9), time.time() + 10**7])
        os.utime(self.project.root / name, ns=(0, int(at * 10**9) + self.next_id * 1000))

    def step(self) -> None:
        for _ in range(self.random.randrange(1, 4)):
            kind = self.random.choice(["put", "put", "put", "remove", "touch", "move"])
            name = self.random.choice(sorted(self.files)) if self.files and kind != "put" else self.random.choice(self.names)
            self.log.append(f"{kind} {name!r}")
            if kind == "put" or name not in self.files:
                self.put(name)
            elif kind == "remove":
                (self.project.root / name).unlink()
                self.gone[name] = self.files.pop(name)
            elif kind == "touch":
                self.next_id += 1
                self.touch(name)
            else:
                other = self.random.choice([n for n in self.names if n.endswith(".gz") == name.endswith(".gz")])
                (self.project.root / other).parent.mkdir(exist_ok=True)
                (self.project.root / name).rename(self.project.root / other)
                self.files[other] = self.files.pop(name)
                if other != name:
                    self.gone.pop(other, None)
                    self.gone[name] = []

    def expected(self) -> tuple[Counter[tuple[str, ...]], Counter[tuple[str, ...]]]:
        """The expected rows of the table, and the expected rejected rows as file, id and note."""
        rows = [(encode_path(name), *row) for name, found in self.files.items() for row in found]
        good = Counter(row for row in rows if row[1].isdigit())
        return good, Counter(row[:3] for row in rows if not row[1].isdigit())


def lake(history: History, *, of: set[str] | None = None) -> tuple[Counter[tuple[str, ...]], Counter[tuple[str, ...]]]:
    project = history.project
    table = project.table("all").opened()
    if table is None:  # no sync has seen a file yet, so no row is expected
        return Counter(), Counter()
    # A column may be missing from the table where no file has had a row yet.
    there = {field.name for field in table.schema().fields}
    quoted = ['"' + name.replace('"', '""') + '"' if name in there else "NULL" for name in ("id", "note", *history.columns)]
    selected = ", ".join(f"{name} AS x{i}" for i, name in enumerate(quoted))
    found = QueryBuilder().register("lake", table).execute(f"select _file, {selected} from lake").read_all()
    texts = [
        [("" if value is None else str(value)) for value in column.to_pylist()] for column in map(found.column, range(found.num_columns))
    ]
    good = list(zip(*texts, strict=True))
    path = project.lake_root / "landing" / "_rejected" / "all"
    bad: list[tuple[str, ...]] = []
    if path.exists():
        found = QueryBuilder().register("lake", DeltaTable(str(path))).execute("select _file, line from lake").read_all()
        pairs = zip(found.column(0).to_pylist(), found.column(1).to_pylist(), strict=True)
        for file, line in pairs:
            cells = list(json.loads(line).values()) if history.kind == "json" else next(csv.reader([line]))
            bad.append((str(file), *cells[:2]))
    return Counter(r for r in good if of is None or r[0] in of), Counter(r for r in bad if of is None or r[0] in of)


def restore(project: Folder, spark: SparkSession, chance: random.Random) -> str:
    newest = DeltaTable(project.table("all").url).version()
    version = chance.randrange(1, newest + 1)
    spark.sql(f"RESTORE TABLE {project.table('all').sql_name} TO VERSION AS OF {version}").collect()
    return f"restored version {version} of {newest}"


def play(project: Folder, seed: int, steps: int, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    history = History(project, seed)
    project.configure(containers={"all": history.entry()})
    chance = history.random
    for number in range(steps):
        history.step()
        point = chance.choice([*POINTS, None, None, None])
        mode = Mode.REFRESH if chance.random() < 0.1 else None
        if number > 3 and chance.random() < 0.1 and project.table("all").head() is not None:
            history.log.append(restore(project, spark, chance))
        project.configure(prune_files=number % 3 == 2)
        monkeypatch.setenv(FILES_BY, "spark" if chance.random() < 0.2 else "")
        with killed_at(point, monkeypatch):
            line = project.one("all", ok=False, mode=mode, allow_empty=True)
        history.log.append(f"sync {mode} killed {point}: {line['status']}: {line['message']}")
        assert line["status"] != "failed" or point is not None, history.log
        if point is None and line["status"] != "failed" and project.table("all").head() is not None:
            here = {encode_path(name) for name in history.files}
            expected, found = history.expected(), lake(history, of=here)
            assert found == expected, (
                seed,
                number,
                history.log[-12:],
                found[0] - expected[0],
                expected[0] - found[0],
                found[1],
                expected[1],
            )
    project.configure(prune_files=True)
    project.one("all", allow_empty=True)
    assert lake(history) == history.expected(), (seed, history.log)
    again = project.one("all", allow_empty=True)
    assert again["status"] == "skipped", again
    judge(project, history, spark)


def judge(project: Folder, history: History, spark: SparkSession) -> None:
    """The audit agrees with the comparison of lake and folder, finds a difference that is planted in the lake, and repairs it."""
    good, bad = history.expected()
    line = project.audit("all")["all"]
    assert (line["status"], line["rows"], line["rejected"]) == ("equal", good.total(), bad.total()), (line, history.log)
    beside = LakeTable(project.lake, "landing", "_rejected", "all")
    # Not both: the sync before the audit sees the commit in the table, compares the numbers of rows of each file, rejected ones included,
    # and reads a file again that lacks some.
    if bad and history.random.random() < 0.5:
        key = history.random.choice(sorted({row[0] for row in bad}))
        spark.sql(f"DELETE FROM {beside.sql_name} WHERE _file = {literal(key)}").collect()
        expected = (sum(times for row, times in bad.items() if row[0] == key), 0, 0, [key])
    elif good:
        key = history.random.choice(sorted({row[0] for row in good}))
        rows = sum(times for row, times in good.items() if row[0] == key)
        table = project.table("all").sql_name
        spark.sql(f"UPDATE {table} SET note = concat(coalesce(note, ''), 'planted') WHERE _file = {literal(key)}").collect()
        expected = (rows, 0, rows, [key])
    else:
        return
    found = project.audit("all")["all"]
    assert (found["missing"], found["stale"], found["surplus"], found["partitions_different"]) == expected, (found, expected, history.log)
    repaired = project.audit("all", repair=True)["all"]
    assert repaired["status"] == "repaired" and lake(history) == history.expected(), (repaired, history.log)


def make(folder: Callable[..., Folder]) -> Folder:
    return folder(settle_seconds=0)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_history_of_files_loses_and_doubles_no_row(
    folder: Callable[..., Folder], monkeypatch: pytest.MonkeyPatch, spark_home: Path, pytestconfig: pytest.Config
) -> None:
    """A sync that ends between two of its steps must not lose or double the rows of a file. ``assets_tests.soak`` plays short histories."""
    with open_session(spark_home, name="history") as spark:
        play(make(folder), int(str(pytestconfig.getoption("--seed"))), int(str(pytestconfig.getoption("--steps"))), monkeypatch, spark)
