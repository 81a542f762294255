"""Scans and profiles in Dagster: in the run of a sync, as jobs of their own, and as records of the command line.

Belongs here: everything about scans and profiles that knows Dagster. Does not belong: the scan and the profile themselves (``quality`` of
the package).
"""
