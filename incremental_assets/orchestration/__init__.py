"""Where the rooms meet: plans, syncs, and how Dagster sees them as assets, jobs, schedules and components.

Belongs here: whatever knows both a source and the lake, or Dagster. Nothing below imports it.
"""
