"""Plugin discovery: hooks, lazy component specs, and a registry that keeps failures as data."""
