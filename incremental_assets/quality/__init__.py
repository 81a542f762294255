"""This package evaluates rules on the rows in the lake, records verdicts and anomalies, and profiles columns.

A scan (``scan``) reads the partitions that a sync wrote, or others on request, in as few passes as possible. What a rule means is the
matter of its class in ``core.rules``. Nothing in this package reads the source or imports Dagster.
"""
