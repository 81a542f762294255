"""The embedded Spark Connect server: the JVM in which it runs, and how it is started, found, shared and stopped.

Belongs here: everything about the server that this project starts itself. Does not belong: sessions, which are the same on the server of a
cluster (``spark.session``).
"""
