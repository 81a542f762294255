"""Describes the tables of the lake for other programs: as Common Data Model documents and as data contracts.

Belongs here: the mapping from a container and its Delta table to these documents, as plain values. Does not belong: writing them to files
(``runs.metadata_export``), and Dagster's own metadata (``runs.records.metadata``).
"""
