"""What a project's files say of the object stores that Spark's server has to read.

Belongs here: which ``defs.yaml`` counts. Does not belong: what the server then gets (``spark.test_spark``).
"""

import os
import sys
from pathlib import Path

import pytest

from incremental_assets.project.folders import enter_project
from incremental_assets.project.scaffold import write_project
from incremental_assets.spark.embedded import launch

HERE, THERE, AZURE = "/srv/landing", "s3://bucket/landing", "abfss://box@somebody.dfs.core.windows.net/landing"


@pytest.mark.parametrize(
    ("path", "landing", "asks"),
    [(HERE, "", None), (THERE, "", "s3"), ("s3a://bucket/landing", "", "s3"), ("{{ env.LANDING }}", THERE, "s3"),
     ("{{ env.LANDING }}", HERE, None), (f"{HERE} # as {THERE} was", "", None), (AZURE, "", "azure"), ("az://box/landing", "", "azure"),
     (AZURE + "\n  other: " + THERE, "", "azure,s3")],
)  # fmt: skip
def test_all_processes_of_a_project_ask_for_the_same_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, landing: str, asks: str | None
) -> None:
    """A run that loads a database alone would start a server without the connector, which the next run of the files has to end. A file
    that cannot be read is no matter of this: loading it says so."""
    for name in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT", launch.STORES):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_project(tmp_path / "p")
    (tmp_path / "p" / ".env").write_text(f"LANDING={landing}\n")
    monkeypatch.setenv("LANDING", "")
    for name, content in (("shop", b"\xff\xfe"), ("landing", f"attributes:\n  path: {path}\n".encode())):
        (tmp_path / "p" / "defs" / name).mkdir()
        (tmp_path / "p" / "defs" / name / "defs.yaml").write_bytes(content)
    (tmp_path / "p" / "defs" / "gone").mkdir()
    (tmp_path / "p" / "defs" / "gone" / "defs.yaml").symlink_to(tmp_path / "nowhere")
    enter_project(tmp_path / "p")
    assert os.environ.get(launch.STORES) == asks
    assert launch.stores() == ([] if asks is None else sorted(asks.split(","), reverse=True))
