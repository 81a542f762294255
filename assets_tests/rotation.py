"""Which of the longer tests a commit runs: ``pytest -m "long or s3" --rotation=28``.

The files of the longer tests are put into an order that depends on the commit, and tests are begun until the time is over; what was
left out is skipped and said so. Another commit has another order, so that each file comes first now and then: where half of the files can
be run, one in 32 cases is left out by five commits in a row.

Belongs here: the order, and the time. Does not belong: which tests are long (their mark).
"""

import hashlib
import os
import subprocess
import time
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

import pytest

UNTIL = "INCREMENTAL_ASSETS_TESTS_UNTIL"
"""Seconds since 1970; an environment variable, so that the processes of one call of pytest go by one clock."""
ALWAYS = ("test_soak.py",)
"""Comes first whatever the commit is: its histories are other ones each time."""


def commit_number(root: Path) -> str:
    """The commit's hash; where this is no clone of git, the day."""
    try:
        said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    except OSError:  # no git on this machine
        return datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return said.stdout.strip() or datetime.now(timezone.utc).strftime("%Y-%m-%d")


def order(files: Iterable[str], commit: str) -> list[str]:
    """The files in the commit's order."""
    return sorted(set(files), key=lambda name: (name not in ALWAYS, hashlib.sha256(f"{commit} {name}".encode()).digest()))


def first_seed(commit: str) -> int:
    """The number of the first random history that a commit plays: another one for each commit."""
    return int(hashlib.sha256(commit.encode()).hexdigest()[:7], 16)


class Rotation:
    """The plugin behind ``--rotation``. Two processes beside each other make the same order, each by itself."""

    def __init__(self, commit: str, minutes: float, leads: bool) -> None:
        """``leads``: it is the process that was called, and sets the clock for the others."""
        self._commit, self._minutes = commit, minutes
        if leads:
            os.environ[UNTIL] = str(time.time() + minutes * 60)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        place = {name: number for number, name in enumerate(order((item.path.name for item in items), self._commit))}
        items.sort(key=lambda item: place[item.path.name])  # within a file they stay as they are

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if time.time() > float(os.environ[UNTIL]):
            pytest.skip(f"{item.path.name}: left out, the {self._minutes:.0f} minutes are over; another commit begins with other files")
