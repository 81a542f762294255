"""Tables and views of PostgreSQL in Dagster: the component, the plan of a sync, and the sync.

Belongs here: what only they need. Does not belong: what files need too (the room above), or reading (``sources.postgres``).
"""
