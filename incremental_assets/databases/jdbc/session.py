"""Runs queries of a database through Spark's JDBC source, in a Spark session that is opened when it is first needed.

The driver is on the class path of the Spark server. It cannot be given to one session: Spark keeps a driver's class for as long as its
server runs, and the class loader of the session that brought it is closed with that session. Spark opens a connection for each query and
closes it afterwards, so that no two queries see the same state of the source.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from incremental_assets.core.errors import SourceError, SourceUnreachable
from incremental_assets.databases.jdbc.address import JdbcAddress

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

Row = tuple[str | None, ...]
_UNREACHABLE = ("connection refused", "connection is broken", "connection timed out", "unknown host", "unknownhost", "could not connect",
                "error connecting to server", "no suitable driver", "communications link failure", "broken: \"java.net",
                "wrong user name or password", "authentication", "access denied", "login failed")  # fmt: skip


class JdbcSession:
    """The queries of one datastore or container. ``label``: its name, for messages."""

    def __init__(self, address: JdbcAddress, label: str) -> None:
        self.address, self.label = address, label
        self._stack = contextlib.ExitStack()
        self._own: SparkSession | None = None

    @property
    def spark(self) -> "SparkSession":
        """The session of the plan. Raises SourceError if there is no Spark server."""
        if self._own is None:
            from incremental_assets.spark.session import SparkUnavailable, open_session

            try:
                self._own = self._stack.enter_context(open_session(self.address.spark_folder, name=self.label))
            except SparkUnavailable as error:
                raise SourceError(f"{self.label}: the source is read through Spark: {error}") from error
        return self._own

    def close(self) -> None:
        """Closes the session, and frees what it has kept."""
        self._own = None
        self._stack.close()

    def frame(self, spark: "SparkSession", query: str, types: Mapping[str, str] | None = None) -> "DataFrame":
        """The rows of a query, which the database runs as one statement each time the DataFrame is used.

        ``types``: those of columns that Spark is to read as another type than the one it would take.
        """
        reader = spark.read.format("jdbc").options(**self.address.spark_options()).option("query", query)
        if types:
            reader = reader.option("customSchema", ", ".join(f"{name} {type_}" for name, type_ in types.items()))
        return reader.load()

    def texts(self, query: str, columns: int) -> list[Row]:
        """The rows of a query whose columns are named c0, c1 and so on, as the driver's texts of the values."""
        with self.errors():
            found = self.frame(self.spark, query, {f"c{i}": "STRING" for i in range(columns)}).collect()
            return [tuple(None if value is None else str(value) for value in row) for row in found]

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Raises a failure of Spark inside the block as SourceError, whose message names the container and says what to do."""
        from pyspark.errors import PySparkException

        try:
            yield
        except PySparkException as error:
            said = self.address.without_secrets(" ".join(str(error).split("JVM stacktrace")[0].split()))
            if "ClassNotFoundException" in str(error) or "NoClassDefFoundError" in str(error):
                raise SourceUnreachable(
                    f"{self.label}: Spark does not have the driver {self.address.driver}. Name its Maven coordinates for the Spark server: "
                    f"INCREMENTAL_ASSETS_SPARK_CONF='spark.jars.packages=<group>:<artifact>:<version>'"
                ) from None
            if any(word in str(error).lower() for word in _UNREACHABLE):
                raise SourceUnreachable(
                    f"{self.label}: {self.address.display}: cannot connect: {said} Check url, user and password."
                ) from None
            raise SourceError(
                f"{self.label}: the source refused a query, or was lost while reading; nothing was written: {said} "
                f"If the table was dropped or renamed: incremental-assets catalog"
            ) from None
