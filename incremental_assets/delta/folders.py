"""The product's own folders in the lake, beside those of containers.

Belongs here: their names. Does not belong: what is in them.
"""

FILES_FOLDER, ATTEMPTS_FOLDER, REJECTED_FOLDER, QUALITY_FOLDER = "_files", "_attempts", "_rejected", "_quality"
RESERVED = frozenset({FILES_FOLDER, ATTEMPTS_FOLDER, REJECTED_FOLDER, QUALITY_FOLDER})
"""Folders of a datastore in the lake that are no containers."""
