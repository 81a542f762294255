"""Prepares the launch of the embedded Spark server's JVM: its JARs, its settings and its command line.

This module does not import pyspark: the import takes a second, and the supervisor does not need it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from incremental_assets.spark.embedded.environment import NoVariable, asked_for, jvm_environment
from incremental_assets.spark.embedded.java_home import Java, JavaMissing, find_java, tools_folder
from incremental_assets.spark.embedded.log_store import BuildFailed, log_store_digest, log_store_jar, log_store_settings
from incremental_assets.spark.embedded.pins import JARS, differing

log = logging.getLogger(__name__)

POSTGRES_DRIVER = "org.postgresql:postgresql:42.7.14"
S3_CONNECTOR = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    "software.amazon.awssdk:s3-transfer-manager:2.35.4",
    "software.amazon.awssdk:sts:2.35.4",
)
"""Spark's connector for S3, of the Hadoop that comes with pyspark, and the parts of Amazon's SDK that it uses. By itself it requires all of
the SDK, in one file of 690 MB, which is excluded."""
AZURE_CONNECTOR = ("org.apache.hadoop:hadoop-azure:3.5.0",)
"""Spark's connector for Azure, of the same Hadoop. It requires the SDK of its predecessor too, which it does not load, and which is
excluded."""


class Connector(NamedTuple):
    """What Spark's server needs for one kind of object stores.

    ``schemes``: a pattern of how their URLs begin. ``artifact``: its name in the user's settings, where they bring another version of it.
    ``excluded``: what is not fetched with it, as ``group:artifact``.
    """

    schemes: str
    artifact: str
    coordinates: tuple[str, ...]
    excluded: tuple[str, ...]


CONNECTORS: Mapping[str, Connector] = {
    "s3": Connector("s3a?", "hadoop-aws", S3_CONNECTOR, ("software.amazon.awssdk:bundle",)),
    "azure": Connector(
        "az|azure|abfss?", "hadoop-azure", AZURE_CONNECTOR,
        ("com.microsoft.azure:azure-storage", "org.apache.hadoop.thirdparty:hadoop-shaded-guava"),
    ),
}  # fmt: skip
SCALA = "2.13"
"""Of the Spark that comes with pyspark."""
SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
PYTHON_DAEMON = "incremental_assets.spark.embedded.python_daemon"
CONF = "INCREMENTAL_ASSETS_SPARK_CONF"
LAKE = "INCREMENTAL_ASSETS_LAKE"
STORES = "INCREMENTAL_ASSETS_SPARK_STORES"
"""The variable with the kinds of object stores (``CONNECTORS``) that the project's files name, separated by commas."""
MEMORY = "INCREMENTAL_ASSETS_SPARK_MEMORY"
FETCH_SECONDS = 900
STORE_VARIABLES = (
    *("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"),
    *("AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"),
)
"""Variables of an object store that Spark or its connector read in the server's environment: a running server keeps old values."""


class SparkUnavailable(Exception):
    """There is no Spark server: Java is missing or too old, the server cannot start or has ended, or SPARK_REMOTE is unreachable."""


def spark_home() -> Path:
    """The folder of the Spark that this interpreter's pyspark contains.

    SPARK_HOME is ignored, because client and server must have the same version.
    """
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise SparkUnavailable("pyspark is not installed in this environment. Run `make install` (or pip install 'pyspark[connect]').")
    return Path(next(iter(found.submodule_search_locations)))


def java() -> Java:
    """The Java that runs Spark. Raises SparkUnavailable if there is none."""
    try:
        return find_java()
    except JavaMissing as error:
        raise SparkUnavailable(str(error)) from error


def own_settings() -> dict[str, str]:
    """The user's Spark settings from INCREMENTAL_ASSETS_SPARK_CONF (``key=value;key=value``). Raises SparkUnavailable for other text."""
    settings: dict[str, str] = {}
    for part in os.environ.get(CONF, "").split(";"):
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        if not equals or not key.strip().startswith("spark."):
            raise SparkUnavailable(f"{CONF} has {part.strip()!r}: write spark.some.setting=value, several separated by semicolons.")
        settings[key.strip()] = value.strip()
    return settings


def has_other_machines() -> bool:
    """Whether Spark's tasks may run on other machines than this one: SPARK_REMOTE names a server, or ``spark.master`` a cluster."""
    return bool(os.environ.get("SPARK_REMOTE")) or not own_settings().get("spark.master", "local").startswith("local")


