"""The path of the HTML page with a container's profile."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg

from incremental_assets.core.container import Container
from incremental_assets.core.names import file_name
from incremental_assets.delta.folders import QUALITY_FOLDER
from incremental_assets.project.folders import dagster_home

PAGE = "profile/page"
"""The metadata key of the link to the page."""
PROFILES = "/incremental_assets/profiles"
"""The path in the UI below which there are the pages, by datastore and container."""


def page_path(lake: str, key_path: Sequence[str]) -> Path:
    """The path of the page of the container with this key path.

    It lies with the datastore's quality tables, or in Dagster's home where the lake is not a local folder.
    """
    local = urlsplit(lake).scheme in ("", "file")
    root = Path(lake.removeprefix("file://")) / key_path[0] / QUALITY_FOLDER if local else dagster_home() / "profiles"
    return root / "pages" / file_name(key_path, ".html")


def page_link(container: Container) -> dg.UrlMetadataValue:
    """The link to the page, which this package's webserver answers (``web.webserver``)."""
    return dg.MetadataValue.url(f"{PROFILES}/{'/'.join(container.key_path)}")


def remove_page(lake: str, container: Container, before: datetime) -> None:
    """Removes the page where it was last written before ``before``.

    It shows values of rows, and ``keep_days`` limits how long these are kept. The next profile writes a new page.
    """
    page = page_path(lake, container.key_path)
    if page.exists() and page.stat().st_mtime < before.timestamp():
        page.unlink(missing_ok=True)
