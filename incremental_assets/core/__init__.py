"""What is decided without asking anybody: names, identifiers, windows, partitions, watermarks, schemas, rules, a container's configuration.

Belongs here: values and decisions that need no database, no Spark and no Dagster. Does not belong: anything that reads, writes, or asks
the time. Imports nothing of ours from outside this folder, which the import rules check.
"""