def driver_memory() -> str:
    """The heap size of the JVM, such as ``4096m``: INCREMENTAL_ASSETS_SPARK_MEMORY if it is set.

    By default it is a quarter of the memory of the machine, or of the limit of its cgroup, but at least 1 GB and at most 8 GB.
    """
    named = os.environ.get(MEMORY)
    if named:
        if not re.fullmatch(r"\d+[kmgt]", named.strip().lower()):
            raise SparkUnavailable(f"{MEMORY}={named!r} is no amount of memory: write for example 4g or 1500m.")
        return named.strip().lower()
    amounts = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            amounts.append(int(Path(limit).read_text()))
        except (OSError, ValueError):
            continue  # the cgroup controller does not exist, or its limit is "max"
    return f"{max(1024, min(8192, min(amounts) // 4 // 2**20))}m"


# ------------------------------------------------------------------------------------------------ JARs
def own_coordinates() -> tuple[str, ...]:
    """The Maven coordinates of the project's own packages: Delta Lake and PostgreSQL's driver.

    Those of Delta Lake follow from the installed ``delta-spark`` and ``pyspark`` by the rule of ``delta.configure_spark_with_delta_pip``,
    which is not called because it imports pyspark. Raises SparkUnavailable if the digests of that version are not pinned.
    """
    delta, spark = _installed("delta-spark"), _installed("pyspark")
    artifact = f"delta-spark_{'.'.join(spark.split('.')[:2])}_{SCALA}"
    if f"io.delta_{artifact}-{delta}.jar" not in JARS:
        pinned = next(name for name in JARS if name.startswith("io.delta_delta-spark_"))
        raise SparkUnavailable(
            f"delta-spark {delta} is installed beside pyspark {spark}. The JARs whose digests are known, and no others are run, are of "
            f"another: {pinned}. `make install` (or pip install incremental-assets) brings the versions that fit it."
        )
    return f"io.delta:{artifact}:{delta}", POSTGRES_DRIVER


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError as error:
        raise SparkUnavailable(f"{package} is not installed in this environment. Run `make install` (or pip install {package}).") from error


def stores_in(text: str) -> list[str]:
    """The kinds of object stores (``CONNECTORS``) of which the text has a URL."""
    return [kind for kind, one in CONNECTORS.items() if re.search(rf"\b(?:{one.schemes})://", text)]


def stores() -> list[str]:
    """The kinds of object stores for which the server gets a connector from here: the lake or a folder of files is there, and the user's
    settings name no other connector."""
    named, lake, own = os.environ.get(STORES, "").split(","), os.environ.get(LAKE, ""), os.environ.get(CONF, "")
    asked_for = {kind for kind, one in CONNECTORS.items() if kind in named or re.match(f"(?:{one.schemes})://", lake)}
    return [kind for kind in CONNECTORS if kind in asked_for and CONNECTORS[kind].artifact not in own]


def untried_store() -> str | None:
    """The kind of store that the lake is on, if this version was not tried with it."""
    return "Google Cloud Storage" if os.environ.get(LAKE, "").startswith("gs://") else None


def connector() -> tuple[str, ...]:
    """The Maven coordinates of the connectors for ``stores``."""
    return tuple(coordinate for kind in stores() for coordinate in CONNECTORS[kind].coordinates)


def coordinates() -> tuple[str, ...]:
    """The Maven coordinates of all packages: the project's own, and the user's ``spark.jars.packages``."""
    return (*own_coordinates(), *connector(), *_own_list("spark.jars.packages"))


def _excluded() -> list[str]:
    """What is not fetched with them, as ``group:artifact``."""
    return [*_own_list("spark.jars.excludes"), *(artifact for kind in stores() for artifact in CONNECTORS[kind].excluded)]


def _own_list(key: str) -> list[str]:
    return [part.strip() for part in own_settings().get(key, "").split(",") if part.strip()]


def jar_folder() -> Path:
    """The folder of the JARs for these coordinates and this version of Spark. If it exists, it is complete."""
    excluded = [f"-{artifact}" for artifact in _excluded()]
    key = hashlib.sha256("\n".join([*coordinates(), *excluded, version("pyspark")]).encode()).hexdigest()[:12]
    return tools_folder() / ".jars" / key


def jars() -> list[Path]:
    """The JARs that Spark does not contain itself.

    At the first call Spark's own resolver fetches them; later calls need no network. Raises SparkUnavailable if they cannot be fetched.
    """
    folder = jar_folder()
    found = sorted(folder.glob("*.jar"))
    return found or _fetch_jars(folder)


