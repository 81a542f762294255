"""The steps of ``make demo``: fill a source, sync it, change it for a business day, sync again, refresh, and prove that no row is missing.

Everything that the product does is done through its command line, as a user would do it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

import dagster as dg
from rich.console import Console

from incremental_assets.core.anomalies import State
from incremental_assets.core.shown_text import counted
from incremental_assets.delta.folders import QUALITY_FOLDER, RESERVED
from incremental_assets.demo import report
from incremental_assets.demo.business_day import BusinessDay, Change, Correction
from incremental_assets.demo.compare import CompareError, Comparison
from incremental_assets.demo.landing import Landed, Tills, landed
from incremental_assets.demo.postgres import DEMO_FOLDER, LANDING_FOLDER, EmbeddedPostgresError
from incremental_assets.demo.server_home import write_private
from incremental_assets.demo.shop import Shop
from incremental_assets.project.folders import dagster_home, enter_project
from incremental_assets.project.scaffold import write_project
from incremental_assets.quality.records import Records
from incremental_assets.runs.loading import find_datastore, load_datastores
from incremental_assets.runs.ordinary_run import command_line_instance

DATASTORE, LANDING = "shop", "landing"
LAKE_VARIABLE = "INCREMENTAL_ASSETS_LAKE"
URL_VARIABLE, LANDING_VARIABLE = "INCREMENTAL_ASSETS_DEMO_URL", "INCREMENTAL_ASSETS_DEMO_LANDING"
OWN_PROJECT = Path(".demo") / "project"
LAND_SECONDS = 180
"""How long the demo waits until the sensors have moved the landing folder into the lake, and for the runs to finish."""
LOG_LINES = 40
"""How many lines of the log are shown after a failure."""
LEAVE_SECONDS = 20
"""How long a child process may take to end after a signal before it is killed."""


class DemoFailed(RuntimeError):
    """A step did not show what it has to show. The message names the step, and where to find out more. ``code`` is the exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def run_demo(project: Path, scale: float) -> int:
    """Play the demo, from the beginning. Return 0 if lake and source are equal at the end, else an exit code.

    ``project``: the folder from which it is started. ``scale``: TPC-H's scale factor.
    """
    console = Console(width=None if sys.stdout.isatty() else 160)
    try:
        project = _project(Path(project).absolute())
        enter_project(project)
        return _Demo(project, Shop(project), console).play(scale)
    except (DemoFailed, EmbeddedPostgresError, CompareError, ValueError) as error:
        console.print(f"\nThe demo failed: {error}", style="bold red", markup=False, highlight=False)
        return error.code if isinstance(error, DemoFailed) else 1
    except KeyboardInterrupt:
        console.print("\nInterrupted. `make demo` starts over.", style="yellow")
        return 130


def _is_repository(folder: Path) -> bool:
    """Whether the demo's datastores are those of the project itself."""
    return (folder / "incremental_assets" / "defs" / "demo").is_dir()


def _project(started_from: Path) -> Path:
    """The project in which the demo is played: this repository, or else one of its own below the folder from which it is started."""
    if _is_repository(started_from):
        return started_from
    folder = started_from / OWN_PROJECT
    if not (folder / "definitions.py").exists():
        write_project(folder)
    for name in ("demo", "landing"):
        shutil.copytree(Path(__file__).resolve().parent.parent / "defs" / name, folder / "defs" / name, dirs_exist_ok=True)
    return folder


