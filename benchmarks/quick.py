"""What users wait for, measured at a small size and compared with the last such run: `make bench-quick`, in some ten minutes.

Belongs here: which benchmarks are run at which sizes, the comparison, and the file that is stored. Does not belong: measuring (the
benchmarks do, each in a process of its own), or what a figure is (`figures`). `python -m benchmarks.quick --only STEP …` runs some steps.

Machines differ, and so does one machine at different hours. Therefore a fixed piece of work is timed before each step, the yardstick, and
times are also compared as they would be if the yardstick had taken as long as in the last run. The figures of a step are compared with
those of a run that called it with the same arguments.
"""

import argparse
import datetime
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.figures import FILE, Figure, read
from benchmarks.measure import facts
from benchmarks.yardstick import yardstick

RESULTS = Path(__file__).parent / "results"
SUFFIX = "-quick.json"
SLOWER = 1.5
"""How many times as long as in the last run something may take before it is marked."""
LIMIT_SECONDS, END_SECONDS = 1200, 60
"""The seconds after which a step is interrupted, and those that it is given to end what it has started."""
TIMES = ("s", "ms")
"""The units of figures that depend on the machine."""


@dataclass(frozen=True)
class Step:
    """One benchmark: its module, and its arguments."""

    module: str
    arguments: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """What one types to run it alone."""
        return " ".join(("python -m", self.module, *self.arguments))


STEPS = (
    Step("benchmarks", ("--scale", "0.1", "--rounds", "1", "--no-store", "--folder", ".bench/quick")),
    Step("benchmarks.ticks", ("--containers", "1000", "--rounds", "2")),
    Step("benchmarks.containers", ("--containers", "20", "--changed", "2", "--rounds", "1")),
    Step("benchmarks.loading", ("--tables", "1000", "--rounds", "1")),
    Step("benchmarks.partitions", ("1000",)),
    Step("benchmarks.quality", ("100000", "--rounds", "2", "--commands", "0")),
    Step("benchmarks.reading_files", ("--megabytes", "100", "--files", "500", "--folder", ".bench/quick/files")),
)


@dataclass(frozen=True)
class Outcome:
    """What came of one step.

    ``failure``: why it did not run to its end, with the figures that it had reported until then; mostly empty. ``yardstick_s``,
    ``load_average``: the yardstick just before the step, and how busy the machine was in its last minute, which the step itself is part of.
    """

    command: str
    seconds: float
    figures: tuple[Figure, ...]
    failure: str = ""
    yardstick_s: float = 0.0
    load_average: float = 0.0


@dataclass(frozen=True)
class Run:
    """The outcomes of the steps of one run, and the seconds of its yardstick: the median of those before each step."""

    yardstick_s: float
    steps: tuple[Outcome, ...]

    @property
    def whole(self) -> bool:
        """Whether no step has failed."""
        return not any(step.failure for step in self.steps)


# ---------------------------------------------------------------------- running the steps
def run_step(step: Step, limit: float = LIMIT_SECONDS) -> Outcome:
    """Runs one benchmark, whose output is shown as it comes, and returns its outcome."""
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "figures.jsonl"
        started = time.monotonic()
        process = subprocess.Popen([sys.executable, "-m", step.module, *step.arguments], env={**os.environ, FILE: str(path)})
        try:
            failure = f"exit code {code}" if (code := process.wait(limit)) else ""
        except subprocess.TimeoutExpired:
            failure = f"interrupted after {limit:g} s"
            end(process)
        except BaseException:
            end(process)
            raise
        return Outcome(step.command, round(time.monotonic() - started, 1), tuple(read(path)), failure)


