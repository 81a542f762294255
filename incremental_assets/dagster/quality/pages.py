"""Where the page of a container's profile is.

Belongs here: its path, for those who write it and those who link to it. Does not belong: the page (``quality.profile.page``).
"""

from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from incremental_assets.core.container import Container
from incremental_assets.core.names import file_name
from incremental_assets.dagster.project import dagster_home
from incremental_assets.delta.folders import QUALITY_FOLDER

PAGE = "profile/page"
"""Its metadata key."""


def page_path(lake: str, container: Container) -> Path:
    """The page of the container's profile: beside the states, or in Dagster's home where the lake is no local folder."""
    local = urlsplit(lake).scheme in ("", "file")
    root = Path(lake.removeprefix("file://")) / container.key_path[0] / QUALITY_FOLDER if local else dagster_home() / "profiles"
    return root / "pages" / file_name(container.key_path, ".html")


def remove_page(lake: str, container: Container, before: datetime) -> None:
    """Removes the page where it was written before then: it shows values of rows, and the next profile writes it anew."""
    page = page_path(lake, container)
    if page.exists() and page.stat().st_mtime < before.timestamp():
        page.unlink(missing_ok=True)
