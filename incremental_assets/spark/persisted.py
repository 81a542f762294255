"""Keeps the rows of a DataFrame in Spark while they are used several times."""

import contextlib
import uuid
from typing import TYPE_CHECKING

from incremental_assets.spark.exceptions import spark_exception

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame
    from pyspark.storagelevel import StorageLevel


class PersistedRows:
    """The rows of a DataFrame, which Spark computes when ``frame`` is first used, and holds until ``release``.

    ``DataFrame.persist`` alone does not do that in a Spark Connect session. Spark recognises persisted rows by their analysed plan, and two
    analyses of the same JDBC query are not equal. The session keeps only its last analysed plans
    (``spark.connect.session.planCache.maxSize``, 16 by default). A DataFrame whose plan was dropped is analysed again, and its rows are
    read from the source once more. A temporary view holds its analysed plan for as long as it exists.
    """

    def __init__(self, spark: "SparkSession", rows: "DataFrame", level: "StorageLevel | None" = None) -> None:
        from pyspark.storagelevel import StorageLevel

        self._spark = spark
        self._view = f"__incremental_assets_{uuid.uuid4().hex}"
        rows.createTempView(self._view)
        self.frame = spark.table(self._view)
        self.name = self._view
        """The name of the view, for SQL of the same session. It needs no quoting."""
        self.frame.persist(level or StorageLevel.MEMORY_AND_DISK_DESER)

    def release(self) -> None:
        """Frees the memory and disk that Spark uses for the rows."""
        with contextlib.suppress(spark_exception()):  # if the server is gone, its persisted rows are gone, too
            self.frame.unpersist()
            self._spark.catalog.dropTempView(self._view)
