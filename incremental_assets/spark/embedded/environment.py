"""Selects the environment variables that the JVM of the embedded Spark server gets.

No other variable reaches the JVM. Everybody who can run SQL or code on the server can read its environment, and the variables of this
process include the URLs of datastores with their passwords.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from incremental_assets.spark.embedded.java_home import Java

PASSED_ON = "INCREMENTAL_ASSETS_SPARK_ENVIRONMENT"
NEEDED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "TMP", "TEMP", "XDG_*"),
    *("JAVA_*", "JDK_*", "_JAVA_OPTIONS", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "MALLOC_*"),
    *("SPARK_*", "HADOOP_*", "YARN_*", "HIVE_*", "KUBERNETES_*", "PYSPARK_*", "PYTHON*", "VIRTUAL_ENV", "CONDA_PREFIX"),
    *("AWS_*", "AZURE_*", "GOOGLE_*", "IDENTITY_ENDPOINT", "IDENTITY_HEADER", "KRB5*"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "PGPASSFILE", "PGSERVICEFILE", "PGSYSCONFDIR"),
)
"""Names of variables; ``*`` stands for any ending."""
UNWANTED = frozenset(("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE", "SPARK_MASTER", "SPARK_CONNECT_AUTHENTICATE_TOKEN"))
"""Variables that are never passed on: they would make Spark a client of another server, or belong to another server."""


class NoVariable(Exception):
    """INCREMENTAL_ASSETS_SPARK_ENVIRONMENT contains something else than names of variables."""


def jvm_environment(java: Java) -> dict[str, str]:
    """The environment of the JVM: the variables of this process that the JVM needs or that the user names.

    ``JAVA_HOME`` is the Java that is used here. ``PYTHONHASHSEED`` is 0, as Spark's own script
    ``spark-submit`` sets it, so that all Python workers compute equal hashes. Raises NoVariable.
    """
    kept = {name: value for name, value in _of(NEEDED).items() if name not in UNWANTED}
    return kept | asked_for() | {"JAVA_HOME": str(java.home), "PYTHONHASHSEED": "0"}


def asked_for() -> dict[str, str]:
    """The variables that INCREMENTAL_ASSETS_SPARK_ENVIRONMENT names: ``NAME,PREFIX_*``. Raises NoVariable."""
    names = [name for name in re.split(r"[\s,;]+", os.environ.get(PASSED_ON, "")) if name]
    for name in names:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\*?", name):
            raise NoVariable(f"{PASSED_ON} has {name!r}: write names of variables, NAME or PREFIX_*, several separated by commas.")
    return {name: value for name, value in _of(names).items() if name not in UNWANTED}


def _of(names: Iterable[str]) -> dict[str, str]:
    pattern = re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in names) or "(?!)")
    return {name: value for name, value in os.environ.items() if pattern.fullmatch(name)}
