"""Stores a datastore's catalog between runs: in a file of the project, or in Dagster's versioned storage of component state."""

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import dagster as dg
from dagster._core.storage.defs_state.base import DefsStateStorage
from dagster.components import DefsStateConfig
from dagster.components.utils import project_paths
from dagster.components.utils.project_paths import get_defs_module_path_for_project, get_local_state_path
from dagster_shared.serdes.objects.models.defs_state_info import LOCAL_STATE_VERSION, DefsStateManagementType
from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from incremental_assets.catalog.state import Catalog, Known, write_whole
from incremental_assets.core.errors import ConfigurationError

LOCK_SECONDS = 600.0
"""How long a catalog operation waits for another one of the same datastore."""
_FINISHED = TypeAdapter(dict[str, Known])


@contextlib.contextmanager
def read_from_a_copy(project: Path) -> Iterator[None]:
    """Within the block, catalogs in files of the project are read from a copy elsewhere.

    Dagster makes a folder wherever it looks for a component's state; so nothing is written into the project, which may be read-only.
    """
    state = get_defs_module_path_for_project(project) / project_paths._LOCAL_DEFS_STATE_DIR
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(project_paths, "_LOCAL_DEFS_STATE_DIR", folder):
        if state.is_dir():
            shutil.copytree(state, folder, dirs_exist_ok=True)
        yield


@dataclass(frozen=True)
class CatalogStore:
    """The storage of one datastore's catalog.

    ``config``: Dagster's configuration of the component's state, with its key and where it is stored. The methods take an ``instance``,
    which only the versioned storage needs; None then means the storage that Dagster has set up for this process.
    """

    config: DefsStateConfig
    project: Path

    @property
    def is_versioned(self) -> bool:
        """Whether the catalog is in Dagster's versioned storage, and not in a file of the project."""
        return self.config.management_type == DefsStateManagementType.VERSIONED_STATE_STORAGE

    def load(self, instance: dg.DagsterInstance | None) -> Catalog | None:
        """The stored catalog; None where the datastore was never catalogued.

        Raises NewerFormat and ConfigurationError as ``Catalog.load`` does.
        """
        if not self.is_versioned:
            return Catalog.load(self._path, self.config.key) if self._path.exists() else None
        storage = self._storage(instance)
        version = storage.get_latest_version(self.config.key)
        if version is None:
            return None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state"
            storage.download_state_to_path(self.config.key, version, path)
            return Catalog.load(path, self.config.key)

    def save(self, catalog: Catalog, instance: dg.DagsterInstance | None) -> None:
        """Stores the catalog atomically: a reader sees the old one or the new one.

        The entries of an interrupted operation (``finished``) are removed afterwards.
        """
        if not self.is_versioned:
            catalog.save(self._path)
            storage = instance.defs_state_storage if instance is not None else None
            # Dagster records of each component's state where it is. For a local file this record never changes, so it is written once.
            if storage is not None and storage.get_latest_version(self.config.key) is None:
                storage.set_latest_version(self.config.key, LOCAL_STATE_VERSION)
        else:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "state"
                catalog.save(path)
                self._storage(instance).upload_state_from_path(self.config.key, str(uuid.uuid4()), path)
        self._finished.unlink(missing_ok=True)

    def forget(self) -> None:
        """Removes the local catalog, so that the next operation starts without any knowledge.

        The first day of partitions by time is then found anew, too.
        """
        self._path.unlink(missing_ok=True)
        self._finished.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the catalog for one writer at a time, because a later writer would undo the changes of an earlier one.

        Raises ConfigurationError after ten minutes.
        """
        try:
            with FileLock(self._path.with_name("lock"), timeout=LOCK_SECONDS):
                yield
        except Timeout:
            raise ConfigurationError(f"{self.config.key}: another process is taking its catalog; run it again later.") from None

    # ------------------------------------------------------------------ entries of an interrupted operation
    def finished(self) -> Mapping[str, Known]:
        """The entries that an interrupted operation had finished, by container name.

        They only save the time of inspecting those containers again. So entries of another version are ignored.
        """
        try:
            return _FINISHED.validate_json(self._finished.read_bytes())
        except (FileNotFoundError, ValidationError):
            return {}

    def keep_finished(self, found: Mapping[str, Known]) -> None:
        """Stores the entries that the running operation has finished so far."""
        write_whole(self._finished, _FINISHED.dump_json(dict(found), by_alias=True))

    @property
    def _path(self) -> Path:
        return get_local_state_path(self.config.key, self.project)

    @property
    def _finished(self) -> Path:
        return self._path.with_name(self._path.name + ".unfinished")

    def _storage(self, instance: dg.DagsterInstance | None) -> DefsStateStorage:
        storage = instance.defs_state_storage if instance is not None else DefsStateStorage.get()
        if storage is None:
            raise ConfigurationError(f"{self.config.key}: there is no storage for its catalog; set defs_state_storage in dagster.yaml.")
        return storage
