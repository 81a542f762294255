"""Databases as datastores: the plan of a sync, its reads, and the sync itself; ``postgres`` has what PostgreSQL alone is asked.

Belongs here: everything that knows a database's dialect, and what follows for a sync. Does not belong: Delta's writing, Dagster.
"""
