"""What following the source's log costs: `python -m benchmarks.capturing [--scale 0.1] [--rounds 3]`, on this machine.

Belongs here: a sync of TPC-H's `line_item` with `capture: log` after 1 % of its orders were updated and 0.1 % deleted, beside the upsert by
`updated_at` of the same changes, dlt's merge of them, and the decoding of the log alone. Does not belong: what a sync finds (the tests),
and all else that is compared with dlt (`python -m benchmarks`).

dlt's source of PostgreSQL's log is code to be copied into a project and no package, so dlt follows `updated_at`, as `dlt_side` sets it up,
and does not see the deleted rows either. It is left out where it is not installed (`make bench` installs it).

Each sync is measured as the whole process of `incremental-assets sync`, and by its own clock (`seconds` of its record). The upsert does not
see the deleted rows. Before each round another one is made and synced whose numbers are not used: the first commit of rows of a table is
slower than those that follow. *Decoding* is PostgreSQL's part: one query that peeks the slot and counts its messages, as each captured
container that has changed needs it once, and all containers together once more. After the last round the captured table is compared with
its source, row by row.
"""

import argparse
import importlib.util
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.__main__ import CHANGE, DEFS, PREPARE
from benchmarks.figures import Figure, report
from benchmarks.measure import Measured, Project, run
from incremental_assets.demo.compare import compare
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.demo.source import load

SPEC = "updated_at:timestamp!upsert"
SLOT = "incremental_assets_captured"
DELETE = "delete from line_item where l_orderkey %% 1000 = %(left)s"
DECODE = """select count(*), coalesce(sum(length(data)), 0)
  from pg_logical_slot_peek_binary_changes(%(slot)s::text::name, null, null, 'proto_version', '1', 'publication_names', %(slot)s::text)"""
RATIO = 1.5
"""How many times as long as the upsert a captured sync may take, which also brings the deletes."""


@dataclass
class Round:
    """The measurements of one round. ``log_mb``: how much log the slot kept for it. ``ours``: for each datastore, the seconds of the whole
    process, those of the sync, and the peak of memory in MiB. ``dlt``: those of the whole process; None where dlt is not installed."""

    updated: int
    deleted: int
    decoding: float
    messages: int
    log_mb: float
    ours: dict[str, tuple[float, float, float]] = field(default_factory=dict[str, tuple[float, float, float]])
    dlt: Measured | None = None


def dlt(project: Project, step: str, url: str) -> Measured | None:
    """Measures one step of dlt; None where it is not installed."""
    if importlib.util.find_spec("dlt") is None:
        return None
    return run([sys.executable, "-m", "benchmarks.dlt_side", step, url, str(project.folder / "dlt")], project.environment)


def project_of(work: Path, url: str) -> Project:
    project = Project(work / "project", url)
    upsert = DEFS.format(name="upsert", spec=SPEC)
    project.define("upsert", upsert)
    project.define("captured", DEFS.format(name="captured", spec=SPEC) + "  capture: log\n")
    return project


def change(url: str, number: int) -> tuple[int, int]:
    """Updates and deletes others in each round. Returns the numbers of rows."""
    with psycopg.connect(url, autocommit=True) as connection:
        updated = connection.execute(CHANGE.encode(), {"round": number + 1}).rowcount
        # Of the orders that the updates of this and of later rounds leave alone.
        deleted = connection.execute(DELETE.encode(), {"left": 90 + 100 * number}).rowcount
    return updated, deleted


def decode(url: str) -> tuple[float, int, float]:
    """The seconds that the server needs to decode what the slot keeps, the number of messages, and the MB of log that is kept."""
    with psycopg.connect(url, autocommit=True) as connection:
        kept = (
            "select pg_wal_lsn_diff(pg_current_wal_flush_lsn(), confirmed_flush_lsn) / 1e6 from pg_replication_slots where slot_name = %s"
        )
        (megabytes,) = connection.execute(kept.encode(), [SLOT]).fetchone() or (0,)
        started = time.monotonic()
        messages, _ = connection.execute(DECODE.encode(), {"slot": SLOT}).fetchone() or (0, 0)
        return time.monotonic() - started, messages, float(megabytes)


