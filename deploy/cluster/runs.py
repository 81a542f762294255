"""Runs that are launched as the UI launches them: by the webserver, through the queue of the daemon, in processes beside the code server.

Belongs here: launching it, and waiting for its end. Does not belong: the services (``local``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from dagster import AssetKey, DagsterRunStatus
from dagster_graphql import DagsterGraphQLClient, DagsterGraphQLClientError

from deploy.cluster.processes import HOST, ClusterError

LOCATION = "project"
"""The name of the code location: that of the folder of the project."""
RUN_SECONDS = 600.0
ENDED = frozenset((DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED))


class Runs:
    """The runs of the cluster. ``port``: of the webserver."""

    def __init__(self, port: int) -> None:
        self._client = DagsterGraphQLClient(HOST, port_number=port)

    def launch(self, table: str, config: Mapping[str, Any] | None = None) -> str:
        """Puts a run that materializes the table of ``shop`` into the queue, and returns its id. ``config``: of its asset. Raises
        ClusterError if the webserver refuses."""
        ops = {"ops": {f"shop__{table}": {"config": dict(config)}}} if config else {}
        try:
            return self._client.submit_job_execution(
                "__ASSET_JOB", repository_location_name=LOCATION, run_config=ops, asset_selection=[AssetKey(["shop", table])]
            )
        except (DagsterGraphQLClientError, KeyError) as error:  # Dagster's client has no words for an asset that is not there
            raise ClusterError(f"the webserver did not launch {table}: {error}") from error

    def status(self, run_id: str) -> DagsterRunStatus:
        return self._client.get_run_status(run_id)

    def wait(self, run_id: str, seconds: float = RUN_SECONDS) -> DagsterRunStatus:
        """Waits until the run has ended, and returns how. Raises ClusterError if it has not ended after so many seconds."""
        deadline = time.monotonic() + seconds
        while (status := self.status(run_id)) not in ENDED:
            if time.monotonic() > deadline:
                raise ClusterError(f"run {run_id} is still {status.value} after {seconds:.0f} s.")
            time.sleep(0.5)
        return status
