"""The figures of the benchmarks: each is reported by one function, for people on stdout and for other programs in a file.

Belongs here: what a figure is, and how it is written and read. Does not belong: measuring (the benchmarks do), or comparing figures with
those of an earlier run (`quick`).
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "BENCH_FIGURES"
"""The environment variable that names the file to which figures are appended. Without it they are only printed."""


@dataclass(frozen=True)
class Figure:
    """One measured number. Of all figures, less is better.

    ``name``: what was measured; unique within a run of its benchmark. ``unit``: `s` and `ms` are times, which depend on the machine; `×` is
    a ratio of two times of one run. ``target``: what the value may be at most; None where nothing is demanded. ``note``: what else a reader
    has to know.
    """

    name: str
    value: float
    unit: str = "s"
    target: float | None = None
    note: str = ""


def report(line: str, *figures: Figure) -> None:
    """Prints the line, and appends the figures that it is about to the file that ``BENCH_FIGURES`` names, one JSON object a line."""
    print(line, flush=True)
    if path := os.environ.get(FILE):
        with Path(path).open("a", encoding="utf-8") as file:
            for figure in figures:
                file.write(json.dumps({**asdict(figure), "value": round(figure.value, 4)}, ensure_ascii=False) + "\n")


def read(path: Path) -> list[Figure]:
    """The figures that were appended to the file, in their order; none where there is no such file."""
    if not path.exists():
        return []
    return [Figure(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
