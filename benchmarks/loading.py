"""What loading a project of many tables costs: `python -m benchmarks.loading [--tables 1000]`, whole processes, without Spark.

Belongs here: the processes that load a project, over a real PostgreSQL with so many tables: the server of a code location, a run as
Dagster's daemon executes it, and `sync --dry-run` of one container; and, beside the first, what Dagster alone needs for as many assets and
jobs. Does not belong: the steps of loading within one process (`python -m benchmarks.tables`), or syncing many containers
(`python -m benchmarks.containers`).
"""

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import yaml
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._grpc.server import LoadedRepositories
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import serialize_value

from benchmarks.figures import Figure, report
from benchmarks.measure import Measured, Project, run
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.operations.scans import run_alone
from incremental_assets.project.folders import enter_project
from incremental_assets.runs.dagster_internals.one_asset_job import one_asset_job
from incremental_assets.runs.loading import load_project, select
from incremental_assets.runs.ordinary_run import command_line_instance

COLUMNS = 12
"""How many columns each table has."""
A_TRANSACTION = 50
"""How many tables are made in one transaction: PostgreSQL has room for the locks of some hundred."""
TARGETS = {1_000: 3.0, 10_000: 15.0}
"""The seconds that a process may take until it has loaded a project of so many tables."""
TOUCH = "create function touch() returns trigger language plpgsql as $$ begin new.updated_at = clock_timestamp(); return new; end $$"


def name_of(number: int) -> str:
    return f"table_{number:05d}"


def make_tables(url: str, tables: int) -> None:
    """Makes empty tables with a primary key. Of ten, nine have a column that a trigger sets at each change: their identifier."""
    fields = ", ".join(f"field_{n:02d} text" for n in range(COLUMNS - 2))

    def statements(number: int) -> str:
        name = name_of(number)
        trigger = f"create trigger t before insert or update on {name} for each row execute function touch();" if number % 10 else ""
        return f"create table {name} (id bigint primary key, updated_at timestamptz not null default now(), {fields}); {trigger}"

    with psycopg.connect(url, autocommit=True) as source:
        source.execute(TOUCH.encode())
        for first in range(0, tables, A_TRANSACTION):
            source.execute("".join(map(statements, range(first, min(tables, first + A_TRANSACTION)))).encode())


def defs(tables: int) -> str:
    """The `defs.yaml`: the identifiers are those that the catalog has detected, and one table of ten has one or two rules."""
    one = {"rule": "not_null", "columns": ["id", "updated_at"]}
    two = {"rule": "unique", "columns": ["id"]}
    checks = {name_of(number): {"checks": [one, two] if number % 20 else [one]} for number in range(0, tables, 10)}
    attributes = {"name": "many", "url": "{{ env.BENCH_URL }}", "identifiers": "auto", "containers": checks}
    return yaml.safe_dump({"type": "incremental_assets.PostgresDatastore", "attributes": attributes})


# ---------------------------------------------------------------------- what the processes do
def serve(folder: str) -> None:
    """Does what the server of a code location does before it can be used: it makes all definitions, and describes them."""
    origin = LoadableTargetOrigin(module_name="definitions", working_directory=folder)
    loaded = LoadedRepositories(origin, entry_point=["dagster"], container_image=None, container_context=None)
    describe(next(iter(loaded.definitions_by_name.values())))


def serve_dagster(tables: str) -> None:
    """Does the same for as many assets that do nothing, with a source and two jobs each, and without this product."""
    resources = {"lake": "nothing"}

    def asset(name: str) -> dg.AssetsDefinition:
        @dg.asset(key=["many", name], deps=[["many", "public", name]], required_resource_keys={"lake"})
        def sync() -> None: ...

        return sync

    def job(name: str) -> dg.JobDefinition:
        @dg.op(name=f"{name}__profile", out=dg.Out(dg.Nothing), required_resource_keys={"lake"})
        def profile() -> None: ...

        @dg.job(name=f"profile_{name}")
        def profiles() -> None:
            profile()

        return profiles

    names = [name_of(number) for number in range(int(tables))]
    sources = [dg.AssetSpec(["many", "public", name]) for name in names]
    # Not `dg.define_asset_job`: with that, the time of Dagster alone grows with the square of the number of assets.
    jobs = [one_asset_job(f"sync_{name}", dg.AssetKey(["many", name]), "", {}) for name in names]
    made = dg.Definitions([*map(asset, names), *sources], jobs=[*jobs, *map(job, names)], resources=resources)
    repository = made.get_repository_def()
    repository.load_all_definitions()
    describe(repository)