def end(process: subprocess.Popen[bytes]) -> None:
    """Interrupts a benchmark, so that it stops its servers; kills it where it does not end by that."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run_all(steps: Sequence[Step], console: Console) -> Run:
    """Runs the steps one after another, also after one has failed, and measures the yardstick before each."""
    outcomes: list[Outcome] = []
    for step in steps:
        before = round(yardstick(), 4)
        console.rule(f"{step.command} (yardstick {before:.2f} s)", align="left")
        one = replace(run_step(step), yardstick_s=before, load_average=round(os.getloadavg()[0], 2))
        console.print(f"{one.seconds:.0f} s, load average {one.load_average:.1f} {one.failure}")
        outcomes.append(one)
    return Run(statistics.median(one.yardstick_s for one in outcomes), tuple(outcomes))


# ---------------------------------------------------------------------- what is stored
def store(folder: Path, run: Run) -> Path:
    """Stores the run, with facts about the machine, as a JSON file of the folder. Returns the file's path."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d-%H%M}{SUFFIX}"
    path.write_text(json.dumps({**facts(), **asdict(run)}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def load(path: Path) -> Run:
    """The run that a file has."""
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    steps = (Outcome(**{**step, "figures": tuple(Figure(**figure) for figure in step["figures"])}) for step in stored["steps"])
    return Run(stored["yardstick_s"], tuple(steps))


def last_run(folder: Path) -> tuple[str, Run] | None:
    """The name of the newest file with a run in which no step has failed, and that run; None where there is none."""
    runs = ((path.name, load(path)) for path in sorted(folder.glob(f"*{SUFFIX}"), reverse=True))
    return next((one for one in runs if one[1].whole), None)


# ---------------------------------------------------------------------- comparing
@dataclass(frozen=True)
class Comparison:
    """One figure beside that of the last run, if that has one.

    ``ratio``: now / last, as measured. ``equal_ratio``: what it would be if the yardstick had taken as long as then.
    """

    figure: Figure
    last: float | None = None
    ratio: float | None = None
    equal_ratio: float | None = None

    @property
    def slower(self) -> bool:
        """Whether it is to be marked."""
        return self.equal_ratio is not None and self.equal_ratio > SLOWER

    @property
    def missed(self) -> bool:
        """Whether the figure has a target and does not reach it."""
        return self.figure.target is not None and self.figure.value > self.figure.target


def compare(now: Run, last: Run | None) -> list[Comparison]:
    """Each figure of the run beside that of the last one."""
    earlier: Mapping[tuple[str, str], float] = (
        {} if last is None else {(step.command, figure.name): figure.value for step in last.steps for figure in step.figures}
    )
    machine = 1.0 if last is None else now.yardstick_s / last.yardstick_s
    found: list[Comparison] = []
    for step in now.steps:
        for figure in step.figures:
            one = Comparison(figure, earlier.get((step.command, figure.name)))
            # The difference of two times, which some figures are, may come out as nothing or less. It has no ratio.
            if one.last is not None and one.last > 0:
                ratio = figure.value / one.last
                one = replace(one, ratio=ratio, equal_ratio=ratio / machine if figure.unit in TIMES else ratio)
            found.append(one)
    return found


def table_of(compared: Sequence[Comparison], title: str) -> Table:
    """The table that is shown."""
    table = Table(title=title, title_justify="left")
    for name in ("figure", "now", "last", "now/last", "by the yardstick", "to reach"):
        table.add_column(name, justify="left" if name == "figure" else "right")

    def shown(value: float | None, figure: Figure) -> str:
        return "" if value is None else f"{value:,.0f} {figure.unit}" if abs(value) >= 100 else f"{value:.3g} {figure.unit}"

    for one in compared:
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
        equal = "" if one.equal_ratio is None else f"{one.equal_ratio:.2f}" + (" SLOWER" if one.slower else "")
        target = "" if one.figure.target is None else f"≤ {shown(one.figure.target, one.figure)}" + (", missed" if one.missed else "")
        style = "bold red" if one.slower else "yellow" if one.missed else None
        table.add_row(one.figure.name, shown(one.figure.value, one.figure), shown(one.last, one.figure), ratio, equal, target, style=style)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick", description=__doc__)
    names = [step.module for step in STEPS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="STEP", help=f"nothing is stored then; of {', '.join(names)}")
    asked = parser.parse_args()
    # Without it, a benchmark would go on, or leave its servers running, when this process is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console = Console(width=150)
    started = time.monotonic()
    last = last_run(RESULTS)
    run = run_all([step for step in STEPS if asked.only is None or step.module in asked.only], console)
    against = "there is no earlier run" if last is None else f"the last run is {last[0]}, with a yardstick of {last[1].yardstick_s:.2f} s"
    title = f"yardstick {run.yardstick_s:.2f} s; {against}"
    compared = compare(run, last[1] if last else None)
    console.print(table_of(compared, title))
    slower = [one.figure.name for one in compared if one.slower]
    console.print(f"{len(compared)} figures in {time.monotonic() - started:.0f} s, {len(slower)} of them more than {SLOWER:g} × slower")
    for step in run.steps:
        if step.failure:
            console.print(f"FAILED: {step.command}: {step.failure}", style="bold red")
    if asked.only is None:
        console.print(f"kept in {store(RESULTS, run)}")
    return 0 if run.whole else 1


if __name__ == "__main__":
    sys.exit(main())
