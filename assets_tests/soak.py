"""Many short random histories of the whole path, one after another, for as long as the time goes: ``python -m assets_tests.soak --seed 0``.

A history is that of ``test_property`` (a table) or, each fourth, that of ``test_files_property`` (a folder), with one container and few
steps: a fresh database or folder and a fresh ``DAGSTER_HOME``, real syncs, and syncs that die at one of their stages. They share one
PostgreSQL server, one Spark server and this process, so that a history costs seconds.

The seeds that were played are stored in ``.soak/seeds.jsonl``, so that the command goes on where it stopped. Seeds that found something are
played again first, until they find nothing. What was played and found is appended to ``docs/soak.md``. The exit code is 1 where a history
found something.

Belongs here: choosing, running and recording histories. Does not belong: what a history does, and what has to hold after it.
"""

import argparse
import datetime
import json
import logging
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from assets_tests.databases import test_property as of_tables
from assets_tests.files import test_files_property as of_files
from assets_tests.harness import Folder, small_spark
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.spark.session import SparkSession, open_session, stop_server

ROOT = Path(__file__).resolve().parent.parent
STEPS = 12
STEPS_OF_FILES = 3
MOST_IN_A_ROW = 10
HEADER = """# Random histories of the whole path

Each row is one call of `python -m assets_tests.soak`, which appends it. A history has a fresh container, random steps of its source and of
its lake, real syncs that are killed at random stages, and a comparison of lake and source at its end. A seed that found something is named
in the last column, and `--seed N --histories 1` plays it again.

| when (UTC) | commit | seeds | histories | seconds a history | found |
| --- | --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Played:
    """One history. ``found``: what was wrong, in a line, or an empty text where nothing was wrong."""

    seed: int
    commit: str
    seconds: float
    found: str = ""


class Found(Exception):
    """Raised where a history found something wrong. Its message lists what the history did until then."""


class Ledger:
    """The seeds that were played, in a file with one JSON object for each line. Where a seed was played twice, the last line counts."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._file = folder, folder / "seeds.jsonl"

    def played(self) -> dict[int, Played]:
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        return {one["seed"]: Played(**one) for one in map(json.loads, lines)}

    def add(self, one: Played, steps: str) -> None:
        """Stores that a seed was played. ``steps``: what its history did, which is stored where it found something."""
        if one.found:
            (self.folder / f"seed-{one.seed}.txt").write_text(steps)
        with self._file.open("a") as file:
            file.write(json.dumps(asdict(one)) + "\n")

    def to_play(self, first: int, histories: int) -> list[int]:
        """The seeds from ``first`` on that were not played yet, after those that found something."""
        before = self.played()
        wanted = range(first, first + histories)
        return [s for s in wanted if s in before and before[s].found] + [s for s in wanted if s not in before]


class Player:
    """Plays histories with what they share: the servers, and one Spark session."""

    def __init__(self, folder: Path, postgres: EmbeddedPostgres, spark_home: Path, spark: SparkSession) -> None:
        self._folder, self._postgres, self._spark_home, self._spark = folder, postgres, spark_home, spark

    def play(self, seed: int) -> None:
        """Plays the history of a seed. Raises what the history raises."""
        folder = self._folder / str(seed)
        try:
            with pytest.MonkeyPatch.context() as patch:
                for name in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT"):
                    patch.delenv(name, raising=False)
                (self._files if seed % 4 == 3 else self._table)(seed, folder, patch)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _table(self, seed: int, folder: Path, patch: pytest.MonkeyPatch) -> None:
        url = self._postgres.create_database("soak", drop=True)
        history = of_tables.History(seed, STEPS, url, folder, self._spark_home, self._spark, short=True)
        try:
            of_tables.watch(history, patch)
            history.play()
        except Exception as error:
            raise Found("\n".join(history.log)) from error
        finally:
            history.close()

    def _files(self, seed: int, folder: Path, patch: pytest.MonkeyPatch) -> None:
        made = of_files.make(lambda **attributes: Folder(folder, self._spark_home, **attributes))
        of_files.play(made, seed, STEPS_OF_FILES, patch, self._spark)


