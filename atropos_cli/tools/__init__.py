"""Tools of environments: Python functions that a model calls, with their schemas, limits and results."""
