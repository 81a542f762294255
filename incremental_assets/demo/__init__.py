"""The embedded example: a real PostgreSQL with TPC-H data, a business day that changes it, and the proof that the lake follows.

Here belongs what `make demo`, the tests and the benchmarks need to have a source. Nothing that the product needs to run
belongs here: everything outside `demo` works without the packages of the extra `demo`.
"""
