"""The promise for files against random histories: whatever came, changed, went, was re-timed or half-read, in the end lake = folder.

Syncs really run; they break off at each of their stages, with what is done so far left as it is. By hand: ``pytest
assets_tests/test_files_property.py --seed 7 --steps 400``.

Belongs here: the engine as a whole. Does not belong: what a file's bytes mean (``test_file_reading``).
"""

import csv
import gzip
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable, QueryBuilder

from assets_tests.harness import Folder
from incremental_assets.lake import io_manager, write
from incremental_assets.lake.manifest import Manifest
from incremental_assets.model.files import encode_path
from incremental_assets.orchestration.files import sync as files_sync
from incremental_assets.orchestration.plan import Mode
from incremental_assets.sources.files.read import FileRows
from incremental_assets.spark import SparkSession, open_session

NAMES = ["a b.csv", "it's.csv", "x%20.csv", "[1].csv", "ü.csv", "d/one.csv", "e/one.csv", "d...csv", "\\' OR true -- .csv", "z.csv.gz"]
POINTS = ["before reading", "before the rows", "after the rows", "after the state", "before the manifest", "after the manifest"]


class Killed(Exception):
    """A sync that ends here, as a killed one does."""


@contextmanager
def killed_at(point: str | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends the sync within the block at this point of it."""

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
            case "before the rows":
                patch.setattr(io_manager, "commit", dies)
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
    """A folder with what is in it: rows (id, text) of each file; a row whose id is no number is rejected."""

    def __init__(self, project: Folder, seed: int) -> None:
        self.project, self.random = project, random.Random(seed)
        self.files: dict[str, list[tuple[str, str]]] = {}
        self.gone: dict[str, list[tuple[str, str]]] = {}
        self.next_id, self.log = 0, list[str]()

    def put(self, name: str) -> None:
        rows: list[tuple[str, str]] = []
        for _ in range(self.random.choice([0, 1, 1, 2, 5])):
            self.next_id += 1
            rows.append(
                (self.random.choice([str(self.next_id)] * 4 + [f"no{self.next_id}"]), self.random.choice(["", "x", 'a "b", c', "ä"]))
            )
        path = self.project.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = ["id,note", *(f'{id_},"{note.replace(chr(34), chr(34) * 2)}"' for id_, note in rows)]
        content = ("\n".join(lines) + "\n").encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        self.touch(name)
        self.files[name] = rows
        self.gone.pop(name, None)

    def touch(self, name: str) -> None:
        """Old, new or odd times: which is later says nothing of what came later."""
        at = self.random.choice([time.time() - 1000, time.time() - self.random.randrange(10**6, 10**9), time.time() + 10**7])
        os.utime(self.project.root / name, ns=(0, int(at * 10**9) + self.next_id * 1000))

    def step(self) -> None:
        for _ in range(self.random.randrange(1, 4)):
            kind = self.random.choice(["put", "put", "put", "remove", "touch", "move"])
            name = self.random.choice(sorted(self.files)) if self.files and kind != "put" else self.random.choice(NAMES)
            self.log.append(f"{kind} {name}")
            if kind == "put" or name not in self.files:
                self.put(name)
            elif kind == "remove":
                (self.project.root / name).unlink()
                self.gone[name] = self.files.pop(name)
            elif kind == "touch":
                self.next_id += 1
                self.touch(name)
            else:
                other = self.random.choice([n for n in NAMES if n.endswith(".gz") == name.endswith(".gz")])
                (self.project.root / other).parent.mkdir(exist_ok=True)
                (self.project.root / name).rename(self.project.root / other)
                self.files[other] = self.files.pop(name)
                if other != name:
                    self.gone.pop(other, None)
                    self.gone[name] = []

    def expected(self) -> tuple[Counter[tuple[str, ...]], Counter[tuple[str, ...]]]:
        """(rows of the table, rejected) as (file, id, note)."""
        rows = [(encode_path(name), *row) for name, found in self.files.items() for row in found]
        good = Counter((file, id_, note) for file, id_, note in rows if id_.isdigit())
        return good, Counter((file, id_, note) for file, id_, note in rows if not id_.isdigit())


def lake(project: Folder, *, of: set[str] | None = None) -> tuple[Counter[tuple[str, ...]], Counter[tuple[str, ...]]]:
    good = [(str(f), str(i), n or "") for f, i, n in project.rows("all", "_file, id, note")]
    path = project.lake_root / "landing" / "_rejected" / "all"
    bad: list[tuple[str, ...]] = []
    if path.exists():
        found = QueryBuilder().register("lake", DeltaTable(str(path))).execute("select _file, line from lake").read_all()
        pairs = zip(found.column(0).to_pylist(), found.column(1).to_pylist(), strict=True)
        bad = [(str(file), *next(csv.reader([line]))) for file, line in pairs]
    return Counter(r for r in good if of is None or r[0] in of), Counter(r for r in bad if of is None or r[0] in of)


def restore(project: Folder, spark: SparkSession, chance: random.Random) -> str:
    newest = DeltaTable(project.table("all").url).version()
    version = chance.randrange(1, newest + 1)
    spark.sql(f"RESTORE TABLE {project.table('all').sql_name} TO VERSION AS OF {version}").collect()
    return f"restored version {version} of {newest}"


def play(project: Folder, seed: int, steps: int, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    history = History(project, seed)
    chance = history.random
    for number in range(steps):
        history.step()
        point = chance.choice([*POINTS, None, None, None])
        mode = Mode.REFRESH if chance.random() < 0.1 else None
        if number > 3 and chance.random() < 0.1 and project.table("all").head() is not None:
            history.log.append(restore(project, spark, chance))
        project.configure(prune_files=number % 3 == 2)
        with killed_at(point, monkeypatch):
            line = project.one("all", ok=False, mode=mode, allow_empty=True)
        history.log.append(f"sync {mode} killed {point}: {line['status']}: {line['message']}")
        assert line["status"] != "failed" or point is not None, history.log
        if point is None and line["status"] != "failed" and project.table("all").head() is not None:
            here = {encode_path(name) for name in history.files}
            expected, found = history.expected(), lake(project, of=here)
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
    assert lake(project) == history.expected(), (seed, history.log)
    again = project.one("all", allow_empty=True)
    assert again["status"] == "skipped", again


def make(folder: Callable[..., Folder]) -> Folder:
    entry = {"glob": "**/*.csv*", "format": "csv", "options": {"header": True}, "columns": {"id": "bigint", "note": "string"}}
    return folder(containers={"all": entry}, settle_seconds=0)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_short_history(
    folder: Callable[..., Folder], monkeypatch: pytest.MonkeyPatch, spark_home: Path, pytestconfig: pytest.Config
) -> None:
    """Without it, a sync that breaks off between two of its steps loses a file's rows, or has them twice, for good."""
    with open_session(spark_home, name="history") as spark:
        play(make(folder), int(str(pytestconfig.getoption("--seed"))), 6, monkeypatch, spark)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_long_history(
    folder: Callable[..., Folder], monkeypatch: pytest.MonkeyPatch, spark_home: Path, pytestconfig: pytest.Config
) -> None:
    """The same, longer and with another seed."""
    with open_session(spark_home, name="history") as spark:
        play(make(folder), int(str(pytestconfig.getoption("--seed"))) + 1, int(str(pytestconfig.getoption("--steps"))), monkeypatch, spark)
