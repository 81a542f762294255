"""Runs: started in this process or in several at a time, their events, and how long they are kept.

Belongs here: executing Dagster runs without its daemon. Does not belong: the jobs and assets that are run.
"""
