"""Checks of exactly what was moved: rules, the planner that fuses them, profiles, anomalies. To be built (an issue of its own)."""
