"""Reads SQL Server: connections, catalog queries, type conversion, SQL, and the snapshot from which a sync reads.

Belongs here: plain SQL through python-tds, and the rows that one reader gets. Does not belong: deciding what to read (``core``,
``databases.plan``). Nothing of it was tried on a real server: docs/sqlserver.md says how it is tested instead.
"""
