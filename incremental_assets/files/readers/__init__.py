"""Readers of the formats of files, as Spark frames."""
