"""Reads PostgreSQL's log through a replication slot, by SQL alone: no daemon, no replication protocol.

Belongs here: the slot and the publication, and the changed keys that the log has. Does not belong: how rows are read (``arrow_columns``),
and the decision what to do with them (``databases.capture_sync``).
"""
