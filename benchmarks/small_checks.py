"""What rules and audits of small tables cost: `python -m benchmarks.small_checks [--rows 2000] [--rounds 3]`, whole commands.

Belongs here: a sync of five changed rows without rules, with three plain ones, with plain ones that rows break, and with five that Spark
has to evaluate; audits of five such tables. All of it with a Spark server running and without one. Does
not belong: many rows (`quality`, `audits`).
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import psycopg
import yaml

from benchmarks.figures import Figure, report
from benchmarks.measure import Measured, Project
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.spark.session import is_running, open_session, stop_server

PLAIN: list[dict[str, Any]] = [
    {"rule": "not_null", "columns": ["status"]},
    {"rule": "between", "column": "price", "min": 0, "max": 1000},
    {"rule": "expected_values", "column": "status", "values": ["open", "paid", "sent"]},
]
BROKEN: list[dict[str, Any]] = [
    {"rule": "min", "column": "id", "min": 3, "severity": "warn"},
    {"rule": "expected_values", "column": "status", "values": ["open", "paid"], "severity": "warn"},
]
OF_SPARK: list[dict[str, Any]] = [
    {"rule": "expression", "name": "priced", "expression": "price * 2 >= price"},
    {"rule": "metric", "name": "mean", "expression": "avg(price)", "min": 0},
    {"rule": "sum", "column": "price", "min": 0, "filter": "status = 'paid'"},
    {"rule": "unique", "columns": ["id"], "filter": "status <> 'open'"},
    {"rule": "exists_in", "column": "status", "container": "states", "field": "name", "filter": "id > 10"},
]
RULES = {"no rule": [], "three plain rules": PLAIN, "two plain rules that rows break": BROKEN, "five rules of Spark": OF_SPARK}
TARGETS = {"three plain rules": 0.2, "two plain rules that rows break": 0.2, "five rules of Spark": 2.0}
"""How many seconds more than without rules a run may take while a Spark server is running; plain rules also without one."""
AUDITED, AUDIT_TARGET = 5, 0.3
"""How many tables are audited, and the seconds that each may take."""


def defs() -> str:
    """The `defs.yaml`: a table for each list of rules, the one that is looked into, and further ones for the audits."""
    containers = {f"t{n}": {"checks": rules} for n, rules in enumerate(RULES.values())}
    named = ["public.states:at:timestamp!upsert", *(f"public.t{n}:at:timestamp!upsert" for n in range(AUDITED))]
    attributes = {"name": "small", "url": "{{ env.BENCH_URL }}", "incremental": named, "containers": containers}
    return yaml.safe_dump({"type": "incremental_assets.PostgresDatastore", "attributes": attributes})


def fill(source: psycopg.Connection, rows: int) -> None:
    """Makes the tables of the source."""
    source.execute("create table states (name text primary key, at timestamptz not null default now())")
    source.execute("insert into states (name) values ('open'), ('paid'), ('sent')")
    for n in range(AUDITED):
        columns = "id int primary key, at timestamptz not null, price numeric(12,2), status text"
        source.execute(f"create table t{n} ({columns})".encode())
        values = "i, now() - interval '1 hour' + i * interval '1 second', i % 999, (array['open', 'paid', 'sent'])[1 + i % 3]"
        source.execute(f"insert into t{n} select {values} from generate_series(1, {rows}) i".encode())
        source.execute(f"create index on t{n} (at)".encode())
        source.execute(f"analyze t{n}".encode())


def synced(project: Project, source: psycopg.Connection, table: str) -> Measured:
    """Changes five rows of the table, and measures the sync of them."""
    source.execute(f"update {table} set at = now(), price = price + 1 where id <= 5".encode())
    measured = project.command("sync", f"small/{table}", "--json")
    line = measured.lines[0]
    assert line["status"] in ("synced", "warning") and line["rows_updated"] == 5, line
    return measured


def measure(project: Project, source: psycopg.Connection, rounds: int, running: bool) -> None:
    """Measures all cases, each several times in turn, while a Spark server is running or not."""
    said = "a Spark server running" if running else "no Spark server"
    found: dict[str, list[float]] = {name: [] for name in RULES}
    audits: list[float] = []
    for turn in range(rounds + 1):
        for n, name in enumerate(RULES):
            if not running:
                stop_server(project.home)
            seconds = synced(project, source, f"t{n}").seconds
            found[name] += [seconds] if turn else []  # the first ones warm the server up
        if not running:
            stop_server(project.home)
        lines = project.command("audit", "small", "--json").lines
        of_tables = [line for line in lines if line["container"] != "small/states"]
        assert len(of_tables) == AUDITED and all(line["status"] == "equal" for line in lines), lines
        audits += [sum(line["seconds"] for line in of_tables) / AUDITED] if turn else []
        assert running or not is_running(project.home), "an audit of small tables has started a Spark server"
    middle = {name: statistics.median(seconds) for name, seconds in found.items()}
    for name, seconds in middle.items():
        more, target = seconds - middle["no rule"], TARGETS.get(name)
        if target is None:
            report(f"{said}, a sync of five rows, {name}: {seconds:.2f} s", Figure(f"{said}, {name}", seconds))
            continue
        target = target if running or "plain" in name else None
        report(f"{said}, {name}: {seconds:.2f} s, {more:+.2f} s", Figure(f"{said}, {name}, more than without", more, target=target))
    audit = statistics.median(audits)
    report(f"{said}, an audit: {audit:.2f} s a table, in its run", Figure(f"{said}, an audit of a table", audit, target=AUDIT_TARGET))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_checks", description=__doc__)
    parser.add_argument("--rows", type=int, default=2000, help="rows of each table (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as work, EmbeddedPostgres(Path(work) / "postgres") as server:
        url = server.create_database("bench", drop=True)
        project = Project(Path(work) / "project", url)
        project.define("small", defs())
        try:
            with psycopg.connect(url, autocommit=True) as source:
                fill(source, asked.rows)
                project.command("sync", "--json")
                with open_session(project.home, name="benchmark"):
                    measure(project, source, asked.rounds, running=True)
                measure(project, source, asked.rounds, running=False)
        finally:
            project.stop()


if __name__ == "__main__":
    main()
