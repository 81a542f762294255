"""Runs of containers: whether one is due, how it is launched and executed (here, beside others, in workers), and what it leaves.

Does not belong: what Dagster loads (``dagster``), and what the command line and the API ask (``operations``).
"""
