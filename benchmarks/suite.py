"""Where the time of the tests goes: `python -m benchmarks.suite [--report FILE] [ARGUMENTS OF PYTEST …]`.

Belongs here: running pytest, and summing what it took by file and phase (from its `--junitxml`) and by kind of process (sampled).
`--report FILE` runs nothing, and sums an earlier report; with two of them, the second stands beside the first. Does not belong: which tests
`make test` runs.

The processor's time of a process is what it had when it was last seen, so processes that live for less than the interval count for
less than they took. Nothing else should run meanwhile: all new processes of the machine are counted.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import psutil

INTERVAL = 1.0
PHASES = ("setup", "call", "teardown")
KINDS = {
    "SparkConnectServer": "Spark servers",
    "pyspark": "Python workers of Spark",
    "postgres": "PostgreSQL",
    "mariadbd": "MariaDB",
    "sys.stdin.readline()": "the processes of pytest",  # execnet's, by which pytest-xdist starts its workers
    "pytest": "the processes of pytest",
    "incremental_assets.cli": "commands",
    "dagster": "Dagster's processes",
    "basedpyright": "static checks",
    "java": "other Java",
    "python": "other Python",
}
"""A word of a command line, and the kind of process that has it; the first word that is found counts."""


class Processor:
    """Samples the processor's time of all processes that begin after this object was made."""

    def __init__(self) -> None:
        self._before = {(p.pid, p.create_time()) for p in psutil.process_iter()}
        self._seconds: dict[tuple[int, float], tuple[str, float]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._ended.wait(INTERVAL):
            for process in psutil.process_iter():
                try:
                    key = (process.pid, process.create_time())
                    if key in self._before or process.pid == psutil.Process().pid:
                        continue
                    words, times = " ".join(process.cmdline()), process.cpu_times()
                except psutil.Error:  # it has ended meanwhile
                    continue
                kind = next((kind for word, kind in KINDS.items() if word in words), "others")
                self._seconds[key] = (kind if words else self._seconds.get(key, (kind,))[0], times.user + times.system)

    def kinds(self) -> dict[str, float]:
        """Ends the sampling. Returns the seconds of each kind of process."""
        self._ended.set()
        self._thread.join()
        found: defaultdict[str, float] = defaultdict(float)
        for kind, seconds in self._seconds.values():
            found[kind] += seconds
        return dict(sorted(found.items(), key=lambda one: -one[1]))


Times = dict[str, dict[str, float]]
"""The seconds of each phase (``PHASES``) and the number of tests (``tests``), by file."""


def times_of(report: Path) -> Times:
    """Sums a report by file. Where a report does not have the fixtures' phases, all of a test counts as ``call``."""
    found: defaultdict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys((*PHASES, "tests"), 0.0))
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.get("classname", "").removeprefix("assets_tests.").split(".Test")[0].replace(".", "/") + ".py"
        of_fixtures = {p.get("name", ""): float(p.get("value", 0)) for p in case.iter("property") if p.get("name") in ("setup", "teardown")}
        own = found[name]
        for phase, seconds in of_fixtures.items():
            own[phase] += seconds
        own["call"] += float(case.get("time", 0)) - sum(of_fixtures.values())
        own["tests"] += case.find("skipped") is None
    return dict(found)


def total(times: dict[str, float]) -> float:
    return sum(times[phase] for phase in PHASES)


def show(times: Times, before: Times | None, most: int) -> None:
    """Prints a table of Markdown: the folders, then the files that take longest."""
    folders: defaultdict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys((*PHASES, "tests"), 0.0))
    for name, own in times.items():
        for folder in (f"{name.rpartition('/')[0] or '.'}/", "all"):
            for key, value in own.items():
                folders[folder][key] += value
    earlier: defaultdict[str, float] = defaultdict(float)
    for name, own in (before or {}).items():
        for place in (name, f"{name.rpartition('/')[0] or '.'}/", "all"):
            earlier[place] += total(own)
    titles = ["file", "tests", *PHASES, "seconds", *(["before"] if before else [])]
    print(f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}")
    files = sorted(times.items(), key=lambda one: -total(one[1]))[:most]
    for name, own in (*sorted(folders.items(), key=lambda one: -total(one[1])), *files):
        numbers = [f"{own['tests']:.0f}", *(f"{own[phase]:.0f}" for phase in PHASES), f"{total(own):.0f}"]
        print(f"| {' | '.join([name, *numbers, *([f'{earlier[name]:.0f}'] if before else [])])} |")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite", description=__doc__)
    parser.add_argument("--report", type=Path, action="append", default=[], help="an earlier report; twice: the first one is the earlier")
    parser.add_argument("--most", type=int, default=25, help="how many files are shown")
    asked, arguments = parser.parse_known_args()
    if asked.report:
        show(times_of(asked.report[-1]), times_of(asked.report[0]) if len(asked.report) > 1 else None, asked.most)
        return 0
    with tempfile.TemporaryDirectory() as work:
        report = Path(work) / "report.xml"
        started, processor = time.monotonic(), Processor()
        code = subprocess.run([sys.executable, "-m", "pytest", *arguments, f"--junitxml={report}"], check=False).returncode
        seconds, kinds = time.monotonic() - started, processor.kinds()
        show(times_of(report), None, asked.most)
    print(f"\n{seconds:.0f} s by the clock. The processor's seconds, by kind of process:")
    for kind, used in kinds.items():
        print(f"  {used:6.0f}  {kind}")
    return code


if __name__ == "__main__":
    sys.exit(main())
