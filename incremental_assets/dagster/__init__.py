"""Dagster: components, assets, checks, jobs, schedules, sensors, resources and runs, made of what the other folders can do.

Belongs here: whatever knows Dagster. Nothing below imports it, so that a sync can be driven without.
"""
