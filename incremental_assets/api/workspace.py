"""The project as the service knows it: its datastores, and its code location, through which Dagster launches runs.

Runs are launched through Dagster's GraphQL API, in this process and not by a web server: the same code with which the UI launches, so that
they are checked, tagged and queued alike. The daemon takes them from its queue.
"""

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._daemon.controller import get_daemon_statuses
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from dagster.components.utils.project_paths import get_local_defs_state_dir
from dagster_graphql.schema import create_schema

from incremental_assets.api.problems import Problem
from incremental_assets.project.folders import location_name
from incremental_assets.runs.loading import Datastore, load_datastores
from incremental_assets.runs.ordinary_run import REPOSITORY, command_line_instance

log = logging.getLogger(__name__)
_TROUBLES = """__typename ... on PythonError { message } ... on RunConfigValidationInvalid { errors { message } }
  ... on PipelineNotFoundError { message } ... on InvalidSubsetError { message }"""
_LAUNCH = f"""mutation($params: ExecutionParams!) {{ launchRun(executionParams: $params) {{
  {_TROUBLES} ... on LaunchRunSuccess {{ run {{ runId }} }} }} }}"""
_AGAIN = f"""mutation($params: ReexecutionParams!) {{ launchRunReexecution(reexecutionParams: $params) {{
  {_TROUBLES} ... on LaunchRunSuccess {{ run {{ runId }} }} }} }}"""
_TERMINATE = """mutation($id: String!) { terminateRun(runId: $id, terminatePolicy: SAFE_TERMINATE) {
  __typename ... on PythonError { message } ... on TerminateRunFailure { message } ... on RunNotFoundError { message } } }"""
_LAUNCHED, _TERMINATED = "LaunchRunSuccess", "TerminateRunSuccess"


