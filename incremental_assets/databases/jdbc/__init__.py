"""Reads any database that has a JDBC driver: its catalog, the plan and the rows, all through Spark's JDBC source.

Belongs here: SQL that every database understands, and what Spark makes of the rows. Does not belong: deciding what to read (``core``,
``databases.plan``).
"""
