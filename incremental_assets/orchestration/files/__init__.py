"""Folders of files in Dagster: the component, the plan of a sync, the sync, and the sensor.

Belongs here: what only they need. Does not belong: what tables need too (the room above), or reading (``sources.files``).
"""
