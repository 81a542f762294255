"""The write side: Delta tables, how windows are written to them, and the state they carry.

Belongs here: everything that knows Delta Lake or Spark SQL. Does not belong: where the rows come from, or Dagster (but for the IO
manager, which is Dagster's word for this room's door).
"""
