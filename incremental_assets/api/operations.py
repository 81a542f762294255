"""What can be done with operations: run, abort, rerun, resume, delete."""

import logging
import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import dagster as dg

from incremental_assets.api.asked import launches
from incremental_assets.api.history import Found, find, operation
from incremental_assets.api.payloads import RunBody
from incremental_assets.api.problems import Problem
from incremental_assets.api.workspace import ApiWorkspace
from incremental_assets.runs.records.run_tags import REQUEST_TAG, STARTED_BY_TAG
from incremental_assets.runs.run_history import forget_run

log = logging.getLogger(__name__)


def run(workspace: ApiWorkspace, body: RunBody) -> dict[str, Any]:
    """Launches the runs of a request. Returns its operation, and in ``troubles`` those that could not be launched after the first one."""
    asked = launches(body, workspace.datastores(), workspace.instance)
    if not asked:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"there is nothing to {body.type}: no container that is named has what that needs.")
    workspace.expect_daemon()

    def one(position: int, request: str) -> str:
        launch = asked[position]
        return workspace.launch(
            launch.job, launch.run_config, {**launch.tags, REQUEST_TAG: request, STARTED_BY_TAG: body.triggered_by}, launch.asset
        )

    return _launched(workspace, [launch.of for launch in asked], one)


def again(workspace: ApiWorkspace, id: str, from_failure: bool) -> dict[str, Any]:
    """Launches the runs of an id once more: all of them, or from failure those that have failed or were aborted."""
    found = find(workspace.instance, id)
    _expect_ended(found, "resume" if from_failure else "rerun")
    runs = [record.dagster_run for record in found.records]
    if from_failure:
        runs = [one for one in runs if one.status in (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)]
        if not runs:
            raise Problem(HTTPStatus.CONFLICT, f"{id} has succeeded, so that there is nothing to resume. POST its /rerun to run it again.")
    for one in runs:
        if one.remote_job_origin is None:
            raise Problem(HTTPStatus.CONFLICT, f"run {one.run_id} does not say in which code location its job is; run it anew.")
    workspace.expect_daemon()
    return _launched(
        workspace,
        [one.run_id for one in runs],
        lambda position, request: workspace.again(runs[position], from_failure, {REQUEST_TAG: request}),
    )


def _launched(workspace: ApiWorkspace, names: list[str], launch: Callable[[int, str], str]) -> dict[str, Any]:
    """Launches one run after another, which have a new request in common. Raises Problem where the first one cannot be launched."""
    request, troubles, done = str(uuid.uuid4()), [], 0
    for position, name in enumerate(names):
        try:
            launch(position, request)
            done += 1
        except Problem as refused:
            if position == 0:
                raise
            # The others are launched already: the answer names them, so that nobody launches them twice.
            troubles.append({"of": name, "message": refused.detail})
    log.info("request %s has launched %s of %s runs", request, done, len(names))
    return operation(workspace.instance, find(workspace.instance, request)) | {"troubles": troubles}


def abort(workspace: ApiWorkspace, id: str) -> dict[str, Any]:
    """Asks the runs of an id that have not ended to end. What is committed stays."""
    found = find(workspace.instance, id)
    going = [record.dagster_run for record in found.records if not record.dagster_run.is_finished]
    if not going:
        raise Problem(HTTPStatus.CONFLICT, f"{id} has ended already.")
    troubles = [(one, workspace.terminate(one)) for one in going]
    refused = [f"run {one.run_id}: {why}" for one, why in troubles if why is not None]
    if len(refused) == len(going):
        raise Problem(HTTPStatus.CONFLICT, "; ".join(refused)[:2000])
    return operation(workspace.instance, find(workspace.instance, id)) | {"troubles": refused}


def delete(workspace: ApiWorkspace, id: str) -> None:
    """Deletes the runs of an id from Dagster's storage, with their events. Raises Problem, before any is deleted, where one is going on."""
    found = find(workspace.instance, id)
    _expect_ended(found, "delete")
    kept = [record.dagster_run.run_id for record in found.records if not forget_run(workspace.instance, record.dagster_run)]
    if kept:
        raise Problem(
            HTTPStatus.CONFLICT,
            f"kept {', '.join(kept)[:2000]}: Dagster deletes the events of a run with it, and among these are the newest of a container, a "
            f"partition or a check, by which the UI and the watermarks' history know their state. It can be deleted after a later run.",
        )


def _expect_ended(found: Found, what: str) -> None:
    going = [record.dagster_run.run_id for record in found.records if not record.dagster_run.is_finished]
    if going:
        raise Problem(HTTPStatus.CONFLICT, f"run {going[0]} has not ended, so that it is not possible to {what} it; abort it first.")
