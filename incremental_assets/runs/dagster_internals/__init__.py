"""What the product uses of Dagster's private parts to execute runs and read their events."""
