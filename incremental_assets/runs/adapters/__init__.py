"""What runs need of a source: its plan, its sync, and the description of its asset, alike for tables and for files."""