class ApiWorkspace:
    """The project, its Dagster instance and its code location. ``context``: None: without ``workspace.yaml``, nothing is launched."""

    def __init__(self, project: Path, instance: dg.DagsterInstance, context: WorkspaceProcessContext | None) -> None:
        self.project, self.instance = project, instance
        self._context = context
        self._schema = create_schema()
        self._lock = threading.RLock()
        self._seen = self._located = self._fingerprint() if context is not None else None
        self._datastores: list[Datastore] | None = None

    # ------------------------------------------------------------------ the project
    def datastores(self) -> Sequence[Datastore]:
        """The datastores with their catalogs, as the YAML and the catalogs are now. Raises ConfigurationError."""
        with self._lock:
            now = self._fingerprint()
            if self._datastores is None or now != self._seen:
                self._datastores = load_datastores(self.project)
                self._seen = now
            return self._datastores

    def _fingerprint(self) -> tuple[Any, ...]:
        """A value that changes when the YAML or a catalog does."""
        states = get_local_defs_state_dir(self.project)
        folder = dg.ComponentTree.for_project(self.project).defs_module_path
        stats = []
        for path in sorted([*folder.rglob("*.y*ml"), *folder.rglob("*.py"), *states.glob("*/state")]):
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                stats.append((str(path), stat.st_mtime_ns, stat.st_size, stat.st_ino))
        storage = self.instance.defs_state_storage
        return tuple(stats), storage.get_latest_defs_state_info() if storage else None

    # ------------------------------------------------------------------ runs
    def expect_daemon(self) -> None:
        """Raises Problem where a run that is launched now would wait for ever."""
        if self._context is None:
            raise _unavailable(
                f"{self.project} has no workspace.yaml, so that no run can be launched. `incremental-assets init` writes one."
            )
        kind = QueuedRunCoordinatorDaemon.daemon_type()
        status = get_daemon_statuses(self.instance, [kind], ignore_errors=True)[kind]
        if status.required and not status.healthy:
            raise _unavailable(
                "Dagster's daemon is not running, so that a run would stay in its queue. Start `incremental-assets dev` or `dagster-daemon "
                "run`, over the same DAGSTER_HOME, and send this again; nothing was launched."
            )

    def launch(self, job: str, run_config: Mapping[str, Any], tags: Mapping[str, str], asset: dg.AssetKey | None = None) -> str:
        """Launches a run of the job and returns its id. ``asset``: the only one of the job's that it is about. Raises Problem."""
        selector: dict[str, Any] = {"repositoryLocationName": location_name(self.project), "repositoryName": REPOSITORY, "jobName": job}
        if asset is not None:
            selector["assetSelection"] = [{"path": asset.path}]
        metadata = {"tags": [{"key": key, "value": value} for key, value in tags.items()]}
        params = {"selector": selector, "runConfigData": json.dumps(run_config), "executionMetadata": metadata}
        return _run_of(self._ask(_LAUNCH, "launchRun", params=params), job)

    def again(self, run: dg.DagsterRun, from_failure: bool, tags: Mapping[str, str]) -> str:
        """Launches the run once more, whole or from what has failed, and returns the new id. Raises Problem."""
        more = [{"key": key, "value": value} for key, value in tags.items()]
        strategy = "FROM_FAILURE" if from_failure else "ALL_STEPS"
        answer = self._ask(
            _AGAIN,
            "launchRunReexecution",
            params={"parentRunId": run.run_id, "strategy": strategy, "extraTags": more, "useParentRunTags": True},
        )
        return _run_of(answer, run.job_name)

    def terminate(self, run: dg.DagsterRun) -> str | None:
        """Asks a run to end. Returns why that is not possible; None: it was asked."""
        answer = self._ask(_TERMINATE, "terminateRun", id=run.run_id)
        if answer["__typename"] == _TERMINATED:
            return None
        # A run that the command line executes has no process that the daemon knows: it looks for this mark by itself.
        now = self.instance.get_run_by_id(run.run_id)
        marked = now is not None and now.status in (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED)
        return None if marked else _first_line(answer)

    def _ask(self, query: str, field: str, **variables: Any) -> dict[str, Any]:
        """Executes one GraphQL mutation. Returns its field of the answer. Raises Problem where Dagster cannot answer."""
        context = self._context
        if context is None:
            raise _unavailable(f"{self.project} has no workspace.yaml, so that its runs cannot be changed.")
        with self._lock:
            now = self._fingerprint()
            if now != self._located:
                context.reload_code_location(location_name(self.project))
                self._located = now
        request = context.create_request_context()
        entry = request.get_location_entry(location_name(self.project))
        if entry is None or entry.code_location is None:
            why = "" if entry is None or entry.load_error is None else f": {entry.load_error.message.strip().splitlines()[-1]}"
            raise _unavailable(f"Dagster cannot load the code location {location_name(self.project)}{why}")
        answer = asyncio.run(self._schema.execute_async(query, context_value=request, variable_values=variables))
        if answer.errors or not answer.data:
            log.error("Dagster refused %s: %s", field, answer.errors)
            raise Problem(HTTPStatus.BAD_GATEWAY, "Dagster could not carry this out; the log of the service says why.")
        return answer.data[field]


def _run_of(answer: Mapping[str, Any], job: str) -> str:
    if answer["__typename"] == _LAUNCHED:
        return answer["run"]["runId"]
    raise Problem(HTTPStatus.CONFLICT, f"Dagster does not launch {job}: {_first_line(answer)}")


def _first_line(answer: Mapping[str, Any]) -> str:
    """The message of an answer of Dagster, without what follows of its stack."""
    text = answer.get("message") or "; ".join(one["message"] for one in answer.get("errors", ())) or answer["__typename"]
    return text.strip().splitlines()[0][:500]


def _unavailable(detail: str) -> Problem:
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail)


@contextlib.contextmanager
def api_workspace(project: Path) -> Iterator[ApiWorkspace]:
    """Opens the project's instance and code location, and closes them with the block. The code location is loaded first."""
    file = project / "workspace.yaml"
    with command_line_instance() as instance:
        if not file.is_file():
            yield ApiWorkspace(project, instance, None)
            return
        with WorkspaceProcessContext(instance, WorkspaceFileTarget([str(file)]), code_server_log_level="WARNING") as context:
            yield ApiWorkspace(project, instance, context)
