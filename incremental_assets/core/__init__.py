"""The pure core: names, identifiers, windows, partitions, watermarks, schemas, rules and the configuration of a container.

Belongs here: values and decisions that need no database, no Spark and no Dagster. Does not belong: code that reads, writes or asks for the
current time (``time_limit``, which reads a monotonic clock, is the exception). Modules of this package import no other package of the
project; import-linter checks this.
"""
