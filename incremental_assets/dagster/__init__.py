"""What Dagster loads: components, definitions, assets, asset checks, the IO manager, jobs, schedules, sensors, resources.

Does not belong: how a run is executed and recorded (``runs``), what is asked of a project (``operations``), its folders and YAML
(``project``), and what a sync, a catalog, a scan or a profile does, which the folders below these do without Dagster.
"""
