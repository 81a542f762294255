"""Incremental sync of databases and files into Delta Lake, as partitioned Dagster assets.

What belongs here: the names other projects use in their YAML and code, exported lazily. What does not: any logic.
"""
