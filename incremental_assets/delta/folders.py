"""Names the folders in the lake that belong to the product itself and lie beside the folders of the containers.

Belongs here: the names of these folders. Does not belong: their contents.
"""

FILES_FOLDER, ATTEMPTS_FOLDER, REJECTED_FOLDER, QUALITY_FOLDER = "_files", "_attempts", "_rejected", "_quality"
RESERVED = frozenset({FILES_FOLDER, ATTEMPTS_FOLDER, REJECTED_FOLDER, QUALITY_FOLDER})
"""The names of those folders of a datastore in the lake that are no container's table."""
