"""Names the folders in the lake that belong to the product itself and lie beside the folders of the containers."""

FILES_FOLDER, ATTEMPTS_FOLDER, REJECTED_FOLDER, QUALITY_FOLDER = "_files", "_attempts", "_rejected", "_quality"
RESERVED = frozenset({FILES_FOLDER, ATTEMPTS_FOLDER, REJECTED_FOLDER, QUALITY_FOLDER})
"""The names of those folders of a datastore in the lake that are no container's table."""
OPERATIONS_FOLDER = "_operations"
"""The folder of the lake with the tables of the operations of all datastores. No datastore can have this name."""
METADATA_FOLDER = "_metadata-documents"
"""The folder of a datastore with documents that describe its tables. No container has this name in the lake, where ``-`` is encoded."""
