"""Benchmarks: the speed of this project, also compared with dlt on the same data in one run.

Belongs here: measurements. Does not belong: tests; a benchmark has targets, but nothing here passes or fails.
"""
