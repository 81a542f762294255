"""What exists: a datastore's containers as last found, kept as state so that the project loads without its source.

Belongs here: the state and the union of it with the YAML. Does not belong: asking the source (``databases``,
``files``), Dagster (``dagster``).
"""
