"""``python -m deploy.cluster``: makes a new cluster, loads the demo's shop, moves its tables by runs, and compares them with the source.

Belongs here: arguments, and what is printed. Does not belong: the services (``local``).
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from dagster import DagsterRunStatus

from deploy.cluster.local import LocalCluster
from deploy.cluster.processes import HOST, ClusterError
from deploy.cluster.surroundings import REPOSITORY
from incremental_assets.demo.postgres import DEMO_DATABASE
from incremental_assets.demo.source import last_day, load

DATASTORE = REPOSITORY / "incremental_assets" / "defs" / "demo" / "defs.yaml"
FOLDER = REPOSITORY / ".cluster"


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0 if the lake has all rows of the source."""
    parser = argparse.ArgumentParser(prog="python -m deploy.cluster", description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1, help="the scale of TPC-H (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the services running until Ctrl-C")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where all files are (default: .cluster in the repository)")
    parser.add_argument("--remove", action="store_true", help="only remove what an earlier cluster has left")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        datastore = DATASTORE.read_text(encoding="utf-8")
        LocalCluster(chosen.folder, datastore).remove()  # the demo's database is made anew, and a lake of the old one does not fit it
        if chosen.remove:
            return 0
        with LocalCluster(chosen.folder, datastore) as cluster:
            tables = _start(cluster, chosen.scale)
            equal = move(cluster, tables)
            if chosen.keep:
                print(f"Dagster's UI: http://{HOST}:{cluster.port('webserver')}. Ctrl-C ends the cluster.", flush=True)
                signal.pause()
    except KeyboardInterrupt:
        return 130
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    print("all services have ended")
    return 0 if equal else 1


def _start(cluster: LocalCluster, scale: float) -> list[str]:
    source = cluster.postgres.create_database(DEMO_DATABASE, drop=True)
    rows = load(source, scale, until=last_day())
    print(f"the source has {sum(rows.values()):,} rows in {len(rows)} tables", flush=True)
    cluster.start_dagster(source)
    cluster.command("capture", "setup", "shop")
    print(f"running: postgres, {', '.join(service.value for service in cluster.services)}", flush=True)
    return sorted(rows)


def move(cluster: LocalCluster, tables: Sequence[str]) -> bool:
    """Syncs the tables by a run each, and prints how each compares with the source. Returns whether all are equal."""
    launched = {table: cluster.runs.launch(table) for table in tables}
    ended = {table: cluster.runs.wait(run) for table, run in launched.items()}
    all_equal = True
    for table, status in ended.items():
        if status is not DagsterRunStatus.SUCCESS:
            print(f"{table:18} run {launched[table]}: {status.value}", flush=True)
            all_equal = False
            continue
        found = cluster.compare(table)
        words = (
            "equal" if found.equal else f"DIFFERENT: {found.only_in_lake:,} only in the lake, {found.only_in_source:,} only in the source"
        )
        print(f"{table:18} {found.in_both:>10,} rows in both: {words}", flush=True)
        all_equal = all_equal and found.equal
    return all_equal


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
