"""The address of a database that is reached by JDBC: its URL, its driver, and who connects."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from incremental_assets.core.errors import ConfigurationError

_CLASS = re.compile(r"\w+(\.\w+)+")
_OURS = ("url", "user", "password", "driver", "query", "dbtable", "preparequery", "customschema", "prefertimestampntz", "fetchsize",
         "partitioncolumn", "lowerbound", "upperbound", "numpartitions", "pushdownpredicate")  # fmt: skip
"""Options of Spark's JDBC source that the product sets itself, in small letters."""


@dataclass(frozen=True)
class JdbcAddress:
    """``driver``: the name of the driver's class. ``options``: further options of Spark's JDBC source,
    and properties of the driver. ``spark_folder``: the folder of the Spark server that reads. ``repr`` shows no password."""

    url: str = field(repr=False)
    driver: str
    spark_folder: Path
    user: str | None = None
    password: str | None = field(repr=False, default=None)
    options: Mapping[str, str] = field(repr=False, default_factory=dict[str, str])

    def checked(self, datastore: str) -> "JdbcAddress":
        """The same address. Raises ConfigurationError, which names the attribute that is wrong, but shows neither url nor password."""
        if not self.url.startswith("jdbc:") or self.url.count(":") < 2:
            raise ConfigurationError(f"{datastore}: url is not a JDBC URL such as jdbc:h2:tcp://host:9092/shop; is its variable set?")
        if _CLASS.fullmatch(self.driver) is None:
            raise ConfigurationError(f"{datastore}: driver is {self.driver!r}; it is the name of a Java class, such as org.h2.Driver.")
        for name in self.options:
            if name.lower() in _OURS:
                raise ConfigurationError(f"{datastore}: options: {name} is set by the product itself. Leave it out.")
        return self

    @property
    def display(self) -> str:
        """The URL for messages: without what may have a password."""
        return re.sub(r"//[^/@]*@", "//", re.split(r"[;?]", self.url)[0])

    @property
    def database(self) -> str:
        """The last part of the URL, which names the database for most drivers, for metadata."""
        return re.split(r"[/:]", self.display)[-1]

    @property
    def identity(self) -> str:
        """What tells this database from others: JDBC has no id for it, so that it is the URL without its options."""
        return hashlib.md5(self.display.encode(), usedforsecurity=False).hexdigest()

    def spark_options(self) -> dict[str, str]:
        """The options of Spark's JDBC source for all queries."""
        login = {"user": self.user, "password": self.password}
        given = {name: value for name, value in login.items() if value is not None}
        # A filter that Spark would add to a query might mean something else to the database than to Spark.
        ours = {"url": self.url, "driver": self.driver, "preferTimestampNTZ": "true", "pushDownPredicate": "false", "fetchsize": "10000"}
        return {**self.options, **given, **ours}

    def without_secrets(self, text: str) -> str:
        """A text without the password and without the options of the URL."""
        text = text.replace(self.url, self.display)
        return text.replace(self.password, "****") if self.password else text
