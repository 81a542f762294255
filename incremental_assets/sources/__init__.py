"""The read side: what is in a datastore, who is writing to it, and one consistent state of it for Spark to read.

Belongs here: everything that knows a database's dialect. Does not belong: Delta, Dagster.
"""
