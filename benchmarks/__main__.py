"""`make bench`: compares this project with dlt on TPC-H data in the embedded PostgreSQL, in one run; prints and stores the measurements.

Belongs here: the steps of the comparison and the table of its results. Does not belong: running and measuring a command (`measure`), dlt's
side (`dlt_side`).

Both sides run as whole processes. The embedded Spark server is warm: it has loaded a table of 1,000 rows. Its memory is reported
separately. `python -m benchmarks --scale 1 [--only ours] [--rounds 3] [--folder DIR] [--no-store]`.
"""

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks import sling_side
from benchmarks.figures import Figure, report
from benchmarks.measure import Measured, Project, facts, run
from incremental_assets.delta.engine import READ_BY
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.demo.source import load

WARM_UPS = 3
"""How many times the small table is changed and synced before the first measurement."""
TARGETS = {"full load": 0.6, "upsert 1 %": 0.8}
"""The ratio of this project's time to dlt's that each step has to reach."""
RUN_TARGETS = {"upsert 10 of 1,000": 1.2, "append 10 to 1,000": 1.2, "refresh a month": 2.0}
"""The seconds of its run, without the start of the process, that each step has to reach."""
DEFS = """\
type: incremental_assets.PostgresDatastore
attributes:
  name: {name}
  url: "{{{{ env.BENCH_URL }}}}"
  safety_lag_seconds: 0   # both sides read the same rows
  incremental: ["public.line_item:{spec}"]
  containers: {{line_item: {{partition_by: month}}}}
  exclude: [lineitem, orders, "part*", customer, supplier, nation, region, events, customer_profile, orders_by_nation, warm_up, appended]
"""
"""The `defs.yaml` of one datastore of the benchmark."""
SMALL = """\
type: incremental_assets.PostgresDatastore
attributes:
  name: small
  url: "{{ env.BENCH_URL }}"
  safety_lag_seconds: 0
  incremental: ["public.appended:id:integer"]
  exclude: [line_item, lineitem, orders, "part*", customer, supplier, nation, region, events, customer_profile, orders_by_nation, warm_up]
"""
"""The `defs.yaml` of the datastore with a small table to which rows are appended."""
PREPARE = """
create table line_item as select l.*, timestamptz '2026-01-01' + (l_orderkey * 7919 % 15552000) * interval '1 second'
  + l_linenumber * interval '1 microsecond' as updated_at from lineitem l;
alter table line_item add primary key (l_orderkey, l_linenumber);
create index on line_item (updated_at); create index on line_item (l_shipdate); analyze line_item;
create table warm_up as select * from line_item limit 1000; alter table warm_up add primary key (l_orderkey, l_linenumber);
create table appended (id int generated always as identity primary key, v text);
insert into appended (v) select 'row ' || i from generate_series(1, 1000) i;
"""
"""Makes `line_item`, TPC-H's table with a key and a time of change, and `warm_up`, 1,000 of its rows."""
UPSERT = """update warm_up set l_tax = %(round)s, updated_at = now() where (l_orderkey, l_linenumber) in
  (select l_orderkey, l_linenumber from warm_up order by l_orderkey, l_linenumber limit 10)"""
"""Changes ten of the rows of `warm_up`."""
APPEND = "insert into appended (v) select 'new' from generate_series(1, 10)"
CHANGE = """update line_item set l_quantity = l_quantity + 1,
  updated_at = timestamptz '2026-08-01' + %(round)s * interval '2 days' + (l_orderkey %% 100000) * interval '1 second'
    + l_linenumber * interval '1 microsecond'
  where l_orderkey %% 100 = %(round)s"""
"""Changes one percent of the orders, others in each round."""
CHANGE_IN_A_MONTH = """update line_item set l_tax = l_tax + 0.01
  where l_shipdate >= '1995-06-01' and l_shipdate < '1995-07-01' and l_orderkey %% 100 = %(round)s"""
"""Changes one percent of a month's rows."""


