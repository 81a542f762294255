"""Whether Spark generates code for the queries of a session, or interprets their plans.

This module does not import pyspark.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

FEW_ROWS = 100_000
"""Up to this number of rows, generating code for each query, and compiling it, costs more time than it saves: half of a small query's."""


def interpret_few(session: "SparkSession", rows: int) -> None:
    """Lets Spark interpret the plans of the session's queries if they are over so few rows. Otherwise the server's settings stay."""
    if rows <= FEW_ROWS:
        session.conf.set("spark.sql.codegen.wholeStage", "false")
        session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
