"""Finds out which containers a datastore has, and keeps the result as state, so that the project loads without its source.

Belongs here: that state, its comparison with the source, and the proposals for incremental identifiers. Does not belong: querying a source
(``databases``, ``files``), or Dagster (``dagster``).
"""
