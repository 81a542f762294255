"""Folders of files as a datastore: local ones, and whatever else fsspec reaches."""
