"""The embedded example: a real PostgreSQL with TPC-H data, a business day that changes it, and the proof that the lake has the same rows.

Belongs here: what ``make demo``, the tests and the benchmarks need as a source. Does not belong: anything that the product needs to run.
Everything outside ``demo`` works without the packages of the extra ``demo``.
"""
