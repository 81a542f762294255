"""The quick benchmarks: what a run compares its figures with, what it marks, and that a step that fails is seen.

Belongs here: running steps, storing and comparing. Does not belong: the benchmarks themselves, which pass and fail nothing.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from benchmarks import quick, yardstick
from benchmarks.figures import FILE, Figure, read, report
from benchmarks.quick import Outcome, Run, Step, compare, last_run, run_all, run_step, store, table_of


def _run(yardstick_s: float, *figures: Figure, failure: str = "") -> Run:
    return Run(yardstick_s, (Outcome("python -m benchmarks", 1.0, figures, failure),))


def test_a_figure_is_printed_and_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A figure that is only printed would be compared with nothing."""
    path = tmp_path / "figures"
    report("before", Figure("a load", 3.0))
    assert read(path) == []
    monkeypatch.setenv(FILE, str(path))
    load, ratio = Figure("a load", 1.5, target=2.0), Figure("a load, of dlt's time", 0.5, "×", note="dlt: 3 s")
    report("a load takes 1.5 s", load, ratio)
    report("another line without a figure")
    report("", another := Figure("an upsert", 12.0, "ms"))
    assert read(path) == [load, ratio, another]
    assert capsys.readouterr().out.startswith("before\na load takes 1.5 s\nanother line")


def test_what_is_slower_is_marked_whatever_the_machine() -> None:
    """A machine that is slower in everything must not hide, nor feign, what has become slower by itself."""
    last = _run(1.0, Figure("load", 10.0), Figure("upsert", 10.0), Figure("ratio", 1.0, "×"), Figure("difference", -0.1))
    now = _run(2.0, Figure("load", 25.0), Figure("upsert", 31.0), Figure("ratio", 1.6, "×"), Figure("difference", 0.2), Figure("new", 1.0))
    load, upsert, ratio, difference, new = compare(now, last)
    assert (load.ratio, load.equal_ratio, load.slower) == (2.5, 1.25, False)
    assert (upsert.ratio, upsert.equal_ratio, upsert.slower) == (3.1, 1.55, True)
    assert (ratio.equal_ratio, ratio.slower) == (1.6, True)  # a ratio of two times does not depend on the machine
    assert (difference.last, difference.ratio, difference.slower) == (-0.1, None, False)
    assert (new.last, new.ratio, new.slower) == (None, None, False)
    console = Console(width=150, record=True)
    console.print(table_of([load, upsert], ""))
    lines = console.export_text().splitlines()
    assert [line.split()[1] for line in lines if "SLOWER" in line] == ["upsert"]


def test_a_figure_that_misses_its_target_is_marked() -> None:
    """The first run has no other to be compared with, and has targets all the same."""
    reached, missed = compare(_run(1.0, Figure("load", 10.0, target=10.0), Figure("upsert", 10.1, target=10.0)), None)
    assert (reached.missed, missed.missed) == (False, True)
    assert (missed.last, missed.ratio) == (None, None)


def test_figures_of_other_sizes_are_not_compared() -> None:
    """A step with other arguments measures something else under the same names."""
    one, other = (Run(1.0, (Outcome(Step("benchmarks", ("--scale", size)).command, 1.0, (Figure("load", 1.0),)),)) for size in "12")
    assert [c.last for c in compare(one, other)] == [None]
    assert [c.last for c in compare(one, one)] == [1.0]


def test_a_run_is_compared_with_the_last_whole_one(tmp_path: Path) -> None:
    """A run that has lost a step would otherwise keep the next one from being compared."""
    assert last_run(tmp_path) is None
    whole, broken = _run(1.0, Figure("load", 10.0, "s", 12.0, "of 6 rows")), _run(1.0, failure="exit code 1")
    store(tmp_path, whole).rename(tmp_path / f"2026-01-01-0000{quick.SUFFIX}")
    store(tmp_path, broken).rename(tmp_path / f"2026-01-02-0000{quick.SUFFIX}")
    assert last_run(tmp_path) == (f"2026-01-01-0000{quick.SUFFIX}", whole)


@pytest.mark.long
def test_a_step_that_fails_is_seen_and_the_others_are_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has measured nothing must not look like what has become no slower."""
    (tmp_path / "breaks.py").write_text(
        "from benchmarks.figures import Figure, report\nreport('one', Figure('one', 1))\nraise SystemExit(3)\n"
    )
    (tmp_path / "works.py").write_text("from benchmarks.figures import Figure, report\nreport('two', Figure('two', 2))\n")
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{quick.RESULTS.parent.parent}")
    monkeypatch.setattr(quick, "yardstick", lambda: 1.0)
    run = run_all([Step("breaks"), Step("works")], Console(quiet=True))
    assert [(step.failure, [f.name for f in step.figures]) for step in run.steps] == [("exit code 3", ["one"]), ("", ["two"])]
    assert not run.whole
    hung = run_step(Step("hangs"), limit=1.0)
    assert (hung.failure, hung.figures) == ("interrupted after 1 s", ())
    monkeypatch.setattr(quick, "RESULTS", tmp_path)
    monkeypatch.setattr(quick, "STEPS", (Step("breaks"),))
    monkeypatch.setattr(sys, "argv", ["quick"])
    assert quick.main() == 1
    monkeypatch.setattr(quick, "STEPS", (Step("works"),))
    assert quick.main() == 0


@pytest.mark.long
def test_a_run_that_is_told_to_end_ends_its_step(tmp_path: Path) -> None:
    """A benchmark that goes on alone would keep its servers running, and disturb the next measurement."""
    (tmp_path / "waits.py").write_text(
        "import pathlib, time\ntry:\n    pathlib.Path('begun').touch()\n    time.sleep(600)\nfinally:\n    pathlib.Path('ended').touch()\n"
    )
    (tmp_path / "run.py").write_text(
        "from benchmarks import quick\nquick.STEPS = (quick.Step('waits'),)\nquick.yardstick = lambda: 1.0\nquick.main()\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{quick.RESULTS.parent.parent}"}
    process = subprocess.Popen([sys.executable, "run.py"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    assert (tmp_path / "ended").exists()


def test_the_yardstick_is_the_median_of_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that something else has disturbed would make the machine seem slow, and what has become slower as fast as before."""
    clock = iter([0.0, 3.0, 10.0, 110.0, 200.0, 202.0])
    monkeypatch.setattr(yardstick, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert yardstick.yardstick() == 3.0  # the work is real, and checks itself
    assert list(clock) == []
