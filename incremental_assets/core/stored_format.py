"""The version of this product, as it is noted beside what it stores.

Belongs here: what readers and writers of stored state have in common. Does not belong: the formats themselves (``core.watermark``,
``catalog.state``, ``files.manifest``).
"""

import functools
from importlib.metadata import PackageNotFoundError, version


@functools.cache
def product_version() -> str | None:
    """The version of this product; None where it is not installed."""
    try:
        return version("incremental-assets")
    except PackageNotFoundError:
        return None
