"""Reads MySQL and MariaDB: connections, catalog queries, type conversion, SQL, and the snapshot from which a sync reads.

Belongs here: plain SQL through PyMySQL, and the rows that one reader gets. Does not belong: deciding what to read (``core``,
``databases.plan``).
"""
