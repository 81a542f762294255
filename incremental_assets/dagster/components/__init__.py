"""Dagster components: a datastore's YAML, in which every unknown word is refused.

Belongs here: the schemas of ``defs.yaml`` and their conversion to settings. Does not belong: the definitions made from the settings
(``dagster.datastore``).
"""