@contextmanager
def players() -> Iterator[Player]:
    small_spark()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    spark_home = folder / "spark"
    spark_home.mkdir()
    postgres = EmbeddedPostgres(folder / "postgres")
    try:
        postgres.start()
        with open_session(spark_home, name="soak") as spark:
            yield Player(folder, postgres, spark_home, spark)
    finally:
        stop_server(spark_home)
        postgres.stop(immediate=True)
        shutil.rmtree(folder, ignore_errors=True)


def commit() -> str:
    """The commit under test, with the suffix ``-dirty`` where the checkout differs from it."""
    git = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=9"], cwd=ROOT, capture_output=True, text=True, check=False)
    return git.stdout.strip() or "unknown"


def record(table: Path, ran: list[Played], now: datetime.datetime) -> None:
    """Appends what was played to the page in ``docs``."""
    if not table.exists():
        table.write_text(HEADER)
    found = [f"seed {one.seed}: {one.found}".replace("|", "\\|") for one in ran if one.found]
    seeds, seconds = [one.seed for one in ran], sum(one.seconds for one in ran) / len(ran)
    cells = [
        f"{now:%Y-%m-%d %H:%M}",
        ran[0].commit,
        f"{min(seeds)} to {max(seeds)}",
        str(len(ran)),
        f"{seconds:.1f}",
        "; ".join(found) or "nothing",
    ]
    with table.open("a") as file:
        file.write(f"| {' | '.join(cells)} |\n")


def soak(ledger: Ledger, seeds: list[int], minutes: float, version: str) -> list[Played]:
    """Plays the seeds one after another until the time is over or somebody presses Ctrl-C."""
    ran: list[Played] = []
    ends = time.monotonic() + minutes * 60
    with players() as player:
        try:
            for number, seed in enumerate(seeds, 1):
                if time.monotonic() > ends:
                    break
                began, found, steps = time.monotonic(), "", ""
                try:
                    player.play(seed)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 the ledger records it
                    reason = error.__cause__ if isinstance(error, Found) else error
                    found = " ".join(f"{type(reason).__name__}: {reason}".split())[:200]
                    raised = "".join(traceback.format_exception(reason))
                    steps = f"seed {seed}: {found}\n\n{raised}\n{error if isinstance(error, Found) else ''}"
                one = Played(seed, version, round(time.monotonic() - began, 1), found)
                ledger.add(one, steps)
                ran.append(one)
                print(f"{number}/{len(seeds)}: seed {seed}, {one.seconds} s: {found or 'as promised'}", flush=True)
                if len(ran) >= MOST_IN_A_ROW and all(last.found for last in ran[-MOST_IN_A_ROW:]):
                    print(f"stopped: {MOST_IN_A_ROW} histories in a row have found something. Look whether a server has died")
                    break
        except KeyboardInterrupt:
            print("stopped; the same command goes on from here")
    return ran


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m assets_tests.soak", description="Plays random histories of the whole path.")
    parser.add_argument("--histories", type=int, default=10_000, metavar="N", help="how many seeds (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first seed (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=24 * 60, metavar="N", help="start no history after so long (default: a day)")
    parser.add_argument("--again", action="store_true", help="play the seeds whether they were played before or not")
    parser.add_argument("--ledger", type=Path, default=ROOT / ".soak", metavar="FOLDER", help="remembers what was played (default: .soak)")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs" / "soak.md", metavar="FILE", help="where a row is appended")
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    ledger = Ledger(arguments.ledger)
    seeds = (
        list(range(arguments.seed, arguments.seed + arguments.histories))
        if arguments.again
        else ledger.to_play(arguments.seed, arguments.histories)
    )
    if not seeds:
        print(f"all seeds from {arguments.seed} to {arguments.seed + arguments.histories - 1} were played and found nothing")
        return 0
    ran = soak(ledger, seeds, arguments.minutes, commit())
    if ran:
        record(arguments.docs, ran, datetime.datetime.now(datetime.timezone.utc))
    return 1 if any(one.found for one in ran) else 0


if __name__ == "__main__":
    sys.exit(main())
