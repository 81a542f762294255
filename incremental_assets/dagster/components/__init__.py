"""Dagster components: the YAML of a datastore, checked word by word."""
