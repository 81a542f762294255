"""The formats of what is stored between two runs: who writes it notes the format and its own version, who finds a newer format refuses it.

Belongs here: this rule. Does not belong: the formats themselves (``core.watermark``: the sync state of a table; ``catalog.state``: a
datastore's catalog; ``files.manifest``: which files a table holds). Each has a number, which is raised when an older version would lose
something or misread it. A field that older versions may ignore does not raise it.
"""

import functools
from importlib.metadata import PackageNotFoundError, version

from incremental_assets.core.errors import NewerFormat

WRITTEN_BY = "written_by"
"""The field that says which version has written something."""


@functools.cache
def product_version() -> str | None:
    """The version of this product; None where it is not installed."""
    try:
        return version("incremental-assets")
    except PackageNotFoundError:
        return None


def expect_known(what: str, found: object, known: int, written_by: object) -> None:
    """Raises NewerFormat if what is stored has a newer format than this version reads.

    ``what``: names it in the message, as in "the catalog of shop". ``found``: the format that it names. ``known``: the newest format that
    this version reads. ``written_by``: the version that has written it, as far as it says so.
    """
    if isinstance(found, int) and found > known:
        its, wanted = (f", {written_by}", f"{written_by} or newer") if written_by else ("", "that version")
        raise NewerFormat(
            f"{what} was written by a newer version of incremental-assets{its} (format {found}; this is version {product_version()}, which "
            f"reads formats up to {known}). Nothing was written, and nothing has to be loaded anew: install incremental-assets {wanted} "
            f"here, and run this again."
        )