def built_jar(fetched: Sequence[Path]) -> Path:
    """The JAR of the log store, built at the first call from the JARs that were ``fetched``. Raises SparkUnavailable if it cannot be."""
    class_path = [f"{spark_home() / 'jars'}{os.sep}*", *(str(jar) for jar in fetched)]
    folder = tools_folder() / ".jars"
    try:
        return log_store_jar(folder, java().executable, class_path, [*own_coordinates(), version("pyspark")])
    except (BuildFailed, OSError) as error:
        raise SparkUnavailable(f"The JAR by which Spark commits could not be built in {folder}: {error}") from error


def _fetch_jars(folder: Path) -> list[Path]:
    """Fetches the JARs: Spark resolves the coordinates for a run of a program that only prints a version, and the files are kept.

    JARs that Spark contains itself are excluded: they would never be loaded, and are five sixths of the download.
    """
    shipped = {re.sub(r"-\d[\w.\-]*$", "", jar.stem) for jar in (spark_home() / "jars").glob("*.jar")}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=folder.parent, prefix="fetching-"))
    except OSError as error:
        raise SparkUnavailable(f"Cannot write {folder.parent}: {error}. INCREMENTAL_ASSETS_TOOLS names another folder.") from error
    wanted = coordinates()
    settings = {
        "spark.jars.packages": ",".join(wanted),
        "spark.jars.excludes": ",".join([*(f"*:{artifact}" for artifact in sorted(shipped)), *_excluded()]),
        "spark.jars.ivy": str(work / "ivy"),
        "spark.master": "local",
    }
    log.info("fetching Spark's JARs once: %s", ", ".join(wanted))
    try:
        answer = _run_resolver(work, settings)
        found = sorted((work / "ivy" / "jars").glob("*.jar"))
        artifacts = [coordinate.split(":")[1] for coordinate in own_coordinates()]
        if answer.returncode != 0 or not all(any(a in jar.name for jar in found) for a in artifacts):
            output = "\n".join((answer.stdout + answer.stderr).strip().splitlines()[-15:])
            raise SparkUnavailable(
                f"Spark could not fetch {' and '.join(wanted)}. Its resolver ends with:\n{output}\n"
                f"Behind a mirror: set {CONF}='spark.jars.repositories=URL'. "
                f"Without a network: copy {folder} from a machine where `make install` ran."
            )
        wrong = differing(found, JARS, only_these=not _own_list("spark.jars.packages"))
        if wrong:
            raise SparkUnavailable(
                f"What was fetched is not what was published: {', '.join(wrong)}. Nothing of it is kept. Whoever answers for the "
                f"repository (a mirror, a proxy) hands out another file for the same version, or another version by the same name."
            )
        try:
            (work / "ivy" / "jars").rename(folder)
        except OSError:
            if not folder.exists():  # if it exists, a concurrent command has fetched the same files
                raise
    except subprocess.TimeoutExpired as error:
        raise SparkUnavailable(f"Fetching Spark's JARs took more than {FETCH_SECONDS} s and was given up. Is there a network?") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return sorted(folder.glob("*.jar"))


