"""Syncs folders of files, on a local disk or behind any fsspec URL, into Delta tables."""
