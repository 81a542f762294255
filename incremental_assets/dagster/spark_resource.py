"""Spark in Dagster's usual way: what an asset of the user's own gets when it asks for a ``PySparkResource``.

Its base takes a tenth of a second and more to import, so this module is imported when a run needs it (``resources``).
"""

from typing import TYPE_CHECKING, Any, NoReturn

import dagster as dg
from dagster_pyspark import PySparkResource
from pydantic import PrivateAttr

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.delta.scope import LakeScope

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession


class ConnectSpark(PySparkResource):
    """The Spark Connect session that the assets of a run share, opened when the first of them asks for it.

    The base would start a JVM within the run as soon as the run begins.
    """

    # The server's settings are INCREMENTAL_ASSETS_SPARK_CONF's, the session's are set in it.
    spark_config: dict[str, Any] = {}  # noqa: RUF012 pydantic gives each resource its own
    _scope: LakeScope = PrivateAttr()

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Opens nothing yet."""
        self._scope = context.resources.lake

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        self._scope.close_assets_spark()

    @property
    def spark_session(self) -> "SparkSession":
        return self._scope.assets_spark

    @property
    def spark_context(self) -> NoReturn:
        raise ConfigurationError(
            "spark_context: Spark is reached through Spark Connect here, which has sessions and no SparkContext. Use spark_session: "
            "createDataFrame in place of parallelize, DataFrames, SQL and user-defined functions in place of RDDs, spark_session.conf "
            "for settings of the run; those of the server are set by INCREMENTAL_ASSETS_SPARK_CONF."
        )