def _run_resolver(work: Path, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Lets Spark's own resolver fetch what ``settings`` name, from the user's repositories. Raises subprocess.TimeoutExpired."""
    own = {key: value for key, value in own_settings().items() if key in ("spark.jars.repositories", "spark.jars.ivySettings")}
    write_properties(work / "fetch.properties", own | settings)
    return subprocess.run(
        command(java(), work / "fetch.properties", "scala.util.Properties", []),
        capture_output=True,
        text=True,
        timeout=FETCH_SECONDS,
        env=environment(java(), work),
        check=False,
    )


def fetched_packages(work: Path, coordinate: str) -> list[Path]:
    """Fetches one package without its dependencies into the folder ``work``, by Spark's own resolver and with the user's mirrors.

    Returns the files, whose digests the caller has to check. Raises SparkUnavailable if they cannot be fetched.
    """
    # Everything else that the resolver finds is a dependency.
    others = {"spark.jars.packages": coordinate, "spark.jars.ivy": str(work / "ivy"), "spark.master": "local"}
    try:
        answer = _run_resolver(work, others)
    except subprocess.TimeoutExpired as error:
        raise SparkUnavailable(f"Fetching {coordinate} took more than {FETCH_SECONDS} s. Is there a network?") from error
    found = sorted((work / "ivy" / "jars").glob("*.jar"))
    if answer.returncode != 0 or not found:
        output = "\n".join((answer.stdout + answer.stderr).strip().splitlines()[-15:])
        raise SparkUnavailable(f"Spark could not fetch {coordinate}. Its resolver ends with:\n{output}")
    return found


# ------------------------------------------------------------------------------------------------ settings
def settings(folder: Path) -> dict[str, str]:
    """All settings of the server; ``folder`` is the server's folder (``server.Home``).

    The user's settings replace the defaults (``ours``), but not the settings on which the results of this project depend (``fixed``).
    """
    _asked_for()  # raises here if INCREMENTAL_ASSETS_SPARK_ENVIRONMENT is wrong, where the user sees the message
    # The user's packages are among ``jars``. If they stayed in the settings, Spark would fetch them again, and copy them for every session.
    own = {key: value for key, value in own_settings().items() if key not in ("spark.jars.packages", "spark.jars.excludes")}
    master = own.get("spark.master", "local[*]")
    ours = {
        "spark.app.name": "incremental-assets",
        "spark.master": master,
        "spark.submit.deployMode": "client",
        "spark.driver.memory": driver_memory(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.sql.shuffle.partitions": str(max(4, 2 * (os.cpu_count() or 2))),
        "spark.sql.adaptive.enabled": "true",
        "spark.databricks.delta.snapshotPartitions": "2",
        # VACUUM lists files in this number of tasks. With the default, 10,000, it took half a minute for one table, and now takes two
        # seconds.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(max(4, 2 * (os.cpu_count() or 2))),
        "spark.connect.grpc.maxInboundMessageSize": str(128 * 1024 * 1024),
        # The server notices that a client was killed only when it ends its own response stream (a living client then asks for another
        # stream, which costs nothing). With Spark's defaults, 2 and 5 minutes, the query of a killed client would run for 7 more minutes;
        # with these values it runs for 25 s.
        "spark.connect.execute.reattachable.senderMaxStreamDuration": "10s",
        "spark.connect.execute.manager.detachedTimeout": "10s",
        "spark.connect.execute.manager.maintenanceInterval": "5s",
        # A session may be without requests for hours, if its client reads a slow source itself.
        "spark.connect.session.manager.defaultSessionTimeout": "6h",
    }
    if os.environ.get("AWS_ENDPOINT_URL"):
        # obstore and delta-rs use path-style requests too if the store is not Amazon's.
        ours["spark.hadoop.fs.s3a.path.style.access"] = "true"
    ours |= {f"spark.hadoop.{key}": value for key, value in _azure_settings().items()}
    ours |= log_store_settings(own)
    fixed = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.timestampType": "TIMESTAMP_LTZ",
        "spark.sql.ansi.enabled": "true",
        # With the default, Spark replaces ${env:NAME} and ${anything} in every SQL text, even within names, comments and constants.
        "spark.sql.variable.substitute": "false",
        "spark.databricks.delta.schema.autoMerge.enabled": "false",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.extensions": _with("io.delta.sql.DeltaSparkSessionExtension", own.get("spark.sql.extensions")),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        # The default stream type caches objects, even across sessions: an object that was replaced since then cannot be read (HTTP status
        # 412).
        "spark.hadoop.fs.s3a.input.stream.type": "classic",
    }
    fetched = jars()
    files = [str(jar) for jar in (built_jar(fetched), *fetched)]
    if master.startswith("local"):
        # In local mode there is only one JVM, so its class path is enough. As ``spark.jars`` the files would be copied for every session.
        fixed["spark.driver.extraClassPath"] = os.pathsep.join([*files, *filter(None, [own.get("spark.driver.extraClassPath")])])
        fixed |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.authenticate": "true"}
        # The workers are processes of this Python. The machines of a cluster need not have this package.
        fixed["spark.python.daemon.module"] = PYTHON_DAEMON
    else:
        fixed["spark.jars"] = _with(",".join(files), own.get("spark.jars"))
    return {**ours, **own, **fixed}


def _azure_settings() -> Mapping[str, str]:
    """How Spark's connector for Azure finds the account that delta-rs and obstore find in the environment.

    The connector knows settings only. Those of a secret name its variable, which Hadoop reads in the server's environment, so that no
    file and no setting has the secret itself. Where there is a key and a signature, the key is taken, as by delta-rs.
    """
    settings: dict[str, str] = {}
    if os.environ.get("AZURE_STORAGE_ACCOUNT_KEY"):
        settings["fs.azure.account.key"] = "${env.AZURE_STORAGE_ACCOUNT_KEY}"
    elif os.environ.get("AZURE_STORAGE_SAS_TOKEN"):
        settings |= {"fs.azure.account.auth.type": "SAS", "fs.azure.sas.fixed.token": "${env.AZURE_STORAGE_SAS_TOKEN}"}
    endpoint = urlsplit(os.environ.get("AZURE_STORAGE_ENDPOINT", ""))
    if endpoint.scheme == "http":
        # Only an emulator has such an address. It knows the interface of flat accounts, and the connector's own client insists on TLS.
        settings |= {
            "fs.azure.abfs.endpoint": endpoint.netloc, "fs.azure.always.use.https": "false", "fs.azure.account.hns.enabled": "false",
            "fs.azure.fns.account.service.type": "BLOB", "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",
        }  # fmt: skip
    return settings


def _with(ours: str, theirs: str | None) -> str:
    return f"{ours},{theirs}" if theirs else ours


def fingerprint() -> str:
    """A digest of everything that the user can decide about the server, and of how it commits.

    If it differs from the digest of the running server (``server.Record``), that one was started with other settings, or by an earlier
    version of this product. It ends with ``+s3``, ``+azure`` or both if the server has these connectors from here (``stores``).
    """
    parts = [str(spark_home()), log_store_digest(), driver_memory(), *own_coordinates()]
    parts += [f"{k}={v}" for k, v in sorted(own_settings().items())]
    if len(coordinates()) > len(own_coordinates()):  # there is a store's connector, which reads these variables when the server starts
        parts += [f"{name}={os.environ.get(name)}" for name in STORE_VARIABLES]
    parts += [f"{name}={value}" for name, value in sorted(_asked_for().items())]
    return "+".join([hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16], *stores()])


def write_private(path: Path, text: str) -> None:
    """Writes a file that only this user can read, from its first byte on: it is created with mode 0600."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def write_properties(path: Path, values: dict[str, str]) -> None:
    """Writes a file of Java properties for ``--properties-file``.

    The file is private, and the settings are not arguments: they may contain the keys of an object store, and every user of the machine can
    see the arguments of a process.
    """
    write_private(path, "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in values.items()))


def write_logging(path: Path, log_file: Path) -> None:
    """Writes the Log4j configuration: warnings and errors go to ``log_file``, of which at most three files of 10 MB are kept.

    The server class logs at level info, because the supervisor reads the server's port from its log.
    """
    path.write_text(
        f"""rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log_file}
appender.file.filePattern = {log_file}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}}{{UTC}}Z %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
logger.server.name = {SERVER_CLASS}
logger.server.level = info
""",
        encoding="utf-8",
    )


# ------------------------------------------------------------------------------------------------ command line
def environment(with_java: Java, scratch: Path) -> dict[str, str]:
    """The environment of the JVM (``environment.jvm_environment``) with this Spark, this Python, and ``scratch`` for temporary files."""
    return jvm_environment(with_java) | {
        "SPARK_HOME": str(spark_home()),
        "SPARK_SCALA_VERSION": SCALA,
        "SPARK_LOCAL_DIRS": str(scratch),
        "PYSPARK_PYTHON": sys.executable,
    }


def _asked_for() -> dict[str, str]:
    try:
        return asked_for()
    except NoVariable as error:
        raise SparkUnavailable(str(error)) from error


def command(with_java: Java, properties: Path, main_class: str, jvm_flags: list[str]) -> list[str]:
    """The command line that spark-submit would execute, as Spark's own launcher prints it, but without a shell and with ``jvm_flags``.

    If the Java runtime lacks the incubating vector module, which only speeds up machine learning, the option for it is removed. Raises
    SparkUnavailable if the launcher fails.
    """
    home = spark_home()
    submit = "org.apache.spark.deploy.SparkSubmit"
    launcher = [str(with_java.executable), "-Xmx128m", "-cp", f"{home / 'jars'}{os.sep}*", "org.apache.spark.launcher.Main"]
    arguments = [submit, "--properties-file", str(properties), "--class", main_class, "spark-internal"]
    answer = subprocess.run(
        [*launcher, *arguments], capture_output=True, timeout=120, env=environment(with_java, properties.parent), check=False
    )
    # The launcher prints the words of the command line, each followed by a NUL character.
    words = answer.stdout.decode().lstrip("\0\n").split("\0")[:-1]
    if answer.returncode != 0 or submit not in words:
        output = (answer.stderr or answer.stdout).decode().strip()
        raise SparkUnavailable(
            f"Spark's launcher failed with {with_java}:\n{output}\nIs pyspark in {home} whole? `make install` repairs it."
        )
    if not _has_vector_module(with_java):
        words = [word for word in words if word != "--add-modules=jdk.incubator.vector"]
    at = words.index(submit)
    return [*words[:at], *jvm_flags, *words[at:]]


def _has_vector_module(with_java: Java) -> bool:
    answer = subprocess.run([str(with_java.executable), "--list-modules"], capture_output=True, text=True, timeout=60, check=False)
    return "jdk.incubator.vector" in answer.stdout
