"""Spark: a session for each run, on an embedded server or on the one that SPARK_REMOTE names."""
