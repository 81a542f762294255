"""Plans and carries out the syncs of databases' tables and views.

Belongs here: everything that needs to know a database's SQL dialect, and what follows from it for a sync. Queries that only PostgreSQL
understands are in ``postgres``. Does not belong: writing to Delta tables (``delta``), and anything about Dagster.
"""