def describe(repository: dg.RepositoryDefinition) -> None:
    """Describes the definitions for the webserver and the daemon, which ask for it whenever they load the code location."""
    before = spent(resource.RUSAGE_SELF)
    text = serialize_value(RepositorySnap.from_def(repository, defer_snapshots=True))
    print(json.dumps({"described_s": spent(resource.RUSAGE_SELF) - before, "described_mb": len(text) / 2**20}))


def spent(who: int) -> float:
    """The processor seconds of this process, or of its children that have ended."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


PROCESSES: dict[str, Callable[[str], None]] = {"serve": serve, "serve-dagster": serve_dagster}


# ---------------------------------------------------------------------- measuring them
def measure(work: Path, url: str, tables: int, rounds: int) -> None:
    """Prints the seconds of each process, the median of several."""
    project = Project(work / "project", url)
    project.define("many", defs(tables))
    make_tables(url, tables)
    taken = project.command("catalog", "many")
    about = f"{tables:,} tables"
    report(f"{about}: their first catalog {taken.seconds:.1f} s", Figure(f"{about}, their first catalog", taken.seconds))

    def median(what: str, process: Callable[[], Measured], target: float | None = None) -> None:
        measured: list[Measured] = []
        processor: list[float] = []
        for _ in range(rounds):
            before = spent(resource.RUSAGE_CHILDREN)
            measured.append(process())
            processor.append(spent(resource.RUSAGE_CHILDREN) - before)
        seconds = [one.seconds for one in measured]
        described = [line for one in measured for line in one.lines if "described_s" in line]
        more = ""
        if described:
            part = statistics.median(line["described_s"] for line in described)
            more = f"; {part:.1f} s of them to describe {described[0]['described_mb']:.0f} MB"
        report(
            f"{about}, {what}: {statistics.median(seconds):.1f} s ({min(seconds):.1f} to {max(seconds):.1f}), "
            f"{max(one.peak_mb for one in measured):.0f} MB, {statistics.median(processor):.1f} s of the processor{more}",
            Figure(f"{about}, {what}", statistics.median(seconds), target=target),
        )

    own = [sys.executable, "-m", "benchmarks.loading", "--process"]
    one = name_of(tables // 2 + 1)
    target = TARGETS.get(tables)
    median(f"sync many/{one} --dry-run", lambda: project.command("sync", f"many/{one}", "--dry-run", "--json"), target)
    median("a run's process", run_of(project, f"many/{one}"), target)
    median("the server of the code location", lambda: run([*own, "serve", str(project.folder)], project.environment))
    median("Dagster alone", lambda: run([*own, "serve-dagster", str(tables)], project.environment))


def run_of(project: Project, label: str) -> Callable[[], Measured]:
    """A function that executes a run of the container in a process of its own, as the daemon has it done.

    The run profiles the container. It finds no table, so that nearly all of its time is spent on loading.
    """
    os.environ.update(project.environment)
    enter_project(project.folder)
    loaded = load_project(project.folder)
    definition = select(loaded.datastores, [label], [])[0][1]
    name, run_config = run_alone(definition, "profile", {})
    job = loaded.definitions([definition]).resolve_job_def(name)
    code = ReconstructableRepository.for_module("definitions", "defs", str(project.folder)).get_reconstructable_job(job.name)

    def execute() -> Measured:
        with command_line_instance() as instance:
            made = instance.create_run_for_job(
                job, run_config=run_config, tags=dict(job.run_tags), job_code_origin=code.get_python_origin()
            )
            command = ExecuteRunArgs(code.get_python_origin(), made.run_id, instance.get_ref()).get_command_args()
            measured = run([sys.executable, "-m", *command], project.environment)
            ended = instance.get_run_by_id(made.run_id)
            if ended is None or not ended.is_success:
                raise RuntimeError(f"run {made.run_id} has not succeeded")
            return measured

    return execute


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loading", description=__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--process", nargs=2, metavar=("KIND", "OF"), help="do what one of the measured processes does")
    asked: Any = parser.parse_args()
    if asked.process:
        PROCESSES[asked.process[0]](asked.process[1])
        return
    with tempfile.TemporaryDirectory() as work, EmbeddedPostgres(Path(work) / "postgres") as server:
        measure(Path(work), server.create_database("bench", drop=True), asked.tables, asked.rounds)


if __name__ == "__main__":
    main()
