"""Runs: started in this process or in several side by side, and what became of them."""