def one_round(project: Project, url: str, number: int) -> Round:
    updated, deleted = change(url, number)
    found = Round(updated, deleted, *decode(url))
    for name in ("captured", "upsert") if number % 2 else ("upsert", "captured"):
        measured = project.command("sync", f"{name}/line_item", "--json")
        line: dict[str, Any] = measured.lines[0]
        # The upsert reads the row at its watermark again.
        assert line["rows_updated"] == updated or (name == "upsert" and line["rows_updated"] >= updated), line
        assert line["rows_deleted"] == (deleted if name == "captured" else 0), line
        found.ours[name] = (measured.seconds, line["seconds"], measured.peak_mb)
    found.dlt = dlt(project, "upsert", url)
    assert found.dlt is None or found.dlt.lines[-1]["rows"] >= updated, found.dlt
    return found


def measure(scale: float, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as work:
        settings = {"wal_level": "logical", "shared_buffers": "512MB", "max_wal_size": "8GB"}
        with EmbeddedPostgres(Path(work) / "postgres", settings=settings) as server:
            url = server.create_database("bench")
            load(url, scale)
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(PREPARE)
                connection.execute("vacuum analyze line_item")
            project = project_of(Path(work), url)
            try:
                project.command("capture", "setup", "captured")
                for name in ("upsert", "captured"):
                    loaded = project.command("sync", f"{name}/line_item", "--json")
                    report(f"first load of {loaded.lines[0]['rows_read']:,} rows, {name}: {loaded.lines[0]['seconds']:.2f} s")
                dlt(project, "first", url)
                one_round(project, url, 0)
                found = [one_round(project, url, number) for number in range(1, rounds + 1)]
                assert compare(url, "line_item", str(project.lake / "captured" / "line_item")).equal
            finally:
                project.stop()
    tell(scale, found)


def tell(scale: float, found: list[Round]) -> None:
    """Reports the medians of the rounds."""
    what = f"scale {scale:g}, {found[0].updated:,} rows updated and {found[0].deleted:,} deleted"
    decoding = statistics.median(one.decoding for one in found)
    size, messages = (statistics.median(getattr(one, name) for one in found) for name in ("log_mb", "messages"))
    report(f"decoding: {decoding:.2f} s for {size:,.1f} MB of log, {messages:,.0f} messages ({what})", Figure("decoding", decoding))
    runs: dict[str, float] = {}
    for name in ("captured", "upsert"):
        whole, run, memory = (statistics.median(one.ours[name][i] for one in found) for i in range(3))
        runs[name] = run
        report(
            f"{name}: the sync {run:.2f} s, the process {whole:.2f} s (medians of {len(found)}), peak {memory:,.0f} MiB ({what})",
            Figure(f"the sync: {name}", run),
            Figure(f"the process: {name}", whole),
        )
    by_dlt = [one.dlt.seconds for one in found if one.dlt is not None]
    if by_dlt:
        whole, captured = statistics.median(by_dlt), statistics.median(one.ours["captured"][0] for one in found)
        report(f"dlt's merge by `updated_at`: the process {whole:.2f} s; deletes are not seen", Figure("the process: dlt's merge", whole))
        report(f"captured / dlt's merge, whole processes: {captured / whole:.2f}", Figure("captured / dlt's merge", captured / whole, "×"))
    ratio = runs["captured"] / runs["upsert"]
    report(f"captured / upsert: {ratio:.2f}", Figure("captured / upsert", ratio, "×", RATIO, "the upsert does not see the deletes"))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--scale", type=float, default=0.1)
    arguments.add_argument("--rounds", type=int, default=3)
    chosen = arguments.parse_args()
    if not 1 <= chosen.rounds <= 8:
        arguments.error("--rounds: 1 to 8, as each changes other rows.")
    measure(chosen.scale, chosen.rounds)


if __name__ == "__main__":
    main()
