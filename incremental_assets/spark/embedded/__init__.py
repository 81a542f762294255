"""The Spark Connect server of this machine: the JVM it runs in, how it is started, found, shared and ended.

Belongs here: everything about a server of our own. Does not belong: sessions, which are the same with a cluster's server (``spark``).
"""
