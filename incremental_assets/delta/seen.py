"""What this process, or an earlier one with the same DAGSTER_HOME, has read of the newest versions of tables on object stores.

A file that is lost or damaged costs reading a table's log once more, and nothing else.
"""

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Collection, Mapping
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
    if _folders:
        _put(address, _file(address), json.dumps(what).encode())


def keep(address: str, name: str, content: bytes) -> None:
    """Keeps an object of the table's log for ``kept``. ``name``: no other content ever has it."""
    file = _file(address).with_suffix("") / name if _folders else None
    if file is not None and not file.exists():
        _put(address, file, hashlib.sha256(content).digest() + content)


def kept(address: str, name: str) -> bytes | None:
    """The object of this name; None if it is not kept, or if the file is damaged, as after a loss of power."""
    if not _folders:
        return None
    file = _file(address).with_suffix("") / name
    try:
        found = file.read_bytes()
    except OSError:
        return None
    digest, content = found[:32], found[32:]
    if digest == hashlib.sha256(content).digest():
        return content
    file.unlink(missing_ok=True)  # else it would never be written again
    return None


def keep_only(address: str, names: Collection[str]) -> None:
    """Lets go of the other objects of the table's log."""
    try:
        others = [file for file in _file(address).with_suffix("").iterdir() if file.name not in names] if _folders else []
        for file in others:
            file.unlink(missing_ok=True)
    except OSError as error:
        log.debug("%s: what is not needed of its log stays: %s", address, error)


def _put(address: str, file: Path, content: bytes) -> None:
    try:
        for folder in dict.fromkeys((_folders[0], file.parent)):
            folder.mkdir(mode=0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=_folders[0], delete=False) as beside:
            beside.write(content)
        os.replace(beside.name, file)
    except OSError as error:
        log.debug("%s: what was seen of it is not kept: %s", address, error)


def _file(address: str) -> Path:
    return _folders[0] / f"{hashlib.sha256(address.encode()).hexdigest()[:32]}.json"
