"""Spark Connect sessions: one for each run, on the embedded server or on the server that SPARK_REMOTE names.

Belongs here: opening and closing sessions (``session``), and the embedded server (``embedded``). Does not belong: queries and writes.
"""
