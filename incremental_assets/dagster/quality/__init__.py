"""Scans as Dagster has them: checks in the run of a sync, a job of their own, the command line's records."""
