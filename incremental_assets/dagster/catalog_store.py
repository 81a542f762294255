"""Where a datastore's catalog is kept between runs: the component's state, in a file of the project or in Dagster's versioned storage.

Belongs here: reading and writing it as Dagster's own loading of components expects it. Does not belong: what is in it (``catalog.state``).
"""

import contextlib
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from dagster._core.storage.defs_state.base import DefsStateStorage
from dagster.components import DefsStateConfig
from dagster.components.utils.project_paths import get_local_state_path
from dagster_shared.serdes.objects.models.defs_state_info import LOCAL_STATE_VERSION, DefsStateManagementType
from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from incremental_assets.catalog.state import Catalog, Known, write_whole
from incremental_assets.core.errors import ConfigurationError

LOCK_SECONDS = 600.0
_FINISHED = TypeAdapter(dict[str, Known])


@dataclass(frozen=True)
class CatalogStore:
    """The place of one datastore's catalog. ``instance``: needed by the versioned storage only."""

    config: DefsStateConfig
    project: Path

    @property
    def is_versioned(self) -> bool:
        return self.config.management_type == DefsStateManagementType.VERSIONED_STATE_STORAGE

    def load(self, instance: dg.DagsterInstance | None) -> Catalog | None:
        """None where nothing is known yet. Raises ConfigurationError for a file that is none of ours."""
        if not self.is_versioned:
            return Catalog.load(self._path) if self._path.exists() else None
        storage = self._storage(instance)
        version = storage.get_latest_version(self.config.key)
        if version is None:
            return None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state"
            storage.download_state_to_path(self.config.key, version, path)
            return Catalog.load(path)

    def save(self, catalog: Catalog, instance: dg.DagsterInstance | None) -> None:
        """A reader sees the old catalog or the new one, whole."""
        if not self.is_versioned:
            catalog.save(self._path)
            storage = instance.defs_state_storage if instance is not None else None
            if storage is not None and storage.get_latest_version(self.config.key) is None:
                storage.set_latest_version(self.config.key, LOCAL_STATE_VERSION)
        else:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "state"
                catalog.save(path)
                self._storage(instance).upload_state_from_path(self.config.key, str(uuid.uuid4()), path)
        self._finished.unlink(missing_ok=True)

    def forget(self) -> None:
        """The next catalog begins anew, calendars too."""
        self._path.unlink(missing_ok=True)
        self._finished.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One writer at a time: the later one would undo what the other has done. Raises ConfigurationError after ten minutes."""
        try:
            with FileLock(self._path.with_name("lock"), timeout=LOCK_SECONDS):
                yield
        except Timeout:
            raise ConfigurationError(f"{self.config.key}: somebody else is taking its catalog; run it again later.") from None

    # ------------------------------------------------------------------ what an interrupted run had finished
    def finished(self) -> Mapping[str, Known]:
        try:
            return _FINISHED.validate_json(self._finished.read_bytes())
        except (FileNotFoundError, ValidationError):  # none, or of another version: it only saves time
            return {}

    def keep_finished(self, found: Mapping[str, Known]) -> None:
        write_whole(self._finished, _FINISHED.dump_json(dict(found)))

    @property
    def _path(self) -> Path:
        return get_local_state_path(self.config.key, self.project)

    @property
    def _finished(self) -> Path:
        return self._path.with_name(self._path.name + ".unfinished")

    def _storage(self, instance: dg.DagsterInstance | None) -> DefsStateStorage:
        storage = instance.defs_state_storage if instance is not None else DefsStateStorage.get()
        if storage is None:
            raise ConfigurationError(f"{self.config.key}: no storage for its catalog is at hand; see defs_state_storage in dagster.yaml.")
        return storage
