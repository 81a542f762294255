"""What runs leave in Dagster's storage and in the tables ``_operations``, and reading it again: tags, metadata, events, watermarks."""
