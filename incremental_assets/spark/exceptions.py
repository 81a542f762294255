"""The exceptions of Spark, which are imported where one was raised.

To import ``pyspark.errors`` imports all of pyspark, which takes a fifth of a second, and ``grpc`` a tenth. Many syncs need no Spark. Python
evaluates what stands behind ``except`` only when there is an exception, so that ``except spark_exception() as error`` costs nothing before.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grpc import RpcError
    from pyspark.errors import PySparkException
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException


def spark_exception() -> "type[PySparkException]":
    """The class of all exceptions that Spark raises."""
    from pyspark.errors import PySparkException

    return PySparkException


def connection_exception() -> "type[SparkConnectGrpcException]":
    """The class of Spark's exceptions for requests that the server has not answered as it should."""
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    return SparkConnectGrpcException


def rpc_exception() -> "type[RpcError]":
    """The class of exceptions of requests to the server which Spark's client passes on as they are."""
    from grpc import RpcError

    return RpcError
