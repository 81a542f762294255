"""Dagster's webserver as ``incremental-assets dev`` starts it: restricted by ``web_guard``, reloading after each catalog, and
with the pages of profiles.
"""

import logging
import re
import threading
import time
from pathlib import Path
from typing import Any

import dagster_webserver.cli as dagster_webserver
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster.components.utils.project_paths import get_local_defs_state_dir
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from incremental_assets.dagster.web.web_guard import guard
from incremental_assets.project.folders import current_project, lake_root, location_name
from incremental_assets.runs.quality.pages import PROFILES, page_path

RELOAD_SECONDS = 2.0
"""How often the webserver checks whether a catalog has changed."""
log = logging.getLogger(__name__)


def main() -> None:
    """The command line of ``dagster-webserver``, with an app that is restricted and reloads the code location."""
    dagsters = dagster_webserver.create_app_from_workspace_process_context  # pyright: ignore[reportPrivateImportUsage]

    def app(context: WorkspaceProcessContext, *args: Any, **kwargs: Any) -> Starlette:
        threading.Thread(target=_reload_after_catalogs, args=(current_project(), context), daemon=True).start()
        made = dagsters(context, *args, **kwargs)
        made.router.routes.insert(0, Route(f"{PROFILES}/{{datastore}}/{{container}}", profile))
        return guard(made)

    dagster_webserver.create_app_from_workspace_process_context = app  # pyright: ignore[reportPrivateImportUsage]
    dagster_webserver.main()


def profile(request: Request) -> Response:
    """The page with the profile of a container, which is named as the folder of its table.

    The page has values of the source, and scripts that draw them. It is shown as if it came from elsewhere, so that it may use nothing of
    the UI's, whatever is in it.
    """
    names = request.path_params["datastore"], request.path_params["container"]
    page = page_path(lake_root(), names) if all(re.fullmatch(r"[A-Za-z0-9_]+", name) for name in names) else None
    if page is None or not page.is_file():
        where = "" if page is None else f" at {page} on the machine of this webserver"
        return PlainTextResponse(f"There is no profile of {'/'.join(names)}{where}.", status_code=404)
    return HTMLResponse(page.read_text(encoding="utf-8"), headers={"Content-Security-Policy": "sandbox allow-scripts"})


def _reload_after_catalogs(project: Path, context: WorkspaceProcessContext) -> None:
    """Reloads the code location each time a catalog has changed, whichever process has written it, so that new containers show in the UI.

    It runs for ever, in a thread of its own.
    """
    states, storage, location = get_local_defs_state_dir(project), context.instance.defs_state_storage, location_name(project)

    def seen() -> tuple[Any, ...]:
        """A value that changes when a catalog changes.

        It consists of the modification times of local catalogs, and of the versions of those in Dagster's storage.
        """
        times = {path: path.stat().st_mtime_ns for path in states.glob("*/state")}
        return times, storage.get_latest_defs_state_info() if storage else None

    before: tuple[Any, ...] | None = None
    while True:
        time.sleep(RELOAD_SECONDS)
        try:
            now = seen()
            if before is None or now == before:
                before = now
                continue
            context.reload_code_location(location)
            entry = context.create_request_context().get_location_entry(location)
        except Exception as error:  # noqa: BLE001 the storage may be busy, the code server starting: the next attempt may succeed
            log.debug("the code location is loaded again later: %s", error)
            continue
        before = now
        if entry is None or entry.load_error is not None:
            log.warning("the code location cannot be loaded with the new catalog: %s", entry and entry.load_error)


if __name__ == "__main__":
    main()
