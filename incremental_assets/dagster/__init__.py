"""Dagster: components, assets, checks, jobs, schedules, sensors, resources and runs, built from the other folders of this package.

Belongs here: all code that imports Dagster. Does not belong: what a sync, a catalog, a scan or a profile does; no other folder below this
one imports Dagster, so that these operations can be run without it.
"""
