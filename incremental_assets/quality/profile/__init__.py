"""Profiles: what the values of each column are like, kept as states that merge, shown as a page, and turned into rules."""
