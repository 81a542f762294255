"""Which of the longer tests a commit runs, tried with a real pytest on a small folder of tests.

Belongs here: order and time of ``--rotation``. Does not belong: the longer tests.
"""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from assets_tests.rotation import commit_number, first_seed, order
from assets_tests.soak import ROOT

FILES = [f"test_{number}.py" for number in range(20)]


def test_each_file_is_among_the_first_of_some_commit_soon() -> None:
    """Nobody would notice that a test fails if no commit ran it."""
    late = {name: 0 for name in FILES}
    for commit in range(200):
        ordered = order(FILES, str(commit))
        assert sorted(ordered) == sorted(FILES) and ordered == order(reversed(FILES), str(commit))
        late = {name: 0 if name in ordered[:10] else late[name] + 1 for name in FILES}
        assert max(late.values()) <= 14, late
    assert order([*FILES, "test_soak.py"], "any")[0] == "test_soak.py"
    assert len({first_seed(str(commit)) for commit in range(200)}) > 190


def test_outside_of_a_clone_the_order_depends_on_the_date(tmp_path: Path) -> None:
    assert len(commit_number(tmp_path)) == len("2026-01-01")
    assert len(commit_number(ROOT)) in (40, len("2026-01-01"))


@pytest.mark.long
@pytest.mark.parametrize("minutes", [60, -1])
@pytest.mark.parametrize("beside", [["--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder"], []], ids=["beside", "alone"])
def test_tests_run_in_the_commits_order_and_what_is_left_out_is_named(tmp_path: Path, minutes: int, beside: list[str]) -> None:
    """A session that reaches its machine's time limit reports nothing, so it must end earlier, and name the tests that it leaves out."""
    (tmp_path / "conftest.py").write_text(
        "from assets_tests.rotation import Rotation\n"
        "def pytest_configure(config):\n"
        f"    config.pluginmanager.register(Rotation('abc', {minutes}, not hasattr(config, 'workerinput')))\n"
    )
    names = [f"test_{number}.py" for number in range(4)]
    for name in names:
        (tmp_path / name).write_text("def test_b(): pass\ndef test_a(): assert True\n")
    command = [sys.executable, "-m", "pytest", "-v", "-rs", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path), *beside]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    if minutes < 0:
        assert "8 skipped" in done.stdout.splitlines()[-1]
        assert all(f"{name}: left out, the" in done.stdout for name in names), done.stdout
    else:
        assert "8 passed" in done.stdout.splitlines()[-1]
    if not beside:
        begun = [line.split("::")[0].rpartition("/")[2] for line in done.stdout.splitlines() if "::test_b" in line and "%]" in line]
        assert begun == order(names, "abc")


@pytest.mark.long
def test_the_arguments_of_the_makefile_are_understood() -> None:
    """Pytest reads our options only once it has found the folder of the tests: it took the ``5`` of ``--minutes 5`` for a folder."""
    make = subprocess.run(["make", "--dry-run", "test-all", "ROTATION=--rotation=5"], cwd=ROOT, capture_output=True, text=True, check=True)
    (command,) = [line for line in make.stdout.splitlines() if "-m pytest" in line]
    done = subprocess.run(
        [*shlex.split(command), "--collect-only", "-q"], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_soak.py" in done.stdout
