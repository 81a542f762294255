"""Which of the longer tests a commit runs: ``pytest -m "long or s3" --rotation=28``.

The files of the longer tests are put into an order that depends on the commit, and tests are begun until the time is over. The other tests
are reported as skipped. Another commit has another order, so that each file comes first now and then: where the time is enough for half of
the files, a file is left out by five commits in a row in one of 32 cases.

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
"""The environment variable with the time at which no more tests are begun, in seconds since 1970. The processes of one call of pytest share
it."""
ALWAYS = ("test_soak.py",)
"""Files that come first with each commit: their random histories differ from commit to commit."""


def commit_number(root: Path) -> str:
    """The commit's hash, or the date of today where the folder is no clone of git."""
    try:
        git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    except OSError:  # no git on this machine
        return datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return git.stdout.strip() or datetime.now(timezone.utc).strftime("%Y-%m-%d")


def order(files: Iterable[str], commit: str) -> list[str]:
    """The names of the files in the order that belongs to the commit."""
    return sorted(set(files), key=lambda name: (name not in ALWAYS, hashlib.sha256(f"{commit} {name}".encode()).digest()))


def first_seed(commit: str) -> int:
    """The number of the first random history that a commit plays. It differs from commit to commit."""
    return int(hashlib.sha256(commit.encode()).hexdigest()[:7], 16)


class Rotation:
    """The plugin behind ``--rotation``. Each process of a call of pytest computes the order by itself; the result is the same."""

    def __init__(self, commit: str, minutes: float, leads: bool) -> None:
        """``leads``: whether this is the process that was called, which sets the end of the time for the others."""
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
