"""The formats of what is stored between two runs: who writes it notes the format and its own version, who finds a newer format refuses it.

Each has a number, which is raised when an older version would lose something or misread it: so does a value of an enum that they do not
know. A field that older versions may ignore does not raise it.
"""

import functools
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar

from incremental_assets.core.errors import NewerFormat

WRITTEN_BY = "written_by"
"""The field that says which version has written something."""
_Kind = TypeVar("_Kind", bound=Enum)


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
        raise _newer(what, f"format {found}; this is version {product_version()}, which reads formats up to {known}", written_by)


def known_value(kind: type[_Kind], value: object, what: str, written_by: object = None) -> _Kind:
    """The member of the enum with this stored value.

    Raises NewerFormat if there is none: no version has taken a value away that was stored, so that a newer one has added it.
    """
    try:
        return kind(value)
    except ValueError:
        raise of_unknown(what, value, written_by) from None


def of_unknown(what: str, value: object, written_by: object) -> NewerFormat:
    """The error that a stored value of an enum is none that this version knows."""
    return _newer(what, f"it has {value!r}, which version {product_version()}, this one, does not know", written_by)


def _newer(what: str, why: str, written_by: object) -> NewerFormat:
    """The error that a newer version has written this. ``why``: how that shows."""
    its, wanted = (f", {written_by}", f"{written_by} or newer") if written_by else ("", "that version")
    return NewerFormat(
        f"{what} was written by a newer version of incremental-assets{its} ({why}). Nothing was written, and nothing has to be loaded "
        f"anew: install incremental-assets {wanted} here, and run this again."
    )
