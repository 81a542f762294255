"""The kinds of rows that users' own assets return and take: DataFrames of Spark and pandas, tables and readers of Arrow.

pandas is imported only by those who use it: an object or an annotation of pandas exists only after that.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from incremental_assets.core.errors import ConfigurationError, FrameRefused

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

KINDS = "pyspark.sql.DataFrame, pandas.DataFrame, pyarrow.Table or pyarrow.RecordBatchReader"


def as_spark(label: str, rows: object, spark: "Callable[[], SparkSession]") -> "DataFrame":
    """What an asset returned, as a Spark DataFrame. ``spark`` returns a session; it is called only if the rows are not in Spark yet.

    Raises ConfigurationError for other kinds of objects, and FrameRefused for values that Spark does not take.
    """
    arrow = _as_arrow(label, rows)
    if arrow is None:
        from pyspark.sql.dataframe import DataFrame

        if isinstance(rows, DataFrame):
            return rows
        raise ConfigurationError(
            f"{label}: the asset returned {_name_of(type(rows))}, which cannot be written to a Delta table. Return {KINDS}; an asset that "
            f"returns nothing needs no io_manager_key."
        )
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    try:
        # The schema is made here, because the session's setting would take times without time zone for such with one.
        return spark().createDataFrame(arrow, from_arrow_schema(arrow.schema, prefer_timestamp_ntz=True))
    except (PySparkException, pa.ArrowException) as error:
        types = ", ".join(f"{field.name} {field.type}" for field in arrow.schema)
        raise FrameRefused(
            f"{label}: Spark does not take the rows that the asset returned ({types}): {str(error).splitlines()[0]} Cast the columns."
        ) from error


def _as_arrow(label: str, rows: Any) -> pa.Table | None:
    """The rows as an Arrow table; None if they are of no kind that is known here."""
    pandas = sys.modules.get("pandas")
    try:
        if pandas is not None and isinstance(rows, pandas.DataFrame):
            # An index that has a name is a column; one that merely counts the rows is not.
            named = rows.reset_index() if any(name is not None for name in rows.index.names) else rows
            rows = pa.Table.from_pandas(named, preserve_index=False)
        if isinstance(rows, pa.RecordBatchReader):
            rows = rows.read_all()
        return _in_microseconds(rows) if isinstance(rows, pa.Table) else None
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise FrameRefused(f"{label}: the rows that the asset returned do not become an Arrow table: {error}. Cast the columns.") from error


def _in_microseconds(rows: pa.Table) -> pa.Table:
    """Times in microseconds, the unit of Delta. A time that is more exact is refused and not rounded."""
    fields = [
        pa.field(f.name, pa.timestamp("us", f.type.tz)) if pa.types.is_timestamp(f.type) and f.type.unit != "us" else f for f in rows.schema
    ]
    return rows.cast(pa.schema(fields)) if fields != list(rows.schema) else rows


def converter(label: str, annotation: object) -> "Callable[[DataFrame], Any]":
    """The function that makes of a Spark DataFrame what the annotation of an input asks for. ``label``: names the input in messages.

    Without an annotation, the DataFrame is handed out as it is. Raises ConfigurationError for an annotation that is not known.
    """
    if annotation is Any or annotation is object:
        return lambda frame: frame
    if annotation is pa.Table:
        return lambda frame: frame.toArrow()
    if annotation is pa.RecordBatchReader:
        return lambda frame: frame.toArrow().to_reader()
    pandas = sys.modules.get("pandas")
    if pandas is not None and annotation is pandas.DataFrame:
        return lambda frame: _as_pandas(frame.toArrow())
    if isinstance(annotation, type) and annotation.__module__.startswith("pyspark.") and annotation.__name__ == "DataFrame":
        return lambda frame: frame
    raise ConfigurationError(
        f"{label} is annotated as {_name_of(annotation)}, which a Delta table cannot be loaded as. Annotate it as {KINDS}, or not at all "
        f"for a Spark DataFrame."
    )


def _as_pandas(rows: pa.Table) -> Any:
    """The rows as a pandas.DataFrame.

    A column of integers with NULLs gets a nullable type of pandas: as floats, large integers would be rounded.
    """
    import pandas

    widths: dict[pa.DataType, Any] = {pa.int8(): pandas.Int8Dtype(), pa.int16(): pandas.Int16Dtype(), pa.int32(): pandas.Int32Dtype()}
    nullable = widths | {pa.int64(): pandas.Int64Dtype()}
    frame: Any = rows.to_pandas()
    for at, column in enumerate(rows.columns):
        if column.null_count and column.type in nullable:
            frame.isetitem(at, column.to_pandas(types_mapper=nullable.get))
    return frame


def _name_of(kind: object) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.") if isinstance(kind, type) else str(kind)
