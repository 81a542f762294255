"""Scans in runs: the request, the scope, and the results as Dagster's events."""
