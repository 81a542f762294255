"""Delta tables: how windows are written to them, and the state that they carry.

Belongs here: everything that knows Delta Lake or Spark SQL. Does not belong: where the rows come from, or Dagster.
"""
