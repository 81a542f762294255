"""The landing folder: the files that tills and a web server put there in a day, and whether the lake has all of their rows.

The comparison reads the files independently of the product, with Python's own csv and json.
"""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from deltalake import QueryBuilder

from incremental_assets.delta.table import LakeTable
from incremental_assets.demo.business_day import Change

_ORDERS = "SELECT o_orderkey, o_custkey, o_totalprice, o_orderdate, o_comment FROM orders WHERE o_orderdate = %s ORDER BY 1"


@dataclass(frozen=True)
class Landed:
    """The comparison of one container of files.

    ``files`` and ``rows`` count what is in the folder, ``in_lake`` the rows in the lake, and ``rejected`` those that were rejected.
    ``differing`` is the number of rows that are only in the folder or only in the lake.
    """

    container: str
    files: int
    rows: int
    in_lake: int
    rejected: int
    differing: int

    @property
    def equal(self) -> bool:
        """Whether each row of the folder is either in the lake or rejected."""
        return self.differing == 0 and self.rows == self.in_lake + self.rejected


class Tills:
    """The programs that write to the folder. Each method is a step, to be called once and in the order of their definition.

    ``url`` is the demo's database, whose first six days of orders become files. The folder is emptied first.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with psycopg.connect(url) as connection:
            self._days = [row[0] for row in connection.execute("SELECT DISTINCT o_orderdate FROM orders ORDER BY 1 LIMIT 6")]
            self._orders = {day: connection.execute(_ORDERS, [day]).fetchall() for day in self._days}

    def night(self) -> list[Change]:
        """Write the files that are there before the first catalog."""
        return [*(self._orders_of(day) for day in self._days[:3]), self._clicks(1, 400)]

    def day(self) -> list[Change]:
        """Write while the sensor runs: new files, one of them slowly, a changed one, and one with an invalid line."""
        first = self._path(self._days[0])
        lines = first.read_text(encoding="utf-8").splitlines(keepends=True)
        first.write_text("".join(lines[:-1]), encoding="utf-8")
        found = [Change(first.name, "was put there again, without its last line", 0), self._orders_of(self._days[3])]
        slow = self._path(self._days[4])
        rows = self._orders[self._days[4]]
        for start in range(0, len(rows), max(1, len(rows) // 3)):
            self._write(slow, rows[start : start + max(1, len(rows) // 3)], append=start > 0)
            time.sleep(1)
        found.append(Change(slow.name, "new, written in pieces", len(rows)))
        wrong = self._path(self._days[5])
        self._write(wrong, self._orders[self._days[5]])
        with wrong.open("a", encoding="utf-8") as file:
            file.write("none,1,free,1992-01-01,this line is no good\n")
        found.append(Change(wrong.name, "new, with a line that is no good", len(self._orders[self._days[5]]) + 1))
        return [*found, self._clicks(2, 300)]

    # ------------------------------------------------------------------
    def _orders_of(self, day: Any) -> Change:
        self._write(self._path(day), self._orders[day])
        return Change(self._path(day).name, "new", len(self._orders[day]))

    def _clicks(self, number: int, rows: int) -> Change:
        path = self.folder / "web" / f"clicks_{number}.jsonl.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt", encoding="utf-8") as file:
            for row in range(rows):
                file.write(json.dumps({"session": f"{number}-{row % 40}", "page": f"/part/{row % 7}", "ms": row * 3 % 911}) + "\n")
        return Change(path.name, "new", rows)

    def _path(self, day: Any) -> Path:
        return self.folder / "sales" / f"{day:%Y-%m}" / f"orders_{day}.csv"

    def _write(self, path: Path, rows: list[Any], append: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if append else "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if not append:
                writer.writerow(["o_orderkey", "o_custkey", "o_totalprice", "o_orderdate", "o_comment"])
            writer.writerows(rows)


def landed(folder: Path, lake: Path) -> list[Landed]:
    """Compare the landing folder with the lake, row by row."""
    sales = (row for path in folder.glob("sales/**/orders_*.csv") for row in _csv_rows(path))
    clicks = (row for path in folder.glob("web/clicks_*.jsonl.gz") for row in _json_rows(path))
    return [
        _landed("sales", lake, Counter(sales), len(list(folder.glob("sales/**/orders_*.csv")))),
        _landed("clicks", lake, Counter(clicks), len(list(folder.glob("web/clicks_*.jsonl.gz")))),
    ]


def _landed(name: str, lake: Path, folder: Counter[tuple[str, ...]], files: int) -> Landed:
    columns = {"sales": ("o_orderkey", "o_custkey", "o_totalprice", "o_orderdate", "o_comment"), "clicks": ("session", "page", "ms")}[name]
    in_lake = Counter(tuple(str(row[c]) for c in columns) for row in _lake_rows(lake / name))
    # Rejected rows are kept as lines of the file, so they are parsed like the file.
    rejected = Counter(tuple(next(csv.reader([row["line"]]))) for row in _lake_rows(lake / "_rejected" / name))
    both = in_lake + rejected
    differing = ((folder - both) + (both - folder)).total()
    return Landed(name, files, folder.total(), in_lake.total(), rejected.total(), differing)


def _lake_rows(path: Path) -> list[dict[str, Any]]:
    table = LakeTable(str(path)).opened()
    if table is None:
        return []
    return pa.table(QueryBuilder().register("lake", table).execute("SELECT * FROM lake").read_all()).to_pylist()


def _csv_rows(path: Path) -> Iterator[tuple[str, ...]]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from (tuple(row) for row in list(csv.reader(file))[1:])


def _json_rows(path: Path) -> Iterator[tuple[str, ...]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            yield str(row["session"]), str(row["page"]), str(row["ms"])
