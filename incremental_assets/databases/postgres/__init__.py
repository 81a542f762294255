"""PostgreSQL as a datastore: connection, catalog, carried types, SQL, and the snapshot a sync reads.

Belongs here: plain SQL over psycopg, and the queries handed to Spark's JDBC reader. Does not belong: deciding what to read (``core``).
"""
