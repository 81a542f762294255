"""The demo, as a new user runs it: the command ends with lake and source being equal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_story_of_the_demo_ends_with_lake_and_source_equal(tmp_path: Path) -> None:
    """An open transaction, late rows, new columns, old rows that an audit repairs, and bad rows: whoever loses one fails here."""
    environment = {
        k: v for k, v in os.environ.items() if k not in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT")
    }
    command = [sys.executable, "-m", "incremental_assets.cli"]
    subprocess.run([*command, "init", str(tmp_path / "project")], check=True, env=environment, stdout=subprocess.DEVNULL)
    arguments = ["--project", str(tmp_path / "project"), "demo", "--scale", "0.01"]
    done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "held back by" in done.stdout and "Lake and source are equal" in done.stdout, done.stdout[-4000:]
