"""Speed, measured: this project beside dlt on the same data in one run. Not tests: nothing here passes or fails but the comparison."""