def _median(measured: list[Measured]) -> Measured:
    """The measurement in the middle, by the seconds of the whole process."""
    return sorted(measured, key=lambda one: one.seconds)[len(measured) // 2]


def _median_of(measured: list[Measured | None]) -> Measured | None:
    """The same of those that were made; None if none was."""
    made = [one for one in measured if one is not None]
    return _median(made) if made else None


def _seconds(measured: Sequence[Measured | None]) -> str:
    """The seconds of each measurement, in their order."""
    return ", ".join(f"{one.seconds:.1f}" for one in measured if one is not None) + " s"


class Bench:
    """One run of the comparison.

    ``rounds``: how often a step of few seconds is measured; its median counts. ``rows``: the measurements of the steps so far. ``total``:
    how many rows ``line_item`` has. ``dlt_lake``: the URL under which dlt keeps its tables.
    """

    def __init__(self, folder: Path, scale: float, ours_only: bool, rounds: int) -> None:
        self.folder, self.scale, self.ours_only, self.rounds = folder, scale, ours_only, rounds
        self.console = Console(width=150)
        self.rows: list[dict[str, Any]] = []
        self.dlt_lake = (folder / "dlt" / "lake").absolute().as_uri()

    def prepare(self) -> str:
        """Starts the source, loads TPC-H data of the scale into it, writes the project, and returns the URL of the database."""
        for name in ("project", "dlt"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        server = EmbeddedPostgres(self.folder / "postgres", settings={"shared_buffers": "1GB", "max_wal_size": "8GB"}).start()
        self.server = server
        url = server.create_database("bench", drop=True)
        started = time.monotonic()
        load(url, self.scale)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(PREPARE)
            # Whoever reads a table first after it was made also writes its pages, with marks that spare the others looking up transactions.
            connection.execute("vacuum analyze line_item")
            connection.execute("checkpoint")
            count = connection.execute("select count(*) from line_item").fetchone()
        self.total = count[0] if count else 0
        self.console.print(f"line_item: {self.total:,} rows, loaded in {time.monotonic() - started:.0f} s")
        self.project = Project(self.folder / "project", url)
        loads = [(f"load_{number}", "l_shipdate:date") for number in range(self.rounds)]
        for name, spec in (*loads, ("upsert", "updated_at:timestamp!upsert"), ("warm", "updated_at:timestamp!upsert")):
            text = DEFS.format(name=name, spec=spec)
            if name == "warm":
                text = text.replace("line_item", "warm_up").replace(", warm_up, appended]", ", line_item, appended]")
            self.project.define(name, text)
        self.project.define("small", SMALL)
        return url

    def ours(self, *arguments: str) -> Measured:
        """Measures `incremental-assets sync` with these arguments."""
        return self.project.command("sync", *arguments, "--json")

    def dlt(self, step: str, url: str, pipeline: str = "upserts") -> Measured | None:
        """Measures one step of dlt; None where dlt is left out. ``pipeline``: each one has tables and a state of its own."""
        if self.ours_only:
            return None
        places = str(self.folder / "dlt" / pipeline), f"{self.dlt_lake}/{pipeline}"
        return run([sys.executable, "-m", "benchmarks.dlt_side", step, url, *places], self.project.environment)

    def sling(self, url: str) -> str:
        """What sling takes for the full load, as a note; empty where it is left out or not installed."""
        measured = None if self.ours_only else sling_side.load(url, self.folder, self.project.environment)
        return f"sling, into CSV: {measured.seconds:.1f} s, {measured.peak_mb:.0f} MB" if measured else ""

    def step(self, name: str, ours: Measured, dlt: Measured | None, note: str = "", run_s: float | None = None) -> None:
        """Stores, prints and reports the measurements of one step. ``run_s``: the seconds of the run itself, where they count."""
        line = ours.lines[0] if ours.lines else {}
        run_target = RUN_TARGETS.get(name)
        if run_s is not None:
            of_run = f"the run itself: {run_s:.1f} s" + (f" (target {run_target:g} s)" if run_target else "")
            note = f"{note}; {of_run}" if note else of_run
        ratio = ours.seconds / dlt.seconds if dlt else None
        target = TARGETS.get(name)
        self.rows.append(
            {
                "step": name, "ours_s": round(ours.seconds, 2), "ours_run_s": line.get("seconds"), "dlt_s": dlt and round(dlt.seconds, 2),
                "ratio": ratio and round(ratio, 2), "target": target, "rows_read": line.get("rows_read"),
                "dlt_rows": dlt.lines[-1]["rows"] if dlt and dlt.lines else None, "driver_mb": round(ours.peak_mb),
                "dlt_mb": dlt and round(dlt.peak_mb), "spark_mb": round(_spark_memory()), "note": note,
            }
        )  # fmt: skip
        figures = [Figure(name, ours.seconds, note=note)]
        if ratio is not None:
            figures.append(Figure(f"{name}, of dlt's time", ratio, "×", target))
        if run_s is not None:
            figures.append(Figure(f"{name}, the run", run_s, target=run_target))
        report(str(self.rows[-1]), *figures)

    def measure_all(self, url: str) -> None:
        """Runs all steps: the warm-up, a full load, an upsert, a sync without changes, a refresh of one month."""
        self.ours("warm/warm_up")
        self.ours("small/appended")
        for number in range(WARM_UPS):
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("update warm_up set l_tax = %s, updated_at = now() where l_linenumber = 1", [number])
            self.ours("warm/warm_up")
        for name, change in (
            ("upsert 10 of 1,000", UPSERT),
            ("append 10 to 1,000", APPEND),
        ):
            small: list[Measured] = []
            for number in range(self.rounds + 1):  # the first one is a warm-up
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute(change, {"round": number + 10})  # pyright: ignore[reportArgumentType]
                small.append(self.ours("small/appended" if name.startswith("append") else "warm/warm_up"))
            seconds = statistics.median(one.lines[0]["seconds"] for one in small[1:])
            self.step(name, _median(small[1:]), None, run_s=seconds)
        # So few rows need no Spark. The server is started, and its workers, by a load of the same way as that of the large table.
        self.project.environment[READ_BY] = "arrow"
        self.ours("warm/warm_up", "--reset-watermarks")
        del self.project.environment[READ_BY]
        loads: list[Measured] = []
        their_loads: list[Measured | None] = []
        for number in range(self.rounds):
            os.sync()  # what the one has written is on the disk before the other begins
            loads.append(self.ours(f"load_{number}/line_item"))
            os.sync()
            their_loads.append(self.dlt("load", url, f"load_{number}"))
        notes = [_seconds(loads), *([f"dlt {_seconds(their_loads)}"] if any(their_loads) else []), self.sling(url)]
        self.step("full load", _median(loads), _median_of(their_loads), "; ".join(filter(None, notes)))
        self.ours("upsert/line_item")
        self.dlt("first", url)
        upserts: list[Measured] = []
        theirs: list[Measured | None] = []
        changed = read = 0
        for number in range(self.rounds):
            with psycopg.connect(url, autocommit=True) as connection:
                changed += connection.execute(CHANGE, {"round": number}).rowcount
                connection.execute("vacuum analyze line_item")
            upserts.append(self.ours("upsert/line_item"))
            theirs.append(self.dlt("upsert", url))
            read += upserts[-1].lines[0]["rows_read"]
        note = f"{changed:,} rows changed in {self.rounds} rounds, read/changed = {read / changed:.4f}"
        self.step("upsert 1 %", _median(upserts), _median_of(theirs), note)
        unchanged = self.ours("upsert/line_item"), self.dlt("unchanged", url)
        milliseconds = self.tick()
        self.step("unchanged", *unchanged, f"one tick: {milliseconds:.0f} ms")
        report(f"a tick over one unchanged container: {milliseconds:.0f} ms", Figure("unchanged, a tick", milliseconds, "ms"))
        refreshes: list[Measured] = []
        for number in range(self.rounds):
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(CHANGE_IN_A_MONTH, {"round": number})
            refreshes.append(self.ours("load_0/line_item", "--partition", "1995-06-01"))
        seconds = statistics.median(one.lines[0]["seconds"] for one in refreshes)
        self.step("refresh a month", _median(refreshes), None, "1 % of its rows changed", run_s=seconds)
        same = self.ours("load_0/line_item", "--partition", "1995-06-01")
        self.step("refresh a month as it is", same, None, run_s=same.lines[0]["seconds"])

    def tick(self) -> float:
        """The milliseconds that it takes to plan an unchanged container, as a schedule's tick does.

        It is the median of 21 plans in one process.
        """
        from incremental_assets.core.plan import Action, Mode, Request
        from incremental_assets.project.folders import enter_project, lake_root
        from incremental_assets.runs.adapters.choose import adapter_of
        from incremental_assets.runs.loading import load_datastores, select

        os.environ.update(self.project.environment)
        enter_project(self.project.folder)
        _, definition = select(load_datastores(self.project.folder), ["upsert/line_item"], [])[0]
        seconds: list[float] = []
        with dg.DagsterInstance.get() as instance:
            for _ in range(21):
                started = time.monotonic()
                plan, _ = adapter_of(definition).plan(instance, Request(Mode.INCREMENTAL), lake_root())
                seconds.append(time.monotonic() - started)
                assert plan.action is Action.SKIP, plan.reason
        return statistics.median(seconds) * 1000

    def print_table(self) -> None:
        """Prints the table of all steps."""
        table = Table(title=f"TPC-H scale {self.scale:g}, {self.total:,} rows of line_item, {os.cpu_count()} cores", title_justify="left")
        for column in (
            "step",
            "ours s",
            "dlt s",
            "ratio",
            "to reach",
            "rows read",
            "dlt rows",
            "our driver MB",
            "Spark MB",
            "dlt MB",
            "note",
        ):
            table.add_column(column)
        for r in self.rows:
            target = f"≤ {r['target']}" if r["target"] else ""
            cells = [r["step"], r["ours_s"], r["dlt_s"], r["ratio"], target, r["rows_read"], r["dlt_rows"]]
            cells += [r["driver_mb"], r["spark_mb"], r["dlt_mb"], r["note"]]
            table.add_row(*("" if c is None else f"{c:,}" if isinstance(c, int) else str(c) for c in cells))
        self.console.print(table)

    def store(self) -> Path:
        """Stores the table of all steps, with facts about the machine, as a JSON file. Returns the file's path."""
        folder = Path(__file__).parent / "results"
        folder.mkdir(exist_ok=True)
        now = datetime.datetime.now(datetime.timezone.utc)
        path = folder / f"{now:%Y-%m-%d-%H%M}-scale-{self.scale:g}.json"
        path.write_text(json.dumps({**facts(), "rows": self.total, "scale": self.scale, "steps": self.rows}, indent=1) + "\n")
        return path


def _spark_memory() -> float:
    """The resident memory of the largest Spark Connect server on this machine, in MiB; 0 where there is none."""
    found = [p for p in psutil.process_iter(["cmdline", "memory_info"]) if "SparkConnectServer" in " ".join(p.info["cmdline"] or [])]
    return max((p.info["memory_info"].rss / 2**20 for p in found), default=0.0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", choices=["ours"], default=None, help="leave dlt out")
    parser.add_argument("--folder", type=Path, default=Path(".bench"))
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each step of few seconds (default: %(default)s)")
    parser.add_argument("--no-store", action="store_true", help="only print the measurements")
    arguments = parser.parse_args()
    if arguments.only is None and subprocess.run([sys.executable, "-c", "import dlt, connectorx"], capture_output=True).returncode:
        sys.stderr.write("dlt is not installed: pip install -c constraints.txt -e '.[bench]', or leave it out with --only ours\n")
        return 2
    bench = Bench(arguments.folder.resolve(), arguments.scale, arguments.only == "ours", arguments.rounds)
    with ExitStack() as at_the_end:
        url = bench.prepare()
        at_the_end.callback(bench.server.stop)
        at_the_end.callback(bench.project.stop)
        bench.measure_all(url)
        bench.print_table()
        if not arguments.no_store:
            bench.console.print(f"kept in {bench.store()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
