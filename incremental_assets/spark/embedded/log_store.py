"""Builds the JAR whose classes write new versions of Delta tables for Spark, and says by which settings Spark uses them.

Delta's own classes look whether there is a version, and then write it. Of two hosts that do so at once, one would replace the commit of the
other, with its rows (docs/decisions/log-store.md).
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

BUILD_SECONDS = 300
_SOURCE = Path(__file__).with_name("log_store.scala")
_KEY = "spark.delta.logStore."
_CLASSES = {"s3": "StoreLogStore", "s3a": "StoreLogStore", "file": "DiskLogStore"}


class BuildFailed(Exception):
    """The compiler did not make the JAR. The text is what it has said."""


def log_store_settings(own: Mapping[str, str]) -> dict[str, str]:
    """The settings by which Spark uses the classes. The user's settings (``own``) may name other ones: for a scheme, or one for all."""
    if f"{_KEY}class" in own:  # Delta refuses this one beside those of schemes
        return {}
    return {f"{_KEY}{scheme}.impl": f"incremental_assets.{name}" for scheme, name in _CLASSES.items()}


def log_store_digest() -> str:
    """Tells versions of the classes apart."""
    return hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]


def log_store_jar(folder: Path, java: Path, class_path: Sequence[str], versions: Sequence[str]) -> Path:
    """The JAR in the folder. It is built once for these ``versions`` (of the JARs in ``class_path``), in five seconds, without a network.

    ``class_path``: Spark's JARs and those of Delta Lake. Raises BuildFailed, and OSError if the folder cannot be written.
    """
    key = hashlib.sha256("\n".join([log_store_digest(), *versions]).encode()).hexdigest()[:12]
    jar = folder / f"log-store-{key}.jar"
    if jar.exists():
        return jar
    with tempfile.TemporaryDirectory(dir=folder, prefix="building-") as work:
        built = Path(work, "log-store.jar")
        compiler = [str(java), "-Xss4m", "-cp", os.pathsep.join(class_path), "scala.tools.nsc.Main", "-usejavacp", "-d", str(built)]
        try:
            answer = subprocess.run([*compiler, str(_SOURCE)], capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise BuildFailed(f"no end after {BUILD_SECONDS} s") from error
        if answer.returncode or not built.exists():
            raise BuildFailed("\n".join((answer.stdout + answer.stderr).strip().splitlines()[-15:]))
        built.replace(jar)  # whole, and also where a concurrent command has built the same
    return jar
