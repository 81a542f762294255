"""Syncs folders of files, on a local disk, in an object store or behind any fsspec URL, into Delta tables."""
