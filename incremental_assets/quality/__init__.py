"""Checks of exactly what was moved: rules, the planner that asks for them in as few passes as possible, profiles, anomalies."""
