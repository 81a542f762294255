"""Reads PostgreSQL: connections, catalog queries, type conversion, SQL, and the snapshot from which a sync reads.

Belongs here: plain SQL through psycopg, and the queries that are handed to Spark's JDBC reader. Does not belong: deciding what to read
(``core``, ``databases.plan``).
"""
