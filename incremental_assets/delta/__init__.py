"""Writes rows to Delta tables, window by window, and keeps each container's sync state in its table.

Belongs here: everything that needs to know Delta Lake or Spark SQL. Does not belong: where the rows come from (``databases``, ``files``),
and anything about Dagster.
"""
