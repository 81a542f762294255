"""Dagster's home is readable by its owner only: run configs, logs and the Spark server's token are in it.

Belongs here: whose folder becomes private, and whose stays as it is. Does not belong: records of quality (``test_quality_records``).
"""

import os
import sys
from pathlib import Path

import pytest

from incremental_assets.project.folders import enter_project
from incremental_assets.project.scaffold import write_project


def mode(folder: Path) -> int:
    return folder.stat().st_mode & 0o777


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Entering a project changes the environment of this process."""
    for name in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_PROJECT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_project(tmp_path / "p")
    return tmp_path / "p"


def test_only_the_owner_can_read_a_projects_home(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise other users of the machine can read the runs' configurations and logs."""
    before = os.umask(0o022)
    try:
        enter_project(project)
        assert mode(project / ".dagster_home") == 0o700
        (project / ".dagster_home").chmod(0o755)  # as earlier versions, and `dagster dev`, have made it
        monkeypatch.delenv("DAGSTER_HOME")
        enter_project(project)
        assert mode(project / ".dagster_home") == 0o700
    finally:
        os.umask(before)


def test_the_rights_of_a_named_dagster_home_stay(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group may share such a folder on purpose. A folder that does not exist yet is made private."""
    shared, new = tmp_path / "shared", tmp_path / "new"
    shared.mkdir()
    shared.chmod(0o770)
    for home, expected in ((shared, 0o770), (new, 0o700)):
        monkeypatch.setenv("DAGSTER_HOME", str(home))
        enter_project(project)
        assert mode(home) == expected
