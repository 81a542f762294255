"""Reads the formats of files as Spark DataFrames."""
