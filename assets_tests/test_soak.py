"""The command that plays many random histories: which seeds it chooses, and what it records.

Belongs here: choosing and recording seeds, and a call of the command. Does not belong: the histories (``test_property``).
"""

import datetime
import subprocess
import sys
from pathlib import Path

import pytest

from assets_tests.core.test_watermark_rule import Rule, wrong_histories
from assets_tests.rotation import commit_number, first_seed
from assets_tests.soak import ROOT, Ledger, Played, record, soak


def test_seeds_that_were_played_are_not_played_again(tmp_path: Path) -> None:
    """After a stop, the command must not play the same histories again, nor leave out a seed that found something."""
    ledger = Ledger(tmp_path)
    assert ledger.to_play(10, 3) == [10, 11, 12]
    ledger.add(Played(10, "abc", 3.0), "")
    ledger.add(Played(12, "abc", 3.0, "AssertionError: lost"), "what it did")
    assert (tmp_path / "seed-12.txt").read_text() == "what it did"
    assert Ledger(tmp_path).to_play(10, 4) == [12, 11, 13]
    ledger.add(Played(12, "abd", 2.0), "")  # it finds nothing any more
    assert Ledger(tmp_path).to_play(10, 4) == [11, 13]


def test_each_call_is_recorded_on_the_page_with_what_it_found(tmp_path: Path) -> None:
    """Without the page, nobody knows which seeds were played, and which of them found something."""
    page, now = tmp_path / "soak.md", datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.timezone.utc)
    record(page, [Played(7, "abc", 1.0), Played(9, "abc", 2.0)], now)
    record(page, [Played(3, "abd", 4.0, "AssertionError: a | b")], now)
    rows = [line for line in page.read_text().splitlines() if line.startswith("| 2026")]
    assert rows == [
        "| 2026-01-02 03:04 | abc | 7 to 9 | 2 | 1.5 | nothing |",
        "| 2026-01-02 03:04 | abd | 3 to 3 | 1 | 4.0 | seed 3: AssertionError: a \\| b |",
    ]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_ten_thousand_histories_of_the_rule() -> None:
    """Plays the planning half alone, with other histories for each commit, as more histories find rarer faults."""
    first = first_seed(commit_number(ROOT))
    assert next(wrong_histories(Rule(), first, 10_000), None) is None, f"test_watermark_rule.py --seed {first} --histories 10000"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_four_minutes_of_histories_of_the_whole_path(tmp_path: Path) -> None:
    """Plays other histories for each commit. ``python -m assets_tests.soak --seed N --histories 1`` plays one of them again."""
    first = first_seed(commit_number(ROOT)) // 4 * 4
    ran = soak(Ledger(tmp_path), list(range(first, first + 1000)), 4, "")
    wrong = [(tmp_path / f"seed-{one.seed}.txt").read_text() for one in ran if one.found]
    assert ran and not wrong, "\n\n".join(wrong)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_command_plays_tables_and_files(tmp_path: Path) -> None:
    """The command itself must run, and play histories of both kinds."""
    page = tmp_path / "soak.md"
    where = ["--ledger", str(tmp_path), "--docs", str(page)]
    command = [sys.executable, "-m", "assets_tests.soak", "--seed", "2", "--histories", "2", *where]  # seed 3 plays files
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| 2 to 3 | 2 |" in page.read_text() and page.read_text().rstrip().endswith("| nothing |")
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert again.returncode == 0 and "were played and found nothing" in again.stdout, again.stdout + again.stderr
