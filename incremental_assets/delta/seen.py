"""What this process, or an earlier one with the same DAGSTER_HOME, has read of the newest versions of tables on object stores.

Belongs here: keeping it, in memory and in a file for each table. Does not belong: what it is, and whether the version is still the newest
one, which one listing of the log tells (``table``). A file that is lost or damaged costs reading a table's log once more, and nothing else.
"""

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

_SEEN: dict[str, Mapping[str, Any]] = {}
_folders: list[Path] = []


def keep_in(folder: Path) -> None:
    """From now on what is seen is kept in this folder, too, and known from it."""
    _folders[:] = [folder]


def seen(address: str) -> Mapping[str, Any] | None:
    """What was noted last of the table at this address (``LakeTable.address``); None if nothing was."""
    if address not in _SEEN and _folders:
        try:
            found = json.loads(_file(address).read_bytes())
        except (OSError, ValueError):
            return None
        if isinstance(found, dict):
            _SEEN[address] = found
    return _SEEN.get(address)


def note(address: str, what: Mapping[str, Any]) -> None:
    """Keeps this for ``seen``."""
    _SEEN[address] = what
    if not _folders:
        return
    try:
        _folders[0].mkdir(mode=0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=_folders[0], delete=False, encoding="utf-8") as beside:
            json.dump(what, beside)
        os.replace(beside.name, _file(address))
    except OSError as error:
        log.debug("%s: what was seen of it is not kept: %s", address, error)


def _file(address: str) -> Path:
    return _folders[0] / f"{hashlib.sha256(address.encode()).hexdigest()[:32]}.json"