class _Demo:
    """One play of the demo in one project."""

    def __init__(self, project: Path, shop: Shop, console: Console) -> None:
        self.project, self.shop, self.console = project, shop, console
        self.log = project / DEMO_FOLDER.parent / "demo.log"
        self.lake = project / "lake" / DATASTORE
        self.steps = 0

    # ------------------------------------------------------------------ the sequence of the steps
    def play(self, scale: float) -> int:
        """Play all steps, and return the exit code."""
        self._start_over(scale)

        self._step("The first sync", "The catalog finds the tables. Then everything is loaded; each watermark is set to the highest value.")
        self._command("catalog", DATASTORE)
        self._command("capture", "setup", DATASTORE)
        self._sync()
        day = BusinessDay(self.shop)

        self._step("A morning", "New rows, changed rows, deleted rows. Each sync reads from its watermark on, not the table again.")
        report.changes(self.console, "Meanwhile in the shop", day.morning())
        self._sync()

        self._step(
            "A transaction is open during a sync",
            "A checkout has drawn its ids and dates but not committed; others with higher ones have. What is visible is synced, but "
            "the watermark stays where it was: whoever moves it to the maximum never sees the checkout's rows.",
        )
        with day.open_transaction() as checkout:
            report.changes(self.console, f"Written by session {checkout.pid}, not committed", checkout.changes)
            report.changes(self.console, "Committed by others", day.overtake())
            self._sync()
            checkout.commit()
        self.console.print("The checkout has committed.", style="bold")

        self._step(
            "Late rows and new columns",
            "An order entered a day late and an event with an old id: both lie within the safety lag. One new column has a default, "
            "which appears in old rows without touching them: the sync says that a refresh is needed.",
        )
        report.changes(self.console, "Meanwhile in the shop", [*day.late_rows(), *day.add_columns()])
        self._sync()

        self._step(
            "Old rows are corrected, and the audit finds them",
            "Nothing tells an incremental sync of this, nor of the default in old rows. The audit compares source and lake by sums that "
            "both compute themselves, finds the rows that differ, refreshes their partitions and no others, and compares those again.",
        )
        self._audit(day.correct_old_rows())

        self._step(
            "A table that follows the log",
            "The customers have neither an identifier nor a time of change, and capture: log in the YAML. PostgreSQL's log says which "
            "of them have changed, deleted ones too, and the sync reads these rows and no others.",
        )
        self._follow_log(day.customers())

        self._quality(day)

        self._step("Lake and source, row by row", "Every column of every row as text, read from the lake without Spark.")
        found = [self._compare(container) for container in self.shop.containers()]
        report.compared(self.console, found, "Lake and source")
        report.differences(self.console, found)
        return self._end(found, self._files())

    def _audit(self, corrections: Sequence[Correction]) -> None:
        """Let the audit find and repair what was corrected by hand. Raises DemoFailed if it finds other rows than were deleted."""
        report.changes(self.console, "By hand, in the source", [change for one in corrections for change in one.changes])
        command = ["audit", *(f"{DATASTORE}/{one.container}" for one in corrections), "--repair", "--json"]
        found = {line["container"].partition("/")[2]: line for line in map(json.loads, self._lines(command))}
        report.audited(self.console, list(found.values()))
        for one in corrections:
            line = found[one.container]
            if line["status"] != "repaired" or line["surplus"] != one.deleted:
                raise DemoFailed(f"{one.container}: {counted(one.deleted, 'row')} were deleted, and the audit says: {line['message']}")
            keys = line["partitions_different"]
            if one.month is not None and keys != [one.month.isoformat()]:
                raise DemoFailed(f"{one.container} was corrected in {one.month:%B %Y}, and the audit says that {keys} differ.")

    def _follow_log(self, changes: Sequence[Change]) -> None:
        """Sync the container that follows the log. Raises DemoFailed if the sync has written other rows than these changes made."""
        report.changes(self.console, "Meanwhile in the shop", changes)
        (line,) = self._sync(f"{DATASTORE}/customer")
        if list(line.rows[1:]) != [change.rows for change in changes]:
            raise DemoFailed(f"customer: {[c.rows for c in changes]} rows came, changed and went; the sync says {line.rows[1:]}.")
        self._command("capture", "status", DATASTORE)

    def _quality(self, day: BusinessDay) -> None:
        """Insert bad rows and correct them, and show that each becomes an anomaly and is resolved."""
        self._step(
            "Bad rows come, and are mended",
            "The YAML says what rows have to be like; each sync asks that of the partitions that it wrote. What is broken is on record row "
            "by row, and goes from the list when it is mended in the source: nobody has to tick it off.",
        )
        report.changes(self.console, "Meanwhile in the shop", planted := day.bad_rows())
        self._sync()
        self._command("anomalies", DATASTORE)
        found = self._anomalies(State.ACTIVE)
        report.changes(self.console, "Mended in the source", day.mend_bad_rows())
        self._sync()
        self._command("anomalies", DATASTORE, "--state", "resolved")
        rows = sum(change.rows for change in planted)
        left, resolved = self._anomalies(State.ACTIVE), self._anomalies(State.RESOLVED)
        if (found, left, resolved) != (rows, 0, rows):
            raise DemoFailed(
                f"of {counted(rows, 'bad row')} {found} were found; {left} are still on the list and {resolved} were resolved."
            )
        self.console.print(
            f"{counted(rows, 'bad row')}, {found} anomalies, all of them resolved by the scan that no longer found them.", style="bold"
        )

    def _anomalies(self, state: State) -> int:
        """Return how many anomalies are in a state."""
        return sum(one.state is state for one in Records(str(self.lake.parent), DATASTORE).anomalies().values())

    def _lines(self, command: Sequence[str]) -> list[str]:
        """Run a command, and return the JSON lines that it prints."""
        with self.log.open("a", encoding="utf-8") as log, self._started(command, stdout=subprocess.PIPE, stderr=log) as process:
            lines = list(process.stdout or ())
            code = process.wait()
        self._expect_success(code, command)
        return lines

    def _files(self) -> list[Landed]:
        """Let the sensors move files from a landing folder to the lake, and return the comparison."""
        self._step(
            "A landing folder and its sensor",
            "Each file is a partition. Dagster's daemon runs, and its sensors look into the folder every 5 seconds: what comes is in the "
            "lake a moment later, what changed is replaced, what is being written waits, and a line that is no good is kept beside.",
        )
        tills = Tills(self.project / LANDING_FOLDER, self.shop.url)
        report.changes(self.console, "In the folder", tills.night())
        self._command("catalog", LANDING)
        with self._daemon():
            report.landed(self.console, self._landed(), "Folder and lake")
            report.changes(self.console, "Meanwhile in the folder", tills.day())
            found = self._landed()
            report.landed(self.console, found, "Folder and lake")
        return found

    def _landed(self) -> list[Landed]:
        """Compare folder and lake, repeatedly until they are equal or ``LAND_SECONDS`` are over. Return the last comparison."""
        deadline = time.monotonic() + LAND_SECONDS
        with self.console.status("the sensors are at work") as status:
            while True:
                found = landed(self.project / LANDING_FOLDER, self.lake.parent / LANDING)
                if all(one.equal for one in found) or time.monotonic() > deadline:
                    return found
                status.update(
                    f"the sensors are at work: {sum(one.in_lake for one in found):,} of {counted(sum(one.rows for one in found), 'row')}"
                )
                time.sleep(1)

    @contextmanager
    def _daemon(self) -> Iterator[None]:
        """Run Dagster's daemon over this project, with all of its sensors and schedules. Its runs have ended when the block ends."""
        self.console.print("$ dagster-daemon run", style="bold cyan")
        workspace, since = str(self.project / "workspace.yaml"), datetime.now(timezone.utc)
        with self.log.open("a", encoding="utf-8") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dagster._daemon", "run", "-w", workspace], env=self._environment(), cwd=self.project,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            try:
                yield
                self._await_runs(since)
            finally:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(timeout=LEAVE_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()

    def _await_runs(self, since: datetime) -> None:
        """Wait until the runs that were created since then have ended, at most ``LAND_SECONDS``."""
        statuses = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
        # An older unfinished run may be one that somebody killed: it would never end.
        unfinished = dg.RunsFilter(statuses=statuses, created_after=since)
        deadline = time.monotonic() + LAND_SECONDS
        with command_line_instance() as instance:
            while instance.get_runs(unfinished, limit=1) and time.monotonic() < deadline:
                time.sleep(0.5)

    def _end(self, found: Sequence[Comparison], files: Sequence[Landed]) -> int:
        """Print the result, and raise DemoFailed if lake and source, or lake and folder, differ."""
        rows = sum(one.in_both for one in found)
        if different := [one.container for one in found if not one.equal]:
            raise DemoFailed(f"lake and source differ in {', '.join(different)}. What the syncs said is in {self._shown(self.log)}.")
        if different := [one.container for one in files if not one.equal]:
            raise DemoFailed(f"lake and folder differ in {', '.join(different)}. What the daemon said is in {self._shown(self.log)}.")
        of_files = f", and {counted(sum(one.rows for one in files), 'row')} of {counted(sum(one.files for one in files), 'file')}"
        equal = f"{counted(rows, 'row')} in {counted(len(found), 'container')}{of_files}"
        self.console.print(f"\n[bold green]Lake and source are equal: {equal}.[/]")
        where = f"The lake is in {self._shown(self.lake)}, the log in {self._shown(self.log)}."
        own = f"incremental-assets --project {self.project} dev", f" {self.project}"
        ui, folder = ("make ui", "") if _is_repository(self.project) else own
        stop = f"python -m incremental_assets.demo stop{folder}"
        afterwards = f"`{ui}` shows all of this in Dagster. PostgreSQL keeps running for it; `{stop}` ends it."
        self.console.print(f"{where} {afterwards}", highlight=False)
        return 0

    # ------------------------------------------------------------------ its parts
    def _start_over(self, scale: float) -> None:
        """Create a new source, and remove the catalog and the lake's tables of an earlier demo.

        Nothing is deleted that the demo did not make.
        """
        self._step("A source", f"PostgreSQL from a wheel, TPC-H at scale {scale:g}, a table with a serial id, one with updated_at, a view.")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_text("", encoding="utf-8")
        if LAKE_VARIABLE in os.environ:
            self.console.print(f"{LAKE_VARIABLE} is set, but the demo keeps to its own lake: {self._shown(self.lake)}.", style="yellow")
        self._start_spark()
        started = time.monotonic()
        with self.console.status("generating and copying"):
            rows = self.shop.fill(scale)
        report.loaded(self.console, rows, time.monotonic() - started)
        for container in self.shop.containers():
            # Only folders that are Delta tables with the names of the demo's containers are removed.
            if (self.lake / container / "_delta_log").is_dir():
                shutil.rmtree(self.lake / container)
        if (self.lake / QUALITY_FOLDER / "scan_operations" / "_delta_log").is_dir():
            shutil.rmtree(self.lake / QUALITY_FOLDER)
        for folder in (self.lake.parent / LANDING, *(self.lake.parent / LANDING / beside for beside in sorted(RESERVED))):
            for table in ("sales", "clicks"):
                if (folder / table / "_delta_log").is_dir():
                    shutil.rmtree(folder / table)
        # Only now the source has an address. This process and its children read the YAML that names it.
        named = {URL_VARIABLE: self.shop.url, LANDING_VARIABLE: str(self.project / LANDING_FOLDER)}
        os.environ.update(named)
        if not _is_repository(self.project):
            write_private(self.project / ".env", "".join(f"{name}={value}\n" for name, value in named.items()))  # for its UI
        datastores = load_datastores(self.project)
        for name in (DATASTORE, LANDING):
            find_datastore(datastores, name).component.store(self.project).forget()

    def _start_spark(self) -> None:
        """Start the embedded Spark server, which takes half a minute until its first queries are fast, while the source is filled.

        The first command that needs it waits for it, and says what is wrong if it does not start.
        """
        if "SPARK_REMOTE" not in os.environ:
            with self.log.open("a", encoding="utf-8") as log:
                command = [sys.executable, "-m", "incremental_assets.spark.embedded.server", "start", str(dagster_home())]
                subprocess.Popen(command, env=self._environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # it ends by itself

    def _compare(self, container: str) -> Comparison:
        with self.console.status(f"comparing {container}"):
            return self.shop.compare(container, self.lake / container)

    def _step(self, title: str, why: str) -> None:
        self.steps += 1
        report.step(self.console, self.steps, title, why)

    def _sync(self, *arguments: str) -> Sequence[report.SyncLine]:
        """Run ``sync``, and print its table. Returns the table's lines. Raises DemoFailed if a container failed."""
        lines: list[report.SyncLine] = []
        command = ["sync", *(arguments or (DATASTORE,)), "--json"]
        started = time.monotonic()
        with self.log.open("a", encoding="utf-8") as log, self.console.status("starting") as status:
            with self._started(command, stdout=subprocess.PIPE, stderr=log) as process:
                assert process.stdout is not None
                for text in process.stdout:
                    if text.strip():
                        lines.append(self._parsed(text, command))
                        status.update(f"synced {len(lines)}: {lines[-1].container}")
                code = process.wait()
        report.synced(self.console, lines, time.monotonic() - started)
        self._expect_success(code, command)
        return lines

    def _command(self, *arguments: str) -> None:
        """Run another command, and let its output through to the terminal."""
        with self.log.open("a", encoding="utf-8") as log:
            with self._started(arguments, stdout=None, stderr=log) as process:
                code = process.wait()
        self._expect_success(code, arguments)

    @contextmanager
    def _started(self, arguments: Sequence[str], *, stdout: int | None, stderr: IO[str]) -> Iterator[subprocess.Popen[str]]:
        """Run the product's command line. The process never outlives this block."""
        self.console.print(f"$ incremental-assets {shlex.join(arguments)}", style="bold cyan", markup=False, highlight=False)
        sys.stdout.flush()
        process = subprocess.Popen(
            [sys.executable, "-m", "incremental_assets.cli", "--project", str(self.project), *arguments],
            stdout=stdout,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=self._environment(),
            cwd=self.project,
        )
        try:
            yield process
        except BaseException:
            # The terminal sends Ctrl-C to the child process too. It gets some time to cancel its queries.
            try:
                process.wait(timeout=LEAVE_SECONDS)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait()
            raise

    def _environment(self) -> dict[str, str]:
        """Return the environment of child processes: that of this process, with the project's own lake."""
        return {name: value for name, value in os.environ.items() if name != LAKE_VARIABLE}

    def _parsed(self, text: str, command: Sequence[str]) -> report.SyncLine:
        try:
            return report.SyncLine.of(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise DemoFailed(
                f"`{shlex.join(command)}` printed something else than its contract says ({error!r}): {text.strip()}"
            ) from error

    def _expect_success(self, code: int, command: Sequence[str]) -> None:
        """Raise DemoFailed, after printing the end of the log, if the exit code is not 0."""
        if code == 0:
            return
        with self.log.open(encoding="utf-8", errors="replace") as log:
            end = "".join(deque(log, maxlen=LOG_LINES))
        self.console.print(f"\nThe end of {self._shown(self.log)}:", style="red")
        self.console.print(end, markup=False, highlight=False)
        raise DemoFailed(f"`incremental-assets {shlex.join(command)}` ended with exit code {code}.", 130 if code in (130, -2) else 1)

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self.project)) if path.is_relative_to(self.project) else str(path)
