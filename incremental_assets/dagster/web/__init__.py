"""The web server of ``incremental-assets dev``: Dagster's own webserver, which answers requests from this machine only.

Belongs here: starting, restricting and reloading it. Does not belong: what it shows.
"""
