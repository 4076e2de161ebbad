"""Configuration: flags, environment variables, files and defaults merged into one settings object."""
