"""What runs in a shut-in process: the standard library, `isolation.child`, and nothing else of the package."""
