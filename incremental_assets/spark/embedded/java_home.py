"""Finds a Java on this machine that Spark can use."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

log = logging.getLogger(__name__)

SUPPORTED = (17, 21)
"""The feature versions of Java that Spark 4.2 supports, in ascending order."""

ONLY_OWN = "INCREMENTAL_ASSETS_ONLY_OWN_JAVA"
"""The name of an environment variable. If it is set to anything, only a Java in the project's own folder is found, as on a machine without
Java."""

WHAT_TO_INSTALL = """Install Java 17 or 21, then run the command again:
  Debian, Ubuntu    apt install openjdk-17-jre-headless    (or openjdk-21-jre-headless)
  Fedora, RHEL      dnf install java-21-openjdk-headless
  Alpine            apk add openjdk21-jre-headless
  Arch              pacman -S jre21-openjdk-headless
  openSUSE          zypper install java-21-openjdk-headless
  macOS             brew install openjdk@21
  anywhere          unpack a Java 17 or 21 and set JAVA_HOME to its folder
`python -m incremental_assets.spark.embedded.java install` tries to put one into the project's own folder, without changing the system."""


class JavaMissing(Exception):
    """There is no Java that Spark can use. The message says what was found and what to install."""


@dataclass(frozen=True)
class Java:
    """A Java runtime that was run successfully.

    ``home``: its folder, as for ``JAVA_HOME``. ``version``: the feature version, such as 21. ``full_version``: such as ``21.0.8``.
    ``origin``: where it was found, as text for messages.
    """

    home: Path
    version: int
    full_version: str
    origin: str

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def usable(self) -> bool:
        return self.version in SUPPORTED

    def __str__(self) -> str:
        return f"Java {self.full_version} ({self.origin}: {self.home})"


def tools_folder() -> Path:
    """The folder of ``.java`` and ``.jars``.

    INCREMENTAL_ASSETS_TOOLS names it. By default it is beside a project's ``.venv``, else inside another virtual environment, else, without
    a virtual environment, in the user's cache.
    """
    named = os.environ.get("INCREMENTAL_ASSETS_TOOLS")
    if named:
        return Path(named).expanduser().absolute()
    prefix = Path(sys.prefix)
    if sys.prefix == sys.base_prefix:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "incremental-assets"
    return prefix.parent if prefix.name in (".venv", "venv") else prefix


def own_folder() -> Path:
    """The project's own folder for a Java."""
    return tools_folder() / ".java"


def _homes() -> Iterator[tuple[str, Path]]:
    """Folders that may contain a Java, in the order of preference, each with its origin for messages."""
    if not os.environ.get(ONLY_OWN):
        named = os.environ.get("JAVA_HOME")
        if named:
            yield "JAVA_HOME", Path(named)
        on_path = shutil.which("java")
        # On macOS, /usr/bin/java may be a stub that only opens a dialog; /usr/libexec/java_home, below, finds the installed versions.
        if on_path and not (sys.platform == "darwin" and on_path == "/usr/bin/java"):
            yield "PATH", Path(on_path).resolve().parent.parent
    own = own_folder()
    for executable in sorted([*own.glob("*/bin/java"), *own.glob("*/Contents/Home/bin/java")], reverse=True):
        yield "the project's own", executable.parent.parent
    if os.environ.get(ONLY_OWN):
        return
    for pattern in ("/usr/lib/jvm/*", "/usr/lib64/jvm/*", "/opt/java/*", "/opt/jdk*", "/opt/homebrew/opt/openjdk@*"):
        root = Path(pattern).parent
        for home in sorted(root.glob(Path(pattern).name), reverse=True):
            if not home.is_symlink():
                yield str(root), home
    if sys.platform == "darwin":
        for version in reversed(SUPPORTED):
            answer = subprocess.run(["/usr/libexec/java_home", "-v", str(version)], capture_output=True, text=True, check=False)
            if answer.returncode == 0:
                yield "java_home", Path(answer.stdout.strip())


@lru_cache(maxsize=64)
def _ask(executable: Path, _changed: float) -> tuple[int, str] | None:
    """(feature version, full version) as the program reports them; None if it does not run.

    ``_changed``, the program's modification time, is only part of the cache's key.
    """
    try:
        answer = subprocess.run(
            [str(executable), "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.debug("%s does not run: %s", executable, error)
        return None
    found = re.search(r"java\.version = (\S+)", answer.stderr) or re.search(r'version "([^"]+)"', answer.stderr)
    if found is None:
        return None
    full = found.group(1)
    numbers = re.findall(r"\d+", full)
    feature = int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])  # up to Java 8, versions are like 1.8.0_392
    return feature, full


def probe(home: Path, origin: str) -> Java | None:
    """The Java in this folder, which is run to find its version; None if there is none that runs."""
    executable = home / "bin" / "java"
    try:
        changed = executable.stat().st_mtime
    except OSError:
        return None
    answer = _ask(executable, changed)
    return Java(home, answer[0], answer[1], origin) if answer else None


def search(candidates: Iterator[tuple[str, Path]] | None = None) -> tuple[Java | None, list[str]]:
    """The first Java that Spark can use (None: there is none), and a line of text for each one that was rejected before it."""
    passed_over: list[str] = []
    seen: set[Path] = set()
    wanted = f"Spark needs {' or '.join(map(str, SUPPORTED))}"
    for origin, home in candidates or _homes():
        if home.resolve() in seen:
            continue
        seen.add(home.resolve())
        java = probe(home, origin)
        if java is None:
            if origin == "JAVA_HOME":
                passed_over.append(f"JAVA_HOME={home} holds no Java that runs (no {home / 'bin' / 'java'} that answers -version)")
        elif java.usable:
            return java, passed_over
        else:
            passed_over.append(f"{origin}: {home} is Java {java.version} ({java.full_version}), {wanted}")
    return None, passed_over


def find_java() -> Java:
    """The Java that runs Spark. It logs a warning if JAVA_HOME names one that Spark cannot use. Raises JavaMissing if there is no other."""
    java, passed_over = search()
    if java is None:
        found = "No Java was found." if not passed_over else "No Java that Spark can use was found:\n  " + "\n  ".join(passed_over)
        raise JavaMissing(f"{found}\n{WHAT_TO_INSTALL}")
    for line in passed_over:
        level = logging.WARNING if line.startswith("JAVA_HOME") else logging.DEBUG
        log.log(level, "%s; using %s instead", line, java)
    return java
