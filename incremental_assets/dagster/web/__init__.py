"""The web server of `dev`: Dagster's own, which answers only this machine."""
